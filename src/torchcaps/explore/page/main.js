// The page as a whole: one state, one or two networks, and the image that both see.

import { ask } from "./ask.js";
import { byId, el, save, svg } from "./dom.js";
import { MOVES, fromLink, moved, newPane, newState, question, toLink } from "./link.js";
import { Pane } from "./pane.js";
import { blobOf, pad, receive, showSliders, sliders, strip, thumbnail } from "./picture.js";
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
    pane.show(answer, performance.now() - began, known()?.label);
    if (pane.at === active) showImage(answer);
    speak();
    clearTimeout(pane.glowing);
    if (ask.glow && asked.selected) pane.glowing = setTimeout(() => trying(() => glow(pane, asked, answer)), 300);
    if (pane.facts.collection !== null) lookOver(pane, { ...asked, shown: {} });
  });
}

// A page without a server finds where the image matters when nothing moves any more.
async function glow(pane, asked, answer) {
  const found = await ask.glow(asked, () => pane.answer !== answer);
  if (!found || pane.answer !== answer) return;
  Object.assign(answer, found);
  pane.drawCard();
  if (pane.at === active) showImage(answer);
}

// What holds over all test images takes longer, so it is asked when nothing moves any more.
function lookOver(pane, asked) {
  const key = JSON.stringify(asked);
  clearTimeout(pane.later);
  if (pane.asked === key) return;
  pane.known = pane.known && { ...pane.known, lengths: null, right: null };
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

// What is known of the image: its label and its true tree.
function known() {
  return state.picture || state.collection === null ? null : images.get(state.collection)?.[state.number];
}

function showImage(answer) {
  byId("seen").src = answer.image;
  byId("seen").hidden = false;
  byId("seen").alt = `The image as the network sees it${known() ? `: ${known().label}` : ""}`;
  byId("glow").hidden = !answer.saliency;
  if (answer.saliency) byId("glow").src = answer.saliency;
  byId("shows").textContent = known() ? `It shows ${known().label}.` : state.picture ? "A picture of yours." : "An empty image: draw, or drop a picture.";
  byId("invert").setAttribute("aria-pressed", state.invert);
  showIdeal(answer.image);
}

function showIdeal(image) {
  const found = known()?.ideal;
  const truth = found && { ...found, parts: moved(found.parts, state) };
  ideal.hidden = !truth;
  byId("marks").replaceChildren();
  if (!truth) return;
  const box = byId("mark-parts") ?? el("input", { id: "mark-parts", type: "checkbox" });
  box.onchange = () => showIdeal(image);
  ideal.replaceChildren(
    el("h2", { id: "ideal-title" }, "The true tree"),
    el("p", {}, says(truth)),
    drawIdeal(truth, image, about.networks[panes[active].state.network].classes, Math.max(250, Math.min(420, ideal.clientWidth - 36))),
    el("p", { class: "note" }, "This is a parse tree: each part chooses one whole, and strays choose none. It stays the same when you turn the image, and an image of another class has another one. Hold the network's tree against it: its capsules have no names, but there too one dark line should lead upwards from every tall bar."),
    el("label", { class: "row" }, box, "Mark the parts on the image"),
  );
  if (!box.checked || !truth.placed) return;
  byId("marks").replaceChildren(...truth.parts.map((part) => svg("circle", { cx: part.x, cy: part.y, r: part.r * 1.25, class: part.own ? "" : "stray" })));
}

async function showStrip() {
  const { collection, note } = panes[0].facts;
  byId("strip-note").textContent = note;
  for (const each of new Set([collection, state.collection])) {
    if (each !== null && !images.has(each)) images.set(each, await ask.images(each));
  }
  if (collection === null) return strip([], -1, pick);
  const found = images.get(collection);
  byId("strip-note").textContent = `${found.length} test images of ${about.collections[collection]}, drawn at random. ${note}`;
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
  return image && thumbnail(image.png, `Show image ${number + 1}: ${image.label}, length ${text}`, () => pick(number, collection));
}

async function take(blob) {
  await trying(async () => {
    Object.assign(state, await ask.picture(blob));
    byId("strip").querySelectorAll(".thumb").forEach((each) => each.setAttribute("aria-pressed", false));
    changed();
  });
}

function drawing(on) {
  byId("pad").hidden = byId("wipe").hidden = !on;
  byId("draw").setAttribute("aria-pressed", on);
  if (on) byId("pad").focus();
}

function setPanes(states) {
  panes = states.map((each, at) => {
    const pane = panes[at] ?? new Pane({ at, about, act: { changed, swapped, thumb, pick, activate: (one) => (active = one.at), several: () => panes.length > 1, close } });
    pane.set(each);
    return pane;
  });
  state.panes = panes.map((pane) => pane.state);
  active = Math.min(active, panes.length - 1);
  byId("panes").replaceChildren(...panes.map((pane) => pane.element), side);
  side.replaceChildren(ideal, ...panes.map((pane) => pane.card));
  byId("more").hidden = panes.length > 1;
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
  // A link of another start may name images that are not here.
  if (!about.collections[state.collection]) Object.assign(state, { collection: panes[0].facts.collection, number: 0 });
  showSliders(state);
  await trying(showStrip);
  if (state.png) await take(blobOf(state.png));
  else changed();
}

// Another network on the left brings its own images.
function swapped(pane) {
  const { collection } = pane.facts;
  if (pane.at > 0 || collection === state.collection) return;
  if (!state.picture) Object.assign(state, { collection, number: 0 });
  trying(showStrip);
}

function saveSvg() {
  const copy = panes[active].tree.element.cloneNode(true);
  const root = getComputedStyle(document.documentElement);
  const rules = [...document.styleSheets[0].cssRules].filter((rule) => rule.selectorText?.startsWith(".tree")).map((rule) => rule.cssText);
  const style = `${rules.join("\n")} .tree { background: var(--paper); font-family: sans-serif; }`;
  copy.prepend(svg("style", {}, style.replace(/var\((--\w+)\)/g, (_, name) => root.getPropertyValue(name))));
  save("tree.svg", "image/svg+xml", new XMLSerializer().serializeToString(copy));
}

function saveJson() {
  const seen = panes.map((pane) => ({ network: pane.facts.label, classes: pane.facts.classes, question: question(state, pane.state), answer: pane.answer, over_images: pane.known }));
  save("explorer.json", "application/json", JSON.stringify({ link: location.hash, seen }, null, 1));
}

async function begin() {
  about = await ask.about();
  sliders(state, () => changed());
  const canvas = pad(take);
  receive((file) => [drawing(false), take(file)]);
  const act = {
    draw: () => {
      drawing(byId("pad").hidden);
      if (!byId("pad").hidden) byId("shows").textContent = "Draw here, white on black. Until you do, the answer is that of the image before.";
      else if (panes[active].answer) showImage(panes[active].answer);
    },
    wipe: () => canvas.wipe(),
    invert: () => {
      state.invert = !state.invert;
      byId("invert").setAttribute("aria-pressed", state.invert);
      changed();
    },
    straight: () => {
      for (const { key, plain } of MOVES) state[key] = plain;
      showSliders(state);
      changed();
    },
    more: compare,
    "save-svg": saveSvg,
    "save-json": saveJson,
  };
  for (const [id, does] of Object.entries(act)) byId(id).addEventListener("click", does);
  addEventListener("keydown", (event) => event.key === "Escape" && panes[active].leave());
  addEventListener("hashchange", () => location.hash !== toLink(state) && trying(open));
  new ResizeObserver(() => panes.forEach((pane) => pane.draw())).observe(byId("panes"));
  await open();
}

trying(begin);
