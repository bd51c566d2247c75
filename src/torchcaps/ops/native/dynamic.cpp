// Dynamic routing without a vote tensor, forwards and backwards; the equations are those of
// ops/fused/dynamic.py.
//
//   û_ij = W_ij u_i + e_j + x_i          made when needed, forgotten at once
//   c_ij = softmax_j(prior_ij + ⟨û_ij, A_tj⟩),   A_t = Σ_{τ<t} v_τ,   s_j = Σ_i c_ij û_ij
//
// Samples lie in the lanes of a vector, so that softmax, norms and dot products have no horizontal
// step; only the gradient of the weights sums lanes up. Threads share out the children: each has
// sums of its own, and the weights of a child have one owner. No thread waits for another but at
// the end of a pass, and nothing is allocated here: the caller brings the workspace.

#include "lanes.hpp"

namespace {

// Bytes of weights that a tile of children may have: they are read once for every block of lanes.
constexpr Int TILE_BYTES = 192 << 10;
// Children that share what is read of parents. The votes of a few are stored up to this size; else
// they are made a second time, and more children share.
constexpr Int FEW = 2, MORE = 8, STORED_BYTES = 64 << 10;
// Children and blocks of lanes whose couplings are held at once when gradients are made. More
// blocks save sums of lanes, while the couplings fit into a cache.
constexpr Int HELD = 4, FEWEST = 4, GROUP = 16, HELD_BYTES = 512 << 10;
constexpr Int MOST_ITERATIONS = 32;

enum Squash : Int { HINTON, EXP, NONE };
enum Detach : Int { NOTHING, VOTES, STATES, COUPLING };

}  // namespace

extern "C" {

// Everything that a call is given; native/dynamic.py has the same fields in the same order. Poses
// and parents are [b, …], couplings [t, b, i, j]; what is not wanted is null.
struct Job {
  Int batch, children, parents, rows, inner, columns, types, iterations, threads;
  Int squash, odd_bias, leaky, detach;
  Int n_poses, n_couplings;  // how many of the last iterations are recorded, or have gradients
  double share;
  const float *pose, *weight, *vote_bias, *coordinates, *bias, *prior;
  float *sums, *poses, *couplings;
  float *kept;  // couplings of the last iteration, as they lie in lanes
  const float *of_poses, *of_couplings;
  float *of_pose, *of_weight, *of_vote_bias, *of_coordinates, *of_bias, *of_prior;
  float *workspace;
};

}  // extern "C"

namespace {

typedef void (*Votes)(const Shape &, const float *, const V *, V *, Int, Int,
                      const Agreement *);
typedef void (*Sum)(const Shape &, const float *, Int, Int, Int, const V *, Int, V *);
typedef void (*Back)(const Shape &, const float *, const V *, V *);

// out += Σ_i share_i v_i: shares lie `step` apart, votes one after the other.
void mix(const V *share, Int step, const V *v, Int size, Int count, V *out) {
  Int i = 0;
  for (; i + 2 <= count; i += 2, v += 2 * size) {
    const V p = share[i * step], q = share[(i + 1) * step];
    for (Int d = 0; d < size; ++d) out[d] = (out[d] + p * v[d]) + q * v[size + d];
  }
  if (i == count) return;
  const V p = share[i * step];
  for (Int d = 0; d < size; ++d) out[d] += p * v[d];
}

// A vector of a parent and how much of it there is.
struct Part {
  V share;
  const V *of;
};

// out = Σ of all parts
void sum_of_parts(const Part *parts, Int count, Int size, V *out) {
  in_parts(size, [&](Int d, auto wide) {
    constexpr int M = decltype(wide)::value;
    V a[M] = {};
    for (Int each = 0; each < count; ++each)
      UNROLLED for (int m = 0; m < M; ++m) a[m] += parts[each].share * parts[each].of[d + m];
    UNROLLED for (int m = 0; m < M; ++m) out[d + m] = a[m];
  });
}

// What iteration t adds to the gradient of the votes.
struct Term {
  const V *agreed;      // A_t, or null in the first iteration
  const V *of_sum;      // γ_t, or null
  const float *of_c;    // κ_t [b, i, j], or null
  const float *kept;    // c_t of all blocks and children, or null
  bool uniform, mixes, agrees, to_logits;

