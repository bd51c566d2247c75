// Small helpers to make elements. Text always goes in as text, never as HTML.

function make(space, tag, attributes, children) {
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && typeof value === "boolean") element.setAttribute(name, `${value}`);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function el(tag, attributes = {}, ...children) {
  return make(null, tag, attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return make("http://www.w3.org/2000/svg", tag, attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

export function number(value, digits = 2) {
  // What is rounded to nothing has no sign.
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace(/^-(0\.0*)$/, "$1");
}

// Walk through the items of a group by arrow keys: one of them is a stop of Tab.
export function walkable(group, selector) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const items = [...group.querySelectorAll(selector)];
    const at = items.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = items[(at + step + items.length) % items.length];
    items.forEach((item) => item.setAttribute("tabindex", item === next ? 0 : -1));
    next.focus();
  });
}

export function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
