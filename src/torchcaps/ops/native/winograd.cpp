// Convolution with 3×3 kernels and stride 1 by the minimal filtering of Winograd, two outputs a side
// from four inputs: 16 products for four outputs, where a direct convolution has 36.
//
// Maps are split into tiles of 4×4 points that overlap by two, transformed by additions; a channel
// of a kernel becomes 4×4 numbers too. What is left are 16 products of matrices, [tiles, c_in] times
// [c_in, c_out], one for each of the 16 places; their results are transformed to 2×2 outputs:
//
//     y = Aᵀ ( Σ_c (G w Gᵀ) ⊙ (Bᵀ x B) ) A
//
//     Bᵀ = 1  0 −1  0     G = 1   0   0     Aᵀ = 1  1  1  0
//          0  1  1  0         ½   ½   ½          0  1 −1 −1
//          0 −1  1  0         ½  −½   ½
//          0  1  0 −1         0   0   1
//
// Gradients of kernels are the transposes of the same. Channels lie in the lanes. What is made of
// some rows of tiles stays in the cache of a core: votes are not the only thing never stored.

#include "lanes.hpp"

namespace {

// [batch, channels, height, width], in steps of floats; `channel` or `column` is one.
struct Maps {
  float *at;
  Int channels, height, width;
  Int image, channel, row, column;
};

struct WinogradJob {
  Maps x, y;  // what goes in; what comes out, or its gradient
  // Of [c_out, c_in, 9] as the forward pass sees it, or its gradient.
  float *weight;
  const float *bias;
  Int of_output, of_input, of_tap;  // steps
  Int batch, padding, threads;
  Int turned;  // the taps come last first: the gradient of what goes in
  float *workspace;
  Int workspace_size;  // floats
};

constexpr Int PLACES = 16;
// Of a product: rows and vectors whose sums are in registers.
constexpr Int ROWS = 6;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int COLUMNS = 4;
#else
constexpr int COLUMNS = 2;
#endif
// What the tiles of one product may take of a core's second cache; and of all cores' third.
constexpr Int NEAR_BYTES = 768 << 10;
constexpr Int SHARED_TILES = 192;
// Tiles of one sum of the gradient of kernels: their gradients stay in the first cache.
constexpr Int SUMMED_TILES = 96;

// out[r, m] (+)= Σ_i a[r, i] b[i, m]
template <int M>
inline void product_block(const float *a, Int row, Int step, const V *b, Int b_step, Int sums, V *out,
                          Int out_step, bool add) {
  V s[ROWS * M] = {};
  for (Int i = 0; i < sums; ++i, a += step, b += b_step) {
    V w[M];
    UNROLLED for (int m = 0; m < M; ++m) w[m] = b[m];
    UNROLLED for (int r = 0; r < ROWS; ++r) {
      const float x = a[r * row];
      UNROLLED for (int m = 0; m < M; ++m) s[r * M + m] += x * w[m];
    }
  }
  UNROLLED for (int r = 0; r < ROWS; ++r)
    UNROLLED for (int m = 0; m < M; ++m)
      out[r * out_step + m] = add ? out[r * out_step + m] + s[r * M + m] : s[r * M + m];
}

// Rows of maps from `top` and columns from `left` on, with zeros around the map: to [row, block of
// channels, column] of lanes.
void rows_to_lanes(const Maps &maps, Int image, Int top, Int left, Int rows, Int columns, V *to) {
  const Int blocks = blocks_of(maps.channels);
  const Int first = left < 0 ? -left : 0;
  const Int last = maps.width - left < columns ? maps.width - left : columns;
  for (Int row = top; row < top + rows; ++row)
    for (Int block = 0; block < blocks; ++block, to += columns) {
      if (row < 0 || row >= maps.height || last <= first) {
        for (Int c = 0; c < columns; ++c) to[c] = V{};
        continue;
      }
      const Int channel = block * LANES;
      const Int here = maps.channels - channel < LANES ? maps.channels - channel : LANES;
      const float *from = maps.at + image * maps.image + channel * maps.channel + row * maps.row +
                          (left + first) * maps.column;
      for (Int c = 0; c < first; ++c) to[c] = V{};
      for (Int c = last; c < columns; ++c) to[c] = V{};
      if (maps.column == 1) {
        to_lanes(from, maps.channel, here, last - first, to + first);
      } else if (here == LANES) {
        for (Int c = first; c < last; ++c, from += maps.column) std::memcpy(to + c, from, sizeof(V));
      } else {
        for (Int c = first; c < last; ++c, from += maps.column) {
          to[c] = V{};
          std::memcpy(to + c, from, here * sizeof(float));
        }
      }
    }
}

// And back; what lies outside the map is dropped.
void rows_from_lanes(const V *from, const Maps &maps, Int image, Int top, Int rows, Int columns) {
  const Int blocks = blocks_of(maps.channels);
  const Int last = maps.width < columns ? maps.width : columns;
  for (Int row = top; row < top + rows && row < maps.height; ++row)
    for (Int block = 0; block < blocks; ++block, from += columns) {
      const Int channel = block * LANES;
      const Int here = maps.channels - channel < LANES ? maps.channels - channel : LANES;
      float *to = maps.at + image * maps.image + channel * maps.channel + row * maps.row;
      if (maps.column == 1) {
        from_lanes(from, maps.channel, here, last, to);
      } else if (here == LANES) {
        for (Int c = 0; c < last; ++c, to += maps.column) std::memcpy(to, from + c, sizeof(V));
      } else {
        for (Int c = 0; c < last; ++c, to += maps.column)
          std::memcpy(to, from + c, here * sizeof(float));
      }
    }
}

// Bᵀ x B of a row of tiles; `to` has a vector for [place, tile, block], places `step` apart.
void input_tiles(const V *rows, Int blocks, Int tiles, V *to, Int tile_step, Int step) {
  const Int columns = 2 * tiles + 2, next = blocks * columns;
  for (Int block = 0; block < blocks; ++block, rows += columns)
    for (Int tile = 0; tile < tiles; ++tile) {
      const V *x = rows + 2 * tile;
      V *out = to + tile * tile_step + block;
      V s[16];
      UNROLLED for (int c = 0; c < 4; ++c) {
        const V a = x[c], b = x[next + c], d = x[2 * next + c], e = x[3 * next + c];
        s[c] = a - d, s[4 + c] = b + d, s[8 + c] = d - b, s[12 + c] = b - e;
      }
      UNROLLED for (int r = 0; r < 4; ++r) {
        const V *a = s + 4 * r;
        out[(4 * r + 0) * step] = a[0] - a[2];
        out[(4 * r + 1) * step] = a[1] + a[2];
        out[(4 * r + 2) * step] = a[2] - a[1];
        out[(4 * r + 3) * step] = a[1] - a[3];
      }
    }
}

// A y Aᵀ of a row of tiles of 2×2 gradients.
void gradient_tiles(const V *rows, Int blocks, Int tiles, V *to, Int tile_step, Int step) {
  const Int columns = 2 * tiles, next = blocks * columns;
  for (Int block = 0; block < blocks; ++block, rows += columns)
    for (Int tile = 0; tile < tiles; ++tile) {
      const V *y = rows + 2 * tile;
      V *out = to + tile * tile_step + block;
      V s[8];
      UNROLLED for (int c = 0; c < 2; ++c) {
        const V a = y[c], b = y[next + c];
        s[c] = a, s[2 + c] = a + b, s[4 + c] = a - b, s[6 + c] = -b;
      }
      UNROLLED for (int r = 0; r < 4; ++r) {
        const V *a = s + 2 * r;
        out[(4 * r + 0) * step] = a[0];
        out[(4 * r + 1) * step] = a[0] + a[1];
        out[(4 * r + 2) * step] = a[0] - a[1];
        out[(4 * r + 3) * step] = -a[1];
      }
    }
}

// Aᵀ m A of a row of tiles: two rows of outputs, [row, block, column].
void output_rows(const V *from, Int tile_step, Int step, Int blocks, Int tiles, const V *bias,
                 V *rows) {
  const Int columns = 2 * tiles, next = blocks * columns;
  for (Int block = 0; block < blocks; ++block, rows += columns)
    for (Int tile = 0; tile < tiles; ++tile) {
      const V *m = from + tile * tile_step + block;
      V *y = rows + 2 * tile;
      V s[8];
      UNROLLED for (int c = 0; c < 4; ++c) {
        const V a = m[c * step], b = m[(4 + c) * step], d = m[(8 + c) * step];
        s[c] = a + b + d, s[4 + c] = b - d - m[(12 + c) * step];
      }
      UNROLLED for (int r = 0; r < 2; ++r) {
        const V *a = s + 4 * r;
        y[r * next] = a[0] + a[1] + a[2] + bias[block];
        y[r * next + 1] = a[1] - a[2] - a[3] + bias[block];
      }
    }
}

// Of three numbers four, and back: G and Gᵀ.
inline void spread(const V *g, Int step, V *to, Int to_step) {
  const V ends = 0.5f * (g[0] + g[2 * step]), middle = 0.5f * g[step];
  to[0] = g[0], to[to_step] = ends + middle, to[2 * to_step] = ends - middle;
  to[3 * to_step] = g[2 * step];
}

inline void gathered(const V *u, Int step, V *to, Int to_step) {
  const V both = 0.5f * (u[step] + u[2 * step]), other = 0.5f * (u[step] - u[2 * step]);
  to[0] = u[0] + both, to[to_step] = other, to[2 * to_step] = both + u[3 * step];
}

// Sizes of what is laid out in the workspace, in vectors.
struct WinogradPlan {
  Int in, out;         // blocks of channels
  // Between tiles; odd where products take one line of each, which else would share places in the
  // first cache.
  Int in_tile, out_tile;
  Int across, down;    // tiles of an image
  Int rows, tiles;     // of tiles that are made at once
  Int in_step, out_step;  // between places; odd, since tiles are stored at all of them
  Int kernels, input_rows, scratch, total;

