// Small capsule networks computed here: convolutions, dense capsules, and three routings.

// The numbers of a tensor that came as base64 of float32.
function numbers(text) {
  return new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

const EPSILON = 1e-8;
// How near two float32 numbers can lie, as a share of them.
const ROUNDING = 2 ** -23;

// The same part with its tensors as arrays.
function read(part) {
  const values = Object.entries(part).map(([name, value]) => [name, value?.data ? { ...value, data: numbers(value.data) } : value]);
  return Object.fromEntries(values);
}

export class Interpreter {
  constructor(program) {
    this.program = program;
    this.below = program.below.map(read);
    this.layers = program.layers.map(read);
    this.head = program.head && read(program.head);
  }

  // Scores, lengths and couplings for pixels of [c, h, w]; `changed` as in a question.
  run(pixels, { iterations = null, levels = null, silenced = [], even = [] } = {}) {
    const { primary } = this.program;
    let poses = silent(this.primaries(pixels), primary.d, "primary", silenced);
    const layers = [{ name: "primary", length: lengths(poses, primary.d) }];
    const links = [];
    for (const layer of this.layers) {
      const couple = even.includes(layer.name) ? split : levels ? (row) => onGrid(row, levels) : null;
      const { parents, coupling } = route(layer, votes(layer, poses), iterations, couple);
      poses = silent(parents, layer.d_out, layer.name, silenced);
      layers.push({ name: layer.name, length: lengths(poses, layer.d_out) });
      links.push({ name: layer.name, coupling });
    }
    return { scores: this.scores(poses, layers[layers.length - 1].length), layers, links };
  }

  // The same pixels come often: iterations and silence change nothing below the capsules.
  primaries(pixels) {
    if (this.seen !== pixels) {
      const [channels, height, width] = this.program.image;
      let map = { data: pixels, channels, height, width };
      for (const op of this.below) map = OPS[op.op](map, op);
      this.made = capsules(map, this.program.primary);
      this.seen = pixels;
    }
    return this.made;
  }

  scores(poses, length) {
    if (!this.head) return length;
    const { weight, bias } = this.head;
    const size = weight.data.length;
    const logits = Array.from(length, (_, k) => weight.data.reduce((sum, w, d) => sum + w * poses[k * size + d], bias?.data[0] ?? 0));
    return this.program.scores_are === "logits" ? softmax(logits) : logits.map((logit) => 1 / (1 + Math.exp(-logit)));
  }
}

const OPS = {
  relu: (map) => ({ ...map, data: map.data.map((value) => Math.max(0, value)) }),
  scale: (map, { weight, bias }) => {
    const channel = (at) => Math.floor(at / (map.height * map.width));
    return { ...map, data: map.data.map((value, at) => value * weight.data[channel(at)] + bias.data[channel(at)]) };
  },
  conv: ({ data, height: h, width: w }, { weight, bias, stride, groups }) => {
    const [channels, inside, tall, wide] = weight.shape;
    const [height, width] = [Math.floor((h - tall) / stride) + 1, Math.floor((w - wide) / stride) + 1];
    const out = new Float32Array(channels * height * width);
    const sum = new Float64Array(height * width);
    for (let k = 0; k < channels; k += 1) {
      sum.fill(bias ? bias.data[k] : 0);
      const first = Math.floor(k / (channels / groups)) * inside;
      for (let c = 0; c < inside; c += 1) {
        for (let a = 0; a < tall; a += 1) {
          for (let b = 0; b < wide; b += 1) {
            const factor = weight.data[((k * inside + c) * tall + a) * wide + b];
            for (let y = 0; y < height; y += 1) {
              const from = ((first + c) * h + y * stride + a) * w + b;
              const to = y * width;
              for (let x = 0; x < width; x += 1) sum[to + x] += factor * data[from + x * stride];
            }
          }
        }
      }
      out.set(sum, k * height * width);
    }
    return { data: out, channels, height, width };
  },
};

// Poses in the order (row, column, type) out of channels in the order (type, component).
function capsules({ data, channels, height, width }, { d, squash }) {
  const [size, types] = [height * width, channels / d];
  const poses = new Float64Array(data.length);
  for (let at = 0; at < size; at += 1) {
    for (let k = 0; k < channels; k += 1) poses[at * channels + k] = data[k * size + at];
  }
  return squashed(poses, d, squash, size * types);
}

function squashed(poses, d, kind, count) {
  if (kind === "none") return poses;
  for (let k = 0; k < count; k += 1) {
    let square = 0;
    for (let e = k * d; e < k * d + d; e += 1) square += poses[e] * poses[e];
    const norm = Math.sqrt(square + EPSILON);
    const scale = kind === "hinton" ? square / (1 + square) / norm : -Math.expm1(-norm) / norm;
    for (let e = k * d; e < k * d + d; e += 1) poses[e] *= scale;
  }
  return poses;
}

function lengths(poses, d) {
  return Array.from({ length: poses.length / d }, (_, k) => Math.hypot(...poses.subarray(k * d, k * d + d)));
}

function silent(poses, d, name, silenced) {
  const made = poses.slice();
  for (const [layer, k] of silenced) if (layer === name) made.fill(0, k * d, k * d + d);
  return made;
}

function votes({ n_in, n_out, d_in, d_out, sharing, types, weight, vote_bias }, poses) {
  const out = new Float64Array(n_in * n_out * d_out);
  for (let i = 0; i < n_in; i += 1) {
    const kind = { none: i, type: i % types, all: 0 }[sharing];
    for (let j = 0; j < n_out; j += 1) {
      for (let d = 0; d < d_out; d += 1) {
        let sum = vote_bias ? vote_bias.data[j * d_out + d] : 0;
        const row = ((kind * n_out + j) * d_out + d) * d_in;
        for (let e = 0; e < d_in; e += 1) sum += weight.data[row + e] * poses[i * d_in + e];
        out[(i * n_out + j) * d_out + d] = sum;
      }
    }
  }
  return out;
}

function route(layer, made, iterations, couple) {
  const { n_in, n_out, d_out, routing, squash, prior, bias } = layer;
  const often = routing === "dynamic" ? (iterations ?? layer.iterations) : 1;
  const logits = prior ? Float64Array.from(prior.data) : new Float64Array(n_in * n_out);
  const coupling = new Float64Array(n_in * n_out);
  let parents;
  for (let t = 1; t <= often; t += 1) {
    if (routing === "self_attention") agree(logits.fill(0), made, summed(made, null, layer), layer, 1 / Math.sqrt(d_out));
    for (let i = 0; i < n_in; i += 1) {
      let row = routing === "uniform" ? new Array(n_out).fill(layer.share) : softmax(logits.subarray(i * n_out, i * n_out + n_out));
      if (routing === "self_attention" && bias) row = row.map((value, j) => value + bias.data[i * n_out + j]);
      coupling.set(t === often && couple ? couple(row) : row, i * n_out);
    }
    parents = summed(made, coupling, layer);
    if (bias && routing !== "self_attention") parents = parents.map((value, at) => value + bias.data[at]);
    squashed(parents, d_out, squash, n_out);
    if (t < often) agree(logits, made, parents, layer, layer.agreement);
  }
  return { parents, coupling };
}

function summed(made, coupling, { n_in, n_out, d_out }) {
  const out = new Float64Array(n_out * d_out);
  for (let i = 0; i < n_in * n_out; i += 1) {
    const j = i % n_out;
    const share = coupling ? coupling[i] : 1;
    for (let d = 0; d < d_out; d += 1) out[j * d_out + d] += share * made[i * d_out + d];
  }
  return out;
}

function agree(logits, made, parents, { n_in, n_out, d_out }, factor) {
  for (let i = 0; i < n_in * n_out; i += 1) {
    const j = i % n_out;
    let sum = 0;
    for (let d = 0; d < d_out; d += 1) sum += made[i * d_out + d] * parents[j * d_out + d];
    logits[i] += factor * sum;
  }
}

function softmax(logits) {
  const most = Math.max(...logits);
  const parts = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = parts.reduce((total, part) => total + part, 0);
  return parts.map((part) => part / sum);
}

function split(row) {
  return new Array(row.length).fill(row.reduce((sum, value) => sum + value, 0) / row.length);
}

// The nearest of K levels from 0 to 1; what lies half way goes to the even one.
function onGrid(row, levels) {
  return row.map((value) => {
    const scaled = value * (levels - 1);
    const half = Math.floor(scaled) + 0.5;
    const tie = Math.abs(scaled - half) <= ROUNDING * Math.abs(scaled);
    const level = tie ? 2 * Math.round(half / 2) : Math.round(scaled);
    return level / (levels - 1);
  });
}
