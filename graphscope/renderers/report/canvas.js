// Draws the visible part of the graph, and follows pointer and keys.

const canvas = document.getElementById("canvas");
let brush = canvas.getContext("2d");
const camera = { x: 0, y: 0, zoom: 1 };
const READABLE = 0.4; // zoom from which on words are drawn
const highlight = { nodes: new Set(), segments: new Set() }; // of a finding, a path or a line
let paint = {};
let pixels = 1;
let asked = false;

function readPaint() {
  const style = getComputedStyle(document.documentElement);
  const names = "bg panel ink muted line op op-line parameter parameter-line input input-line loss loss-ink freed freed-line cut severed shared stale alive module module-line path error warning note";
  paint = Object.fromEntries(names.split(" ").map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  charted = null;
  paint.optimizers = [1, 2, 3, 4, 5, 6].map((number) => style.getPropertyValue(`--optimizer-${number}`).trim());
  redraw();
}

// Draw soon; after a mere move, what was drawn from afar can be used again.
function redraw({ moved: only = false } = {}) {
  far.valid &&= only;
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}

function fitCanvas() {
  pixels = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(canvas.clientWidth * pixels);
  canvas.height = Math.round(canvas.clientHeight * pixels);
  far.valid = false;
  draw();
}

// From afar thousands of boxes are in sight: they are drawn onto a larger sheet, of which the canvas shows a part.
const far = { sheet: document.createElement("canvas"), valid: false, x: 0, y: 0 };
const BEYOND = 0.5; // of the canvas, on each side

function draw() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (camera.zoom >= READABLE) {
    drawGraph(canvas, camera.x, camera.y, width, height);
  } else {
    const [dx, dy] = [camera.x - far.x, camera.y - far.y];
    if (!far.valid || Math.abs(dx) > BEYOND * width || Math.abs(dy) > BEYOND * height) {
      Object.assign(far, { valid: true, x: camera.x, y: camera.y });
      const scale = 1 + 2 * BEYOND;
      [far.sheet.width, far.sheet.height] = [canvas.width * scale, canvas.height * scale];
      drawGraph(far.sheet, camera.x + BEYOND * width, camera.y + BEYOND * height, width * scale, height * scale);
    }
    brush = canvas.getContext("2d");
    brush.setTransform(1, 0, 0, 1, 0, 0);
    brush.drawImage(far.sheet, (camera.x - far.x - BEYOND * width) * pixels, (camera.y - far.y - BEYOND * height) * pixels);
  }
  drawMap();
}

function drawGraph(sheet, x, y, width, height) {
  brush = sheet.getContext("2d");
  const zoom = camera.zoom * pixels;
  brush.setTransform(1, 0, 0, 1, 0, 0);
  brush.fillStyle = paint.bg;
  brush.fillRect(0, 0, sheet.width, sheet.height);
  brush.setTransform(zoom, 0, 0, zoom, x * pixels, y * pixels);
  const [x0, y0] = [-x / camera.zoom, -y / camera.zoom];
  const [x1, y1] = [x0 + width / camera.zoom, y0 + height / camera.zoom];
  const seen = (each) => each.x + each.w / 2 + 8 > x0 && each.x - each.w / 2 - 8 < x1 && each.y + each.h / 2 + 8 > y0 && each.y - each.h / 2 - 8 < y1;
  const boxes = view.boxes.filter(seen);
  const items = view.items.filter(seen);
  boxes.forEach(drawBox);
  drawSegments(view.segments.filter((each) => each.x1 > x0 && each.x0 < x1 && each.y1 > y0 && each.y0 < y1));
  if (camera.zoom < READABLE) drawFar(items);
  else items.forEach(drawItem);
  boxes.forEach(drawTitle);
}

const toGraph = (x, y) => [(x - camera.x) / camera.zoom, (y - camera.y) / camera.zoom];

function outline(item, radius, grow = 0) {
  brush.beginPath();
  brush.roundRect(item.x - item.w / 2 - grow, item.y - item.h / 2 - grow, item.w + 2 * grow, item.h + 2 * grow, radius + grow);
}