  WinogradPlan(const WinogradJob &job, bool of_weights) {
    in = blocks_of(job.x.channels), out = blocks_of(job.y.channels);
    in_tile = of_weights ? in | 1 : in, out_tile = of_weights ? out | 1 : out;
    across = (job.y.width + 1) / 2, down = (job.y.height + 1) / 2;
    const Int each = PLACES * (in_tile + out_tile) * Int(sizeof(V));
    const Int wanted = of_weights ? SHARED_TILES : NEAR_BYTES / each;
    rows = wanted / across > 1 ? wanted / across : 1;
    // Every thread has some. Sums of kernels are shared out otherwise, and keep their order.
    const Int all = job.batch * down, share = (all + job.threads - 1) / job.threads;
    const Int most = of_weights ? all : share;
    if (rows > most) rows = most;
    tiles = up_to(rows * across, ROWS);
    in_step = tiles * in_tile | 1, out_step = tiles * out_tile | 1;
    // As many rows of the gradient as come to a whole number of products.
    kernels = PLACES * (of_weights ? up_to(job.x.channels, ROWS) : job.x.channels) * out;
    input_rows = 4 * in * (2 * across + 2);
    scratch = input_rows + 4 * out * across;
    const Int made = PLACES * (in_step + out_step);
    // A product of too many rows reads a little past the end.
    total = kernels + out + 1 + (of_weights ? made + job.threads * scratch
                                            : job.threads * (made + scratch));
  }
};

struct WinogradWorker {
  const WinogradJob &job;
  const WinogradPlan &plan;
  Barrier &barrier;
  Int index, threads;

