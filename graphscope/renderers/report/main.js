// What is chosen, and how the parts follow it.

const state = {
  selected: new Set(), // numbers of what is drawn, or of nodes
  finding: -1,
  position: null, // the moment shown, as a number of events; null is the whole run
};

// Select a node, a loss, a cut or a scope; `reveal` opens what is around it and brings it into the middle.
function select(id, { reveal = false } = {}) {
  clearFinding();
  const drawn = isNode(id) ? drawnAs(id) : [id];
  state.selected = new Set([id, ...drawn]);
  highlight.segments = new Set();
  highlight.nodes = new Set();
  if (reveal) {
    const first = isNode(id) ? nearest(id) : id;
    if (openAround(first)) rebuild();
    centre([first]);
  }
  for (const each of drawn) if (visible(each) !== each) highlight.nodes.add(visible(each));
  showSelected(id);
  const place = placeOf(id);
  if (place >= 0 && !byId("lines").hidden) showPlace(place, false);
  markSource();
  showOutline();
  redraw();
  say(describe(id));
}

function clear() {
  clearFinding();
  state.selected = new Set();
  highlight.nodes = new Set();
  highlight.segments = new Set();
  markSource();
  showNothing();
  showOutline();
  redraw();
}

function clearFinding() {
  state.finding = -1;
  for (const each of byId("findings").querySelectorAll("article.chosen")) {
    each.classList.remove("chosen");
    each.querySelector("button").setAttribute("aria-expanded", "false");
    each.querySelector(".body").hidden = true;
  }
}

// ---- theme: that of the system, until the button says otherwise

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (darkSystem.matches ? "dark" : "light")) === "dark";

function followTheme() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  readPaint();
  if (EVENTS) drawStrip();
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  followTheme();
});
darkSystem.addEventListener("change", followTheme);

// ---- printing: on light paper, with every finding open

let before = null;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme ?? null;
  document.documentElement.dataset.theme = "light";
  for (const body of document.querySelectorAll("#findings .body")) body.hidden = false;
  readPaint();
  fitCanvas();
  fit();
  draw();
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  for (const each of document.querySelectorAll("#findings article:not(.chosen) .body")) each.hidden = true;
  fitCanvas();
  followTheme();
});

// ---- keys that work everywhere but in fields

const KEYS = {
  "/": () => byId("search").focus(),
  n: () => findings.length && chooseFinding((state.finding + 1) % findings.length),
  p: () => findings.length && chooseFinding((Math.max(state.finding, 0) - 1 + findings.length) % findings.length),
  g: () => (showView("graph"), canvas.focus()),
  f: fit,
  e: expandAll,
  c: collapseAll,
  "[": () => step(-1),
  "]": () => step(1),
  Escape: clear,
  "?": () => byId("keys").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target.closest("input[type=text], select") || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

// ---- start

const showView = tabs(byId("views"), (id) => ({ memory: showMemory, reach: showReach, examined: showExamined, graph: fitCanvas })[id]());
const showSourceTab = tabs(document.querySelector("#source [role=tablist]"), () => showOutline());

byId("script").textContent = data.script;
byId("summary").append(
  ...["error", "warning", "note"].map((severity) => [severity, findings.filter((finding) => finding.severity === severity).length]).filter(([, number]) => number).map(([severity, number]) => element(`span.severity.${severity}`, {}, count(number, severity))),
  findings.length ? "" : element("span.severity.clear", {}, "no findings"),
  element("span.muted", {}, `${count(NODES - leaves.size, "node")}, ${losses.map((loss) => loss.name).filter((name, place, all) => all.indexOf(name) === place).slice(0, 4).join(", ")}`),
);
byId("fit").addEventListener("click", fit);
byId("expand").addEventListener("click", expandAll);
byId("collapse").addEventListener("click", collapseAll);
byId("help").addEventListener("click", () => byId("keys").showModal());
for (const loss of losses) byId("from").append(element("option", { value: loss.index }, loss.title));
const goals = data.leaves.filter(([, , , trained]) => trained);
for (const [node, name] of (goals.length ? goals : data.leaves).slice(0, 2000)) byId("to").append(element("option", { value: node }, name));
document.querySelector(".way").hidden = !losses.length || !data.leaves.length;
byId("way").addEventListener("click", () => showWay(losses[Number(byId("from").value)], Number(byId("to").value)));

fillFiles();
if (!data.files.some(([, lines]) => lines.length)) byId("lines").append(element("p", {}, "No source is known."));
showFindings();
showLegend();
setUpTimeline();
openByDefault();
rebuild();
showNothing();
followTheme();
fitCanvas();
fitReadable();
showFile(data.findings[0]?.places.length ? data.places[data.findings[0].places[0][0]][0] : data.files.findIndex(([name, lines]) => lines.length));
showMoment();
if (findings.length) chooseFinding(0, { quiet: true });
new ResizeObserver(() => {
  fitCanvas();
  if (EVENTS) drawStrip();
}).observe(canvas);
