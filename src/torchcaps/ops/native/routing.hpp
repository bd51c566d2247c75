// What the routings that know every parent share: where numbers lie, what a thread does with votes,
// parents and squash, and the gradients that threads sum by themselves. A job has the fields of
// native/dynamic.py, a plan says where its vectors lie.

#pragma once

#include "lanes.hpp"

namespace {

// Bytes that a tile of children or of their weights may have: weights are read once for every block
// of lanes.
constexpr Int TILE_BYTES = 192 << 10;
// Children and blocks of lanes whose couplings are held at once when gradients are made. More
// blocks save sums of lanes, while the couplings fit into a cache.
constexpr Int HELD = 4, FEWEST = 4, GROUP = 16, HELD_BYTES = 512 << 10;
constexpr Int MOST_ITERATIONS = 32;
// As in ops/squashing.py.
constexpr float EPSILON = 1e-8f;

enum Squash : Int { HINTON, EXP, NONE };

typedef void (*Votes)(const Shape &, const float *, const V *, V *, Int, Int,
                      const Agreement *);
typedef void (*Back)(const Shape &, const float *, const V *, Int, V *, Int);

// Blocks whose couplings are held at once, of which a block has so many vectors.
inline Int group_of(Int held, Int blocks) {
  Int group = held ? HELD_BYTES / Int(held * sizeof(V)) : GROUP;
  group = group < FEWEST ? FEWEST : group > GROUP ? GROUP : group;
  return group < blocks ? group : blocks;
}

// Where the vectors of a workspace begin, which has one more than they need.
template <class Job>
V *aligned(const Job &job) {
  const auto address = reinterpret_cast<uintptr_t>(job.workspace);
  return reinterpret_cast<V *>((address + sizeof(V) - 1) / sizeof(V) * sizeof(V));
}

// f of g(s) = f s
inline V squash_scale(Int kind, const V *s, Int size) {
  if (kind == NONE) return splat(1);
  const V square = dot(s, s, size), norm = root(square + EPSILON);
  if (kind == HINTON) return square / (1.0f + square) / norm;
  V part;
  for (int lane = 0; lane < LANES; ++lane) part[lane] = -std::expm1(-norm[lane]);
  return part / norm;
}

// The gradient of s, in place of γ, that of g(s): what lies across u = s / ‖s‖ is scaled as s is,
// what lies along it by the slope of the length. A sum of both would lose the slope of a long s.
inline void squash_gradient(Int kind, const V *s, Int size, V *of) {
  if (kind == NONE) return;
  const V f = squash_scale(kind, s, size);
  const V square = dot(s, s, size), norm = root(square + EPSILON);
  V slope, along{};
  if (kind == HINTON) {
    slope = 2.0f * norm / (1.0f + square) / (1.0f + square);
  } else {
    for (int lane = 0; lane < LANES; ++lane) slope[lane] = std::exp(-norm[lane]);
  }
  for (Int d = 0; d < size; ++d) along += s[d] / norm * of[d];
  for (Int d = 0; d < size; ++d) {
    const V u = along * (s[d] / norm);
    of[d] = f * (of[d] - u) + slope * u;
  }
}

// f(K), where K is the inner size if kernels are compiled for it, else 0.
template <class F>
void for_inner(Int inner, F f) {
  switch (inner) {
    case 4: return f(std::integral_constant<int, 4>());
    case 8: return f(std::integral_constant<int, 8>());
    case 16: return f(std::integral_constant<int, 16>());
    default: return f(std::integral_constant<int, 0>());
  }
}

// Gradients of weights that children share, as a thread sums them by itself.
template <class Job>
Int shared_weights(const Job &job) {
  const Int all = job.types * job.parents * job.columns * job.inner;
  return (all + LANES - 1) / LANES * LANES;
}

// Where things lie in a workspace. Sizes count vectors.
struct Places {
  Shape shape;
  Int blocks, d_in, d_out, row, parents_size;  // row: all parents of one block of lanes
  V *begin;
  Int total = 0;
  // Gradients that each thread sums by itself: of weights that children share, of vote biases.
  float *shared_weight;
  V *lane_bias;
  Votes votes[3];  // with as many agreements

  template <class Job>
  explicit Places(const Job &job) : shape{job.rows, job.inner, job.columns}, begin(aligned(job)) {
    blocks = (job.batch + LANES - 1) / LANES;
    d_in = job.rows * job.inner;
    d_out = job.rows * job.columns;
    row = job.parents * d_out;
    parents_size = blocks * row;
    for_inner(job.inner, [&](auto known) {
      constexpr int K_ = decltype(known)::value;
      votes[0] = votes_of<K_, 0>, votes[1] = votes_of<K_, 1>, votes[2] = votes_of<K_, 2>;
    });
  }

  V *take(Int count) {
    V *start = begin + total;
    total += count;
    return start;
  }