  V *kernels() const { return aligned(job.workspace); }
  V *bias() const { return kernels() + plan.kernels; }
  V *made() const { return bias() + plan.out; }

  // Rows of tiles with numbers from `first` on, at places from `from` to `until` among those made at
  // once. Two of the four rows of the map that a row of tiles sees are those of the row above.
  void input_rows(Int first, Int from, Int until, V *scratch, V *to) const {
    const Int columns = 2 * plan.across + 2, half = 2 * plan.in * columns;
    for (Int n = from; n < until; ++n) {
      const Int image = (first + n) / plan.down, row = (first + n) % plan.down;
      const Int above = n > from && row > 0 ? 2 : 0;
      if (above) std::memcpy(scratch, scratch + half, half * sizeof(V));
      rows_to_lanes(job.x, image, 2 * row - job.padding + above, -job.padding, 4 - above, columns,
                    scratch + above * plan.in * columns);
      input_tiles(scratch, plan.in, plan.across, to + n * plan.across * plan.in_tile, plan.in_tile,
                  plan.in_step);
    }
  }

  // G w Gᵀ of all kernels, as products want them: [place, columns at once, c_in, columns].
  void lay_out_kernels() const {
    const Int inputs = job.x.channels, outputs = job.y.channels, step = inputs * plan.out;
    for (Int i = index; i < inputs; i += threads)
      in_parts<COLUMNS>(plan.out, [&](Int at, auto wide) {
        constexpr int M = decltype(wide)::value;
        for (Int m = 0; m < M; ++m) {
          const Int first = (at + m) * LANES;
          const Int here = outputs - first < LANES ? outputs - first : LANES;
          V g[9] = {}, s[12], u[16];
          for (Int tap = 0; tap < 9; ++tap) {
            const Int seen = job.turned ? 8 - tap : tap;
            const float *w = job.weight + first * job.of_output + i * job.of_input + seen * job.of_tap;
            for (Int lane = 0; lane < here; ++lane) g[tap][lane] = w[lane * job.of_output];
          }
          for (Int c = 0; c < 3; ++c) spread(g + c, 3, s + c, 3);
          for (Int r = 0; r < 4; ++r) spread(s + 3 * r, 1, u + 4 * r, 1);
          for (Int place = 0; place < PLACES; ++place)
            kernels()[place * step + at * inputs + i * M + m] = u[place];
        }
      });
    if (index == 0)
      for (Int j = 0; j < plan.out * LANES; ++j)
        bias()[j / LANES][j % LANES] = job.bias && j < outputs ? job.bias[j] : 0;
    barrier.wait();
  }

