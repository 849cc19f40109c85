// Timeline, memory, reach, and what was examined.

// ---- timeline: a scrubber over the events, above it the bytes that are kept

const scrubber = byId("scrubber");
const strip = byId("strip");
const EVENT_COLORS = { backward: "loss", step: "parameter-line", zero: "input-line", write: "stale", read: "line", refused: "error", grad: "warning", scaler: "warning" };

// Bytes of activations kept after each event.
const kept = data.kept.map(([node, bytes, isData, from, to]) => ({ node, bytes, isData, from, to }));
const isKept = (position) => ({ from, to }) => from <= position && to >= position;
const sum = (list) => list.reduce((total, { bytes }) => total + bytes, 0);
const aliveBytes = (() => {
  const change = new Float64Array(EVENTS + 3);
  for (const { bytes, isData, from, to } of kept) {
    if (to < from || isData) continue;
    change[from] += bytes;
    change[Math.min(to + 1, EVENTS + 1)] -= bytes;
  }
  let total = 0;
  return Array.from({ length: EVENTS + 1 }, (_, position) => (total += change[position]));
})();
const peak = aliveBytes.reduce((best, bytes, position) => (bytes > aliveBytes[best] ? position : best), 0);

function setUpTimeline() {
  if (!EVENTS) return;
  byId("timeline").hidden = false;
  scrubber.max = EVENTS;
  const follow = () => moveTo(Number(scrubber.value));
  scrubber.addEventListener("input", follow);
  scrubber.addEventListener("click", follow); // at the end it stands for the whole run, until it is used
  scrubber.addEventListener("keydown", (event) => event.key === "End" && follow());
  byId("earlier").addEventListener("click", () => step(-1));
  byId("later").addEventListener("click", () => step(1));
  byId("whole").addEventListener("click", () => moveTo(null));
}

function step(by) {
  if (EVENTS) moveTo(Math.max(0, Math.min(EVENTS, (state.position ?? (by > 0 ? -1 : EVENTS + 1)) + by)));
}

function moveTo(position) {
  state.position = position;
  showMoment();
  if (state.selected.size === 1) showSelected([...state.selected][0]);
  redraw();
}

function showMoment() {
  if (!EVENTS) return;
  const { position } = state;
  scrubber.value = position ?? EVENTS;
  byId("whole").setAttribute("aria-pressed", String(position === null));
  const line = byId("event");
  if (position === null) {
    line.replaceChildren(`${count(EVENTS, "event")}: move the slider to see which buffers are alive, freed or stale after each`);
    scrubber.setAttribute("aria-valuetext", "whole run");
  } else if (position === 0) {
    line.replaceChildren("before the first event");
    scrubber.setAttribute("aria-valuetext", "before the first event");
  } else {
    const [kind, step_, place, told, error] = data.events[position - 1];
    const [freed, stale] = data.changes[position - 1];
    const effects = [freed.length ? `frees ${count(freed.length, "node")}` : "", stale.length ? `makes ${count(stale.length, "node")} stale` : "", error ? `raised: ${error}` : ""].filter(Boolean);
    line.replaceChildren(element("span.muted", {}, `${position} of ${EVENTS} · `), element(`span.kind.${kind}`, { "aria-hidden": "true" }), element("strong", {}, told), " ", placeButton(place) ?? "", element(error ? "span.raised" : "span.muted", {}, effects.length ? ` ${effects.join(", ")}` : ""), element("span.muted", {}, ` · step ${step_} · ${size(aliveBytes[position])} kept`));
    scrubber.setAttribute("aria-valuetext", `event ${position} of ${EVENTS}: ${told}${effects.length ? `, ${effects.join(", ")}` : ""}`);
  }
  drawStrip();
  if (!byId("memory").hidden) showMemory();
}

function drawStrip() {
  const [width, height] = [strip.clientWidth, strip.clientHeight];
  strip.width = width * pixels;
  strip.height = height * pixels;
  const pen = strip.getContext("2d");
  pen.scale(pixels, pixels);
  const inset = 8; // half a thumb of the slider below
  const x = (position) => inset + ((width - 2 * inset) * position) / EVENTS;
  const top = Math.max(1, ...aliveBytes.slice(peak, peak + 1));
  const base = height - 9;
  pen.beginPath();
  pen.moveTo(x(0), base);
  for (let position = 0; position <= EVENTS; position += 1) {
    const y = base - ((base - 3) * aliveBytes[position]) / top;
    if (position) pen.lineTo(x(position), base - ((base - 3) * aliveBytes[position - 1]) / top);
    pen.lineTo(x(position), y);
  }
  pen.lineTo(x(EVENTS), base);
  pen.fillStyle = paint.op;
  pen.fill();
  pen.strokeStyle = paint["op-line"];
  pen.stroke();
  const thick = Math.max(1, Math.min(5, (width / EVENTS) * 0.6));
  data.events.forEach(([kind, , , , error], event) => {
    pen.fillStyle = error ? paint.error : paint[EVENT_COLORS[kind]];
    const tall = kind === "backward" ? 8 : kind === "step" ? 6 : 4;
    pen.fillRect(x(event + 1) - thick / 2, height - tall, thick, tall);
  });
  if (state.position !== null) {
    pen.fillStyle = paint.path;
    pen.fillRect(x(state.position) - 1, 0, 2, height);
  }
}

