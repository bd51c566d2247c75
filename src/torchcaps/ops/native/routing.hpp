// What the kernels of routings that know every parent share: where vectors lie in a workspace, what a
// thread does with votes, parents and squash, and how it makes gradients of what votes are made of.

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

// A tile of children has at least so many, which share what is read of parents.
constexpr Int FEWEST_CHILDREN = 16;

enum Squash : Int { HINTON, EXP, NONE };

}  // namespace

// What every such call is given; native/layout.py has the same fields in the same order. Poses and
// parents are [b, …], couplings [t, b, i, j].
struct LoopJob : VotesJob {
  // How many of the last iterations are recorded, or have gradients.
  Int iterations, n_poses, n_couplings;
  Int squash, detach;
  const float *bias;
  float *sums, *poses, *couplings;
  const float *of_poses, *of_couplings;
  float *of_bias;
};

namespace {

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

// Where things lie in a workspace. Sizes count vectors.
struct Places {
  Shape shape;
  Int blocks, d_in, d_out, row, parents_size;  // row: all parents of one block of lanes
  Int weights, shared;  // numbers of all weights; of those that a thread sums by itself
  Int tile, group, held, scratch_size, total = 0;
  V *begin, *scratch, *children;
  // Gradients that each thread sums by itself: of weights that children share, of vote biases.
  float *shared_weight;
  V *lane_bias;
  decltype(&votes_of<0, 0>) votes[3];  // with as many agreements
  decltype(&sum_of<0, 1>) sum[2];      // of one block of lanes, or of two
  decltype(&back_of<0, 1>) back[2];

  // `held_` vectors of a block of lanes are held at once when gradients are made.
  Places(const LoopJob &job, Int held_)
      : shape{job.rows, job.inner, job.columns}, held(held_), begin(aligned(job.workspace)) {
    blocks = blocks_of(job.lanes);
    d_in = job.rows * job.inner;
    d_out = job.rows * job.columns;
    row = job.parents * d_out;
    parents_size = blocks * row;
    weights = job.types * job.parents * job.columns * job.inner;
    shared = up_to(weights, LANES);
    const Int weight_bytes = weights / job.types * 4;
    const Int child_bytes = blocks * d_in * Int(sizeof(V));
    tile = TILE_BYTES / (weight_bytes > child_bytes ? weight_bytes : child_bytes);
    tile = tile < FEWEST_CHILDREN ? FEWEST_CHILDREN : tile;
    group = held ? HELD_BYTES / Int(held * sizeof(V)) : GROUP;
    group = group < FEWEST ? FEWEST : group > GROUP ? GROUP : group;
    group = group < blocks ? group : blocks;
    job.inner == 4 ? use<4>() : job.inner == 8 ? use<8>() : job.inner == 16 ? use<16>() : use<0>();
  }

  // Takes what is compiled for an inner size, or with 0 for any.
  template <int K_>
  void use() {
    votes[0] = votes_of<K_, 0>, votes[1] = votes_of<K_, 1>, votes[2] = votes_of<K_, 2>;
    sum[0] = sum_of<K_, 1>, sum[1] = sum_of<K_, 2>;
    back[0] = back_of<K_, 1>, back[1] = back_of<K_, 2>;
  }

  V *take(Int count) {
    V *start = begin + total;
    total += count;
    return start;
  }

  // What each thread has for itself: as much scratch as routing needs, or making gradients.
  void take_own(const LoopJob &job, Int threads, bool backward, Int routed) {
    const Int gradients = held * group + HELD * (2 * group * d_in + d_out) + (group + 1) * d_out;
    scratch_size = backward && gradients > routed ? gradients : routed;
    scratch = take(threads * scratch_size);
    children = take(threads * blocks * tile * d_in);
    const bool private_weight = backward && job.of_weight && job.types < job.children;
    shared_weight = reinterpret_cast<float *>(take(private_weight ? threads * shared / LANES : 0));
    lane_bias = take(backward && job.of_vote_bias ? threads * row : 0);
  }
};

// Where a thread makes gradients of some children.
struct Bench {
  V *held;  // what a plan holds of a block of lanes, for as many as a group has
  V *of_child, *seen, *of_place, *of, *vote;
  float *of_weight;  // of this thread alone, where children share weights
  V *of_bias;
};

// Children i0 to i1 of a tile, which has those from `from` to `end`, and blocks of lanes.
struct Step {
  Int from, end, i0, i1, block, blocks;
};

// One thread of a call, which has some children and some parents.
template <class Job, class Plan>
struct Thread {
  const Job &job;
  const Plan &plan;
  Barrier &barrier;
  const Int index, threads;
  const Int first = job.children * index / threads, end = job.children * (index + 1) / threads;
  V *const scratch = plan.scratch + index * plan.scratch_size;
  V *const tile = plan.children + index * plan.blocks * plan.tile * plan.d_in;

