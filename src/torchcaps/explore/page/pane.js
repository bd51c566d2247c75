// One network: its tree, what it says, what is changed inside it, and the capsule that is selected.

import { el, number } from "./dom.js";
import { Tree, drawSpread, legend, table, where } from "./tree.js";

const LEVELS = [2, 3, 5, 11, 21];

export class Pane {
  // `act` has what a pane asks of the page: changed(pane), activate(pane), pick(image), close(pane).
  constructor({ at, about, act }) {
    Object.assign(this, { at, about, act, answer: null, known: null });
    const select = (layer, capsule) => this.select(layer, capsule);
    this.tree = new Tree({ onSelect: select, onSilence: (...one) => this.silence(...one) });
    this.network = el("select", { "aria-label": `Network ${at + 1}` }, ...about.networks.map((each, value) => el("option", { value }, each.label)));
    this.network.addEventListener("change", () => this.swap(Number(this.network.value)));
    this.ms = el("span", { class: "ms", title: "from the question to its answer; the network alone" });
    this.verdict = el("p", { class: "verdict" });
    this.before = el("p", { class: "note" });
    this.right = el("p", { class: "note" });
    this.levers = el("div", { class: "levers" });
    this.layers = el("div");
    this.card = el("section", { class: "capsule-card", "aria-label": "The capsule that is selected" });
    const second = at > 0 ? el("button", { type: "button", "aria-label": "Take this network away", title: "Take this network away", onclick: () => act.close(this) }, "✕") : null;
    this.element = el(
      "section",
      { class: "card pane", "aria-label": `Network ${at + 1}` },
      el("div", { class: "pane-head" }, this.network, second),
      this.verdict,
      this.right,
      this.before,
      this.tree.element,
      el("div", { class: "pane-foot" }, this.ms, legend()),
      this.levers,
      this.layers,
    );
  }

  set(state) {
    this.state = state;
    this.state.network = Math.min(state.network, this.about.networks.length - 1);
    this.network.value = this.state.network;
    this.drawLevers();
  }

  get facts() {
    return this.about.networks[this.state.network];
  }

  // Capsules that are dead by themselves: one that is silenced here is short for that reason alone.
  get dead() {
    const { silenced } = this.state;
    const own = (name, at) => !silenced.some(([layer, capsule]) => layer === name && capsule === at);
    return this.known?.dead && Object.fromEntries(Object.entries(this.known.dead).map(([name, some]) => [name, some.filter((at) => own(name, at))]));
  }

  changed() {
    this.drawLevers();
    this.act.changed(this);
  }

  swap(network) {
    Object.assign(this.state, { network, iterations: null, silenced: [], even: [], selected: null });
    this.known = this.asked = null;
    this.act.swapped(this);
    this.changed();
  }

  select(layer, capsule) {
    const same = this.state.selected?.join(".") === `${layer}.${capsule}`;
    this.state.selected = same ? null : [layer, capsule];
    this.act.activate(this);
    this.act.changed(this);
  }

  leave() {
    if (!this.state.selected) return;
    this.state.selected = null;
    this.act.changed(this);
  }

  silence(layer, capsule) {
    const key = `${layer}.${capsule}`;
    const others = this.state.silenced.filter((one) => one.join(".") !== key);
    this.state.silenced = others.length < this.state.silenced.length ? others : [...others, [layer, capsule]];
    this.changed();
  }

