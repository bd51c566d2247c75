// In a page without a server: the same questions, answered here.

import { byId, el } from "./dom.js";
import { Interpreter } from "./interpreter.js";
import { matrix } from "./link.js";

const [MOST, PLACES] = [32, 7];
const given = JSON.parse(byId("given").textContent);
const network = new Interpreter(given.program);
const [channels, height, width] = given.program.image;
const images = given.images.map(({ data }) => Float32Array.from(atob(data), (letter) => letter.charCodeAt(0) / 255));
const pictures = new Map();
let last = {};

export const ask = {
  about: async () => given.about,
  images: async () => given.images.map((image, at) => ({ ...image, png: png(images[at]) })),
  look: async (_, state) => look(state),
  // What was counted over the images holds for the network as it is.
  over: async (_, { changed, selected }) => (isPlain(changed) ? { ...given.over, lengths: selected && given.lengths[selected[0]]?.map((row) => row[selected[1]]) } : { images: given.over.images }),
  glow,
  picture: async (blob) => {
    const canvas = el("canvas", { width, height });
    const brush = canvas.getContext("2d");
    // Transparent places are white, as the server has them.
    brush.fillStyle = "#fff";
    brush.fillRect(0, 0, width, height);
    brush.drawImage(await createImageBitmap(blob), 0, 0, width, height);
    const { data } = brush.getImageData(0, 0, width, height);
    const light = (at, c) => (channels === 3 ? data[4 * at + c] : (data[4 * at] + data[4 * at + 1] + data[4 * at + 2]) / 3) / 255;
    const picture = (pictures.size + 1).toString(16).padStart(16, "0");
    pictures.set(picture, Float32Array.from({ length: channels * height * width }, (_, at) => light(at % (height * width), Math.floor(at / (height * width)))));
    return { picture, png: canvas.toDataURL() };
  },
};
globalThis.explorer = { network, ask };

function look({ shown, changed, selected }) {
  const began = performance.now();
  const key = JSON.stringify(shown);
  if (last.key !== key) last = { key, pixels: lying(shown) };
  const found = network.run(last.pixels, changed);
  const layers = found.layers.map(({ name, length }, depth) => {
    const order = length.map((value, k) => [value, k]).sort((one, other) => other[0] - one[0]).slice(0, MOST).map(([, k]) => k);
    if (selected?.[0] === name && !order.includes(selected[1])) order[order.length - 1] = selected[1];
    const drawn = order.sort((one, other) => one - other);
    return { ...given.layers[depth], name, n: length.length, shown: drawn, length: drawn.map((k) => length[k]) };
  });
  const links = found.links.map((link, depth) => linesOf(link, layers[depth], layers[depth + 1]));
  return {
    image: png(last.pixels),
    scores: found.scores,
    empty: last.pixels.every((value) => value === last.pixels[0]),
    before: isPlain(changed) ? found.scores : network.run(last.pixels).scores,
    layers,
    links,
    chain: true,
    lit: selected && lit(found, selected),
    ms: (performance.now() - began).toFixed(1),
  };
}

const isPlain = ({ iterations, levels, silenced, even }) => !iterations && !levels && !silenced.length && !even.length;

// How much the length of a capsule changes as one place after another is covered with the mean of
// the image: no gradients are known here. Gives nothing where nobody waits for it any more.
async function glow({ shown, changed, selected: [name, capsule] }, isLate = () => false) {
  const pixels = lying(shown);
  const size = height * width;
  const long = (image) => network.run(image, changed).layers.find((layer) => layer.name === name).length[capsule];
  const edge = (side, at) => Math.round((side * at) / PLACES);
  const box = (at) => [edge(width, at % PLACES), edge(height, Math.floor(at / PLACES)), edge(width, (at % PLACES) + 1), edge(height, Math.floor(at / PLACES) + 1)];
  const means = Array.from({ length: channels }, (_, c) => pixels.slice(c * size, (c + 1) * size).reduce((sum, value) => sum + value, 0) / size);
  const [full, lost] = [long(pixels), []];
  for (let at = 0; at < PLACES ** 2; at += 1) {
    await new Promise((next) => setTimeout(next));
    if (isLate()) return null;
    const [x, y, right, below] = box(at);
    const covered = pixels.map((value, k) => (k % width >= x && k % width < right && Math.floor((k % size) / width) >= y && Math.floor((k % size) / width) < below ? means[Math.floor(k / size)] : value));
    lost.push(Math.abs(full - long(covered)));
  }
  const canvas = el("canvas", { width, height });
  const brush = canvas.getContext("2d");
  const most = Math.max(1e-12, ...lost);
  lost.forEach((value, at) => {
    const [x, y, right, below] = box(at);
    brush.fillStyle = `rgba(224, 130, 20, ${0.9 * (value / most) ** 1.4})`;
    brush.fillRect(x, y, right - x, below - y);
  });
  return { saliency: canvas.toDataURL(), saliency_is: `how much its length changes as one of ${PLACES} × ${PLACES} places after another is covered`, lost };
}

