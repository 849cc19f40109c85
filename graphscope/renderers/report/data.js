// The tables of the report, as objects, and the questions asked of them.

const data = JSON.parse(document.getElementById("data").textContent);

const NODES = data.nodes.op.length;
const EVENTS = data.events.length;
const NEVER = EVENTS + 1;

const words = (index) => (index < 0 ? "" : data.words[index]);
const fullName = (node) => words(data.nodes.op[node]);
const shortName = (node) => fullName(node).replace(/Backward\d*$/, "") || fullName(node);
const moduleOf = (node) => words(data.nodes.module[node]);
const shapeOf = (meta) => (meta < 0 ? "" : data.metas[meta][0]);
const fullMeta = (meta) => (meta < 0 ? "" : data.metas[meta].filter(Boolean).join(" "));
const placeName = (place) => (place < 0 ? "" : `${data.files[data.places[place][0]][0]}:${data.places[place][1]}`);
const shortPlace = (place) => placeName(place).replace(/^.*\//, "");
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let unit = -1;
  do {
    bytes /= 1024;
    unit += 1;
  } while (bytes >= 1024 && unit < 3);
  return `${bytes.toFixed(1)} ${["KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// ---- nodes

const targets = data.targets;
const sources = Array.from({ length: NODES }, () => []);
targets.forEach((list, node) => {
  for (const target of list) sources[target].push(node);
});

const leaves = new Map(data.leaves.map(([node, name, meta, trained, optimizers]) => [node, { node, name, meta, trained, optimizers }]));

const savedBy = new Map();
for (const [node, name, meta, bytes, version, state] of data.saved) {
  if (!savedBy.has(node)) savedBy.set(node, []);
  savedBy.get(node).push({ node, name: words(name), meta, bytes, version, gone: state & 1, packed: state & 2 });
}
const custom = new Set(data.custom);
const savedBytes = (node) => (savedBy.get(node) ?? []).reduce((sum, each) => sum + each.bytes, 0);

const nameOf = (node) => leaves.get(node)?.name ?? shortName(node);

// A transpose right before a leaf says nothing that the leaf does not: it is drawn as a part of it.
function leafBehind(node) {
  const [target] = targets[node];
  return fullName(node) === "TBackward0" && targets[node].length === 1 && leaves.has(target) ? target : -1;
}

// ---- losses, and what they reach

const losses = data.losses.map(([name, node, meta, place, state, failing, event], index) => ({ index, name, node, meta, place, state, failing, event }));
losses.forEach((loss) => {
  const alike = losses.filter((other) => other.name === loss.name);
  loss.title = alike.length > 1 ? `${loss.name} (${alike.indexOf(loss) + 1})` : loss.name;
});
const severed = data.severed.map(([op, place, node, concerned, findings]) => ({ op, place, node, concerned, findings }));
const findings = data.findings;
const findingsOf = new Map();
findings.forEach((finding, index) => {
  for (const node of finding.nodes) {
    if (!findingsOf.has(node)) findingsOf.set(node, []);
    findingsOf.get(node).push(index);
  }
});

const reachKnown = new Map();
function reachedBy(loss) {
  if (!reachKnown.has(loss.index)) reachKnown.set(loss.index, behind(loss.node));
  return reachKnown.get(loss.index);
}

function behind(start) {
  const seen = new Set(start < 0 ? [] : [start]);
  for (const node of seen) for (const target of targets[node]) seen.add(target);
  return seen;
}

// Nodes that more than one loss reaches; losses beyond the 31st are not told apart.
const shared = (() => {
  const masks = new Int32Array(NODES);
  const waiting = Int32Array.from(sources, (list) => list.length);
  for (const { node, index } of losses) if (node >= 0) masks[node] |= 1 << Math.min(index, 31);
  const order = [];
  for (let node = 0; node < NODES; node += 1) if (!waiting[node]) order.push(node);
  for (const node of order) {
    for (const target of targets[node]) {
      masks[target] |= masks[node];
      waiting[target] -= 1;
      if (!waiting[target]) order.push(target);
    }
  }
  return new Set(order.filter((node) => !leaves.has(node) && masks[node] & (masks[node] - 1)));
})();

// A shortest way of the gradient from a node to the nearest of some others, or null.
function pathTo(start, goals) {
  if (start < 0) return null;
  const came = new Map([[start, -1]]);
  for (const node of came.keys()) {
    if (goals.has(node)) {
      const path = [];
      for (let step = node; step >= 0; step = came.get(step)) path.push(step);
      return path.reverse();
    }
    for (const target of targets[node]) if (!came.has(target)) came.set(target, node);
  }
  return null;
}

// ---- buffers over time: position p is the moment right after event p - 1, position 0 the start

const freedAt = new Map();
const staleAt = new Map();
data.changes.forEach(([freed, stale], event) => {
  for (const node of freed) freedAt.set(node, event);
  for (const node of stale) if (!freedAt.has(node)) staleAt.set(node, event);
});
for (const saved of data.saved) if (saved[5] & 1) freedAt.set(saved[0], -1);

function stateAt(node, position) {
  if (data.nodes.made[node] > position) return "future";
  if ((freedAt.get(node) ?? NEVER) < position) return "freed";
  if ((staleAt.get(node) ?? NEVER) < position) return "stale";
  return savedBy.has(node) ? "alive" : "empty";
}

const eventWords = (event) => (event < 0 ? "before the recording" : data.events[event][3]);

// ---- scopes

const scopes = data.scopes.map(([parent, kind, name, path, call], index) => ({
  index, parent, kind, path, call, name, scopes: [], nodes: [], chain: [], size: 0, bytes: 0, findings: new Set(),
}));
const callsOf = new Map(); // of a module in its pass
const callKey = (scope) => `${scope.pass}:${scope.path}`;
const isRepeated = (scope) => scope.path !== "" && callsOf.get(callKey(scope)) > 1;
for (const scope of scopes) {
  scope.chain = scope.parent < 0 ? [scope.index] : [...scopes[scope.parent].chain, scope.index];
  if (scope.parent >= 0) scopes[scope.parent].scopes.push(scope.index);
  scope.pass = scope.chain.find((index) => scopes[index].kind === "pass") ?? 0;
  if (scope.path) callsOf.set(callKey(scope), (callsOf.get(callKey(scope)) ?? 0) + 1);
}
for (let node = 0; node < NODES; node += 1) {
  if (leaves.has(node)) continue;
  const chain = scopes[data.nodes.scope[node]].chain;
  scopes[chain.at(-1)].nodes.push(node);
  for (const index of chain) {
    scopes[index].size += 1;
    scopes[index].bytes += savedBytes(node);
    for (const finding of findingsOf.get(node) ?? []) scopes[index].findings.add(finding);
  }
}
for (const scope of scopes) {
  scope.title = isRepeated(scope) ? `${scope.name} · call ${scope.call}` : scope.name;
  scope.label = scope.path ? `${scope.path}${isRepeated(scope) ? `, call ${scope.call}` : ""}` : scope.name;
}
for (const loss of losses) {
  if (loss.node < 0 || leaves.has(loss.node)) continue;
  const around = scopes[scopes[data.nodes.scope[loss.node]].chain[1]];
  if (around?.kind === "pass") around.title += ` · ${loss.name}`;
}
