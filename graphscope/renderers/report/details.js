// What is known of the thing selected: its line, shape, saved bytes, module and neighbours.

const MOST_LISTED = 60;

// One line about something, for tooltip and announcements.
function describe(id) {
  if (id < 0) {
    const scope = scopes[~id];
    return `${scope.label}: ${count(scope.size, "node")}, saves ${size(scope.bytes)}`;
  }
  if (!isNode(id)) {
    const each = thing(id);
    if (each.kind === "loss") return `loss ${each.loss.name} ${fullMeta(each.loss.meta)}, ${each.loss.state || "no backward seen"}`;
    if (each.kind === "cut") return `the gradient stops at ${each.cut.op}, ${placeName(each.cut.place)}`;
    return each.leaves.map((leaf) => leaves.get(leaf).name).join(", ");
  }
  if (leaves.has(id)) return `${leaves.get(id).name} ${fullMeta(leaves.get(id).meta)}${heldBy(id)}`;
  return [`${fullName(id)} ${fullMeta(data.nodes.meta[id])}`, stateWords(id), placeName(data.nodes.place[id])].filter(Boolean).join(", ");
}

function heldBy(leaf) {
  const { trained, optimizers } = leaves.get(leaf);
  if (!trained || !data.optimizers.length) return trained ? "" : ", input";
  return optimizers.length ? `, in ${optimizers.map((each) => data.optimizers[each][0]).join(" and ")}` : ", in no optimizer";
}

function stateWords(node) {
  switch (look(node)) {
    case "freed":
      return freedAt.get(node) < 0 ? "freed before the recording" : `freed by ${eventWords(freedAt.get(node))}`;
    case "stale":
      return `stale since ${eventWords(staleAt.get(node))}`;
    case "future":
      return "not made yet";
    case "alive":
      return "buffers alive";
    default:
      return "";
  }
}

function placeOf(id) {
  if (id < 0) return -1;
  if (isNode(id)) return data.nodes.place[id];
  const each = thing(id);
  return each.kind === "loss" ? each.loss.place : each.kind === "cut" ? each.cut.place : -1;
}

function facts(rows) {
  return element("dl.facts", {}, ...rows.filter(([, value]) => value !== null && value !== "" && value !== undefined).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, ...(Array.isArray(value) ? value : [value]))]));
}

function nodeButton(node) {
  const made = button(nodeWords(node), () => select(node, { reveal: true }));
  const module = leaves.has(node) ? "" : moduleOf(node);
  return module ? element("span", {}, made, element("span.muted", {}, ` ${module}`)) : made;
}

function nodeWords(node) {
  const leaf = leaves.get(node);
  return `${nameOf(node)} ${shapeOf(leaf ? leaf.meta : data.nodes.meta[node])}`.trim();
}

function nodeList(nodes, most = MOST_LISTED) {
  const shown = nodes.slice(0, most).map((node) => element("li", {}, nodeButton(node)));
  if (nodes.length > most) shown.push(element("li", {}, `and ${(nodes.length - most).toLocaleString("en")} more`));
  return element("ul.plain", {}, ...shown);
}

function showDetails(...shown) {
  byId("details").replaceChildren(...shown.filter(Boolean));
}

function showNothing() {
  const kinds = [count(NODES - leaves.size, "node"), count(leaves.size, "leaf tensor"), count(data.losses.length, "loss").replace("losss", "losses")];
  showDetails(
    element("h2", {}, "The graph"),
    element("p", {}, `${kinds.join(", ")}. At most ${size(aliveBytes[peak])} of activations are kept for backward at once.`),
    element("p.muted", {}, "Gradients go down, from losses to leaves. Select a finding, a line, or a box."),
    data.losses.length ? element("h3", {}, "Losses") : null,
    data.losses.length ? element("ul.plain", {}, ...losses.map((loss) => element("li", {}, button(loss.title, () => select(loss.id, { reveal: true })), loss.state ? element("span.muted", {}, ` ${loss.state}`) : null))) : null,
  );
}

function showFindingDetails(finding, cuts) {
  const touched = finding.nodes.filter((node) => !folded.has(node));
  showDetails(
    element("h2", {}, `${finding.code} ${finding.name}`),
    touched.length ? element("h3", {}, count(touched.length, "node")) : null,
    ...cuts.map((cut) => element("p", {}, "The gradient stops at ", button(cut.op, () => select(cut.id, { reveal: true })), " ", placeButton(cut.place))),
    touched.length ? nodeList(touched) : cuts.length ? null : element("p.muted", {}, "Its lines are marked in the source; it names no node of the graph."),
  );
}

function showNodesDetails(title, nodes) {
  showDetails(element("h2", {}, title), element("p", {}, `${count(nodes.length, "node")}, ${size(nodes.reduce((sum, node) => sum + savedBytes(node), 0))} saved`), nodeList(nodes));
}

