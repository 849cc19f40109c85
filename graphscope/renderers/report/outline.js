// The graph as a tree, for those who would rather read than look; it opens and closes with the drawing.

const LISTED = 100; // children of one scope

function showOutline() {
  const panel = byId("outline");
  if (panel.hidden) return;
  const focused = document.activeElement?.closest?.("#outline [role=treeitem]")?.dataset.id;
  const tree = element("ul", { role: "tree", "aria-label": "Graph by module" }, ...branches(0, 1));
  panel.replaceChildren(tree);
  const items = [...tree.querySelectorAll("[role=treeitem]")];
  const current = items.find((item) => item.dataset.id === focused) ?? items.find((item) => state.selected.has(Number(item.dataset.id))) ?? items[0];
  if (current) current.tabIndex = 0;
  if (focused !== undefined) current?.focus();
}

function branches(index, level) {
  const inside = [...scopes[index].scopes.map((child) => ~child), ...contents[index]];
  const shown = inside.slice(0, LISTED).map((id) => branch(id, level));
  if (inside.length > LISTED) shown.push(element("li.muted", { role: "none" }, `and ${inside.length - LISTED} more: search for them`));
  return shown;
}

function branch(id, level) {
  const isOpen = id < 0 && open.has(~id);
  const label = labelOf(id).map(([text]) => text.trim()).filter(Boolean).join(", ");
  const named = findingsAt(id);
  const item = element(
    "li",
    { role: "treeitem", tabIndex: -1, "aria-level": level, "aria-selected": String(state.selected.has(id)), "data-id": id },
    element("span.row", {}, id < 0 ? (isOpen ? "▾ " : "▸ ") : "", element("span", {}, label), named.length ? element(`span.mark.${findings[named[0]].severity}`, { title: "named by a finding" }, String(named[0] + 1)) : null),
  );
  if (id < 0) item.setAttribute("aria-expanded", String(isOpen));
  if (isOpen) item.append(element("ul", { role: "group" }, ...branches(~id, level + 1)));
  return item;
}

byId("outline").addEventListener("click", (event) => {
  const item = event.target.closest("[role=treeitem]");
  if (!item) return;
  const id = Number(item.dataset.id);
  if (id < 0) toggle(~id);
  choose(id);
});

function choose(id) {
  select(id >= NODES && thing(id).kind === "leaves" ? thing(id).leaves[0] : id, { reveal: true });
}

byId("outline").addEventListener("keydown", (event) => {
  const item = event.target.closest("[role=treeitem]");
  if (!item) return;
  const items = [...byId("outline").querySelectorAll("[role=treeitem]")];
  const id = Number(item.dataset.id);
  const go = (to) => {
    if (!to) return;
    item.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  };
  const keys = {
    ArrowDown: () => go(items[items.indexOf(item) + 1]),
    ArrowUp: () => go(items[items.indexOf(item) - 1]),
    Home: () => go(items[0]),
    End: () => go(items.at(-1)),
    ArrowRight: () => (id < 0 && !open.has(~id) ? toggle(~id) : go(item.querySelector("[role=treeitem]"))),
    ArrowLeft: () => (id < 0 && open.has(~id) ? toggle(~id) : go(item.parentElement.closest("[role=treeitem]"))),
    Enter: () => choose(id),
    " ": () => choose(id),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  keys[event.key]();
});
