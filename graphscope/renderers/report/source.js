// The source, with the lines of findings marked.

let shownFile = -1;
const lineOf = (number) => byId("lines").querySelector(`[data-line="${number}"]`);

function fillFiles() {
  const list = byId("file");
  data.files.forEach(([name, lines], index) => {
    if (lines.length) list.append(element("option", { value: index }, name));
  });
  list.hidden = list.length < 2;
  list.addEventListener("change", () => showFile(Number(list.value)));
}

function showFile(file) {
  if (file === shownFile || file < 0) return;
  shownFile = file;
  byId("file").value = file;
  const [name, lines] = data.files[file];
  const nodes = nodesByLine(file);
  byId("lines").setAttribute("aria-label", `Source of ${name}`);
  byId("lines").replaceChildren(
    ...lines.map((text, place) => {
      const number = place + 1;
      const made = nodes.get(number);
      const gutter = made
        ? element("button.number", { type: "button", title: `${count(made.length, "node")} made here`, "aria-label": `line ${number}, ${count(made.length, "node")}`, onclick: () => chooseLine(file, number) }, String(number))
        : element("span.number", { "aria-hidden": "true" }, String(number));
      return element("div.line", { "data-line": number }, gutter, element("code", {}, text || " "));
    }),
    ...(lines.length ? [] : [element("p", {}, "The source of this file is not known.")]),
  );
  markSource();
}

function nodesByLine(file) {
  const found = new Map();
  data.nodes.place.forEach((place, node) => {
    if (place < 0 || data.places[place][0] !== file) return;
    const line = data.places[place][1];
    if (!found.has(line)) found.set(line, []);
    found.get(line).push(node);
  });
  return found;
}

// Every finding leaves its colour at its lines; the chosen one writes beside them what happened there.
function markSource() {
  const lines = byId("lines");
  for (const label of lines.querySelectorAll(".label")) label.remove();
  for (const line of lines.querySelectorAll(".line")) line.className = "line";
  findings.forEach((finding, index) => {
    for (const [place, role, label] of finding.places) {
      const [file, first, last] = data.places[place];
      if (file !== shownFile) continue;
      for (let number = first; number <= last; number += 1) {
        lineOf(number)?.classList.add("marked", finding.severity, ...(index === state.finding ? ["chosen", role] : []));
      }
      if (index === state.finding) lineOf(last)?.after(element(`p.label.${role}.${finding.severity}`, {}, `${{ cause: "cause", failure: "fails", related: "see" }[role]}: `, code(label)));
    }
  });
  for (const id of state.selected) {
    const place = placeOf(id);
    if (place >= 0 && data.places[place][0] === shownFile) {
      for (let number = data.places[place][1]; number <= data.places[place][2]; number += 1) lineOf(number)?.classList.add("selected");
    }
  }
}

function showPlace(place, focus) {
  if (place < 0) return;
  showSourceTab("lines");
  showFile(data.places[place][0]);
  const line = lineOf(data.places[place][1]);
  if (!line) return;
  const lines = byId("lines");
  lines.scrollTop = line.offsetTop - lines.offsetTop - lines.clientHeight / 3;
  if (focus) {
    line.classList.add("selected");
    if (getComputedStyle(document.querySelector("nav")).display !== "none") byId("source").scrollIntoView();
  }
}

// Scroll so that the lines of all places are in sight, or else those of the first.
function bringIntoSight(places) {
  const found = places.filter((place) => data.places[place][0] === shownFile).map((place) => lineOf(data.places[place][1]));
  const tops = found.filter(Boolean).map((line) => line.offsetTop);
  const pane = byId("lines");
  const [first, last] = [Math.min(...tops), Math.max(...tops)];
  if (tops.length && last - first < pane.clientHeight - 60) pane.scrollTop = first - pane.offsetTop - (pane.clientHeight - (last - first)) / 2 + 20;
}

function chooseLine(file, number) {
  const nodes = nodesByLine(file).get(number) ?? [];
  clearFinding();
  state.selected = new Set();
  highlight.segments = new Set();
  highlight.nodes = new Set(nodes.flatMap(drawnAs));
  followHighlight();
  markSource();
  for (const line of byId("lines").querySelectorAll(".line.selected")) line.classList.remove("selected");
  lineOf(number)?.classList.add("selected");
  showNodesDetails(`${data.files[file][0]}:${number}`, nodes);
  centre([...highlight.nodes]);
  say(`line ${number}: ${count(nodes.length, "node")}`);
}
