// Layered layout of one container: gradients go down, boxes of one layer do not touch.

const GAP = { x: 22, y: 34, parts: 46 };
const LONG = 24; // layers; an edge over more becomes a chip at its start that names its end

// Gives each item {w, h, port} its centre x, y, and each edge [a, b] its route, the points between the two.
// `chip` tells the size of the chip for an edge. The parts that no edge joins are packed side by side.
function arrange(items, edges, chip) {
  const routes = new Map();
  const chips = [];
  const blocks = parts(items.length, edges).map(({ members, inside }) => {
    const number = new Map(members.map((item, position) => [item, position]));
    const local = inside.map((edge) => edges[edge].map((item) => number.get(item)));
    return { ...layered(members.map((item) => items[item]), local, (edge) => chip(inside[edge])), members, inside };
  });
  const area = blocks.reduce((sum, block) => sum + (block.w + GAP.parts) * (block.h + GAP.parts), 0);
  const widest = Math.max(0, ...blocks.map((block) => block.w), Math.sqrt(area) * 1.25);
  let [x, y, tall, w] = [0, 0, 0, 0];
  for (const block of blocks) {
    if (x > 0 && x + block.w > widest) [x, y, tall] = [0, y + tall + GAP.parts, 0];
    block.members.forEach((item, position) => {
      items[item].x = block.xs[position] + x;
      items[item].y = block.ys[position] + y;
    });
    block.routes.forEach((points, edge) => routes.set(block.inside[edge], points.map(([px, py]) => [px + x, py + y])));
    for (const each of block.chips) chips.push({ ...each, edge: block.inside[each.edge], x: each.x + x, y: each.y + y });
    x += block.w + GAP.parts;
    w = Math.max(w, x - GAP.parts);
    tall = Math.max(tall, block.h);
  }
  return { w, h: y + tall, routes, chips };
}

// The items that edges join, and these edges.
function parts(number, edges) {
  const part = Int32Array.from({ length: number }, (_, item) => item);
  const find = (item) => {
    while (part[item] !== item) item = part[item] = part[part[item]];
    return item;
  };
  for (const [a, b] of edges) part[find(b)] = find(a);
  const found = new Map();
  for (let item = 0; item < number; item += 1) {
    const root = find(item);
    if (!found.has(root)) found.set(root, { members: [], inside: [] });
    found.get(root).members.push(item);
  }
  edges.forEach(([a], edge) => found.get(find(a)).inside.push(edge));
  return [...found.values()];
}

function layered(items, edges, chip) {
  const directed = withoutCycles(items.length, edges);
  const layer = layersOf(items, directed);
  const { points, chips, trunks } = pointsOf(items, directed, layer, chip);
  const layers = ordered(points);
  const xs = placed(points, layers);
  let [top, left, right] = [0, Infinity, -Infinity];
  const spans = layers.map((members) => {
    const h = members.reduce((most, point) => Math.max(most, points[point].h), 0);
    const span = { top, middle: top + h / 2, bottom: top + h };
    top += h + (h ? GAP.y : GAP.y / 2);
    return span;
  });
  points.forEach((point, index) => {
    left = Math.min(left, xs[index] - point.w / 2);
    right = Math.max(right, xs[index] + point.w / 2);
  });
  const at = (point) => [xs[point] - left, spans[points[point].layer].middle];
  const side = (point, name) => [xs[point] - left, spans[points[point].layer][name]];
  const routes = new Map();
  directed.forEach(([a, b], edge) => {
    if (chips.has(edge)) return;
    const low = (point) => spans[points[point].layer].bottom - spans[points[point].layer].top > points[point].h + 8;
    const route = low(a) ? [side(a, "bottom")] : [];
    for (let step = layer[a] + 1; step < layer[b]; step += 1) {
      const point = trunks.get(b).get(step);
      route.push(...(low(point) ? [side(point, "top"), side(point, "bottom")] : [at(point)]));
    }
    if (low(b)) route.push(side(b, "top"));
    routes.set(edge, edges[edge][0] === a ? route : route.reverse());
  });
  return {
    w: points.length ? right - left : 0,
    h: points.length ? spans.at(-1).bottom : 0,
    xs: items.map((_, item) => at(item)[0]),
    ys: items.map((_, item) => at(item)[1]),
    routes,
    chips: [...chips].map(([edge, point]) => ({ edge, x: at(point)[0], y: at(point)[1], w: points[point].w, h: points[point].h })),
  };
}

