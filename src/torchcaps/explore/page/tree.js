// The tree: a row of bars for each layer, the lowest at the bottom, and lines between the rows.

import { el, number, svg } from "./dom.js";

const [BAR, GAP, FADED] = [34, 62, 0.3];

export function where(layer, capsule) {
  const [rows, columns, types] = layer.grid ?? [1, 1, 0];
  if (rows * columns < 2) return `${layer.name} ${capsule}`;
  const place = Math.floor(capsule / types);
  return `${layer.name} ${capsule} (row ${Math.floor(place / columns) + 1}, column ${(place % columns) + 1}, type ${(capsule % types) + 1})`;
}

// One picture that is made once and then moved, so that bars glide. Lines do not: hundreds of them
// would be drawn anew for each step of the way, while the next answer is computed.
export class Tree {
  constructor({ onSelect, onSilence }) {
    this.lines = svg("g", { class: "lines" });
    this.litLines = svg("g", { class: "lit-lines" });
    this.rows = svg("g");
    this.texts = svg("g");
    this.element = svg("svg", { class: "tree", role: "group" }, this.lines, this.litLines, this.rows, this.texts);
    Object.assign(this, { paths: new Map(), capsules: new Map(), act: { onSelect, onSilence } });
    this.element.addEventListener("keydown", (event) => this.walk(event));
  }

  // What is drawn: `layers` and `links` of an answer, names of classes, and what is dead or silent.
  draw({ layers, links, classes, lit, selected, silent, dead, winner, width }) {
    this.layers = layers;
    const narrow = width < 470;
    const left = narrow ? 8 : 84;
    const right = narrow ? 34 : 46;
    const head = headOf(classes);
    const height = head + layers.length * BAR + (layers.length - 1) * GAP + (layers[0].map ? (narrow ? 62 : 40) : 24);
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.setAttribute("height", height);
    this.element.setAttribute("aria-label", "Tree of capsules; arrow keys walk, Enter selects, S silences.");
    this.element.classList.toggle("has-lit", Boolean(lit));
    const top = (depth) => head + (layers.length - 1 - depth) * (BAR + GAP);
    const step = (layer) => (width - left - right) / layer.shown.length;
    const x = (layer, at) => left + step(layer) * (at + 0.5);
    const places = layers.map((layer) => new Map(layer.shown.map((capsule, at) => [capsule, x(layer, at)])));
    const full = Math.max(1, ...layers.flatMap((layer) => layer.length));
    this.drawLines(links, places, top);
    this.drawLit(links, lit, places, top);
    this.drawRows(layers, { narrow, top, step, x, full, classes, lit, selected, silent, dead, winner });
  }

  drawLines(links, places, top) {
    const seen = new Set();
    links.forEach((link, depth) => {
      const even = link.lines.every((line) => !line[3]);
      for (const [child, parent, coupling, strong] of link.lines) {
        const key = `${depth}.${child}.${parent}`;
        seen.add(key);
        if (!this.paths.has(key)) {
          this.paths.set(key, svg("path"));
          this.lines.append(this.paths.get(key));
        }
        const path = this.paths.get(key);
        look(path, (strong || even ? 1 : FADED) * Math.min(1, Math.max(0, coupling)));
        const way = curve(places[depth].get(child), top(depth), places[depth + 1].get(parent), top(depth + 1) + BAR);
        // Most lines stay where they are, and to lay one anew takes longest of all.
        if (path.getAttribute("d") !== way) path.setAttribute("d", way);
      }
    });
    forget(this.paths, seen, (path) => path);
  }

  drawLit(links, lit, places, top) {
    this.litLines.replaceChildren();
    if (!lit) return;
    lit.edges.forEach((pairs, depth) => {
      const coupling = new Map(links[depth].lines.map(([child, parent, value]) => [`${child}.${parent}`, value]));
      for (const [child, parent] of pairs) {
        const [from, to] = [places[depth].get(child), places[depth + 1].get(parent)];
        if (from === undefined || to === undefined) continue;
        const path = svg("path", { d: curve(from, top(depth), to, top(depth + 1) + BAR) });
        this.litLines.append(look(path, 0.15 + 0.85 * Math.min(1, coupling.get(`${child}.${parent}`) ?? 0)));
      }
    });
  }

