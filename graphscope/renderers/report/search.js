// Search by name, module, operator and line.

const FOUND = 40;
let entries = null;

function searchable() {
  if (entries) return entries;
  entries = [];
  for (const loss of losses) entries.push([loss.title, "loss", () => select(loss.id, { reveal: true })]);
  for (const leaf of leaves.values()) entries.push([leaf.name, leaf.trained ? "parameter" : "input", () => select(leaf.node, { reveal: true })]);
  for (const scope of scopes.slice(1)) entries.push([scope.label, scope.kind, () => select(~scope.index, { reveal: true })]);
  data.files.forEach(([name, lines], file) => {
    const made = nodesByLine(file);
    for (const line of [...made.keys()].sort((a, b) => a - b)) {
      entries.push([`${name}:${line}`, `line, ${count(made.get(line).length, "node")}`, () => showLine(file, line), (lines[line - 1] ?? "").trim()]);
    }
  });
  for (let node = 0; node < NODES; node += 1) {
    if (leaves.has(node)) continue;
    entries.push([fullName(node), [moduleOf(node), shapeOf(data.nodes.meta[node])].filter(Boolean).join(" "), () => select(node, { reveal: true }), placeName(data.nodes.place[node])]);
  }
  for (const entry of entries) entry.key = [entry[0], entry[1], entry[3] ?? ""].join(" ").toLowerCase();
  return entries;
}

function showLine(file, line) {
  showSourceTab("lines");
  showFile(file);
  const at = lineOf(line);
  if (at) byId("lines").scrollTop = at.offsetTop - byId("lines").offsetTop - byId("lines").clientHeight / 3;
  chooseLine(file, line);
}

// All words must occur; what begins with the text comes first, and names before places.
function find(text) {
  const asked = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!asked.length) return [];
  const found = searchable().filter((entry) => asked.every((word) => entry.key.includes(word)));
  const rank = (entry) => (entry[0].toLowerCase() === asked[0] ? 0 : entry[0].toLowerCase().startsWith(asked[0]) ? 1 : entry[0].toLowerCase().includes(asked[0]) ? 2 : 3);
  return found.map((entry, place) => [rank(entry), place, entry]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , entry]) => entry);
}

const box = byId("search");
const results = byId("results");
let listed = [];
let active = -1;

function showResults() {
  const found = find(box.value);
  listed = found.slice(0, FOUND);
  active = listed.length ? 0 : -1;
  results.replaceChildren(
    ...listed.map((entry, place) => element("li", { role: "option", id: `result-${place}`, onclick: () => pick(place) }, element("span.name", {}, entry[0]), element("span.muted", {}, [entry[1], entry[3]].filter(Boolean).join(" · ")))),
  );
  if (box.value.trim() && found.length !== listed.length) results.append(element("li.muted", { role: "presentation" }, `${(found.length - listed.length).toLocaleString("en")} more`));
  if (box.value.trim() && !found.length) results.append(element("li.muted", { role: "presentation" }, "nothing found"));
  results.hidden = !box.value.trim();
  box.setAttribute("aria-expanded", String(!results.hidden));
  showActive();
}

function showActive() {
  [...results.children].forEach((item, place) => item.getAttribute("role") === "option" && item.setAttribute("aria-selected", String(place === active)));
  if (active >= 0) {
    box.setAttribute("aria-activedescendant", `result-${active}`);
    results.children[active].scrollIntoView({ block: "nearest" });
  } else {
    box.removeAttribute("aria-activedescendant");
  }
}

function pick(place) {
  const entry = listed[place];
  closeResults();
  entry?.[2]();
}

function closeResults() {
  results.hidden = true;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

box.addEventListener("input", showResults);
box.addEventListener("focus", () => box.value && showResults());
box.addEventListener("blur", closeResults);
results.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
box.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && listed.length) {
    active = (active + step + listed.length) % listed.length;
    showActive();
  } else if (event.key === "Enter" && active >= 0) {
    pick(active);
    canvas.focus();
  } else if (event.key === "Escape") {
    closeResults();
    canvas.focus();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
});
