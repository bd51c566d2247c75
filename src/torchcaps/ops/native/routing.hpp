// What the routings that know every parent share: enums of their jobs, where numbers lie, what bias,
// squash and threads ask for. A job has the fields of native/dynamic.py or native/distance.py, a plan
// says where its vectors lie.

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
typedef void (*Back)(const Shape &, const float *, const V *, Int, const V *, V *, Int);

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

template <class Job>
Int samples_of(const Job &job, Int block) {
  const Int left = job.batch - block * LANES;
  return left < LANES ? left : LANES;
}

template <class Job>
Int type_of(const Job &job, Int i) {
  return job.types == job.children ? i : i % job.types;
}

template <class Job>
const float *weight_of(const Job &job, Int i, Int j) {
  return job.weight + (type_of(job, i) * job.parents + j) * job.columns * job.inner;
}

// What is kept of iteration t, if so many of the last ones are kept, in numbers of a sample.
template <class Job, class T>
T *kept_of(const Job &job, T *all, Int count, Int t, Int size) {
  const Int place = t - job.iterations + count;
  return all && place >= 0 ? all + place * job.batch * size : nullptr;
}

// Vote bias and coordinates of child i and parent j.
template <class Job>
void move_vote(const Job &job, Int i, Int j, Int size, V *v) {
  if (const float *e = job.vote_bias)
    for (Int d = 0; d < size; ++d) v[d] += e[j * size + d];
  if (const float *x = job.coordinates)
    for (Int d = 0; d < size; ++d) v[d] += x[i * size + d];
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

// f(parent, block, where it lies) of a thread's share of the parents, by parent, so that the
// gradient of a bias has one owner.
template <class Job, class Plan, class F>
void for_parents(const Job &job, const Plan &plan, Int index, Int threads, F f) {
  const Int from = job.parents * index / threads, to = job.parents * (index + 1) / threads;
  for (Int j = from; j < to; ++j)
    for (Int block = 0; block < plan.blocks; ++block)
      f(j, block, block * plan.row + j * plan.d_out);
}

// Gradients that a thread sums by itself: of weights that children share, else null, of vote biases.
template <class Job>
Int shared_weights(const Job &job) {
  const Int all = job.types * job.parents * job.columns * job.inner;
  return (all + LANES - 1) / LANES * LANES;
}

template <class Job, class Plan>
float *own_weights(const Job &job, const Plan &plan, Int index) {
  if (!job.of_weight || job.types == job.children) return nullptr;
  float *mine = plan.shared_weight + index * shared_weights(job);
  std::memset(mine, 0, shared_weights(job) * sizeof(float));
  return mine;
}

template <class Job, class Plan>
V *own_vote_bias(const Job &job, const Plan &plan, Int index) {
  if (!job.of_vote_bias) return nullptr;
  V *mine = plan.lane_bias + index * plan.row;
  std::memset(static_cast<void *>(mine), 0, plan.row * sizeof(V));
  return mine;
}

// A thread's share of what all have summed.
template <class Job, class Plan>
void sum_threads(const Job &job, const Plan &plan, Int index, Int threads) {
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

}  // namespace