function stroke(color, width, dash = []) {
  brush.setLineDash(dash);
  brush.strokeStyle = color;
  brush.lineWidth = width;
  brush.stroke();
  brush.setLineDash([]);
}

function write(text, x, y, font, color, align = "center") {
  brush.font = font;
  brush.fillStyle = color;
  brush.textAlign = align;
  brush.textBaseline = "middle";
  brush.fillText(text, x, y);
}

// ---- segments

function drawSegments(segments) {
  const small = camera.zoom < READABLE;
  const styles = new Map();
  for (const segment of segments) {
    const style = styleOf(segment);
    if (!styles.has(style)) styles.set(style, []);
    styles.get(style).push(segment);
  }
  for (const style of ["plain", "freed", "loss", "lost", "severed", "lost path", "severed path", "path"]) {
    const some = styles.get(style);
    if (!some) continue;
    const [color, width, dash] = {
      plain: [paint.line, 1.1, []],
      freed: [paint["freed-line"], 1.2, [5, 4]],
      loss: [paint.loss, 1.6, []],
      lost: [paint.severed, 1, [1.5, 4]],
      severed: [paint.severed, 1.4, [2, 3]],
      "lost path": [paint.severed, 2.2, [2, 4]],
      "severed path": [paint.severed, 2.6, [3, 3]],
      path: [paint.path, 2.8, []],
    }[style];
    brush.beginPath();
    for (const { points } of some) trace(points, small);
    stroke(color, small ? Math.max(width, 0.8 / camera.zoom) : width, dash);
    if (small) continue;
    brush.fillStyle = color;
    for (const segment of some) drawEnd(segment, style, color);
  }
}

function styleOf(segment) {
  const marked = highlight.segments.has(segment.key);
  const cut = segment.kinds.has("severed") ? "severed" : "lost";
  if (!segment.kinds.has("plain") && !segment.kinds.has("loss")) return marked ? `${cut} path` : cut; // never as if it flowed
  if (marked) return "path";
  if (segment.kinds.has("plain")) return [...segment.from].every((id) => isNode(id) && look(id) === "freed") ? "freed" : "plain";
  return "loss";
}

function trace(points, straight) {
  brush.moveTo(...points[0]);
  for (let step = 1; step < points.length; step += 1) {
    const [[ax, ay], [bx, by]] = [points[step - 1], points[step]];
    if (straight) brush.lineTo(bx, by);
    else brush.bezierCurveTo(ax, ay + (by - ay) / 2, bx, by - (by - ay) / 2, bx, by);
  }
}

function drawEnd(segment, style, color) {
  if (segment.chip) {
    const { x, y, w, h, text } = segment.chip;
    outline({ x, y, w, h }, 9);
    brush.fillStyle = paint.bg;
    brush.fill();
    stroke(color, 1);
    write(text, x, y + 0.5, FONT.small, paint.muted);
    brush.fillStyle = color;
    return;
  }
  const [x, y] = segment.points.at(-1);
  if (style.startsWith("severed")) {
    brush.fillRect(x - 8, y - 4, 16, 2.4);
  } else if (segment.arrow) {
    brush.beginPath();
    brush.moveTo(x, y);
    brush.lineTo(x - 3.8, y - 7);
    brush.lineTo(x + 3.8, y - 7);
    brush.fill();
  }
  const pairs = segment.kinds.has("plain") && isNode(segment.a) && isNode(segment.b) ? segment.times : 1;
  if (pairs > 1) write(`× ${pairs}`, x + 7, y - 12, FONT.small, paint.muted, "left");
}

// ---- boxes and items

function drawBox(box) {
  const scope = scopes[~box.id];
  outline(box, 10);
  brush.fillStyle = paint.module;
  brush.fill();
  stroke(isSelected(box.id) ? paint.path : paint["module-line"], isSelected(box.id) ? 2.4 : 1, scope.kind === "module" ? [] : [7, 4]);
}