  template <class Job>
  void take_sums(const Job &job, Int threads, bool backward) {
    const bool private_weight = backward && job.of_weight && job.types < job.children;
    shared_weight = reinterpret_cast<float *>(
        take(private_weight ? threads * shared_weights(job) / LANES : 0));
    lane_bias = take(backward && job.of_vote_bias ? threads * row : 0);
  }
};

// One thread of a call, which has some children and some parents.
template <class Job, class Plan>
struct Thread {
  const Job &job;
  const Plan &plan;
  Barrier &barrier;
  const Int index, threads;
  const Int first = job.children * index / threads, end = job.children * (index + 1) / threads;

  Int samples(Int block) const {
    const Int left = job.batch - block * LANES;
    return left < LANES ? left : LANES;
  }

  Int type_of(Int i) const { return job.types == job.children ? i : i % job.types; }

  const float *weight(Int i, Int j) const {
    return job.weight + (type_of(i) * job.parents + j) * job.columns * job.inner;
  }

  // What is kept of iteration t, if so many of the last ones are kept, in numbers of a sample.
  template <class T>
  T *recorded(T *all, Int count, Int t, Int size) const {
    const Int place = t - job.iterations + count;
    return all && place >= 0 ? all + place * job.batch * size : nullptr;
  }

  // Votes of child i, whose pose is u, for parents from j on, `step` apart; what they agree with
  // begins at parent j too.
  void make_votes(Int i, const V *u, Int j, Int count, V *v, Int step,
                  const Agreement *agreements = nullptr, int n = 0) const {
    const Int size = plan.d_out;
    const bool moved = job.vote_bias || job.coordinates;
    // As many as are found while votes are in registers.
    const int at_once = moved ? 0 : n < 2 ? n : 2;
    plan.votes[at_once](plan.shape, weight(i, j), u, v, step, count, agreements);
    if (n == at_once && !moved) return;
    for (Int at = 0; at < count; ++at, v += step) {
      if (const float *e = job.vote_bias)
        for (Int d = 0; d < size; ++d) v[d] += e[(j + at) * size + d];
      if (const float *x = job.coordinates)
        for (Int d = 0; d < size; ++d) v[d] += x[i * size + d];
      for (int each = at_once; each < n; ++each)
        agreements[each].to[at] += dot(agreements[each].with + at * size, v, size);
    }
  }

  V squash_scale(const V *s) const { return ::squash_scale(job.squash, s, plan.d_out); }

  // f(parent, block, where it lies) of my share of the parents, by parent, so that the gradient of a
  // bias has one owner.
  template <class F>
  void for_my_parents(F f) const {
    const Int from = job.parents * index / threads, to = job.parents * (index + 1) / threads;
    for (Int j = from; j < to; ++j)
      for (Int block = 0; block < plan.blocks; ++block)
        f(j, block, block * plan.row + j * plan.d_out);
  }

  // A parent of all samples, in what a call is given.
  void read_parent(const float *all, Int block, Int j, V *to) const {
    to_lanes(all + block * LANES * plan.row + j * plan.d_out, plan.row, samples(block), plan.d_out,
             to);
  }
  void write_parent(const V *from, Int block, Int j, float *all) const {
    from_lanes(from, plan.row, samples(block), plan.d_out,
               all + block * LANES * plan.row + j * plan.d_out);
  }

  // κ of child i, added to h
  void add_given(const float *of_c, Int i, Int block, V *h) const {
    const Int stride = job.children * job.parents;
    const float *from = of_c + block * LANES * stride + i * job.parents;
    float *numbers = reinterpret_cast<float *>(h);
    for (Int lane = 0; lane < samples(block); ++lane)
      for (Int j = 0; j < job.parents; ++j) numbers[j * LANES + lane] += from[lane * stride + j];
  }

  // My gradients of weights that children share, else null, and of vote biases.
  float *own_weights() const {
    if (!job.of_weight || job.types == job.children) return nullptr;
    float *own = plan.shared_weight + index * shared_weights(job);
    std::memset(own, 0, shared_weights(job) * sizeof(float));
    return own;
  }
  V *own_vote_bias() const {
    if (!job.of_vote_bias) return nullptr;
    V *own = plan.lane_bias + index * plan.row;
    std::memset(static_cast<void *>(own), 0, plan.row * sizeof(V));
    return own;
  }

  // My share of what all have summed.
  void sum_threads() const {
    if (job.of_weight && job.types < job.children) {
      const Int all = job.types * job.parents * job.columns * job.inner;
      for (Int x = all * index / threads; x < all * (index + 1) / threads; ++x) {
        float sum = 0;
        for (Int each = 0; each < threads; ++each)
          sum += plan.shared_weight[each * shared_weights(job) + x];
        job.of_weight[x] = sum;
      }
    }
    if (job.of_vote_bias)
      for (Int x = plan.row * index / threads; x < plan.row * (index + 1) / threads; ++x) {
        V sum{};
        for (Int each = 0; each < threads; ++each) sum += plan.lane_bias[each * plan.row + x];
        job.of_vote_bias[x] = lane_sum(sum);
      }
  }
};

}  // namespace
