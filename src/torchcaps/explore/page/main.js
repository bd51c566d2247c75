// The page as a whole: one state, one or two networks, and the image that both see.

import { ask } from "./ask.js";
import { byId, el, save } from "./dom.js";
import { fromLink, newPane, newState, question, toLink } from "./link.js";
import { Pane } from "./pane.js";
import { pad, receive, showSliders, sliders, small, strip } from "./picture.js";
import { drawIdeal, says } from "./tree.js";

let state = newState();
let about;
let panes = [];
let active = 0;
const images = new Map();
const ideal = el("section", { class: "card", "aria-labelledby": "ideal-title", hidden: true });
const side = el("div", { class: "side" });

function tell(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? `${error.message ?? error}` : "";
}

// Runs what may fail; a question that a newer one replaced is no failure.
async function trying(work) {
  busy(1);
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError" && !/outdated/.test(error.message)) tell(error);
  } finally {
    busy(-1);
  }
}

function busy(more) {
  busy.now = (busy.now ?? 0) + more;
  document.querySelector("main").setAttribute("aria-busy", busy.now > 0);
}

async function look(pane) {
  await trying(async () => {
    const asked = question(state, pane.state);
    const began = performance.now();
    const answer = await ask.look(pane.at, asked);
    tell(null);
    pane.show(answer, performance.now() - began);
    if (pane.at === active) showImage(answer);
    speak();
    if (pane.facts.collection !== null) lookOver(pane, { ...asked, shown: {} });
  });
}

// What holds over all test images takes longer, so it is asked when nothing moves any more.
function lookOver(pane, asked) {
  const key = JSON.stringify(asked);
  clearTimeout(pane.later);
  if (pane.asked === key) return;
  pane.known = pane.known && { ...pane.known, lengths: null };
  pane.later = setTimeout(() => trying(async () => {
    pane.known = await ask.over(pane.at, asked);
    pane.asked = key;
    pane.draw();
  }), 300);
}

const waiting = new Set();

// Asks once a frame, however often a slider moves.
function changed(pane) {
  for (const each of pane ? [pane] : panes) {
    if (!waiting.size) requestAnimationFrame(askAll);
    waiting.add(each);
  }
  clearTimeout(changed.link);
  changed.link = setTimeout(() => history.replaceState(null, "", toLink(state)), 150);
}

function askAll() {
  const now = [...waiting].filter((pane) => panes.includes(pane));
  waiting.clear();
  now.forEach(look);
}

function speak() {
  clearTimeout(speak.later);
  speak.later = setTimeout(() => {
    byId("aloud").textContent = panes.map((pane) => pane.says).filter(Boolean).join(" ");
  }, 900);
}

function showImage(answer) {
  byId("seen").src = answer.image;
  byId("seen").hidden = false;
  byId("seen").alt = `The image as the network sees it${answer.label ? `: ${answer.label}` : ""}`;
  byId("glow").hidden = !answer.saliency;
  if (answer.saliency) byId("glow").src = answer.saliency;
  byId("shows").textContent = answer.label ? `It shows ${answer.label}.` : state.picture ? "A picture of yours." : "An empty image: draw, or drop a picture.";
  byId("invert").setAttribute("aria-pressed", state.invert);
  showIdeal(answer);
}

function showIdeal({ ideal: truth, image }) {
  ideal.hidden = !truth;
  byId("marks").replaceChildren();
  if (!truth) return;
  const box = byId("mark-parts") ?? el("input", { id: "mark-parts", type: "checkbox" });
  box.onchange = () => showIdeal({ ideal: truth, image });
  ideal.replaceChildren(
    el("h2", { id: "ideal-title" }, "The true tree"),
    el("p", {}, says(truth)),
    drawIdeal(truth, image, about.networks[panes[active].state.network].classes, Math.max(250, Math.min(420, ideal.clientWidth - 36))),
    el("p", { class: "note" }, "This is a parse tree: each part chooses one whole, and strays choose none. It stays the same when you turn the image, and another image has another one. Hold the network's tree against it."),
    el("label", { class: "row" }, box, "Mark the parts on the image"),
  );
  if (!box.checked || !truth.placed) return;
  const circle = (part) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    Object.entries({ cx: part.x, cy: part.y, r: part.r * 1.25, class: part.own ? "" : "stray" }).forEach(([name, value]) => made.setAttribute(name, value));
    return made;
  };
  byId("marks").replaceChildren(...truth.parts.map(circle));
}

async function showStrip() {
  const { collection, note } = panes[0].facts;
  byId("strip-note").textContent = note;
  if (collection === null) return strip([], -1, pick);
  if (!images.has(collection)) images.set(collection, await ask.images(collection));
  const found = images.get(collection);
  byId("strip-note").textContent = `${found.length} test images of ${about.collections[collection].name}, drawn at random.`;
  strip(found, state.picture ? -1 : state.number, pick);
}