function drawTitle(box) {
  const size = Math.min(12 * Math.max(1, READABLE / camera.zoom), HEAD);
  if (camera.zoom < 0.12 && box.w * camera.zoom < 60) return;
  const scope = scopes[~box.id];
  const font = FONT.title.replace("12px", `${size}px`);
  const text = `▾ ${short(scope.title)}`;
  if (camera.zoom < READABLE && widthOf(text, font) > box.w - 12) return;
  const [left, y] = [box.x - box.w / 2 + 10, box.y - box.h / 2 + HEAD / 2];
  brush.fillStyle = paint.module;
  brush.fillRect(left - 2, y - size * 0.7, widthOf(text, font) + 4, size * 1.4);
  write(text, left, y, font, paint.ink, "left");
}

function drawFar(items) {
  const fills = new Map();
  for (const item of items) {
    const { fill, line } = looks(item.id);
    const color = highlight.nodes.has(item.id) || isSelected(item.id) ? paint.path : item.id < 0 ? line : fill;
    if (!fills.has(color)) fills.set(color, []);
    fills.get(color).push(item);
  }
  brush.globalAlpha = 1;
  for (const [color, some] of fills) {
    brush.beginPath();
    for (const { x, y, w, h } of some) brush.rect(x - w / 2, y - h / 2, w, h);
    brush.fillStyle = color;
    brush.fill();
    stroke(color === paint.path ? paint.path : paint["op-line"], 0.7 / camera.zoom);
  }
}

// The state of a node at the chosen moment; over the whole run none is shown.
const look = (node) => (state.position === null ? "whole" : stateAt(node, state.position));

function looks(id) {
  if (id < 0) return { fill: paint.module, line: paint["module-line"] };
  if (!isNode(id)) {
    const each = thing(id);
    if (each.kind === "loss") return { fill: paint.loss, line: each.loss.failing ? paint.severed : paint.loss, width: each.loss.failing ? 3 : 1, ink: paint["loss-ink"] };
    if (each.kind === "cut") return { fill: paint.cut, line: paint.severed, dash: [3, 3], ink: paint.severed };
    return each.trained ? { fill: paint.parameter, line: paint["parameter-line"] } : { fill: paint.input, line: paint["input-line"] };
  }
  switch (look(id)) {
    case "freed":
      return { fill: paint.freed, line: paint["freed-line"], dash: [5, 3], words: "✕ freed" };
    case "stale":
      return { fill: paint.op, line: paint.stale, width: 2.6, words: "≠ stale" };
    case "future":
      return { fill: paint.bg, line: paint["module-line"], dash: [1, 3], ink: paint.muted };
    case "alive":
      return { fill: paint.op, line: paint["op-line"], band: paint.alive };
    default:
      return { fill: paint.op, line: paint["op-line"] };
  }
}

function drawItem(item) {
  const { fill, line, width = 1.1, dash, ink = paint.ink, words: told, band } = looks(item.id);
  const group = item.id >= NODES && thing(item.id).kind === "leaves" ? thing(item.id) : null;
  const radius = group ? 12 : item.id < 0 ? 10 : 6;
  if (item.id < 0) {
    outline({ ...item, x: item.x + 3, y: item.y + 3 }, radius);
    brush.fillStyle = fill;
    brush.fill();
    stroke(line, 1);
  }
  outline(item, radius);
  brush.fillStyle = fill;
  brush.fill();
  if (group?.trained) drawOptimizers(item, group, radius);
  if (band) drawBand(item, radius, band);
  const marked = isSelected(item.id) || highlight.nodes.has(item.id);
  outline(item, radius);
  stroke(marked ? paint.path : line, marked ? (isSelected(item.id) ? 3.4 : 2.4) : width, marked && !dash ? [] : dash);
  if (isShared(item.id)) {
    outline(item, radius, 3.5);
    stroke(paint.shared, 1.4);
  }
  const lines = labelOf(item.id);
  const step = group ? 15 : 16;
  const first = item.y - ((lines.length - 1) * step) / 2;
  lines.forEach(([text, font], row) => {
    const shown = row === 1 && told ? [told, text.trim()].filter(Boolean).join(" · ") : row === 0 && item.id < 0 ? `▸ ${text}` : text;
    const strong = row === 0 || font === FONT.row;
    const color = item.id >= NODES && thing(item.id).kind === "loss" ? ink : strong ? ink : told ? line : paint.muted;
    write(shown, item.x, first + row * step + 0.5, font, color);
  });
  drawBadge(item);
}

