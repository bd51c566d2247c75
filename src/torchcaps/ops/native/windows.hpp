// What kernels share whose lanes are samples seen through windows, b · windows + p. A block of lanes is
// done from its children to its parents before the next; its numbers are a row in memory a lane, and
// turned when they are read. Votes V_ij = W_ij u_i + x_i are made in strips, up to four columns of a
// row, so that what is summed over children stays in registers.
//
// Threads share out the blocks. Two may see one sample: who comes second keeps the gradient of its
// pose apart until the end.

#pragma once

#include "lanes.hpp"

// What every call is given. Without child_id a slot is a child.
struct Seen {
  Int lanes, windows, children, slots, parents, rows, inner, columns, types, threads;
  Int workspace_size;  // how many numbers; planning writes it
  const float *pose, *weight, *coordinates;
  const Int *child_id;
  float *of_pose, *of_weight, *of_coordinates;
  float *workspace;
};

namespace {

// Children that share what is read of a parent.
constexpr Int TILE = 4;

inline V load(const float *from) {
  V x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

inline void store(float *to, V x) { std::memcpy(to, &x, sizeof x); }

// `count` numbers of every lane.
void gather(const float *const *rows, Int count, V *to) {
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    V a[LANES] = {};
    if (here == LANES)
      for (Int lane = 0; lane < LANES; ++lane) a[lane] = load(rows[lane] + x);
    else
      for (Int lane = 0; lane < LANES; ++lane)
        std::memcpy(a + lane, rows[lane] + x, here * sizeof(float));
    transpose(a);
    for (Int each = 0; each < here; ++each) to[x + each] = a[each];
  }
}

// Adds `count` numbers of every lane to what is there.
void scatter(const V *from, Int count, Int samples, float *const *rows) {
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    V a[LANES] = {};
    for (Int each = 0; each < here; ++each) a[each] = from[x + each];
    transpose(a);
    for (Int lane = 0; lane < samples; ++lane) {
      float *to = rows[lane] + x;
      if (here == LANES)
        store(to, load(to) + a[lane]);
      else
        for (Int each = 0; each < here; ++each) to[each] += a[lane][each];
    }
  }
}

// Where everything lies. Sizes count vectors; a thread has `scratch_size` of its own.
struct LanePlan {
  Shape shape;
  Int d_in, d_out, row, blocks, weights, scratch_size, total = 0;
  V *scratch;
  float *of_weight, *of_place, *of_sample;
  Int weight_stride, place_stride, sample_stride;

  // What the gradients of a tile need, beside what is told.
  static Int tile_size(const Seen &seen) {
    return TILE * seen.rows * (2 * seen.inner + seen.columns) + seen.rows * seen.columns;
  }

  LanePlan(const Seen &job, Int scratch_size)
      : shape{job.rows, job.inner, job.columns}, scratch_size(scratch_size) {
    d_in = job.rows * job.inner;
    d_out = job.rows * job.columns;
    row = job.parents * d_out;
    blocks = (job.lanes + LANES - 1) / LANES;
    weights = job.types * job.parents * job.columns * job.inner;
    const auto address = reinterpret_cast<uintptr_t>(job.workspace);
    V *start = reinterpret_cast<V *>((address + sizeof(V) - 1) / sizeof(V) * sizeof(V));
    auto take = [&](Int each, Int count) {
      V *at = start + total;
      total += each * count;
      return at;
    };
    auto numbers = [](bool wanted, Int count) { return wanted ? (count + LANES - 1) / LANES : 0; };
    scratch = take(scratch_size, job.threads);
    weight_stride = numbers(job.of_weight, weights);
    place_stride = numbers(job.of_coordinates, job.slots * d_out);
    sample_stride = numbers(job.of_pose && job.windows > 1, job.children * d_in);
    // The first thread has the result itself.
    of_weight = reinterpret_cast<float *>(take(weight_stride, job.threads - 1));
    of_place = reinterpret_cast<float *>(take(place_stride, job.threads - 1));
    of_sample = reinterpret_cast<float *>(take(sample_stride, job.threads));
  }
};

// Some lanes; those that are missing at the end are the last one once more.
struct Block {
  Int first, samples;
  Int row[LANES], sample[LANES];
  const Int *child[LANES];

  Block(const Seen &job, Int n) : first(n * LANES) {
    samples = job.lanes - first < LANES ? job.lanes - first : LANES;
    for (Int lane = 0; lane < LANES; ++lane) {
      row[lane] = first + (lane < samples ? lane : samples - 1);
      sample[lane] = row[lane] / job.windows;
      child[lane] = job.child_id ? job.child_id + row[lane] % job.windows * job.slots : nullptr;
    }
  }