  drawLevers() {
    const { state, facts } = this;
    const focused = document.activeElement?.id;
    const routed = facts.layers.slice(1).filter((name) => !facts.even.includes(name));
    const id = (name) => `${name}-${this.at}`;
    const levers = [];
    if (facts.iterations !== null) {
      const slider = el("input", { id: id("often"), type: "range", min: 1, max: 10, value: state.iterations ?? facts.iterations });
      slider.addEventListener("input", () => this.iterate(Number(slider.value)));
      this.often = el("output", { for: slider.id }, `${state.iterations ?? "as trained"}`);
      const play = el("button", { id: id("play"), type: "button", onclick: () => this.play() }, "▶ 1 to 10");
      levers.push(el("div", { class: "lever" }, el("label", { for: slider.id }, "Iterations"), slider, el("span", { class: "ends" }, this.often, play)));
      levers.push(el("p", { class: "note" }, "More iterations make couplings sharper, more like a tree. Watch what the answers do."));
    }
    const known = [...new Set([...LEVELS, ...(state.levels ? [state.levels] : [])])];
    const options = known.map((k) => el("option", { value: k, selected: k === state.levels }, `rounded to ${k} levels`));
    const levels = el("select", { id: id("levels") }, el("option", { value: "" }, "exact"), ...options);
    levels.addEventListener("change", () => {
      state.levels = Number(levels.value) || null;
      this.changed();
    });
    levers.push(lever(el("label", { for: levels.id }, "Couplings"), levels));
    const isTwin = routed.every((name) => state.even.includes(name));
    const twin = el("button", { id: id("twin"), type: "button", "aria-pressed": isTwin, title: "Every child splits itself evenly among its parents", onclick: () => this.route(isTwin ? [] : routed) }, "Uniform twin");
    const chips = routed.map((name) => {
      const off = state.even.includes(name);
      return chip(name, off, `Switch off routing of ${name}`, () => this.route(off ? state.even.filter((one) => one !== name) : [...state.even, name]), id(`chip-${name}`));
    });
    const none = el("span", { class: "note" }, "None: it was trained with even splits.");
    levers.push(lever("Routing", ...(routed.length ? [twin, ...(routed.length > 1 ? chips : [])] : [none])));
    const silent = state.silenced.map(([layer, capsule]) => chip(`${layer} ${capsule}`, true, `Silence ${layer} ${capsule}`, () => this.silence(layer, capsule)));
    if (silent.length) levers.push(lever("Silenced", ...silent));
    if (routed.some((name) => state.even.includes(name))) levers.push(el("p", { class: "note" }, "A layer struck through gets an even split from each of its children; the weights stay as they were trained."));
    this.levers.replaceChildren(...levers);
    if (focused) document.getElementById(focused)?.focus();
  }

  iterate(often) {
    this.state.iterations = often === this.facts.iterations ? null : often;
    this.often.textContent = this.state.iterations ?? "as trained";
    this.act.changed(this);
  }

  route(even) {
    this.state.even = even;
    this.changed();
  }

  async play() {
    for (let often = 1; often <= 10; often += 1) {
      document.getElementById(`often-${this.at}`).value = often;
      this.iterate(often);
      await new Promise((wait) => setTimeout(wait, 550));
    }
  }

  show(answer, took, label) {
    this.answer = answer;
    this.ms.textContent = `${Math.round(took)} ms; network ${answer.ms} ms`;
    const { classes } = this.facts;
    const [winner, second] = best(answer.scores);
    this.winner = winner;
    this.says = `${this.facts.label} says ${classes[winner]}, ${number(answer.scores[winner])}.`;
    // A network that knows other classes is neither right nor wrong.
    const isRight = classes.includes(label) ? (label === classes[winner] ? el("span", { class: "right" }, " ✓ right") : el("span", { class: "wrong" }, ` ✗ it is ${label}`)) : null;
    this.verdict.replaceChildren("It says ", el("b", {}, classes[winner]), ` (${number(answer.scores[winner])})`, isRight ?? "", second === undefined ? "" : `, then ${classes[second]} (${number(answer.scores[second])})`);
    const [old] = best(answer.before);
    const same = answer.before.every((score, at) => score === answer.scores[at]);
    this.before.textContent = answer.empty ? "The image is empty. A network answers all the same; the answer means nothing." : same ? "" : `Unchanged inside, it says ${classes[old]} (${number(answer.before[old])}).`;
    this.draw();
  }

  draw() {
    const { answer, state, known } = this;
    if (!answer) return;
    const { right = null, right_before: plain, images } = known ?? {};
    this.right.textContent = right === null ? "" : `Right on ${right} of ${images} test images${plain === right ? "" : `; unchanged inside, on ${plain}`}.`;
    const width = Math.max(280, Math.round(this.element.clientWidth - 36));
    this.tree.draw({ ...answer, width, classes: this.facts.classes, lit: answer.lit ?? null, selected: state.selected, silent: state.silenced.map((one) => one.join(".")), dead: this.dead ?? {}, winner: this.winner });
    const rows = answer.layers.map((layer, depth) => {
      const link = answer.links[depth - 1];
      const dead = this.dead?.[layer.name]?.length;
      return [layer.name, `${layer.n}`, dead === undefined ? "–" : `${dead}`, link ? number(link.strongest) : "", link ? number(link.even) : "", link ? number(known?.dyr?.[link.name]) : ""];
    });
    const details = this.layers.querySelector("details");
    const fresh = el("details", { open: details ? details.open : true }, el("summary", {}, "Layers in numbers"));
    fresh.append(table(["layer", "capsules", "dead", "strongest coupling", "even split", "tree changes"], rows.reverse()));
    fresh.append(el("p", { class: "note" }, "Strongest coupling: what a child gives to its favourite parent in this image, a mean over the children. Tree changes: how much couplings differ over the test images; 0 is one frozen tree for all, 1 is perfect routing: every child picks one parent, and all parents equally often."));
    if (!answer.chain) fresh.append(el("p", { class: "note" }, "Its layers do not lead to each other one by one, so nothing lights up from a capsule."));
    this.layers.replaceChildren(fresh);
    this.drawCard();
  }