  drawRows(layers, { narrow, top, step, x, full, classes, lit, selected, silent, dead, winner }) {
    const focused = document.activeElement?.dataset?.capsule;
    const keys = new Set();
    const fresh = [];
    layers.forEach((layer, depth) => {
      const y = top(depth);
      const wide = Math.max(3, Math.min(22, step(layer) * 0.62));
      const isTop = depth === layers.length - 1;
      layer.shown.forEach((capsule, at) => {
        const key = `${layer.name}.${capsule}`;
        keys.add(key);
        const item = this.capsules.get(key) ?? this.addCapsule(key, layer.name, capsule);
        const [length, middle] = [layer.length[at], x(layer, at)];
        const isSilent = silent.includes(key);
        const isDead = dead[layer.name]?.includes(capsule) ?? false;
        const isChosen = selected?.join(".") === key;
        place(item.hit, { x: middle - step(layer) / 2, y: y - 6, width: step(layer), height: BAR + 12 });
        place(item.track, { x: middle - wide / 2, y, width: wide, height: BAR, rx: 2.5 });
        place(item.bar, { x: middle - wide / 2, y, width: wide, height: BAR, rx: 2.5 });
        item.bar.style.transform = `scaleY(${Math.max(0, Math.min(1, length / full))})`;
        item.cross.setAttribute("d", isDead ? `M${middle - 4} ${y - 9}l8 8m0 -8l-8 8` : "");
        item.group.setAttribute("class", ["capsule", lit?.capsules[layer.name]?.includes(capsule) && "lit", isChosen && "chosen", isSilent && "silent"].filter(Boolean).join(" "));
        const called = isTop && classes.length === layer.n ? `class ${classes[capsule]}` : `${where(layer, capsule)}`;
        item.group.setAttribute("aria-label", `${called}, length ${number(length)}${isDead ? ", dead" : ""}${isSilent ? ", silenced" : ""}`);
        item.group.setAttribute("aria-pressed", isChosen);
        item.title.textContent = `${called}: length ${number(length, 3)}`;
        if (isTop && classes.length === layer.n) fresh.push(label(classes[capsule], middle, y, capsule === winner, isDead));
      });
      const count = layer.n > layer.shown.length ? `longest ${layer.shown.length} of ${layer.n}` : `${layer.n} capsules`;
      const head = narrow ? y + BAR + 13 : y + 12;
      fresh.push(svg("text", { class: "name", x: narrow ? 8 : 2, y: head }, narrow && layer.n > layer.shown.length ? `${layer.name}, ${count}` : layer.name));
      if (!narrow) fresh.push(svg("text", { x: 2, y: head + 14 }, layer.n > layer.shown.length ? `${layer.shown.length} of ${layer.n}` : count));
      if (layer.map) fresh.push(drawMap(layer, lit, narrow ? 8 : 2, head + (narrow ? 5 : 20)));
    });
    this.texts.replaceChildren(...fresh);
    forget(this.capsules, keys, (item) => item.group);
    this.keepStop(focused ?? selected?.join("."));
  }

  addCapsule(key, layer, capsule) {
    const item = { hit: svg("rect", { class: "hit" }), track: svg("rect", { class: "track" }), bar: svg("rect", { class: "bar" }), cross: svg("path", { class: "cross" }), title: svg("title") };
    item.group = svg("g", { role: "button", tabindex: -1, "data-capsule": key }, item.title, item.hit, item.track, item.bar, item.cross);
    item.group.addEventListener("click", () => this.act.onSelect(layer, capsule));
    this.capsules.set(key, item);
    this.rows.append(item.group);
    return item;
  }