  Int samples(Int block) const {
    const Int left = job.lanes - block * LANES;
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
    return all && place >= 0 ? all + place * job.lanes * size : nullptr;
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

  // My gradients of weights that children share, else null, and of vote biases.
  float *own_weights() const {
    if (!job.of_weight || job.types == job.children) return nullptr;
    float *own = plan.shared_weight + index * plan.shared;
    std::memset(own, 0, plan.shared * sizeof(float));
    return own;
  }
  V *own_vote_bias() const {
    if (!job.of_vote_bias) return nullptr;
    V *own = plan.lane_bias + index * plan.row;
    std::memset(static_cast<void *>(own), 0, plan.row * sizeof(V));
    return own;
  }

  // My tile of children, from `from` on.
  V *child(Int block, Int i, Int from) const {
    return tile + (block * plan.tile + i - from) * plan.d_in;
  }

  // f(from, to) for my tiles of children, once these are in lanes.
  template <class F>
  void for_my_tiles(F f) const {
    const Int stride = job.children * plan.d_in;
    for (Int from = first; from < end; from += plan.tile) {
      const Int to = from + plan.tile < end ? from + plan.tile : end;
      for (Int block = 0; block < plan.blocks; ++block)
        to_lanes(job.pose + block * LANES * stride + from * plan.d_in, stride, samples(block),
                 (to - from) * plan.d_in, child(block, from, from));
      f(from, to);
    }
  }

  // Σ over the threads of sums `stride` apart
  void gather(const V *from, Int stride, float scale, V *s) const {
    for (Int d = 0; d < plan.d_out; ++d) s[d] = from[d];
    for (Int each = 1; each < threads; ++each)
      for (Int d = 0; d < plan.d_out; ++d) s[d] += from[each * stride + d];
    for (Int d = 0; d < plan.d_out; ++d) s[d] *= scale;
  }

  Bench bench() const {
    const Int places = HELD * plan.group * plan.d_in;
    Bench to{};
    to.held = scratch;
    to.of_child = to.held + plan.held * plan.group;
    to.seen = to.of_child + places;
    to.of_place = to.seen + places;
    to.of = to.of_place + HELD * plan.d_out;
    to.vote = to.of + plan.group * plan.d_out;
    to.of_weight = own_weights();
    to.of_bias = own_vote_bias();
    return to;
  }

  // f(step) for my children and all blocks, some at a time.
  template <class F>
  void for_my_steps(F f) const {
    for_my_tiles([&](Int from, Int to) {
      for (Int block = 0; block < plan.blocks; block += plan.group)
        for (Int i = from; i < to; i += HELD)
          f(Step{from, to, i, i + HELD < to ? i + HELD : to, block,
                 block + plan.group < plan.blocks ? plan.group : plan.blocks - block});
    });
  }

  // Makes the gradients of what the votes of a step are made of; those of the votes of child i for
  // parent j and all blocks are written by of_votes(i, j, to).
  template <class F>
  void gradients_of(const Bench &at, const Step &step, F of_votes) const {
    const Int size = plan.d_out, d_in = plan.d_in;
    std::memset(at.of_child, 0, HELD * plan.group * d_in * sizeof(V));
    std::memset(at.of_place, 0, HELD * size * sizeof(V));
    for (Int i = step.i0; job.of_weight && i < step.i1; ++i)
      for (Int block = 0; block < step.blocks; ++block)
        std::memcpy(seen(at, step, i) + block * d_in, child(step.block + block, i, step.from),
                    d_in * sizeof(V));
    for (Int j = 0; j < job.parents; ++j)
      for (Int i = step.i0; i < step.i1; ++i) {
        of_votes(i, j, at.of);
        for (Int block = 0; block < step.blocks; ++block) {
          const V *of = at.of + block * size;
          for (Int d = 0; at.of_bias && d < size; ++d) at.of_bias[j * size + d] += of[d];
          for (Int d = 0; job.of_coordinates && d < size; ++d)
            at.of_place[(i - step.i0) * size + d] += of[d];
        }
        for (Int block = 0, two; job.of_pose && block < step.blocks; block += two) {
          two = block + 2 <= step.blocks ? 2 : 1;
          plan.back[two - 1](plan.shape, weight(i, j), at.of + block * size, size,
                             at.of_child + (block * HELD + i - step.i0) * d_in, HELD * d_in);
        }
        if (job.of_weight) {
          float *w = at.of_weight ? at.of_weight : job.of_weight;
          w += ((i % job.types) * job.parents + j) * job.columns * job.inner;
          weights_of(plan.shape, at.of, seen(at, step, i), w, step.blocks,
                     at.of_weight || step.block);
        }
      }
    const Int stride = job.children * d_in;
    for (Int block = 0; job.of_pose && block < step.blocks; ++block)
      from_lanes(at.of_child + block * HELD * d_in, stride, samples(step.block + block),
                 (step.i1 - step.i0) * d_in,
                 job.of_pose + (step.block + block) * LANES * stride + step.i0 * d_in);
    for (Int x = 0; job.of_coordinates && x < (step.i1 - step.i0) * size; ++x)
      job.of_coordinates[step.i0 * size + x] += lane_sum(at.of_place[x]);
  }

  // Child i of a step, one block after the other.
  V *seen(const Bench &at, const Step &step, Int i) const {
    return at.seen + (i - step.i0) * plan.group * plan.d_in;
  }

  // My share of what all have summed.
  void sum_threads() const {
    if (job.of_weight && job.types < job.children) {
      for (Int x = plan.weights * index / threads; x < plan.weights * (index + 1) / threads; ++x) {
        float sum = 0;
        for (Int each = 0; each < threads; ++each)
          sum += plan.shared_weight[each * plan.shared + x];
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
