// What the graph consists of, scope by scope, and what of it is visible: boxes, items and the segments between them.
//
// Whatever can be drawn has a number: a node its own, then groups of leaves, losses and cuts; a scope s has ~s.

const [ENTRY, EXIT] = [1e9, 1e9 + 1]; // where edges enter and leave an open scope
const FEW = 80; // items at which opening by default stops

const things = []; // beyond the nodes: {kind, home, ...}
const thing = (id) => things[id - NODES];
const leafGroups = new Map(); // leaf: the groups it is drawn in, beside its readers
const folded = new Map(); // node: the leaf that it is drawn as a part of
const edges = []; // [from, to, kind]

const isNode = (id) => id >= 0 && id < NODES;
const homeOf = (id) => (isNode(id) ? data.nodes.scope[id] : thing(id).home);

function add(made) {
  things.push(made);
  return NODES + things.length - 1;
}

(function collect() {
  for (let node = 0; node < NODES; node += 1) {
    const leaf = leaves.has(node) ? -1 : leafBehind(node);
    if (leaf >= 0) folded.set(node, leaf);
  }
  const roots = new Set(losses.map((loss) => loss.node));
  for (const root of roots) folded.delete(root);
  const readers = new Map(); // leaf: scope: nodes
  for (let node = 0; node < NODES; node += 1) {
    if (leaves.has(node) || folded.has(node)) continue;
    for (const target of targets[node]) {
      const leaf = leaves.has(target) ? target : folded.get(target);
      if (leaf === undefined) {
        edges.push([node, target, "plain"]);
        continue;
      }
      if (!readers.has(leaf)) readers.set(leaf, new Map());
      const scope = data.nodes.scope[node];
      if (!readers.get(leaf).has(scope)) readers.get(leaf).set(scope, new Set());
      readers.get(leaf).get(scope).add(node);
    }
  }
  const groups = new Map();
  for (const leaf of leaves.keys()) {
    const { trained, optimizers } = leaves.get(leaf);
    for (const [home, nodes] of readers.get(leaf) ?? [[0, new Set()]]) {
      const key = [home, trained, optimizers, [...nodes].join()].join(";");
      if (!groups.has(key)) {
        groups.set(key, add({ kind: "leaves", home, leaves: [], trained, optimizers }));
        for (const node of nodes) edges.push([node, groups.get(key), "plain"]);
      }
      thing(groups.get(key)).leaves.push(leaf);
      if (!leafGroups.has(leaf)) leafGroups.set(leaf, []);
      leafGroups.get(leaf).push(groups.get(key));
    }
  }
  for (const loss of losses) {
    const chain = loss.node < 0 || leaves.has(loss.node) ? [0] : scopes[data.nodes.scope[loss.node]].chain;
    const home = chain.findLast((scope) => ["all", "pass", "run"].includes(scopes[scope].kind) && chain.slice(0, chain.indexOf(scope)).every((above) => scopes[above].kind !== "module"));
    loss.id = add({ kind: "loss", home, loss });
    if (loss.node >= 0) edges.push([loss.id, leaves.has(loss.node) ? leafGroups.get(loss.node)[0] : loss.node, "loss"]);
  }
  for (const cut of severed) {
    const concerned = cut.concerned.map((index) => losses[index]);
    cut.id = add({ kind: "cut", home: concerned.length ? thing(concerned[0].id).home : 0, cut });
    for (const loss of concerned) edges.push([loss.id, cut.id, "severed"]);
    if (cut.node >= 0) for (const id of drawnAs(cut.node).slice(0, 1)) edges.push([cut.id, id, "lost"]);
  }
})();

// The numbers under which a node is drawn: several for a leaf with readers in several scopes.
function drawnAs(node) {
  const leaf = folded.get(node) ?? node;
  return leafGroups.get(leaf) ?? [node];
}

// Where to look for a node: where it is visible, else where it is drawn first.
function nearest(node) {
  const all = drawnAs(node).toSorted((a, b) => homeOf(a) - homeOf(b));
  return all.find((id) => visible(id) === id) ?? all[0];
}

// ---- scopes: what is in them, and which edges touch them

const contents = scopes.map((scope) => scope.nodes.filter((node) => !folded.has(node)));
things.forEach((each, position) => contents[each.home].push(NODES + position));
const touching = scopes.map(() => []);
edges.forEach(([from, to], edge) => {
  const [a, b] = [scopes[homeOf(from)].chain, scopes[homeOf(to)].chain];
  let shared = 0;
  while (shared < a.length && shared < b.length && a[shared] === b[shared]) shared += 1;
  touching[a[shared - 1]].push(edge);
  for (let depth = shared; depth < a.length; depth += 1) touching[a[depth]].push(edge);
  for (let depth = shared; depth < b.length; depth += 1) touching[b[depth]].push(edge);
});