function drawBand(item, radius, color) {
  brush.save();
  brush.clip();
  brush.fillStyle = color;
  brush.fillRect(item.x - item.w / 2, item.y - item.h / 2, 5, item.h);
  brush.restore();
  outline(item, radius);
}

// The optimizers that hold a parameter as a band on its left edge; hatched where none does.
function drawOptimizers(item, group, radius) {
  if (!data.optimizers.length) return;
  brush.save();
  brush.clip();
  const [left, top] = [item.x - item.w / 2, item.y - item.h / 2];
  if (group.optimizers.length) {
    const part = item.h / group.optimizers.length;
    group.optimizers.forEach((optimizer, place) => {
      brush.fillStyle = paint.optimizers[optimizer % paint.optimizers.length];
      brush.fillRect(left, top + place * part, 7, part);
    });
  } else {
    brush.beginPath();
    for (let y = top - 7; y < top + item.h + 7; y += 5) {
      brush.moveTo(left, y + 7);
      brush.lineTo(left + 9, y);
    }
    stroke(paint.severed, 1.3);
  }
  brush.restore();
  outline(item, radius);
}

// A disc at the corner of what findings name, with the number of the first finding.
function drawBadge(item) {
  const named = findingsAt(item.id);
  if (!named.length) return;
  const [x, y] = [item.x + item.w / 2 - 3, item.y - item.h / 2 + 2];
  brush.beginPath();
  brush.arc(x, y, 8, 0, 7);
  brush.fillStyle = paint[findings[named[0]].severity];
  brush.fill();
  stroke(paint.bg, 1.5);
  write(String(named[0] + 1), x, y + 0.5, "700 10px system-ui, sans-serif", paint.bg);
}

function findingsAt(id) {
  if (id < 0) return [...scopes[~id].findings].sort((a, b) => a - b);
  if (isNode(id)) return findingsOf.get(id) ?? [];
  const each = thing(id);
  if (each.kind === "cut") return each.cut.findings;
  return each.kind === "leaves" ? [...new Set(each.leaves.flatMap((leaf) => findingsOf.get(leaf) ?? []))] : [];
}

const isShared = (id) => isNode(id) && shared.has(id);
const isSelected = (id) => state.selected.has(id);

// ---- where things are

function itemAt(x, y) {
  const hit = (each) => Math.abs(x - each.x) <= each.w / 2 + 2 && Math.abs(y - each.y) <= each.h / 2 + 2;
  const chip = view.segments.find((segment) => segment.chip && hit(segment.chip));
  if (chip) return { id: chip.b, chip: true };
  return view.items.find(hit) ?? view.boxes.findLast(hit) ?? null;
}

// The leaf in whose row a point lies.
function leafAt(item, y) {
  const { leaves: rows } = thing(item.id);
  const row = Math.floor((y - item.y + item.h / 2 - 6) / 15);
  return rows[Math.max(0, Math.min(row, rows.length - 1))];
}

function fit() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  camera.zoom = Math.max(0.001, Math.min((width - 40) / Math.max(view.w, 1), (height - 40) / Math.max(view.h, 1), 1.3));
  camera.x = (width - view.w * camera.zoom) / 2;
  camera.y = Math.max(20, (height - view.h * camera.zoom) / 2);
  redraw();
}

// Show all if it can be read then, else the top of it.
function fitReadable() {
  fit();
  if (camera.zoom >= 0.55) return;
  camera.zoom = 0.8;
  const start = view.boxes.find((each) => scopes[~each.id].parent === 0) ?? view.items[0];
  camera.x = canvas.clientWidth / 2 - start.enter * camera.zoom;
  camera.y = 24 - (start.y - start.h / 2) * camera.zoom;
  redraw();
}

const SMALLEST = 0.55; // zoom that bringing things into the middle goes down to