// ---- memory: what is kept for backward, by module and by line

function showMemory() {
  const position = state.position ?? peak;
  const alive = kept.filter(isKept(position));
  const activations = alive.filter((each) => !each.isData);
  const others = sum(alive) - sum(activations);
  const after = position ? `after event ${position}, ${eventWords(position - 1)}` : "before the first event";
  const moment = state.position !== null ? after : position < EVENTS ? `before event ${position + 1}, ${eventWords(position)}` : after;
  byId("memory").replaceChildren(
    element("h2", {}, `${size(sum(activations))} of activations kept for backward`),
    element("p.muted", {}, `${EVENTS ? `${state.position === null ? "At the peak, " : "Right "}${moment}. The peak is ${size(aliveBytes[peak])}. ` : ""}${others ? `${size(others)} of data are kept as well: batches, targets, masks, which the program often holds anyway. ` : ""}Each storage is counted once, where it was first saved; parameters are not counted.`),
    element("div.columns", {}, bars("by module", activations, ({ node }) => moduleOf(node) || "no module", (name) => name), bars("by line", activations, ({ node }) => data.nodes.place[node], (place) => (place < 0 ? "line not known" : placeButton(place, shortPlace(place))))),
  );
}

function bars(title, alive, key, label) {
  const total = sum(alive);
  const sums = new Map();
  for (const each of alive) sums.set(key(each), (sums.get(key(each)) ?? 0) + each.bytes);
  const rows = [...sums].sort((a, b) => b[1] - a[1]);
  const shown = rows.slice(0, 40).map(([name, bytes]) => {
    const bar = element("meter", { min: 0, max: Math.max(rows[0][1], 1), value: bytes, "aria-hidden": "true" });
    return element("tr", {}, element("th", { scope: "row" }, label(name)), element("td.number", {}, size(bytes)), element("td.number", {}, `${total ? Math.round((100 * bytes) / total) : 0} %`), element("td", {}, bar));
  });
  if (rows.length > 40) shown.push(element("tr", {}, element("td", { colSpan: 4 }, `and ${count(rows.length - 40, "more line").replace("lines", "rows").replace("line", "row")}`)));
  return element("table.bars", {}, element("caption", {}, title), element("tbody", {}, ...shown));
}

// ---- reach: losses and parameters

function showReach() {
  const trained = data.leaves.filter(([, , , meant]) => meant).map(([node]) => node);
  const never = unreached(trained);
  const groups = new Map();
  for (const node of trained) {
    const name = leaves.get(node).name.split(".").slice(0, -1).join(".") || leaves.get(node).name;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "parameter"), element("th", { scope: "col" }, "optimizer"), ...losses.map((loss) => element("th", { scope: "col" }, button(loss.title, () => select(loss.id, { reveal: true }))))));
  const bodies = [...groups].slice(0, 400).map(([name, nodes]) => reachRows(name, nodes));
  byId("reach").replaceChildren(
    element("h2", {}, "Which loss reaches which parameter"),
    trained.length && losses.length ? element("div.scroll", { tabIndex: 0, role: "region", "aria-label": "Table of losses and parameters" }, element("table.reach", {}, head, ...bodies)) : element("p", {}, "There are no losses or no parameters in the graph."),
    groups.size > 400 ? element("p.muted", {}, `and ${groups.size - 400} more modules: search for them`) : "",
    never.length ? element("p", {}, `${count(never.length, "parameter")} that no loss here reaches: ${never.map((node) => leaves.get(node).name).slice(0, 20).join(", ")}${never.length > 20 ? " ..." : ""}`) : "",
  );
}

function unreached(nodes) {
  return nodes.filter((node) => !losses.some((loss) => reachedBy(loss).has(node)));
}

