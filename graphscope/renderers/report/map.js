// A small map of the whole graph in the corner, while only a part of it is in sight; a click or drag goes there.

const MAP = { w: 110, h: 170, least: 34, margin: 12, until: 0.6 }; // of the graph's width or height in sight
const sheet = document.createElement("canvas");
let charted = null; // the view that the sheet shows

function mapFrame() {
  const scale = Math.min(MAP.w / view.w, MAP.h / view.h) * Math.min(1, canvas.clientWidth / 600);
  const [w, h] = [Math.max(MAP.least, view.w * scale), Math.max(MAP.least, view.h * scale)];
  return { x: canvas.clientWidth - w - MAP.margin, y: canvas.clientHeight - h - MAP.margin, w, h, sx: w / view.w, sy: h / view.h };
}

function inSight() {
  const [x0, y0] = toGraph(0, 0);
  const [x1, y1] = toGraph(canvas.clientWidth, canvas.clientHeight);
  const part = (from, to, size) => Math.max(0, Math.min(to, size) - Math.max(from, 0)) / Math.max(size, 1);
  return { x0, y0, x1, y1, most: part(x0, x1, view.w) > MAP.until && part(y0, y1, view.h) > MAP.until };
}

function chart(frame) {
  charted = view;
  sheet.width = Math.ceil(frame.w * pixels);
  sheet.height = Math.ceil(frame.h * pixels);
  const pen = sheet.getContext("2d");
  pen.scale(frame.sx * pixels, frame.sy * pixels);
  const rect = ({ x, y, w, h }) => pen.fillRect(x - w / 2, y - h / 2, Math.max(w, 1.5 / frame.sx), Math.max(h, 1.2 / frame.sy));
  pen.fillStyle = paint.module;
  view.boxes.forEach(rect);
  for (const item of view.items) {
    const { fill, line } = looks(item.id);
    const named = findingsAt(item.id);
    pen.fillStyle = named.length ? paint[findings[named[0]].severity] : item.id >= NODES && thing(item.id).kind === "loss" ? fill : line;
    rect(item);
  }
}

function drawMap() {
  const { x0, y0, x1, y1, most } = inSight();
  if (most || view.items.length < 8) return;
  const frame = mapFrame();
  if (charted !== view) chart(frame);
  brush.setTransform(pixels, 0, 0, pixels, 0, 0);
  brush.fillStyle = paint.bg;
  brush.fillRect(frame.x - 4, frame.y - 4, frame.w + 8, frame.h + 8);
  brush.strokeStyle = paint["module-line"];
  brush.lineWidth = 1;
  brush.strokeRect(frame.x - 4, frame.y - 4, frame.w + 8, frame.h + 8);
  brush.drawImage(sheet, frame.x, frame.y, frame.w, frame.h);
  const clip = (value, most) => Math.max(0, Math.min(value, most));
  const [left, top] = [clip(x0 * frame.sx, frame.w), clip(y0 * frame.sy, frame.h)];
  brush.strokeStyle = paint.path;
  brush.lineWidth = 1.6;
  brush.strokeRect(frame.x + left, frame.y + top, Math.max(3, clip(x1 * frame.sx, frame.w) - left), Math.max(3, clip(y1 * frame.sy, frame.h) - top));
}

// Whether a point is on the map; if so, that part of the graph comes into the middle.
function goByMap(x, y) {
  const frame = mapFrame();
  if (inSight().most || view.items.length < 8 || x < frame.x - 4 || y < frame.y - 4 || x > frame.x + frame.w + 4 || y > frame.y + frame.h + 4) return false;
  camera.x = canvas.clientWidth / 2 - ((x - frame.x) / frame.sx) * camera.zoom;
  camera.y = canvas.clientHeight / 2 - ((y - frame.y) / frame.sy) * camera.zoom;
  redraw({ moved: true });
  return true;
}