  // Rows of `count` numbers.
  void read(const float *all, Int count, V *to) const {
    const float *rows[LANES];
    for (Int lane = 0; lane < LANES; ++lane) rows[lane] = all + row[lane] * count;
    gather(rows, count, to);
  }
  // The same, but zeros where a lane is missing: gradients.
  void read_gradient(const float *all, Int count, V *to) const {
    to_lanes(all + first * count, count, samples, count, to);
  }
  void write(const V *from, Int count, float *all) const {
    from_lanes(from, count, samples, count, all + first * count);
  }
};

// One thread of a call. SIDE: of square poses and matrices, if that is known.
template <int SIDE>
struct LaneWorker {
  const Seen &job;
  const LanePlan &plan;
  Barrier &barrier;
  const Int index, threads;
  const Int slots = job.slots, parents = job.parents;
  const Int first = plan.blocks * index / threads, end = plan.blocks * (index + 1) / threads;
  V *const scratch = plan.scratch + index * plan.scratch_size;
  float *const of_weight = index ? plan.of_weight + (index - 1) * plan.weight_stride * LANES
                                 : job.of_weight;
  float *const of_place = index ? plan.of_place + (index - 1) * plan.place_stride * LANES
                                : job.of_coordinates;
  float *const of_sample = plan.of_sample + index * plan.sample_stride * LANES;

  Int rows() const { return SIDE ? SIDE : job.rows; }
  Int inner() const { return SIDE ? SIDE : job.inner; }
  Int columns() const { return SIDE ? SIDE : job.columns; }
  Int d_in() const { return rows() * inner(); }
  Int size() const { return rows() * columns(); }
  Int matrix() const { return columns() * inner(); }

  // The sample that another thread has begun, or −1.
  Int begun() const {
    const Int lane = first * LANES;
    return first < end && lane % job.windows ? lane / job.windows : -1;
  }

  // The weights of some slots and the first parent: a division costs as much as half a vote.
  void find_weights(Int i0, Int i1, const float **w) const {
    for (Int i = i0; i < i1; ++i) w[i - i0] = job.weight + i % job.types * parents * matrix();
  }

  // The children of a slot.
  void see(const Block &block, Int i, V *u) const {
    const float *rows[LANES];
    for (Int lane = 0; lane < LANES; ++lane) {
      const Int child = block.child[lane] ? block.child[lane][i] : i;
      rows[lane] = job.pose + (block.sample[lane] * job.children + child) * d_in();
    }
    gather(rows, d_in(), u);
  }

  void add_to_pose(const Block &block, Int i, const V *of) const {
    float *rows[LANES];
    const Int apart = begun();
    for (Int lane = 0; lane < block.samples; ++lane) {
      const Int child = block.child[lane] ? block.child[lane][i] : i;
      const Int sample = block.sample[lane];
      float *all = sample == apart ? of_sample : job.of_pose + sample * job.children * d_in();
      rows[lane] = all + child * d_in();
    }
    scatter(of, d_in(), block.samples, rows);
  }

  // Calls f(how many columns, row, first column, place in a pose).
  template <class F>
  void strips(F f) const {
    if constexpr (SIDE) {
      for (Int r = 0; r < SIDE; ++r) f(std::integral_constant<int, SIDE>(), r, 0, r * SIDE);
      return;
    }
    for (Int r = 0; r < rows(); ++r) {
      Int c = 0;
      for (; c + 4 <= columns(); c += 4)
        f(std::integral_constant<int, 4>(), r, c, r * columns() + c);
      for (; c < columns(); ++c)
        f(std::integral_constant<int, 1>(), r, c, r * columns() + c);
    }
  }

  // A strip of the vote of child i at u, by weights at w.
  template <int M>
  void vote(Int i, Int r, Int c, const float *w, const V *u, V *v) const {
    w += c * inner();
    u += r * inner();
    UNROLLED for (int m = 0; m < M; ++m) v[m] = w[m * inner()] * u[0];
    if constexpr (SIDE) {
      UNROLLED for (int k = 1; k < SIDE; ++k)
        UNROLLED for (int m = 0; m < M; ++m) v[m] += w[m * SIDE + k] * u[k];
    } else {
      for (Int k = 1; k < inner(); ++k)
        UNROLLED for (int m = 0; m < M; ++m) v[m] += w[m * inner() + k] * u[k];
    }
    if (job.coordinates) {
      const float *x = job.coordinates + i * size() + r * columns() + c;
      UNROLLED for (int m = 0; m < M; ++m) v[m] += x[m];
    }
  }

  // What it adds to the gradient of the child.
  template <int M>
  void vote_gradient(Int r, Int c, const float *w, const V *of, V *to) const {
    w += c * inner();
    to += r * inner();
    if constexpr (SIDE) {
      V a[SIDE];
      UNROLLED for (int k = 0; k < SIDE; ++k) a[k] = to[k];
      UNROLLED for (int m = 0; m < M; ++m)
        UNROLLED for (int k = 0; k < SIDE; ++k) a[k] += w[m * SIDE + k] * of[m];
      UNROLLED for (int k = 0; k < SIDE; ++k) to[k] = a[k];
    } else {
      for (Int k = 0; k < inner(); ++k) {
        V a = to[k];
        UNROLLED for (int m = 0; m < M; ++m) a += w[m * inner() + k] * of[m];
        to[k] = a;
      }
    }
  }