function showSelected(id) {
  if (id < 0) showScope(scopes[~id]);
  else if (isNode(id)) (leaves.has(id) ? showLeaf : showNode)(id);
  else if (thing(id).kind === "loss") showLoss(thing(id).loss);
  else if (thing(id).kind === "cut") showCut(thing(id).cut);
}

function moduleButtons(node) {
  const chain = scopes[data.nodes.scope[node]].chain.slice(1);
  const parts = chain.flatMap((index, step) => [step ? " › " : "", button(scopes[index].title, () => select(~index, { reveal: true }))]);
  const last = moduleOf(node);
  return [...parts, last && !chain.some((index) => scopes[index].path === last) ? ` ${chain.length ? "› " : ""}${last}` : ""];
}

const findingButtons = (id) => findingsAt(id).map((index) => button(`${index + 1} ${findings[index].code}`, () => chooseFinding(index)));

const lossesOf = (node) => losses.filter((loss) => reachedBy(loss).has(node));

function spaced(list) {
  return list.flatMap((each, step) => (step ? [", ", each] : [each]));
}

function showNode(node) {
  const saved = savedBy.get(node) ?? [];
  showDetails(
    element("h2", {}, fullName(node)),
    facts([
      ["shape", shapeOf(data.nodes.meta[node])],
      ["type", data.nodes.meta[node] < 0 ? "" : data.metas[data.nodes.meta[node]].slice(1).join(" on ")],
      ["line", placeButton(data.nodes.place[node], placeName(data.nodes.place[node]))],
      ["module", moduleOf(node) || scopes[data.nodes.scope[node]].parent > 0 ? moduleButtons(node) : ""],
      ["state", stateWords(node)],
      ["saves", saved.length ? size(savedBytes(node)) : "nothing"],
      ["losses", spaced(lossesOf(node).map((loss) => button(loss.title, () => showWay(loss, node))))],
      ["findings", findingsAt(node).length ? spaced(findingButtons(node)) : ""],
      ["custom", custom.has(node) ? "autograd.Function of the program" : ""],
    ]),
    saved.length ? savedTable(saved) : null,
    ...neighbours(node),
  );
}

function savedTable(saved) {
  const rows = saved.map(({ name, meta, bytes, version, packed }) =>
    element("tr", {}, element("td", {}, name), element("td", {}, packed ? "packed by hooks" : fullMeta(meta)), element("td.number", {}, size(bytes)), element("td.number", {}, version < 0 ? "" : `v${version}`)),
  );
  const heads = ["saved", "shape", "bytes", "version"].map((name) => element("th", { scope: "col" }, name));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}

function neighbours(node) {
  const before = [...new Set(sources[node].flatMap((source) => (folded.has(source) ? sources[source] : [source])))];
  const after = [...new Set(targets[node].map((target) => folded.get(target) ?? target))];
  return [
    element("h3", {}, "gradient comes from"),
    before.length ? nodeList(before, 12) : element("p.muted", {}, losses.some((loss) => loss.node === node) ? "a loss" : "nothing here"),
    leaves.has(node) ? null : element("h3", {}, "gradient goes on to"),
    leaves.has(node) ? null : after.length ? nodeList(after, 12) : element("p.muted", {}, "nothing that needs it"),
  ];
}

function showLeaf(node) {
  const leaf = leaves.get(node);
  const reaching = new Set(lossesOf(node));
  showDetails(
    element("h2", {}, leaf.name),
    facts([
      ["kind", leaf.trained ? "parameter" : "input that requires grad"],
      ["shape", shapeOf(leaf.meta)],
      ["type", data.metas[leaf.meta].slice(1).join(" on ")],
      ["optimizer", leaf.optimizers.length ? leaf.optimizers.map((each) => `${data.optimizers[each][0]} (${data.optimizers[each][1]})`).join(", ") : leaf.trained && data.optimizers.length ? "in none" : ""],
      ["reached by", spaced(losses.filter((loss) => reaching.has(loss)).map((loss) => button(loss.title, () => showWay(loss, node))))],
      ["not by", spaced(losses.filter((loss) => !reaching.has(loss)).map((loss) => button(loss.title, () => showWay(loss, node))))],
      ["findings", findingsAt(node).length ? spaced(findingButtons(node)) : ""],
    ].filter(([, value]) => value.length)),
    ...neighbours(node),
  );
}