function linesOf({ name, coupling }, below, above) {
  const rows = Array.from({ length: below.n }, (_, i) => coupling.slice(i * above.n, (i + 1) * above.n));
  const best = rows.map((row) => Math.max(...row));
  const lines = below.shown.flatMap((i) => above.shown.map((j) => [i, j, rows[i][j], Number(rows[i][j] === best[i] && best[i] > Math.min(...rows[i]) + 1e-6)]));
  return { name, even: 1 / above.n, strongest: best.reduce((sum, value) => sum + value, 0) / below.n, lines };
}

// What leads to a capsule and from it, by couplings above an even split.
function lit(found, [name, capsule]) {
  const sizes = found.layers.map((layer) => layer.length.length);
  const depth = found.layers.findIndex((layer) => layer.name === name);
  const inside = found.layers.map((layer, at) => new Set(at === depth ? [capsule] : []));
  const edges = found.links.map(() => []);
  const at = (link, i, j) => found.links[link].coupling[i * sizes[link + 1] + j];
  const mark = (link, isInside) => {
    for (let i = 0; i < sizes[link]; i += 1) {
      for (let j = 0; j < sizes[link + 1]; j += 1) if (isInside(i, j) && at(link, i, j) > 1 / sizes[link + 1] + 1e-6) edges[link].push([i, j]);
    }
    edges[link].forEach(([i, j]) => [inside[link].add(i), inside[link + 1].add(j)]);
  };
  for (let link = depth - 1; link >= 0; link -= 1) mark(link, (i, j) => inside[link + 1].has(j));
  for (let link = depth; link < edges.length; link += 1) mark(link, (i) => inside[link].has(i));
  return { edges, capsules: Object.fromEntries(found.layers.map((layer, k) => [layer.name, [...inside[k]]])) };
}

// Interpolated bilinearly, black from outside.
function lying(shown) {
  const from = pictures.get(shown.picture) ?? images[shown.number] ?? new Float32Array(channels * height * width);
  const [a, b, c, d] = matrix(shown);
  const det = a * d - b * c;
  const pixel = (channel, y, x) => {
    if (x < 0 || y < 0 || x >= width || y >= height) return 0;
    const value = from[(channel * height + y) * width + x];
    return shown.invert ? 1 - value : value;
  };
  return Float32Array.from({ length: channels * height * width }, (_, at) => {
    const channel = Math.floor(at / (height * width));
    const x = (at % width) - (width - 1) / 2 - shown.x * width;
    const y = (Math.floor(at / width) % height) - (height - 1) / 2 - shown.y * height;
    const [u, v] = [(d * x - b * y) / det + (width - 1) / 2, (a * y - c * x) / det + (height - 1) / 2];
    const [left, top] = [Math.floor(u), Math.floor(v)];
    const row = (line) => pixel(channel, line, left) * (left + 1 - u) + pixel(channel, line, left + 1) * (u - left);
    return row(top) * (top + 1 - v) + row(top + 1) * (v - top);
  });
}

function png(pixels) {
  const canvas = el("canvas", { width, height });
  const data = new ImageData(width, height);
  for (let at = 0; at < height * width; at += 1) {
    for (let c = 0; c < 3; c += 1) data.data[4 * at + c] = Math.round(255 * pixels[(channels === 3 ? c : 0) * height * width + at]);
    data.data[4 * at + 3] = 255;
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas.toDataURL();
}