  void convolve(std::atomic<Int> &next) const {
    lay_out_kernels();
    V *x = made() + index * (PLACES * (plan.in_step + plan.out_step) + plan.scratch);
    V *y = x + PLACES * plan.in_step, *scratch = y + PLACES * plan.out_step;
    V *rows = scratch + plan.input_rows;
    const Int all = job.batch * plan.down, inputs = job.x.channels;
    for (Int first; (first = next.fetch_add(plan.rows)) < all;) {
      const Int count = all - first < plan.rows ? all - first : plan.rows;
      input_rows(first, 0, count, scratch, x);
      for (Int place = 0; place < PLACES; ++place)
        in_parts<COLUMNS>(plan.out, [&](Int at, auto wide) {
          constexpr int M = decltype(wide)::value;
          const V *u = kernels() + (place * plan.out + at) * inputs;
          for (Int tile = 0; tile < count * plan.across; tile += ROWS)
            product_block<M>(numbers(x + place * plan.in_step + tile * plan.in_tile),
                             plan.in_tile * LANES, 1, u, M, inputs,
                             y + place * plan.out_step + tile * plan.out_tile + at, plan.out_tile,
                             false);
        });
      for (Int n = 0; n < count; ++n) {
        const Int number = first + n;
        output_rows(y + n * plan.across * plan.out_tile, plan.out_tile, plan.out_step, plan.out,
                    plan.across, bias(), rows);
        rows_from_lanes(rows, job.y, number / plan.down, number % plan.down * 2, 2,
                        2 * plan.across);
      }
    }
  }

