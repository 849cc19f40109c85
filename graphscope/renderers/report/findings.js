// The findings: what happened, where, and what to type.

const MARKS = { error: "✕", warning: "!", note: "i" };

function showFindings() {
  const list = byId("findings");
  const heading = element("h2", {}, findings.length ? count(findings.length, "finding") : "No findings");
  byId("layout").classList.toggle("clean", !findings.length);
  list.replaceChildren(heading, ...findings.map(card), ...(findings.length ? [] : [allClear()]));
}

function allClear() {
  const examined = data.ran ? "Nothing that graphscope knows of went wrong in this run." : "Nothing that graphscope knows of would go wrong.";
  const list = data.cleared.slice(0, 40).map(([name, message, place]) => element("li", {}, placeButton(place), " ", code(message), element("span.muted", {}, ` ${name}`)));
  return element("div", {}, element("p.clear", {}, examined), list.length ? element("h3", {}, "Looked suspicious and is right") : null, element("ul.plain.rows", {}, ...list));
}

function card(finding, index) {
  const head = element(
    "button.head",
    { type: "button", "aria-expanded": "false", "aria-controls": `finding-${index}`, onclick: () => (state.finding === index ? clear() : chooseFinding(index)) },
    element(`span.mark.${finding.severity}`, { "aria-hidden": "true" }, String(index + 1)),
    element("span.title", {}, element(`span.severity.${finding.severity}`, {}, `${finding.severity}${finding.likely ? ", likely" : ""}`), ` ${finding.code} `, element("span.name", {}, finding.name)),
    element("span.message", {}, code(finding.message)),
  );
  const places = finding.places.map(([place, role, label]) => element(`li.${role}`, {}, placeButton(place), " ", code(label)));
  const fixes = finding.fixes.map(([title, place, verdict, reason, known]) =>
    element("li", {}, element(`span.verdict.${verdict.startsWith("fix") && !verdict.includes("fails") ? "works" : "fails"}`, {}, verdict), " ", code(title), place < 0 ? null : " at ", placeButton(place), reason && verdict === "not" ? `, because ${reason}` : null, known ? element("span.known", {}, ` ${known}`) : null),
  );
  return element(
    "article",
    { id: `card-${index}` },
    element("h3", {}, head),
    element("div.body", { id: `finding-${index}`, hidden: true }, places.length ? element("ul.places", {}, ...places) : null, fixes.length ? element("ul.fixes", { "aria-label": "Fixes" }, ...fixes) : null),
  );
}

// Text in which `this` is set as code.
function code(text) {
  const whole = element("span");
  text.split("`").forEach((part, place) => whole.append(place % 2 ? element("code", {}, part) : part));
  return whole;
}

function chooseFinding(index, { quiet = false } = {}) {
  const finding = findings[index];
  state.finding = index;
  state.selected = new Set();
  state.path = null;
  state.position = finding.event < 0 ? null : finding.event;
  highlight.nodes = new Set(finding.nodes.flatMap(drawnAs));
  highlight.segments = new Set();
  const cuts = severed.filter((each) => each.findings.includes(index));
  const wanted = [...finding.nodes.slice(0, 200).map(nearest), ...cuts.map((cut) => cut.id)];
  if (wanted.filter((id) => openAround(id)).length) {
    rebuild();
    showOutline();
  }
  for (const cut of cuts) {
    highlight.nodes.add(cut.id);
    if (cut.node >= 0) mark(cut.id, nearest(cut.node));
    for (const loss of cut.concerned) mark(losses[loss].id, cut.id);
  }
  const failing = losses.filter((loss) => loss.event === finding.event && loss.node >= 0);
  const goals = new Set(finding.nodes);
  for (const loss of failing) markPath(loss, pathTo(loss.node, goals));
  followHighlight();
  for (const each of byId("findings").querySelectorAll("article")) {
    const chosen = each.id === `card-${index}`;
    each.classList.toggle("chosen", chosen);
    each.querySelector("button").setAttribute("aria-expanded", String(chosen));
    each.querySelector(".body").hidden = !chosen;
  }
  if (finding.places.length) showPlace(finding.places[0][0], false);
  markSource();
  bringIntoSight(finding.places.map(([place]) => place));
  showMoment();
  showFindingDetails(finding, cuts);
  const ids = [...highlight.nodes];
  const starts = [...failing, ...cuts.flatMap((cut) => cut.concerned.map((loss) => losses[loss]))].map((loss) => loss.id);
  if (ids.length) centre([...starts, ...ids], wanted);
  else redraw();
  if (!quiet) {
    byId(`card-${index}`).scrollIntoView({ block: "nearest" });
    say(`${finding.severity} ${finding.code}: ${finding.message}`);
  }
}

// ---- highlighted ways

function mark(from, to) {
  for (const [scope, a, b] of segmentsOf(from, to)) highlight.segments.add(`${scope}:${a},${b}`);
}

function markPath(loss, path) {
  if (!path) return;
  const ids = [loss.id];
  for (const node of path) {
    if (folded.has(node)) continue;
    const here = drawnAs(node);
    const last = ids.at(-1);
    ids.push(here.length === 1 ? here[0] : (here.find((id) => edges.some(([a, b]) => a === last && b === id)) ?? here[0]));
  }
  ids.forEach((id, step) => step && mark(ids[step - 1], id));
  for (const id of ids) highlight.nodes.add(id);
}

// Closed scopes around what is highlighted are highlighted too.
function followHighlight() {
  for (const id of [...highlight.nodes]) highlight.nodes.add(visible(id));
}