function showScope(scope) {
  const inside = data.nodes.scope.map((home, node) => node).filter((node) => !leaves.has(node) && scopes[data.nodes.scope[node]].chain.includes(scope.index));
  const lines = new Map();
  for (const node of inside) if (data.nodes.place[node] >= 0) lines.set(data.nodes.place[node], (lines.get(data.nodes.place[node]) ?? 0) + 1);
  const toggler = button(open.has(scope.index) ? "Close" : "Open", () => {
    if (openAround(~scope.index)) rebuild();
    toggle(scope.index);
    showScope(scope);
  }, "button");
  showDetails(
    element("h2", {}, scope.label),
    element("p", {}, toggler),
    facts([
      ["kind", { pass: "one pass: what no gradient joins to other passes", run: "neighbours, put together", module: "one call of a module" }[scope.kind]],
      ["class", data.classes[scope.path] ?? ""],
      ["calls", isRepeated(scope) ? `${scope.call} of ${callsOf.get(callKey(scope))}` : ""],
      ["nodes", scope.size.toLocaleString("en")],
      ["saves", size(scope.bytes)],
      ["findings", scope.findings.size ? spaced(findingButtons(~scope.index)) : ""],
    ]),
    lines.size ? element("h3", {}, "lines") : null,
    lines.size ? element("ul.plain", {}, ...[...lines].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([place, number]) => element("li", {}, placeButton(place), ` ${count(number, "node")}`))) : null,
  );
}

function showLoss(loss) {
  const reached = data.leaves.filter(([node]) => reachedBy(loss).has(node));
  const stops = data.stops.filter(([, , concerned]) => concerned.includes(loss.index));
  showDetails(
    element("h2", {}, loss.title),
    facts([
      ["shape", fullMeta(loss.meta)],
      ["line", placeButton(loss.place, placeName(loss.place))],
      ["backward", loss.state],
      ["graph", loss.node < 0 ? "none: it requires no grad" : count(reachedBy(loss).size, "node")],
      ["reaches", count(reached.length, "leaf tensor")],
    ]),
    stops.length ? element("h3", {}, "where its gradient stops") : null,
    stops.length ? element("ul.plain", {}, ...stops.map(([op, place, , kept]) => element("li", {}, element("code", {}, op), " ", placeButton(place), ` keeps it from ${count(kept.length, "leaf tensor")}`))) : null,
    reached.length ? element("h3", {}, "reaches") : null,
    reached.length ? nodeList(reached.map(([node]) => node), 40) : null,
  );
}

function showCut(cut) {
  showDetails(
    element("h2", {}, `The gradient stops at ${cut.op}`),
    facts([
      ["line", placeButton(cut.place, placeName(cut.place))],
      ["losses", spaced(cut.concerned.map((index) => button(losses[index].title, () => select(losses[index].id, { reveal: true }))))],
      ["beyond", cut.node < 0 ? "" : [nodeButton(cut.node)]],
      ["findings", spaced(findingButtons(cut.id))],
    ]),
  );
}

// ---- the way from a loss to a node, or where it ends

function showWay(loss, node) {
  const path = pathTo(loss.node, new Set([node]));
  clearFinding();
  state.selected = new Set(drawnAs(node));
  highlight.nodes = new Set();
  highlight.segments = new Set();
  byId("from").value = loss.index;
  if (leaves.has(node)) byId("to").value = node;
  if (path) {
    const opened = path.length <= 200 && path.map((each) => openAround(nearest(each))).some(Boolean);
    if (opened) rebuild();
    markPath(loss, path);
    followHighlight();
    showOutline();
    showDetails(element("h2", {}, `From ${loss.title} to ${nameOf(node)}`), element("p", {}, `The gradient passes ${count(path.length, "node")}, by a shortest way.`), nodeList(path, 200));
    centre([loss.id, ...path.map(nearest)]);
  } else {
    const stops = data.stops.filter(([, , concerned, kept]) => concerned.includes(loss.index) && kept.includes(node));
    const why = loss.node < 0 ? `${loss.name} has no graph.` : stops.length ? "The gradient stops here:" : `No computation that was seen leads from ${nameOf(node)} to ${loss.name}.`;
    showDetails(
      element("h2", {}, `${loss.title} does not reach ${nameOf(node)}`),
      element("p", {}, why),
      stops.length ? element("ul.plain", {}, ...stops.map(([op, place]) => element("li", {}, element("code", {}, op), " ", placeButton(place, placeName(place)), " ", sourceLine(place)))) : null,
    );
    for (const cut of severed) if (stops.some(([, place]) => place === cut.place)) highlight.nodes.add(cut.id);
    if (stops.length) showPlace(stops[0][1], false);
    centre([loss.id, ...highlight.nodes]);
  }
  markSource();
  redraw();
  say(path ? `path of ${count(path.length, "node")}` : `${loss.title} does not reach ${nameOf(node)}`);
}

function sourceLine(place) {
  if (place < 0) return "";
  const [file, line] = data.places[place];
  return element("code.quoted", {}, (data.files[file][1][line - 1] ?? "").trim());
}