// Bring things into the middle: the first of the choices that can be read and seen at once, else the top of the last.
function centre(...choices) {
  const boxes = choices.map((ids) => ids.map((id) => view.byId.get(visible(id))).filter(Boolean)).filter((found) => found.length);
  const extents = boxes.map((found) => {
    const [x0, x1] = [Math.min(...found.map((each) => each.x - each.w / 2)), Math.max(...found.map((each) => each.x + each.w / 2))];
    const [y0, y1] = [Math.min(...found.map((each) => each.y - each.h / 2)), Math.max(...found.map((each) => each.y + each.h / 2))];
    return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, top: y0, zoom: Math.min((canvas.clientWidth - 60) / (x1 - x0), (canvas.clientHeight - 60) / (y1 - y0)) };
  });
  if (!extents.length) return;
  const whole = extents.find(({ zoom }) => zoom >= SMALLEST);
  const { x, y, top, zoom } = whole ?? extents.at(-1);
  camera.zoom = whole ? Math.min(zoom, Math.max(camera.zoom, 1), 1.2) : 0.8;
  camera.x = canvas.clientWidth / 2 - x * camera.zoom;
  camera.y = whole ? canvas.clientHeight / 2 - y * camera.zoom : 40 - top * camera.zoom;
  redraw();
}

function zoomAt(x, y, factor) {
  const zoom = Math.max(0.001, Math.min(4, camera.zoom * factor));
  camera.x = x - ((x - camera.x) * zoom) / camera.zoom;
  camera.y = y - ((y - camera.y) * zoom) / camera.zoom;
  camera.zoom = zoom;
  redraw();
}

// ---- opening and closing; the box concerned stays where it is on the screen

function change(index, act) {
  const before = view.byId.get(~index);
  act();
  rebuild();
  const after = view.byId.get(~index);
  if (before && after) {
    camera.x += (before.x - after.x) * camera.zoom;
    camera.y += (before.y - before.h / 2 - (after.y - after.h / 2)) * camera.zoom;
  }
  redraw();
  showOutline();
}

function toggle(index) {
  if (index === 0) return;
  change(index, () => {
    if (open.has(index)) open.delete(index);
    else open.add(index);
    touch(index);
  });
  say(`${scopes[index].label}: ${open.has(index) ? "open" : "closed"}, ${count(scopes[index].size, "node")}`);
}

const MOST_OPEN = 20000; // nodes that "expand all" opens

function expandAll() {
  let total = 0;
  for (const scope of scopes) {
    total += contents[scope.index].length;
    if (total > MOST_OPEN) break;
    open.add(scope.index);
  }
  layouts.clear();
  rebuild();
  fitReadable();
  showOutline();
  say(total > MOST_OPEN ? `the first ${MOST_OPEN} nodes are open` : "all modules are open");
}

function collapseAll() {
  open.clear();
  open.add(0);
  layouts.clear();
  rebuild();
  fitReadable();
  showOutline();
  say("all modules are closed");
}

// ---- pointer

const pointers = new Map();
let moved = 0;
let onMap = false;

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  if (pointers.size > 1) return;
  moved = 0;
  onMap = goByMap(event.offsetX, event.offsetY);
});

canvas.addEventListener("pointermove", (event) => {
  if (!pointers.has(event.pointerId)) {
    hover(event.offsetX, event.offsetY);
    return;
  }
  const [x, y] = pointers.get(event.pointerId);
  const now = [event.offsetX, event.offsetY];
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const distance = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
    zoomAt((now[0] + other[0]) / 2, (now[1] + other[1]) / 2, distance(now) / Math.max(distance([x, y]), 1));
  } else if (onMap) {
    goByMap(...now);
  } else {
    camera.x += now[0] - x;
    camera.y += now[1] - y;
    redraw({ moved: true });
  }
  moved += Math.hypot(now[0] - x, now[1] - y);
  pointers.set(event.pointerId, now);
});