  // Whether votes are needed once more.
  bool asks() const { return !uniform && (to_logits || !kept); }
};

// Where everything lies. Sizes count vectors.
struct Plan {
  Shape shape;
  Int blocks, d_in, d_out, row, parents_size;  // row: all parents of one block of lanes
  Int tile, together;
  bool stored;
  Int group, terms;
  V *children, *parents, *partial;
  V *scratch;
  Int scratch_size, total;
  float *shared_weight, *lane_bias;
  Votes votes[3];  // with as many agreements
  Sum sum;
  Back back;

  Plan(const Job &job, Int threads, bool backward) : shape{job.rows, job.inner, job.columns} {
    blocks = (job.batch + LANES - 1) / LANES;
    d_in = job.rows * job.inner;
    d_out = job.rows * job.columns;
    row = job.parents * d_out;
    parents_size = blocks * row;
    const Int weight_bytes = job.parents * job.columns * job.inner * 4;
    stored = FEW * row * Int(sizeof(V)) <= STORED_BYTES;
    together = stored ? FEW : MORE;
    tile = TILE_BYTES / weight_bytes;
    tile = tile < together ? together : tile;
    terms = job.iterations - !job.prior;
    const Int held = 2 * terms * HELD * job.parents;
    group = held ? HELD_BYTES / Int(held * sizeof(V)) : GROUP;
    group = group < FEWEST ? FEWEST : group > GROUP ? GROUP : group;
    group = group < blocks ? group : blocks;
    Int at = 0;
    auto take = [&](Int count) {
      V *start = reinterpret_cast<V *>(aligned(job)) + at;
      at += count;
      return start;
    };
    children = take(blocks * job.children * d_in);
    // Forwards A; backwards A and γ of every iteration, and the gradient of A.
    parents = take((backward ? 2 * job.iterations + 1 : 1) * parents_size);
    partial = take(threads * parents_size);
    const Int routed = row + 2 * together * job.parents + (stored ? together * row : d_out);
    const Int gradients = held * group + HELD * (2 * group * d_in + d_out) +
                          (group + 1) * d_out;
    scratch_size = backward && gradients > routed ? gradients : routed;
    scratch = take(threads * scratch_size);
    const bool private_weight = backward && job.of_weight && job.types < job.children;
    const Int weight_size = job.types * job.parents * job.columns * job.inner;
    shared_weight = reinterpret_cast<float *>(
        take(private_weight ? threads * ((weight_size + LANES - 1) / LANES) : 0));
    lane_bias = reinterpret_cast<float *>(
        take(backward && job.of_vote_bias ? threads * row : 0));
    total = at;
    switch (job.inner) {
      case 4: choose<4>(); break;
      case 8: choose<8>(); break;
      case 16: choose<16>(); break;
      default: choose<0>();
    }
  }

  template <int K_>
  void choose() {
    votes[0] = votes_of<K_, 0>, votes[1] = votes_of<K_, 1>, votes[2] = votes_of<K_, 2>;
    sum = sum_of<K_>;
    back = back_of<K_>;
  }

  static char *aligned(const Job &job) {
    const auto address = reinterpret_cast<uintptr_t>(job.workspace);
    return reinterpret_cast<char *>((address + sizeof(V) - 1) / sizeof(V) * sizeof(V));
  }
};

// One thread of a call.
struct Worker {
  const Job &job;
  const Plan &plan;
  Barrier &barrier;
  const Int index, threads;
  bool to_votes = job.of_pose || job.of_weight || job.of_vote_bias || job.of_coordinates;
  const Int first = job.children * index / threads, end = job.children * (index + 1) / threads;
  V *const mine = plan.partial + index * plan.parents_size;
  V *const scratch = plan.scratch + index * plan.scratch_size;

  Int samples(Int block) const {
    const Int left = job.batch - block * LANES;
    return left < LANES ? left : LANES;
  }

  const V *child(Int block, Int i) const {
    return plan.children + (block * job.children + i) * plan.d_in;
  }

  Int type(Int i) const { return job.types == job.children ? i : i % job.types; }

  const float *weight(Int i, Int j) const {
    return job.weight + (type(i) * job.parents + j) * job.columns * job.inner;
  }

  // Couplings that are kept lie by children, whose gradients are made one after the other.
  Int kept_at(Int i, Int block) const { return (i * plan.blocks + block) * job.parents * LANES; }

  void read_children() const {
    const Int stride = job.children * plan.d_in;
    for (Int block = 0; block < plan.blocks; ++block)
      to_lanes(job.pose + block * LANES * stride + first * plan.d_in, stride, samples(block),
               (end - first) * plan.d_in, const_cast<V *>(child(block, first)));
  }

