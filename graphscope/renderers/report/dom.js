// Elements are made here, and texts are only ever set as text.

const byId = (id) => document.getElementById(id);

// element("button.place", { onclick }, "train.py:3"): properties that begin with aria- or data- become attributes.
function element(kind, properties = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  made.classList.add(...classes);
  for (const [name, value] of Object.entries(properties)) {
    if (/^(aria|data)-|^(role|scope|for)$/.test(name)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const button = (text, onclick, kind = "button.link") => element(kind, { type: "button", onclick }, text);

function placeButton(place, text = shortPlace(place)) {
  return place < 0 ? null : element("button.link.place", { type: "button", title: placeName(place), onclick: () => showPlace(place, true) }, text);
}

const say = (text) => (byId("live").textContent = text);

// Tabs after the ARIA pattern: arrow keys go from tab to tab.
function tabs(list, onshow) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const show = (tab) => {
    for (const each of all) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
      byId(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
    onshow(tab.getAttribute("aria-controls"));
  };
  for (const tab of all) tab.addEventListener("click", () => show(tab));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length];
    next.focus();
    show(next);
  });
  return (id) => show(all.find((tab) => tab.getAttribute("aria-controls") === id));
}