  drawCard() {
    const { answer, state, known } = this;
    if (!state.selected) {
      this.card.replaceChildren(...[el("h2", {}, "One capsule"), this.whose(), el("p", { class: "note" }, "Click a capsule in the tree. What leads to it lights up down to the pixels, and so does what it leads to.")].filter(Boolean));
      return;
    }
    const [name, capsule] = state.selected;
    const depth = answer.layers.findIndex((layer) => layer.name === name);
    const layer = answer.layers[depth];
    const length = layer.length[layer.shown.indexOf(capsule)];
    const isTop = depth === answer.layers.length - 1;
    const called = isTop ? `Class ${this.facts.classes[capsule]}` : where(layer, capsule);
    const list = (pairs, other) => pairs.map(([each, coupling]) => `${other.name === answer.layers.at(-1).name ? this.facts.classes[each] : each} (${number(coupling)})`).join(", ");
    const isSilent = state.silenced.some((one) => one.join(".") === state.selected.join("."));
    const parts = [
      el("h2", {}, called),
      this.whose(),
      el("p", {}, isSilent ? "Silenced: its length is held at 0." : `Length ${number(length, 3)}${known?.dead?.[name]?.includes(capsule) ? "; dead on the test images" : ""}.`),
      depth ? el("p", {}, `Strongest children${answer.layers[depth - 1].map ? " of those drawn" : ""}, in ${answer.layers[depth - 1].name}: ${list(near(answer.links[depth - 1], 1, capsule), answer.layers[depth - 1])}.`) : null,
      isTop ? null : el("p", {}, `Strongest parents, in ${answer.layers[depth + 1].name}: ${list(near(answer.links[depth], 0, capsule), answer.layers[depth + 1])}.`),
      answer.lit ? el("p", { class: "note" }, litIn(answer.lit, answer.layers, depth)) : null,
      answer.saliency && !isSilent ? el("p", { class: "note" }, `Orange on the image: ${answer.saliency_is}.`) : null,
      el("div", { class: "row" }, el("button", { type: "button", onclick: () => this.silence(name, capsule) }, isSilent ? "Let it speak" : "Silence it"), el("button", { type: "button", onclick: () => this.leave() }, "Let go")),
    ];
    if (known?.lengths && !isSilent) {
      const order = known.lengths.map((value, at) => [value, at]).sort((one, other) => other[0] - one[0]).slice(0, 8);
      parts.push(el("h3", {}, `Its length on ${known.images} test images`), drawSpread(known.lengths, length));
      parts.push(el("h3", {}, "Images that excite it most"), el("div", { class: "strip" }, ...order.map(([value, at]) => this.act.thumb(this.facts.collection, at, number(value)))));
    }
    this.card.replaceChildren(...parts.filter(Boolean));
  }

  // With two networks side by side, a card says of which one it is.
  whose() {
    return this.act.several() ? el("p", { class: "note" }, `In ${this.facts.label}`) : null;
  }
}

function lever(name, ...content) {
  return el("div", { class: "lever" }, name.tagName ? name : el("span", {}, name), el("span", { class: "row" }, ...content));
}

// A layer or a capsule that is switched off while it is pressed.
function chip(name, off, label, onclick, id = null) {
  return el("button", { id, class: "chip", type: "button", "aria-pressed": off, title: label, "aria-label": label, onclick }, name);
}

// The strongest lines of a capsule, which is their child (0) or parent (1): who is at the other end.
function near({ lines }, end, capsule) {
  const own = lines.filter((line) => line[end] === capsule).sort((one, other) => other[2] - one[2]);
  return own.slice(0, 5).map((line) => [line[1 - end], line[2]]);
}

function litIn(lit, layers, depth) {
  const count = (some) => some.reduce((sum, layer) => sum + lit.capsules[layer.name].length, 0);
  const [below, above] = [count(layers.slice(0, depth)), count(layers.slice(depth + 1))];
  if (!below && !above) return "Nothing lights up: no coupling to it or from it is stronger than an even split.";
  return `Lit: ${below} capsules below that lead to it and ${above} above that it leads to, by couplings stronger than an even split.`;
}

function best(scores) {
  return scores.map((score, at) => [score, at]).sort((one, other) => other[0] - one[0]).map(([, at]) => at);
}