function release(event) {
  if (!pointers.delete(event.pointerId) || event.type === "pointercancel" || onMap || moved > 5) return;
  const [x, y] = toGraph(event.offsetX, event.offsetY);
  const item = itemAt(x, y);
  if (!item) clear();
  else if (item.chip) select(item.id, { reveal: true });
  else if (item.id < 0 && y < item.y - item.h / 2 + HEAD && open.has(~item.id)) toggle(~item.id);
  else if (item.id >= NODES && thing(item.id).kind === "leaves") select(leafAt(item, y));
  else select(item.id);
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);

canvas.addEventListener("dblclick", (event) => {
  const item = itemAt(...toGraph(event.offsetX, event.offsetY));
  if (item && item.id < 0 && !open.has(~item.id)) toggle(~item.id);
});

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)));
}, { passive: false });

const tip = document.getElementById("tip");

function hover(x, y) {
  const item = itemAt(...toGraph(x, y));
  canvas.style.cursor = item ? "pointer" : "grab";
  tip.hidden = !item || item.chip === true || (item.id < 0 && open.has(~item.id));
  if (tip.hidden) return;
  tip.textContent = describe(item.id >= NODES && thing(item.id).kind === "leaves" ? leafAt(item, toGraph(x, y)[1]) : item.id);
  tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${canvas.offsetTop + Math.min(y + 16, canvas.clientHeight - tip.offsetHeight - 4)}px`;
}
canvas.addEventListener("pointerleave", () => (tip.hidden = true));

// ---- keys: down and up follow the gradient, left and right go to what is beside

canvas.addEventListener("keydown", (event) => {
  const current = [...state.selected].map((id) => view.byId.get(visible(id))).find(Boolean);
  const steps = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
  if (steps[event.key]) {
    const next = current ? neighbour(current, ...steps[event.key]) : view.items.reduce((first, item) => (first && (first.y < item.y || (first.y === item.y && first.x <= item.x)) ? first : item), null);
    if (next) {
      select(next.id >= NODES && thing(next.id).kind === "leaves" ? thing(next.id).leaves[0] : next.id);
      keepInSight(next);
    }
  } else if (event.key === "Enter" || event.key === " ") {
    const index = current && current.id < 0 ? ~current.id : current ? scopes[homeOf(current.id)].index : -1;
    if (index > 0) toggle(index);
    if (index > 0 && current.id >= 0) select(~index);
  } else if (event.key === "+" || event.key === "=") {
    zoomAt(canvas.clientWidth / 2, canvas.clientHeight / 2, 1.25);
  } else if (event.key === "-") {
    zoomAt(canvas.clientWidth / 2, canvas.clientHeight / 2, 0.8);
  } else {
    return;
  }
  event.preventDefault();
});

function neighbour(item, dx, dy) {
  const linked = (from, to) => view.segments.filter((segment) => segment[from] === item.id).map((segment) => view.byId.get(segment[to])).filter(Boolean);
  if (dy) {
    const near = dy > 0 ? linked("a", "b") : linked("b", "a");
    const inside = item.id < 0 && open.has(~item.id) ? view.items.filter((each) => each.id >= 0 && within(each.id, ~item.id) !== null) : [];
    const choice = near.length ? near : dy > 0 ? inside : [];
    if (choice.length) return choice.reduce((best, each) => (Math.abs(each.x - item.x) < Math.abs(best.x - item.x) ? each : best));
  }
  const beyond = view.items.filter((each) => each !== item && (each.x - item.x) * dx + (each.y - item.y) * dy > 4);
  const cost = (each) => Math.abs(each.x - item.x) * (dx ? 1 : 3) + Math.abs(each.y - item.y) * (dy ? 1 : 3);
  return beyond.length ? beyond.reduce((best, each) => (cost(each) < cost(best) ? each : best)) : null;
}

function keepInSight(item) {
  const [x, y] = [item.x * camera.zoom + camera.x, item.y * camera.zoom + camera.y];
  if (x < 80 || x > canvas.clientWidth - 80) camera.x += canvas.clientWidth / 2 - x;
  if (y < 60 || y > canvas.clientHeight - 60) camera.y += canvas.clientHeight / 2 - y;
  redraw();
}