// What stands for something in a scope: itself, the scope inside which it is, or nothing.
function within(id, scope) {
  const { chain } = scopes[homeOf(id)];
  const depth = scopes[scope].chain.length;
  if (chain[depth - 1] !== scope) return null;
  return chain.length === depth ? id : ~chain[depth];
}

// The segments that an edge is drawn as, from scope to scope: [scope, a, b].
function segmentsOf(from, to) {
  const all = new Set([...scopes[homeOf(from)].chain, ...scopes[homeOf(to)].chain]);
  const found = [];
  for (const scope of all) {
    const [a, b] = [within(from, scope) ?? ENTRY, within(to, scope) ?? EXIT];
    if (a !== b) found.push([scope, a, b]);
  }
  return found;
}

// ---- measures

const ruler = document.createElement("canvas").getContext("2d");
const FONT = { title: "600 12px system-ui, sans-serif", small: "10.5px system-ui, sans-serif", row: "11px system-ui, sans-serif" };
const widths = new Map();
function widthOf(text, font) {
  const key = font + text;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

const ROWS = 6; // leaves named in one box
const LONGEST = 46; // characters of a name

function short(text, most = LONGEST) {
  if (text.length <= most) return text;
  const tail = (most - 1) >> 1;
  return `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}

// Title and lines of what is drawn: [text, font][], the first line being the title.
const labels = new Map();
function labelOf(id) {
  if (!labels.has(id)) labels.set(id, id < 0 ? scopeLabel(scopes[~id]) : isNode(id) ? nodeLabel(id) : thingLabel(thing(id)));
  return labels.get(id);
}

function scopeLabel(scope) {
  const kept = scope.bytes ? ` · ${size(scope.bytes)}` : "";
  return [[short(scope.title), FONT.title], [`${count(scope.size, "node")}${kept}`, FONT.small]];
}

function nodeLabel(node) {
  const shape = shapeOf(data.nodes.meta[node]);
  const module = moduleOf(node);
  const last = module.split(".").slice(/\.\d+$/.test(module) ? -2 : -1).join(".");
  const inside = scopes[data.nodes.scope[node]].path === module ? "" : last;
  return [[short(custom.has(node) ? fullName(node) : shortName(node)), FONT.title], [[inside, shape].filter(Boolean).join(" · ") || " ", FONT.small]];
}

function thingLabel(each) {
  if (each.kind === "loss") return [[short(each.loss.name), FONT.title], [each.loss.state || shapeOf(each.loss.meta), FONT.small]];
  if (each.kind === "cut") return [[short(each.cut.op), FONT.title], [each.cut.place < 0 ? "gradient stops" : `gradient stops, ${short(shortPlace(each.cut.place), 30)}`, FONT.small]];
  const rows = each.leaves.slice(0, ROWS).map((leaf) => [`${short(leaves.get(leaf).name)}  ${shapeOf(leaves.get(leaf).meta)}`, FONT.row]);
  if (each.leaves.length > ROWS) rows.push([`and ${each.leaves.length - ROWS} more`, FONT.small]);
  return rows;
}

function measure(id) {
  const lines = labelOf(id);
  const leafRows = id >= NODES && thing(id).kind === "leaves";
  const state = isNode(id) && savedBy.has(id) ? widthOf("✕ freed · ", FONT.small) : 0;
  const mark = id < 0 ? 16 : 0;
  const w = Math.max(...lines.map(([text, font], row) => widthOf(text, font) + (row ? state : mark)));
  return { id, w: Math.ceil(Math.max(w, 34)) + 24, h: leafRows ? 12 + 15 * lines.length : 40 };
}

// ---- layout, from the innermost open scopes outwards

const open = new Set([0]);
const layouts = new Map();
const HEAD = 26;
const PAD = 14;

function layoutOf(index) {
  if (!layouts.has(index)) layouts.set(index, lay(index));
  return layouts.get(index);
}

function lay(index) {
  const items = contents[index].map(measure);
  for (const child of scopes[index].scopes) {
    if (!open.has(child)) {
      items.push(measure(~child));
      continue;
    }
    const inner = layoutOf(child);
    const title = widthOf(scopes[child].title, FONT.title) + 40;
    items.push({ id: ~child, inner, w: Math.max(inner.w + 2 * PAD, title), h: inner.h + HEAD + PAD });
  }
  const number = new Map(items.map((item, position) => [item.id, position]));
  const segments = new Map();
  for (const edge of touching[index]) {
    const [from, to, kind] = edges[edge];
    const [a, b] = [within(from, index) ?? ENTRY, within(to, index) ?? EXIT];
    if (a === b) continue;
    for (const [port, name] of [[ENTRY, "in"], [EXIT, "out"]]) {
      if ((a === port || b === port) && !number.has(port)) {
        number.set(port, items.length);
        items.push({ id: port, port: name, w: 4, h: 0 });
      }
    }
    const key = `${a},${b}`;
    if (!segments.has(key)) segments.set(key, { a, b, kinds: new Set(), times: 0, from: new Set() });
    const segment = segments.get(key);
    segment.kinds.add(kind);
    segment.times += 1;
    segment.from.add(from);
  }
  const list = [...segments.values()];
  const laid = arrange(items, list.map(({ a, b }) => [number.get(a), number.get(b)]), (edge) => chipFor(list[edge].b));
  list.forEach((segment, edge) => (segment.route = laid.routes.get(edge) ?? []));
  const chips = laid.chips.map((chip) => ({ ...chip, segment: list[chip.edge] }));
  for (const chip of chips) chip.segment.chip = chip;
  const port = (id) => (number.has(id) ? items[number.get(id)].x : null);
  return { w: laid.w, h: laid.h, items: items.filter((item) => !item.port), segments: list, entry: port(ENTRY), exit: port(EXIT) };
}

function chipFor(target) {
  const text = `→ ${short(labelOf(target)[0][0], 24)}`;
  return { w: widthOf(text, FONT.small) + 14, h: 18, text };
}

function touch(index) {
  for (const scope of scopes[index].chain) layouts.delete(scope);
}

// ---- the visible part, in one coordinate system

let view = { items: [], boxes: [], segments: [], byId: new Map(), w: 0, h: 0 };

function rebuild() {
  const top = layoutOf(0);
  view = { items: [], boxes: [], segments: [], byId: new Map(), w: top.w, h: top.h };
  place(0, top, 0, 0, null);
}

function place(index, layout, left, top, box) {
  const at = new Map();
  for (const item of layout.items) {
    const drawn = { id: item.id, x: left + item.x, y: top + item.y, w: item.w, h: item.h, enter: left + item.x, leave: left + item.x };
    at.set(item.id, drawn);
    view.byId.set(item.id, drawn);
    if (item.inner) {
      const inside = drawn.x - item.w / 2 + (item.w - item.inner.w) / 2;
      if (item.inner.entry !== null) drawn.enter = inside + item.inner.entry;
      if (item.inner.exit !== null) drawn.leave = inside + item.inner.exit;
      view.boxes.push(drawn);
      place(~item.id, item.inner, inside, drawn.y - item.h / 2 + HEAD, drawn);
    } else {
      view.items.push(drawn);
    }
  }
  for (const segment of layout.segments) {
    const [a, b] = [at.get(segment.a), at.get(segment.b)];
    const start = a ? [a.leave, a.y + a.h / 2] : [left + layout.entry, box.y - box.h / 2];
    const end = b ? [b.enter, b.y - b.h / 2] : [left + layout.exit, box.y + box.h / 2];
    const chip = segment.chip && { ...segment.chip, x: left + segment.chip.x, y: top + segment.chip.y, text: chipFor(segment.b).text };
    const points = chip ? [start, [chip.x, chip.y - chip.h / 2]] : [start, ...segment.route.map(([x, y]) => [left + x, top + y]), end];
    const xs = points.map(([x]) => x);
    const ys = points.map(([, y]) => y);
    view.segments.push({
      scope: index, key: `${index}:${segment.a},${segment.b}`, a: segment.a, b: segment.b, kinds: segment.kinds, times: segment.times, from: segment.from, points, chip,
      arrow: segment.b !== EXIT && !chip, x0: Math.min(...xs), x1: Math.max(...xs), y0: Math.min(...ys), y1: Math.max(...ys),
    });
  }
}

// What is visible of something: itself, or the closed scope around it.
function visible(id) {
  if (id < 0) {
    const chain = scopes[~id].chain;
    const closed = chain.slice(0, -1).find((scope) => !open.has(scope));
    return closed === undefined ? id : ~closed;
  }
  const closed = scopes[homeOf(id)].chain.find((scope) => !open.has(scope));
  return closed === undefined ? id : ~closed;
}

function openAround(id) {
  const chain = id < 0 ? scopes[~id].chain.slice(0, -1) : scopes[homeOf(id)].chain;
  let changed = false;
  for (const scope of chain) {
    if (!open.has(scope)) {
      open.add(scope);
      touch(scope);
      changed = true;
    }
  }
  return changed;
}

// Open what findings touch, then what is outermost, as long as there are few boxes.
function openByDefault() {
  const boxes = (index) => contents[index].length + scopes[index].scopes.length;
  let total = boxes(0);
  const waiting = scopes[0].scopes.map((index) => index);
  const first = scopes[0].scopes.find((index) => scopes[index].kind === "pass");
  const urgency = ({ findings: touched, kind, index, chain }) => (touched.size ? 0 : kind === "module" || index === first ? chain.length : 1000 + chain.length);
  while (waiting.length) {
    waiting.sort((a, b) => urgency(scopes[b]) - urgency(scopes[a]) || b - a);
    const index = waiting.pop();
    const scope = scopes[index];
    const more = boxes(index) - 1;
    if (scope.kind !== "module" && index !== first && !scope.findings.size) continue;
    if (total + more > (scope.findings.size ? 3 * FEW : FEW)) continue;
    total += more;
    open.add(index);
    waiting.push(...scope.scopes);
  }
}