// The edges, those turned round that would close a cycle.
function withoutCycles(number, edges) {
  const out = Array.from({ length: number }, () => []);
  const entered = new Int32Array(number);
  edges.forEach(([a, b], edge) => {
    out[a].push(edge);
    entered[b] += 1;
  });
  const state = new Uint8Array(number); // 1 on the way, 2 done
  const turned = new Set();
  const starts = [...Array(number).keys()].sort((a, b) => (entered[a] > 0) - (entered[b] > 0) || a - b);
  for (const start of starts) {
    const stack = state[start] ? [] : [[start, 0]];
    while (stack.length) {
      const top = stack.at(-1);
      state[top[0]] = 1;
      if (top[1] === out[top[0]].length) {
        state[stack.pop()[0]] = 2;
        continue;
      }
      const edge = out[top[0]][top[1]++];
      const next = edges[edge][1];
      if (state[next] === 1) turned.add(edge);
      else if (!state[next]) stack.push([next, 0]);
    }
  }
  return edges.map(([a, b], edge) => (turned.has(edge) ? [b, a] : [a, b]));
}

// Each item one layer below the lowest that leads to it; sources go down to just above what they lead to.
function layersOf(items, edges) {
  const number = items.length;
  const out = Array.from({ length: number }, () => []);
  const waiting = new Int32Array(number);
  for (const [a, b] of edges) {
    out[a].push(b);
    waiting[b] += 1;
  }
  const entered = Int32Array.from(waiting);
  const order = [];
  for (let item = 0; item < number; item += 1) if (!waiting[item]) order.push(item);
  const layer = new Int32Array(number);
  for (const item of order) {
    for (const next of out[item]) {
      layer[next] = Math.max(layer[next], layer[item] + 1);
      waiting[next] -= 1;
      if (!waiting[next]) order.push(next);
    }
  }
  for (const item of order) {
    if (!entered[item] && out[item].length && items[item].port !== "in") {
      layer[item] = Math.min(...out[item].map((next) => layer[next])) - 1;
    }
  }
  const lowest = order.reduce((low, item) => Math.max(low, layer[item]), 0);
  items.forEach((item, index) => {
    if (item.port === "out") layer[index] = Math.max(layer[index], lowest);
  });
  return layer;
}

// What takes room in the layers: the items, chips, and a point in each layer that a longer edge crosses. The long
// edges to one item share these points, its trunk.
function pointsOf(items, edges, layer, chip) {
  const points = items.map((item, index) => ({ w: item.w, h: item.h, layer: layer[index], real: true, up: [], down: [] }));
  const link = (a, b) => {
    points[a].down.push(b);
    points[b].up.push(a);
  };
  const chips = new Map();
  const long = new Map();
  edges.forEach(([a, b], edge) => {
    const span = layer[b] - layer[a];
    if (span === 1) link(a, b);
    else if (span > LONG && items[a].port !== "in" && items[b].port !== "out") {
      chips.set(edge, points.length);
      points.push({ ...chip(edge), layer: layer[a] + 1, real: true, up: [], down: [] });
      link(a, points.length - 1);
    } else if (span > 1) {
      if (!long.has(b)) long.set(b, []);
      long.get(b).push(a);
    }
  });
  const trunks = new Map();
  for (const [b, starts] of long) {
    const trunk = new Map();
    const first = Math.min(...starts.map((a) => layer[a])) + 1;
    for (let step = first; step < layer[b]; step += 1) {
      trunk.set(step, points.length);
      points.push({ w: 8, h: 0, layer: step, real: false, up: [], down: [] });
      if (step > first) link(points.length - 2, points.length - 1);
    }
    link(points.length - 1, b);
    for (const a of starts) link(a, trunk.get(layer[a] + 1));
    trunks.set(b, trunk);
  }
  return { points, chips, trunks };
}