function reachRows(name, nodes) {
  const holders = [...new Set(nodes.flatMap((node) => leaves.get(node).optimizers))];
  const row = (title, some, indent) =>
    element("tr", {}, element("th", { scope: "row", className: indent ? "indent" : "" }, title), element("td", {}, some.length > 1 ? holders.map((each) => data.optimizers[each][0]).join(", ") || "none" : leaves.get(some[0]).optimizers.map((each) => data.optimizers[each][0]).join(", ") || "none"), ...losses.map((loss) => reachCell(loss, some)));
  if (nodes.length === 1) return element("tbody", {}, row(leaves.get(nodes[0]).name, nodes, false));
  const body = element("tbody");
  const details = () => nodes.map((node) => row(leaves.get(node).name, [node], true));
  const toggler = element("button.link", { type: "button", "aria-expanded": "false", onclick: () => {
    const opened = toggler.getAttribute("aria-expanded") === "true";
    toggler.setAttribute("aria-expanded", String(!opened));
    while (body.children.length > 1) body.lastChild.remove();
    if (!opened) body.append(...details());
  } }, name);
  body.append(row(toggler, nodes, false));
  return body;
}

function reachCell(loss, nodes) {
  const reached = nodes.filter((node) => reachedBy(loss).has(node)).length;
  const words_ = reached === nodes.length ? (nodes.length > 1 ? `✓ all ${nodes.length}` : "✓") : reached ? `◐ ${reached} of ${nodes.length}` : nodes.length > 1 ? `✗ none of ${nodes.length}` : "✗";
  const spoken = `${loss.title} ${reached === nodes.length ? "reaches" : reached ? `reaches ${reached} of` : "does not reach"} ${nodes.length > 1 ? "these" : leaves.get(nodes[0]).name}`;
  const goal = nodes.find((node) => reachedBy(loss).has(node)) ?? nodes[0];
  return element(`td.${reached === nodes.length ? "all" : reached ? "some" : "none"}`, {}, element("button.link", { type: "button", "aria-label": `${spoken}: show the path`, onclick: () => { showView("graph"); showWay(loss, goal); } }, words_));
}

// ---- examined: what was seen, what was judged right, and what could not be seen

function showExamined() {
  const list = (title, rows, empty) => [element("h2", {}, title), rows.length ? element("ul.plain.rows", {}, ...rows.map((row) => element("li", {}, ...[row].flat()))) : element("p.muted", {}, empty)];
  byId("examined").replaceChildren(
    ...list("Not examined", data.unseen, "Nothing was met that graphscope cannot see into."),
    ...list("Looked suspicious and is right", data.cleared.map(([code_, message, place]) => [placeButton(place) ?? "", " ", code(message), element("span.muted", {}, ` ${code_}`)]), "Nothing else looked suspicious."),
    ...(data.suppressed.length ? list("Silenced by a comment", data.suppressed.map((finding) => [placeButton(finding.places[0]?.[0] ?? -1) ?? "", ` ${finding.code} ${finding.message}`]), "") : []),
    ...list("Optimizers", data.optimizers.map(([name, kind, place], index) => [element(`span.swatch.optimizer-${(index % 6) + 1}`, { "aria-hidden": "true" }), ` ${name} (${kind}) `, placeButton(place) ?? ""]), "No optimizer was seen."),
    ...(data.outcome ? list("How the program ended", [data.outcome], "") : []),
    element("p.muted", {}, `graphscope ${data.version}. Findings are about this run of the program, on this data.`),
  );
}

// ---- legend: only what occurs

function showLegend() {
  const nodes = [...Array(NODES).keys()].filter((node) => !leaves.has(node));
  const group = [...leaves.values()];
  const rows = [
    ["loss", "loss", losses.length],
    ["op", "operator", nodes.length],
    ["parameter", "parameter", group.some((leaf) => leaf.trained)],
    ["unowned", "in no optimizer", data.optimizers.length && group.some((leaf) => leaf.trained && !leaf.optimizers.length)],
    ["input", "input", group.some((leaf) => !leaf.trained)],
    ["module", "module", scopes.length > 1],
    ["alive", "holds buffers", EVENTS && savedBy.size],
    ["freed", "✕ freed", freedAt.size],
    ["stale", "≠ stale", staleAt.size],
    ["shared", "shared by losses", shared.size],
    ["cut", "gradient stops", severed.length],
    ["path", "selected, path", true],
  ];
  const shown = rows.filter(([, , occurs]) => occurs).map(([kind, text]) => element("li", {}, element(`i.${kind}`, { "aria-hidden": "true" }), text));
  data.optimizers.slice(0, 6).forEach(([name], index) => shown.push(element("li", {}, element(`i.parameter.band.optimizer-${index + 1}`, { "aria-hidden": "true" }), name)));
  byId("legend").replaceChildren(...shown);
}