  // Threads make tiles together, then each its share of the sums: so these do not depend on how
  // many threads there are.
  void differentiate() const {
    V *x = made(), *y = x + PLACES * plan.in_step;
    V *scratch = y + PLACES * plan.out_step + index * plan.scratch;
    V *rows = scratch + plan.input_rows;
    const Int all = job.batch * plan.down, inputs = up_to(job.x.channels, ROWS);
    for (Int first = 0; first < all; first += plan.rows) {
      const Int count = all - first < plan.rows ? all - first : plan.rows;
      const Int tiles = count * plan.across;
      const Int from = count * index / threads, until = count * (index + 1) / threads;
      input_rows(first, from, until, scratch, x);
      for (Int n = from; n < until; ++n) {
        const Int number = first + n;
        rows_to_lanes(job.y, number / plan.down, number % plan.down * 2, 0, 2, 2 * plan.across, rows);
        gradient_tiles(rows, plan.out, plan.across, y + n * plan.across * plan.out_tile,
                       plan.out_tile, plan.out_step);
      }
      barrier.wait();
      for (Int place = 0; place < PLACES; ++place)
        in_parts<COLUMNS>(plan.out, [&](Int at, auto wide) {
          constexpr int M = decltype(wide)::value;
          if ((place + at / COLUMNS) % threads != index) return;
          for (Int tile = 0; tile < tiles; tile += SUMMED_TILES)
            for (Int i = 0; i < inputs; i += ROWS)
              product_block<M>(
                  numbers(x + place * plan.in_step + tile * plan.in_tile) + i, 1,
                  plan.in_tile * LANES, y + place * plan.out_step + tile * plan.out_tile + at,
                  plan.out_tile,
                  tiles - tile < SUMMED_TILES ? tiles - tile : SUMMED_TILES,
                  kernels() + (place * inputs + i) * plan.out + at, plan.out, first + tile > 0);
        });
      barrier.wait();
    }
    const Int step = inputs * plan.out;
    for (Int i = index; i < job.x.channels; i += threads)
      for (Int block = 0; block < plan.out; ++block) {
        const Int left = job.y.channels - block * LANES, here = left < LANES ? left : LANES;
        V s[12], g[9];
        const V *u = kernels() + i * plan.out + block;
        for (Int c = 0; c < 4; ++c) gathered(u + c * step, 4 * step, s + c, 4);
        for (Int r = 0; r < 3; ++r) gathered(s + 4 * r, 1, g + 3 * r, 1);
        for (Int tap = 0; tap < 9; ++tap) {
          float *w = job.weight + block * LANES * job.of_output + i * job.of_input + tap * job.of_tap;
          for (Int lane = 0; lane < here; ++lane) w[lane * job.of_output] = g[tap][lane];
        }
      }
  }

  static const float *numbers(const V *x) { return reinterpret_cast<const float *>(x); }
};

}  // namespace

extern "C" {

SEEN Int torchcaps_winograd_job_size() { return sizeof(WinogradJob); }

SEEN void torchcaps_winograd_plan(WinogradJob *job, Int of_weights) {
  job->workspace_size = (WinogradPlan(*job, of_weights).total + 1) * LANES;
}

SEEN void torchcaps_winograd(const WinogradJob *job, Int of_weights) {
  const WinogradPlan plan(*job, of_weights);
  std::atomic<Int> next{0};
  in_threads(job->threads, [&](Barrier &barrier, Int index, Int threads) {
    const WinogradWorker worker{*job, plan, barrier, index, threads};
    if (of_weights)
      worker.differentiate();
    else
      worker.convolve(next);
  });
}

}  // extern "C"