  // Votes of child i of a block of lanes for parents from j on, `step` apart; what they agree with
  // begins at parent j too.
  void make_votes(Int i, Int block, Int j, Int count, V *v, Int step,
                  const Agreement *agreements = nullptr, int n = 0) const {
    const Int size = plan.d_out;
    const bool moved = job.vote_bias || job.coordinates;
    // As many as are found while votes are in registers.
    const int at_once = moved ? 0 : n < 2 ? n : 2;
    plan.votes[at_once](plan.shape, weight(i, j), child(block, i), v, step, count, agreements);
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

  // The logits that no vote has a part in.
  V start(Int i, Int j) const {
    return job.prior ? splat(job.prior[i * job.parents + j]) : V{};
  }

  float *recorded(float *all, Int count, Int t, Int size) const {
    const Int place = t - job.iterations + count;
    return all && place >= 0 ? all + place * job.batch * size : nullptr;
  }

  const float *given(const float *all, Int count, Int t, Int size) const {
    return recorded(const_cast<float *>(all), count, t, size);
  }

  // mine_j = Σ_i û_ij of my children
  void total() const {
    V *sum = scratch;
    const Int weight_step = job.parents * job.columns * job.inner;
    std::memset(mine, 0, plan.parents_size * sizeof(V));
    for (Int from = first; from < end; from += plan.tile) {
      const Int to = from + plan.tile < end ? from + plan.tile : end;
      for (Int block = 0; block < plan.blocks; ++block) {
        std::memset(sum, 0, plan.row * sizeof(V));
        for (Int j = 0; j < job.parents; ++j) {
          V *s = sum + j * plan.d_out;
          plan.sum(plan.shape, weight(0, j), weight_step, type(from), job.types,
                   child(block, from), to - from, s);
          if (const float *e = job.vote_bias)
            for (Int d = 0; d < plan.d_out; ++d) s[d] += float(to - from) * e[j * plan.d_out + d];
          if (job.coordinates)
            for (Int i = from; i < to; ++i)
              for (Int d = 0; d < plan.d_out; ++d) s[d] += job.coordinates[i * plan.d_out + d];
        }
        V *out = mine + block * plan.row;
        for (Int x = 0; x < plan.row; ++x) out[x] += sum[x];
      }
    }
  }

  // mine_j = Σ_i c_ij û_ij; with γ, Σ_i ∂b_ij û_ij. Couplings are written where `record` is.
  void routed(const V *agreed, const V *of_sum, const float *of_c, bool gradient,
              float *record, float *keep) const {
    const Int n_out = job.parents, size = plan.d_out;
    V *sum = scratch, *c = sum + plan.row, *h = c + plan.together * n_out;
    V *made = h + plan.together * n_out;
    std::memset(mine, 0, plan.parents_size * sizeof(V));
    for (Int from = first; from < end; from += plan.tile) {
      const Int to = from + plan.tile < end ? from + plan.tile : end;
      for (Int block = 0; block < plan.blocks; ++block) {
        const V *agreed_here = agreed ? agreed + block * plan.row : nullptr;
        const V *of_here = of_sum ? of_sum + block * plan.row : nullptr;
        V *out = mine + block * plan.row;
        // Of a tile first: a long sum in one line loses digits.
        V *into = plan.tile > plan.together ? sum : out;
        if (into == sum) std::memset(sum, 0, plan.row * sizeof(V));
        for (Int i0 = from; i0 < to; i0 += plan.together) {
          const Int i1 = i0 + plan.together < to ? i0 + plan.together : to;
          for (Int i = i0; i < i1; ++i)
            for (Int j = 0; j < n_out; ++j) {
              c[(i - i0) * n_out + j] = start(i, j);
              if (gradient) h[(i - i0) * n_out + j] = V{};
            }
          const auto votes_for = [&](Int i, Int j, Int count, V *v, Int step) {
            const Int at = (i - i0) * n_out + j;
            Agreement found[2];
            int n = 0;
            if (agreed_here) found[n++] = {agreed_here + j * size, c + at};
            if (gradient && of_here) found[n++] = {of_here + j * size, h + at};
            make_votes(i, block, j, count, v, step, found, n);
          };
          if (plan.stored)
            for (Int i = i0; i < i1; ++i)
              votes_for(i, 0, n_out, made + (i - i0) * size, plan.together * size);
          else
            for (Int j = 0; j < n_out; ++j)
              for (Int i = i0; i < i1; ++i) votes_for(i, j, 1, made, 0);
          for (Int i = i0; i < i1; ++i)
            couple(i, block, c + (i - i0) * n_out, gradient ? h + (i - i0) * n_out : nullptr,
                   of_c, record);
          for (Int i = i0; keep && i < i1; ++i)
            std::memcpy(keep + kept_at(i, block), c + (i - i0) * n_out, n_out * sizeof(V));
          const V *share = gradient ? h : c;
          for (Int j = 0; j < n_out; ++j) {
            V *out = into + j * size;
            if (plan.stored) {
              mix(share + j, n_out, made + j * plan.together * size, size, i1 - i0, out);
              continue;
            }
            for (Int i = i0; i < i1; ++i) {
              make_votes(i, block, j, 1, made, 0);
              mix(share + (i - i0) * n_out + j, n_out, made, size, 1, out);
            }
          }
        }
        if (into == sum)
          for (Int x = 0; x < plan.row; ++x) out[x] += sum[x];
      }
    }
  }

  // Logits to couplings; where h is there, the gradient of c to that of the logits.
  void couple(Int i, Int block, V *c, V *h, const float *of_c, float *record) const {
    const Int n_out = job.parents, stride = job.children * n_out;
    const Int here = block * LANES * stride + i * n_out;
    softmax(c, n_out, job.leaky);
    if (record) from_lanes(c, stride, samples(block), n_out, record + here);
    if (!h) return;
    if (of_c) {
      float *numbers = reinterpret_cast<float *>(h);
      for (Int lane = 0; lane < samples(block); ++lane)
        for (Int j = 0; j < n_out; ++j)
          numbers[j * LANES + lane] += of_c[here + lane * stride + j];
    }
    softmax_gradient(c, h, n_out);
  }

  // Σ over the threads, where parent j of a block lies.
  void gather(Int at, float scale, V *s) const {
    for (Int d = 0; d < plan.d_out; ++d) s[d] = plan.partial[at + d];
    for (Int each = 1; each < threads; ++each)
      for (Int d = 0; d < plan.d_out; ++d) s[d] += plan.partial[each * plan.parents_size + at + d];
    for (Int d = 0; d < plan.d_out; ++d) s[d] *= scale;
  }

  // sgn⟨s, bias⟩, or 1
  V side(Int j, const V *s) const {
    if (!job.odd_bias) return splat(1);
    V along{};
    for (Int d = 0; d < plan.d_out; ++d) along += s[d] * job.bias[j * plan.d_out + d];
    V sign = along > V{} ? splat(1) : along < V{} ? splat(-1) : along;
    return sign;
  }

  void add_bias(Int j, V *s) const {
    if (!job.bias) return;
    const V sign = side(j, s);
    for (Int d = 0; d < plan.d_out; ++d) s[d] += sign * job.bias[j * plan.d_out + d];
  }

  // f and f′ of g(s) = f(‖s‖²) s
  void squash_scale(const V *s, V &f, V &slope) const {
    const V square = dot(s, s, plan.d_out), norm = root(square + 1e-8f);
    if (job.squash == NONE) {
      f = splat(1), slope = V{};
    } else if (job.squash == HINTON) {
      f = square / (1.0f + square) / norm;
      slope = (1.0f / ((1.0f + square) * (1.0f + square)) - f / (2.0f * norm)) / norm;
    } else {
      V rest, part;
      for (int lane = 0; lane < LANES; ++lane) {
        part[lane] = -std::expm1(-norm[lane]);
        rest[lane] = std::exp(-norm[lane]);
      }
      f = part / norm;
      slope = (rest - f) / (2.0f * norm * norm);
    }
  }

  // Parents are shared out by j, so that the gradient of a bias has one owner.
  template <class F>
  void for_my_parents(F f) const {
    const Int from = job.parents * index / threads, to = job.parents * (index + 1) / threads;
    for (Int j = from; j < to; ++j)
      for (Int block = 0; block < plan.blocks; ++block)
        f(j, block, block * plan.row + j * plan.d_out);
  }

  Int parents_of(Int block, Int j) const { return block * LANES * plan.row + j * plan.d_out; }

  void forward() const {
    read_children();
    V *s = scratch;
    for (Int t = 0; t < job.iterations; ++t) {
      const bool uniform = t == 0 && !job.prior;
      if (uniform)
        total();
      else
        routed(t ? plan.parents : nullptr, nullptr, nullptr, false,
               recorded(job.couplings, job.n_couplings, t, job.children * job.parents),
               t == job.iterations - 1 ? job.kept : nullptr);
      barrier.wait();
      float *sums = job.sums + t * job.batch * plan.row;
      float *poses = recorded(job.poses, job.n_poses, t, plan.row);
      for_my_parents([&](Int j, Int block, Int at) {
        const Int place = parents_of(block, j);
        gather(at, uniform ? float(job.share) : 1.0f, s);
        from_lanes(s, plan.row, samples(block), plan.d_out, sums + place);
        add_bias(j, s);
        V f, slope;
        squash_scale(s, f, slope);
        for (Int d = 0; d < plan.d_out; ++d) {
          s[d] *= f;
          plan.parents[at + d] = t ? plan.parents[at + d] + s[d] : s[d];
        }
        if (poses) from_lanes(s, plan.row, samples(block), plan.d_out, poses + place);
      });
      barrier.wait();
    }
  }

  V *agreed(Int t) const { return plan.parents + t * plan.parents_size; }
  V *of_sum(Int t) const { return plan.parents + (job.iterations + t) * plan.parents_size; }
  V *later() const { return plan.parents + 2 * job.iterations * plan.parents_size; }

  void backward() const {
    const Int n = job.iterations;
    const bool before = job.of_bias || job.of_prior;
    read_children();
    for_my_parents([&](Int j, Int block, Int at) {
      V *s = scratch;
      for (Int t = 0; t + 1 < n; ++t) {
        to_lanes(job.sums + t * job.batch * plan.row + parents_of(block, j), plan.row,
                 samples(block), plan.d_out, s);
        add_bias(j, s);
        V f, slope;
        squash_scale(s, f, slope);
        for (Int d = 0; d < plan.d_out; ++d)
          agreed(t + 1)[at + d] = f * s[d] + (t ? agreed(t)[at + d] : V{});
      }
    });
    Term terms[MOST_ITERATIONS];
    Int count = 0;
    bool has_later = false;
    for (Int t = n - 1; t >= 0; --t) {
      const bool last = t == n - 1, uniform = t == 0 && !job.prior;
      const float *of_v = given(job.of_poses, job.n_poses, t, plan.row);
      const float *of_c =
          given(job.of_couplings, job.n_couplings, t, job.children * job.parents);
      const bool has_sum = of_v || has_later;
      if (has_sum) of_sums(t, of_v, has_later);
      if (!has_sum && (!of_c || uniform)) continue;
      Term term = {t ? agreed(t) : nullptr, has_sum ? of_sum(t) : nullptr, of_c,
                   last && !uniform ? job.kept : nullptr, uniform, false, false, false};
      term.mixes = has_sum && to_votes && (last || job.detach != VOTES);
      bool goes_back = false;
      if (!uniform) {
        term.agrees = t && to_votes && (job.detach == NOTHING || job.detach == STATES);
        goes_back = t && ((job.detach == NOTHING && (to_votes || before)) ||
                          (job.detach == VOTES && before));
        term.to_logits = term.agrees || (job.of_prior && job.detach != COUPLING);
      }
      if (term.mixes || term.to_logits) terms[count++] = term;
      if (!goes_back) continue;
      barrier.wait();  // γ is whole
      routed(term.agreed, term.of_sum, of_c, true, nullptr, nullptr);
      barrier.wait();
      for_my_parents([&](Int, Int, Int at) {
        V *s = scratch;
        gather(at, 1.0f, s);
        for (Int d = 0; d < plan.d_out; ++d)
          later()[at + d] = has_later ? later()[at + d] + s[d] : s[d];
      });
      has_later = true;
      barrier.wait();
    }
    barrier.wait();
    gradients(terms, count);
    barrier.wait();
    sum_threads();
  }

  // γ_t from the gradient of v_t; that of the bias is kept.
  void of_sums(Int t, const float *of_v, bool has_later) const {
    V *s = scratch, *of = scratch + plan.d_out;
    for_my_parents([&](Int j, Int block, Int at) {
      const Int place = parents_of(block, j);
      to_lanes(job.sums + t * job.batch * plan.row + place, plan.row, samples(block), plan.d_out,
               s);
      const V sign = job.bias ? side(j, s) : V{};
      add_bias(j, s);
      if (of_v)
        to_lanes(of_v + place, plan.row, samples(block), plan.d_out, of);
      else
        for (Int d = 0; d < plan.d_out; ++d) of[d] = V{};
      if (has_later)
        for (Int d = 0; d < plan.d_out; ++d) of[d] += later()[at + d];
      V f, slope;
      squash_scale(s, f, slope);
      slope = 2.0f * slope * dot(s, of, plan.d_out);
      for (Int d = 0; d < plan.d_out; ++d) of[d] = f * of[d] + slope * s[d];
      for (Int d = 0; d < plan.d_out; ++d) of_sum(t)[at + d] = of[d];
      if (job.of_bias)
        for (Int d = 0; d < plan.d_out; ++d)
          job.of_bias[j * plan.d_out + d] += lane_sum(sign * of[d]);
    });
  }

  // Of pose, weight, vote bias, coordinates and prior, from every iteration at once:
  // ∂û_ij = Σ_t c_ij γ_j + ∂b_ij A_j.
  void gradients(const Term *terms, Int count) const {
    const Int n_out = job.parents, size = plan.d_out, d_in = plan.d_in, group = plan.group;
    const Int weight_size = job.columns * job.inner, together = HELD;
    // [term, c or ∂b, child, block, parent]
    V *held = scratch;
    V *of_child = held + 2 * plan.terms * together * group * n_out;
    V *seen = of_child + together * group * d_in, *of_place = seen + together * group * d_in;
    V *of = of_place + together * size, *v = of + group * size;
    auto c_of = [&](Int m, Int kind, Int i, Int block) {
      return held + (((m * 2 + kind) * together + i) * group + block) * n_out;
    };
    float *of_weight = nullptr;
    if (job.of_weight && job.types < job.children) {
      const Int all = job.types * n_out * weight_size;
      of_weight = plan.shared_weight + index * ((all + LANES - 1) / LANES * LANES);
      std::memset(of_weight, 0, all * sizeof(float));
    }
    V *of_bias = job.of_vote_bias ? reinterpret_cast<V *>(plan.lane_bias) + index * plan.row
                                  : nullptr;
    if (of_bias) std::memset(static_cast<void *>(of_bias), 0, plan.row * sizeof(V));
    bool asks_votes = false;
    for (Int m = 0; m < count; ++m) asks_votes |= terms[m].asks();
    for (Int g0 = 0; g0 < plan.blocks; g0 += group) {
      const Int n_blocks = g0 + group < plan.blocks ? group : plan.blocks - g0;
      for (Int i0 = first; i0 < end; i0 += together) {
        const Int i1 = i0 + together < end ? i0 + together : end;
        if (asks_votes)
          for (Int block = 0; block < n_blocks; ++block) {
            const Int row = (g0 + block) * plan.row;
            for (Int j = 0; j < n_out; ++j)
              for (Int i = i0; i < i1; ++i) {
                Agreement found[2 * MOST_ITERATIONS];
                int n = 0;
                for (Int m = 0; m < count; ++m) {
                  const Term &term = terms[m];
                  if (!term.asks()) continue;
                  const Int at = row + j * size;
                  V &b = c_of(m, 0, i - i0, block)[j], &of_b = c_of(m, 1, i - i0, block)[j];
                  b = start(i, j);
                  if (term.agreed) found[n++] = {term.agreed + at, &b};
                  if (!term.to_logits) continue;
                  of_b = V{};
                  if (term.of_sum) found[n++] = {term.of_sum + at, &of_b};
                }
                make_votes(i, g0 + block, j, 1, v, 0, found, n);
              }
            for (Int i = i0; i < i1; ++i)
              for (Int m = 0; m < count; ++m) {
                const Term &term = terms[m];
                if (!term.asks()) continue;
                V *of_b = term.to_logits ? c_of(m, 1, i - i0, block) : nullptr;
                couple(i, g0 + block, c_of(m, 0, i - i0, block), of_b, term.of_c, nullptr);
                if (job.of_prior && of_b)
                  for (Int j = 0; j < n_out; ++j)
                    job.of_prior[i * n_out + j] += lane_sum(of_b[j]);
              }
          }
        if (!to_votes) continue;
        for (Int m = 0; m < count; ++m)
          for (Int i = i0; !terms[m].uniform && !terms[m].asks() && i < i1; ++i)
            std::memcpy(c_of(m, 0, i - i0, 0), terms[m].kept + kept_at(i, g0),
                        n_blocks * n_out * sizeof(V));
        std::memset(of_child, 0, together * group * d_in * sizeof(V));
        std::memset(of_place, 0, together * size * sizeof(V));
        for (Int i = i0; i < i1; ++i)
          for (Int block = 0; block < n_blocks; ++block)
            std::memcpy(seen + ((i - i0) * group + block) * d_in, child(g0 + block, i),
                        d_in * sizeof(V));
        // Those of the next step lie far apart.
        for (Int block = 0; i1 < end && block < n_blocks; ++block)
          for (Int x = 0; x < together * d_in; ++x) __builtin_prefetch(child(g0 + block, i1) + x);
        for (Int j = 0; j < n_out; ++j)
          for (Int i = i0; i < i1; ++i) {
            for (Int block = 0; block < n_blocks; ++block) {
              V *o = of + block * size;
              const Int at = (g0 + block) * plan.row + j * size;
              Part parts[2 * MOST_ITERATIONS];
              Int n_parts = 0;
              for (Int m = 0; m < count; ++m) {
                const Term &term = terms[m];
                if (term.mixes) {
                  const V share = term.uniform ? splat(float(job.share))
                                               : c_of(m, 0, i - i0, block)[j];
                  parts[n_parts++] = {share, term.of_sum + at};
                }
                if (term.agrees)
                  parts[n_parts++] = {c_of(m, 1, i - i0, block)[j], term.agreed + at};
              }
              sum_of_parts(parts, n_parts, size, o);
              if (job.of_pose)
                plan.back(plan.shape, weight(i, j), o,
                          of_child + (block * together + i - i0) * d_in);
              if (of_bias)
                for (Int d = 0; d < size; ++d) of_bias[j * size + d] += o[d];
              if (job.of_coordinates)
                for (Int d = 0; d < size; ++d) of_place[(i - i0) * size + d] += o[d];
            }
            if (job.of_weight) {
              float *w = of_weight ? of_weight : job.of_weight;
              w += ((i % job.types) * n_out + j) * weight_size;
              weights_of(plan.shape, of, seen + (i - i0) * group * d_in, w, n_blocks,
                         of_weight || g0);
            }
          }
        if (job.of_pose)
          for (Int block = 0; block < n_blocks; ++block) {
            const Int stride = job.children * d_in;
            from_lanes(of_child + block * together * d_in, stride, samples(g0 + block),
                       (i1 - i0) * d_in,
                       job.of_pose + (g0 + block) * LANES * stride + i0 * d_in);
          }
        if (job.of_coordinates)
          for (Int x = 0; x < (i1 - i0) * size; ++x)
            job.of_coordinates[i0 * size + x] += lane_sum(of_place[x]);
      }
    }
  }

  // What every thread has summed by itself.
  void sum_threads() const {
    if (job.of_weight && job.types < job.children) {
      const Int all = job.types * job.parents * job.columns * job.inner;
      const Int stride = (all + LANES - 1) / LANES * LANES;
      for (Int x = all * index / threads; x < all * (index + 1) / threads; ++x) {
        float sum = 0;
        for (Int each = 0; each < threads; ++each) sum += plan.shared_weight[each * stride + x];
        job.of_weight[x] = sum;
      }
    }
    if (job.of_vote_bias)
      for (Int x = plan.row * index / threads; x < plan.row * (index + 1) / threads; ++x) {
        V sum{};
        for (Int each = 0; each < threads; ++each)
          sum += reinterpret_cast<const V *>(plan.lane_bias)[each * plan.row + x];
        job.of_vote_bias[x] = lane_sum(sum);
      }
  }
};

}  // namespace

extern "C" {

SEEN void torchcaps_use_team(Team theirs) { team = theirs; }

SEEN Int torchcaps_job_size() { return sizeof(Job); }

// How many numbers the workspace of a call has.
SEEN Int torchcaps_workspace(const Job *job, Int backward) {
  return (Plan(*job, job->threads, backward).total + 1) * LANES;
}

SEEN void torchcaps_dynamic(const Job *job, Int backward) {
  const Plan plan(*job, job->threads, backward);
  in_threads(job->threads, [&](Barrier &barrier, Int index, Int threads) {
    const Worker worker{*job, plan, barrier, index, threads};
    backward ? worker.backward() : worker.forward();
  });
}

}  // extern "C"
