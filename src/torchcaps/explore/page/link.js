// The state of the page, and its link: each is made of the other.

export const MOVES = [
  { key: "turn", name: "Turn", least: -180, most: 180, step: 1, plain: 0, unit: "°" },
  { key: "x", name: "Move across", least: -0.5, most: 0.5, step: 0.01, plain: 0, unit: "" },
  { key: "y", name: "Move down", least: -0.5, most: 0.5, step: 0.01, plain: 0, unit: "" },
  { key: "scale", name: "Scale", least: 0.5, most: 2, step: 0.01, plain: 1, unit: "×" },
  { key: "shear", name: "Shear", least: -1, most: 1, step: 0.01, plain: 0, unit: "" },
];
// A picture of this many letters still fits a link.
const MOST_LETTERS = 6000;

export function newPane(network) {
  return { network, iterations: null, levels: null, silenced: [], even: [], selected: null };
}

export function newState() {
  const moves = Object.fromEntries(MOVES.map((move) => [move.key, move.plain]));
  return { collection: null, number: 0, picture: null, png: null, invert: false, ...moves, panes: [newPane(0)] };
}

export function toLink(state) {
  const words = new URLSearchParams();
  if (state.png && state.png.length < MOST_LETTERS) words.set("p", state.png.split(",")[1].replaceAll("+", "-").replaceAll("/", "_"));
  else if (state.picture) words.set("d", state.picture);
  else if (state.collection !== null) words.set("i", `${state.collection}.${state.number}`);
  for (const move of MOVES) if (state[move.key] !== move.plain) words.set(move.key, state[move.key]);
  if (state.invert) words.set("dark", 1);
  state.panes.forEach((pane, at) => {
    const name = "ab"[at];
    words.set(name, pane.network);
    if (pane.iterations !== null) words.set(`${name}.it`, pane.iterations);
    if (pane.levels !== null) words.set(`${name}.k`, pane.levels);
    if (pane.silenced.length) words.set(`${name}.off`, pane.silenced.map((one) => one.join(".")).join(","));
    if (pane.even.length) words.set(`${name}.even`, pane.even.join(","));
    if (pane.selected) words.set(`${name}.sel`, pane.selected.join("."));
  });
  return `#${words}`;
}

export function fromLink(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state = newState();
  const [collection, image] = (words.get("i") ?? "").split(".").map(Number);
  if (Number.isInteger(collection) && Number.isInteger(image)) Object.assign(state, { collection, number: image });
  if (/^[\w-]+=*$/.test(words.get("p") ?? "")) state.png = `data:image/png;base64,${words.get("p").replaceAll("-", "+").replaceAll("_", "/")}`;
  if (/^[0-9a-f]{16}$/.test(words.get("d") ?? "")) state.picture = words.get("d");
  for (const { key, least, most, plain } of MOVES) {
    const value = parseFloat(words.get(key) ?? plain);
    state[key] = Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : plain;
  }
  state.invert = words.get("dark") === "1";
  state.panes = ["a", "b"].filter((name) => name === "a" || words.has(name)).map((name) => {
    const list = (key) => (words.get(`${name}.${key}`) ?? "").split(",").filter(Boolean);
    return {
      network: whole(words.get(name), 0, 100) ?? 0,
      iterations: whole(words.get(`${name}.it`), 1, 10),
      levels: whole(words.get(`${name}.k`), 2, 101),
      silenced: list("off").map(capsule).filter(Boolean),
      even: list("even"),
      selected: capsule(words.get(`${name}.sel`) ?? ""),
    };
  });
  return state;
}

// What turn, scale and shear do to a point, as rows of a matrix.
export function matrix({ turn, shear, scale }) {
  const [cos, sin] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
  return [cos * scale, (cos * shear - sin) * scale, sin * scale, (sin * shear + cos) * scale];
}

// The parts of a true tree where the image lies as it is set.
export function moved(parts, shown) {
  const [a, b, c, d] = matrix(shown);
  return parts.map((part) => {
    const [x, y] = [part.x - 0.5, part.y - 0.5];
    return { ...part, x: a * x + b * y + shown.x + 0.5, y: c * x + d * y + shown.y + 0.5, r: part.r * shown.scale };
  });
}

function whole(text, least, most) {
  const value = Number(text ?? NaN);
  return text && Number.isInteger(value) && value >= least && value <= most ? value : null;
}

function capsule(text) {
  const at = text.lastIndexOf(".");
  const number = whole(text.slice(at + 1), 0, 1e7);
  return at > 0 && number !== null ? [text.slice(0, at), number] : null;
}

// What is asked of one network.
export function question(state, pane) {
  const shown = { invert: state.invert };
  if (state.picture) shown.picture = state.picture;
  else if (state.collection !== null) Object.assign(shown, { collection: state.collection, number: state.number });
  for (const { key } of MOVES) shown[key] = state[key];
  const { iterations, levels, silenced, even } = pane;
  return { network: pane.network, shown, changed: { iterations, levels, silenced, even }, selected: pane.selected };
}