  // Makes the votes of slots i for parents j once more, and what they are made of gets its
  // gradient: open(i0, i1, u, w) of every tile, with its children and their weights for the first
  // parent, then begin(i, j), then turn(width, place, v) of every strip, a place of all parents, to
  // make the gradient of the votes in their place, then end(i, j).
  template <class Open, class Begin, class Turn, class End>
  void gradients(const Block &block, V *tile, Open open, Begin begin, Turn turn, End end) const {
    V *u = tile, *of_child = u + TILE * d_in(), *of = of_child + TILE * d_in();
    V *of_slot = of + size();
    for (Int i0 = 0; i0 < slots; i0 += TILE) {
      const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
      for (Int i = i0; i < i1; ++i) see(block, i, u + (i - i0) * d_in());
      std::memset(static_cast<void *>(of_child), 0, TILE * d_in() * sizeof(V));
      std::memset(static_cast<void *>(of_slot), 0, TILE * size() * sizeof(V));
      const float *w[TILE];
      find_weights(i0, i1, w);
      open(i0, i1, u, w);
      for (Int j = 0; j < parents; ++j)
        for (Int i = i0; i < i1; ++i) {
          const V *seen = u + (i - i0) * d_in();
          V *of_seen = of_child + (i - i0) * d_in();
          V sums[SIDE ? SIDE * SIDE : 1] = {};
          begin(i, j);
          strips([&](auto width, Int r, Int c, Int d) {
            constexpr int M = decltype(width)::value;
            V v[M];
            vote<M>(i, r, c, w[i - i0], seen, v);
            turn(width, j * size() + d, v);
            // Weights are read twice: they and the sums are more than there are registers.
            std::atomic_signal_fence(std::memory_order_seq_cst);
            vote_gradient<M>(r, c, w[i - i0], v, of_seen);
            if constexpr (SIDE) {
              UNROLLED for (int m = 0; m < SIDE; ++m)
                UNROLLED for (int k = 0; k < SIDE; ++k)
                  sums[m * SIDE + k] += v[m] * seen[r * SIDE + k];
            } else {
              UNROLLED for (int m = 0; m < M; ++m) of[d + m] = v[m];
            }
            if (job.of_coordinates)
              UNROLLED for (int m = 0; m < M; ++m) of_slot[(i - i0) * size() + d + m] += v[m];
          });
          end(i, j);
          if (job.of_weight) {
            float *to = of_weight + (w[i - i0] - job.weight);
            if constexpr (SIDE) {
              float numbers[SIDE * SIDE];
              lane_sums<SIDE * SIDE>(sums, numbers);
              for (int x = 0; x < SIDE * SIDE; ++x) to[x] += numbers[x];
            } else {
              weights_of(plan.shape, of, seen, to, 1, true);
            }
          }
          w[i - i0] += matrix();
        }
      if (job.of_pose)
        for (Int i = i0; i < i1; ++i) add_to_pose(block, i, of_child + (i - i0) * d_in());
      if (job.of_coordinates)
        for (Int x = 0; x < (i1 - i0) * size(); ++x)
          of_place[i0 * size() + x] += lane_sum(of_slot[x]);
    }
  }

  void begin_gradients() const {
    if (index && job.of_weight)
      std::memset(of_weight, 0, plan.weight_stride * sizeof(V));
    if (index && job.of_coordinates)
      std::memset(of_place, 0, plan.place_stride * sizeof(V));
    if (plan.sample_stride) std::memset(of_sample, 0, plan.sample_stride * sizeof(V));
  }

  // What every thread has summed by itself, in the order of the threads.
  void sum_threads() const {
    const auto sum = [&](float *to, const float *from, Int stride, Int count) {
      if (!to) return;
      for (Int x = count * index / threads; x < count * (index + 1) / threads; ++x)
        for (Int each = 0; each + 1 < threads; ++each) to[x] += from[each * stride * LANES + x];
    };
    sum(job.of_weight, plan.of_weight, plan.weight_stride, plan.weights);
    sum(job.of_coordinates, plan.of_place, plan.place_stride, slots * size());
    if (index || !plan.sample_stride) return;
    for (Int each = 1; each < threads; ++each) {
      const LaneWorker other{job, plan, barrier, each, threads};
      const Int sample = other.begun(), count = job.children * d_in();
      if (sample < 0) continue;
      for (Int x = 0; x < count; ++x) job.of_pose[sample * count + x] += other.of_sample[x];
    }
  }
};

}  // namespace