function pick(number, collection = panes[0].facts.collection) {
  Object.assign(state, { collection, number, picture: null, png: null });
  drawing(false);
  const thumbs = byId("strip").querySelectorAll(".thumb");
  thumbs.forEach((thumb, at) => thumb.setAttribute("aria-pressed", at === number && collection === panes[0].facts.collection));
  changed();
}

function thumb(collection, number, text) {
  const image = images.get(collection)?.[number];
  if (!image) return "";
  const name = `Show image ${number + 1}: ${image.label}, length ${text}`;
  return el("button", { class: "thumb", type: "button", title: name, "aria-label": name, onclick: () => pick(number, collection) }, el("img", { src: image.png, alt: "" }));
}

async function take(blob) {
  await trying(async () => {
    const { picture, png } = await ask.picture(blob);
    state.picture = picture;
    state.png = await small(png, panes[0].facts.image);
    byId("strip").querySelectorAll(".thumb").forEach((each) => each.setAttribute("aria-pressed", false));
    changed();
  });
}

let canvas;

function drawing(on) {
  byId("pad").hidden = byId("wipe").hidden = !on;
  byId("draw").setAttribute("aria-pressed", on);
  if (on) byId("pad").focus();
}

function setPanes(states) {
  panes = states.map((each, at) => {
    const pane = panes[at] ?? new Pane({ at, about, act: { changed, thumb, pick, activate: (one) => (active = one.at), close } });
    pane.set(each);
    return pane;
  });
  state.panes = panes.map((pane) => pane.state);
  active = Math.min(active, panes.length - 1);
  const more = el("button", { id: "more", type: "button", onclick: compare }, "Put a second network beside it");
  byId("panes").replaceChildren(...panes.map((pane) => pane.element), side);
  side.replaceChildren(ideal, ...panes.map((pane) => pane.card));
  byId("more")?.remove();
  if (panes.length < 2) panes[0].element.querySelector(".pane-head .row").append(more);
}

function compare() {
  const next = Math.min(state.panes[0].network + 1, about.networks.length - 1);
  setPanes([state.panes[0], newPane(next)]);
  changed();
}

function close() {
  setPanes([state.panes[0]]);
  changed();
}

async function open() {
  Object.assign(state, fromLink(location.hash));
  setPanes(state.panes);
  const first = panes[0].facts;
  if (state.collection === null && !state.picture && !state.png && first.collection !== null) state.collection = first.collection;
  showSliders();
  if (state.png) await take(new Blob([Uint8Array.from(atob(state.png.split(",")[1]), (letter) => letter.charCodeAt(0))]));
  else changed();
  await trying(showStrip);
}

function saveSvg() {
  const drawn = panes[active].tree.element;
  const copy = drawn.cloneNode(true);
  const looks = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family", "transform"];
  const from = drawn.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, at) => {
    const style = getComputedStyle(from[at]);
    for (const name of looks) {
      if (name === "transform" && !element.classList.contains("bar")) continue;
      element.style.setProperty(name, style.getPropertyValue(name));
    }
    if (element.classList.contains("bar")) Object.assign(element.style, { transformBox: "fill-box", transformOrigin: "bottom" });
    for (const name of ["tabindex", "role", "class", "data-capsule", "aria-pressed"]) element.removeAttribute(name);
  });
  copy.style.background = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  save("tree.svg", "image/svg+xml", new XMLSerializer().serializeToString(copy));
}

function saveJson() {
  const seen = panes.map((pane) => ({ network: pane.facts.label, question: question(state, pane.state), answer: pane.answer, over_images: pane.known }));
  save("explorer.json", "application/json", JSON.stringify({ link: location.hash, classes: panes.map((pane) => pane.facts.classes), seen }, null, 1));
}

async function copyLink() {
  history.replaceState(null, "", toLink(state));
  try {
    await navigator.clipboard.writeText(location.href);
    byId("copy").textContent = "Copied";
  } catch {
    byId("copy").textContent = "Copy it from the address bar";
  }
  setTimeout(() => (byId("copy").textContent = "Copy link"), 1800);
}

async function begin() {
  about = await ask.about();
  sliders(state, () => changed());
  canvas = pad(take);
  receive((file) => {
    drawing(false);
    take(file);
  });
  const act = {
    draw: () => drawing(byId("pad").hidden),
    wipe: () => canvas.wipe(),
    invert: () => {
      state.invert = !state.invert;
      byId("invert").setAttribute("aria-pressed", state.invert);
      changed();
    },
    straight: () => {
      const { turn, x, y, scale, shear } = newState();
      Object.assign(state, { turn, x, y, scale, shear });
      showSliders();
      changed();
    },
    copy: copyLink,
    "save-svg": saveSvg,
    "save-json": saveJson,
  };
  for (const [id, does] of Object.entries(act)) byId(id).addEventListener("click", does);
  addEventListener("hashchange", () => location.hash !== toLink(state) && trying(open));
  new ResizeObserver(() => panes.forEach((pane) => pane.draw())).observe(byId("panes"));
  await open();
}

trying(begin);