// The points of each layer from left to right, with few crossings: each goes to the mean of its neighbours.
function ordered(points) {
  const layers = Array.from({ length: points.reduce((most, point) => Math.max(most, point.layer + 1), 0) }, () => []);
  const seen = new Uint8Array(points.length);
  points.forEach((point, start) => {
    const stack = point.up.length ? [] : [start];
    while (stack.length) {
      const index = stack.pop();
      if (seen[index]) continue;
      seen[index] = 1;
      layers[points[index].layer].push(index);
      for (const next of points[index].down.toReversed()) if (!seen[next]) stack.push(next);
    }
  });
  const position = new Float64Array(points.length);
  const number = (members) => members.forEach((point, place) => (position[point] = (place + 0.5) / members.length));
  layers.forEach(number);
  const sweeps = points.length > 20000 ? 2 : points.length > 4000 ? 4 : 10;
  for (let sweep = 0; sweep < sweeps; sweep += 1) {
    const downward = sweep % 2 === 0;
    for (const members of downward ? layers : layers.toReversed()) {
      if (members.length < 2) continue;
      const wanted = new Map();
      for (const point of members) {
        const near = downward ? points[point].up : points[point].down;
        wanted.set(point, near.length ? near.reduce((sum, other) => sum + position[other], 0) / near.length : position[point]);
      }
      members.sort((a, b) => wanted.get(a) - wanted.get(b));
      number(members);
    }
  }
  return layers;
}

// The x of each point: as near to the median of its neighbours as the boxes of its layer let it.
function placed(points, layers) {
  const xs = new Float64Array(points.length);
  const gap = (a, b) => (points[a].w + points[b].w) / 2 + (points[a].real && points[b].real ? GAP.x : GAP.x * 0.6);
  for (const members of layers) {
    let x = 0;
    members.forEach((point, place) => {
      if (place) x += gap(members[place - 1], point);
      xs[point] = x;
    });
    for (const point of members) xs[point] -= x / 2;
  }
  const rounds = points.length > 20000 ? 4 : points.length > 4000 ? 8 : 16;
  for (let round = 0; round < rounds; round += 1) {
    const downward = round % 2 === 0;
    const both = round >= rounds - 2;
    for (const members of downward ? layers : layers.toReversed()) {
      const wanted = members.map((index) => {
        const point = points[index];
        const near = both ? [...point.up, ...point.down] : downward ? point.up : point.down;
        if (!near.length) return [xs[index], 0.3];
        return [median(near.map((other) => xs[other])), point.real ? 1 + Math.min(4, near.length) : 6];
      });
      spread(members, wanted, gap, xs);
    }
  }
  return xs;
}

function median(values) {
  values.sort((a, b) => a - b);
  const half = values.length >> 1;
  return values.length % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Pool adjacent violators: the places nearest to those wanted, weighted, that keep order and gaps.
function spread(members, wanted, gap, xs) {
  const offset = [0];
  const pools = [];
  members.forEach((point, place) => {
    if (place) offset.push(offset[place - 1] + gap(members[place - 1], point));
    const [x, weight] = wanted[place];
    let pool = { sum: (x - offset[place]) * weight, weight, length: 1 };
    while (pools.length && pools.at(-1).sum / pools.at(-1).weight > pool.sum / pool.weight) {
      const left = pools.pop();
      pool = { sum: left.sum + pool.sum, weight: left.weight + pool.weight, length: left.length + pool.length };
    }
    pools.push(pool);
  });
  let place = 0;
  for (const pool of pools) {
    for (let step = 0; step < pool.length; step += 1, place += 1) xs[members[place]] = pool.sum / pool.weight + offset[place];
  }
}