  // One capsule is the stop of Tab: that which has the focus, is selected, or is the first class.
  keepStop(key) {
    const top = this.layers[this.layers.length - 1];
    const stop = this.capsules.has(key) ? key : `${top.name}.${top.shown[0]}`;
    for (const [each, item] of this.capsules) item.group.setAttribute("tabindex", each === stop ? 0 : -1);
  }

  walk(event) {
    const key = event.target.dataset?.capsule;
    if (!key) return;
    const [name, capsule] = key.split(".").map((part, at) => (at ? Number(part) : part));
    const depth = this.layers.findIndex((layer) => layer.name === name);
    const here = (this.layers[depth].shown.indexOf(capsule) + 0.5) / this.layers[depth].shown.length;
    const go = (to, step) => {
      const row = this.layers[to]?.shown ?? [];
      const next = row[Math.max(0, Math.min(row.length - 1, Math.round(here * row.length - 0.5) + step))];
      if (next === undefined) return;
      this.keepStop(`${this.layers[to].name}.${next}`);
      this.capsules.get(`${this.layers[to].name}.${next}`).group.focus();
    };
    const { onSelect, onSilence } = this.act;
    const moves = {
      ...{ ArrowRight: () => go(depth, 1), ArrowLeft: () => go(depth, -1), ArrowUp: () => go(depth + 1, 0), ArrowDown: () => go(depth - 1, 0) },
      ...{ Enter: () => onSelect(name, capsule), " ": () => onSelect(name, capsule), s: () => onSilence(name, capsule) },
    };
    const move = moves[event.key === "S" ? "s" : event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }
}

// Room for the names of classes, which lean.
const headOf = (classes) => 22 + 4.6 * Math.min(11, Math.max(...classes.map((name) => name.length)));

// Takes away what is drawn no more.
function forget(drawn, keys, element) {
  for (const [key, item] of drawn) {
    if (keys.has(key)) continue;
    element(item).remove();
    drawn.delete(key);
  }
}

function curve(x0, y0, x1, y1) {
  const middle = (y0 + y1) / 2;
  return `M${x0.toFixed(1)} ${y0}C${x0.toFixed(1)} ${middle} ${x1.toFixed(1)} ${middle} ${x1.toFixed(1)} ${y1}`;
}

function look(path, strength) {
  const seen = strength ** 0.7;
  path.setAttribute("stroke-opacity", (0.05 + 0.95 * seen).toFixed(3));
  path.setAttribute("stroke-width", (0.4 + 3.2 * seen).toFixed(2));
  return path;
}

function place(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

// Where the capsules of a layer lie in the image: the longest at each place; places that are lit are warm.
function drawMap(layer, lit, x, y) {
  const [rows, columns, types] = layer.grid;
  const side = Math.min(40 / rows, 62 / columns);
  const places = new Set((lit?.capsules[layer.name] ?? []).map((capsule) => Math.floor(capsule / types)));
  const full = Math.max(1e-9, ...layer.map);
  const cells = layer.map.map((value, at) => {
    const look = { class: places.has(at) ? "cell lit" : "cell", "fill-opacity": (0.08 + 0.92 * Math.max(0, value / full)).toFixed(2) };
    return svg("rect", { x: x + (at % columns) * side, y: y + Math.floor(at / columns) * side, width: side, height: side, ...look });
  });
  const title = `${layer.name} lies on ${rows} × ${columns} places with ${types} types each; dark is long.`;
  return svg("g", { role: "img", "aria-label": title }, svg("title", {}, title), svg("rect", { class: "frame", x, y, width: side * columns, height: side * rows }), ...cells);
}

function label(text, x, y, best, isDead) {
  const short = text.length > 11 ? `${text.slice(0, 10)}…` : text;
  const start = y - (isDead ? 15 : 6);
  return svg("text", { class: best ? "best" : "", transform: `translate(${x - 2} ${start}) rotate(-42)` }, short);
}

// The true tree of a part-whole image, drawn like the other one: parts below, the whole on top.
export function drawIdeal(ideal, image, classes, width) {
  const top = headOf(classes);
  const [height, bottom, side] = [top + 156, top + 92, Math.min(44, (width - 16) / ideal.parts.length - 6)];
  const picture = svg("svg", { class: "tree", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": says(ideal) });
  const wholes = classes.includes(ideal.whole) ? classes : [ideal.whole];
  const x = (count, at) => 8 + ((width - 42) / count) * (at + 0.5);
  const goal = x(wholes.length, wholes.indexOf(ideal.whole));
  ideal.parts.forEach((part, at) => {
    const middle = 8 + ((width - 16) / ideal.parts.length) * (at + 0.5);
    if (part.own) picture.append(svg("path", { d: curve(middle, bottom, goal, top + BAR), "stroke-width": 3.1 }));
    const leaf = svg("g", { class: part.own ? "" : "stray" });
    const view = [part.x - part.r * 1.3, part.y - part.r * 1.3, part.r * 2.6, part.r * 2.6].join(" ");
    if (ideal.placed) {
      leaf.append(
        svg("svg", { x: middle - side / 2, y: bottom, width: side, height: side, viewBox: view }, svg("rect", { x: -9, y: -9, width: 20, height: 20 }), svg("image", { href: image, width: 1, height: 1 })),
        svg("rect", { class: "leaf", x: middle - side / 2, y: bottom, width: side, height: side, rx: 4 }),
      );
    }
    leaf.append(svg("text", { x: middle, y: bottom + side + 14, "text-anchor": "middle" }, part.name));
    picture.append(leaf);
  });
  wholes.forEach((name, at) => {
    const middle = x(wholes.length, at);
    const isIt = name === ideal.whole;
    picture.append(svg("rect", { class: isIt ? "bar" : "track", x: middle - 7, y: top, width: 14, height: BAR, rx: 2.5 }), label(name, middle, top, isIt, false));
  });
  return picture;
}

export function says(ideal) {
  const own = ideal.parts.filter((part) => part.own).map((part) => part.name);
  const strays = ideal.parts.length - own.length;
  const parts = own.length > 1 ? `${own.slice(0, -1).join(", ")} and ${own[own.length - 1]}` : own[0];
  const rest = strays === 0 ? "" : strays === 1 ? " One stray part belongs to nothing." : ` ${strays} stray parts belong to nothing.`;
  return `In truth ${parts} belong to ${ideal.whole}.${rest}`;
}

// A strip of lengths over all images, the present one marked.
export function drawSpread(lengths, now) {
  const most = Math.max(1, ...lengths);
  const x = (value) => (4 + (value / most) * 292).toFixed(1);
  return svg(
    "svg",
    { class: "spread", viewBox: "0 0 300 34", preserveAspectRatio: "none", role: "img", "aria-label": `Lengths over ${lengths.length} images, from ${number(Math.min(...lengths))} to ${number(Math.max(...lengths))}; here ${number(now)}.` },
    svg("line", { class: "base", x1: 4, x2: 296, y1: 30, y2: 30 }),
    ...lengths.map((value) => svg("line", { x1: x(value), x2: x(value), y1: 12, y2: 28 })),
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: 3, y2: 31 }),
  );
}

// What darkness and width of a line mean.
export function legend() {
  const lines = [0.06, 0.25, 0.5, 1].flatMap((value, at) => [look(svg("path", { d: `M${60 + at * 68} 8h28` }), value), svg("text", { x: 93 + at * 68, y: 12 }, `${value}`)]);
  const about = { class: "tree legend", viewBox: "0 0 330 16", width: 330, height: 16, role: "img", "aria-label": "Darker and wider lines are stronger couplings." };
  return svg("svg", about, svg("text", { x: 0, y: 12 }, "coupling"), ...lines);
}

export function table(head, rows) {
  const body = rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row[0]), ...row.slice(1).map((cell) => el("td", {}, cell))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Layers in numbers" }, el("table", {}, el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", { scope: "col" }, cell)))), el("tbody", {}, ...body)));
}
