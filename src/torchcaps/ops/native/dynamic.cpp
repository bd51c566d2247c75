// Dynamic routing without a vote tensor, forwards and backwards; the equations are those of
// ops/fused/loop.py.
//
//   û_ij = W_ij u_i + e_j + x_i          made when needed, forgotten at once
//   c_ij = softmax_j(prior_ij + ⟨û_ij, A_tj⟩),   A_t = Σ_{τ<t} v_τ,   s_j = Σ_i c_ij û_ij
//
// Samples lie in the lanes of a vector, so that softmax, norms and dot products have no horizontal
// step; only the gradient of the weights sums lanes up. Threads share out the children: each has
// sums of its own, and the weights of a child have one owner. No thread waits for another but at
// the end of a pass, and nothing is allocated here: the caller brings the workspace.

#include "routing.hpp"

namespace {

// Children whose votes are made together, and stored up to this size; else they are made a second
// time, and more children share.
constexpr Int FEW = 2, MORE = 8, STORED_BYTES = 512 << 10;
// Parents whose stored votes are made at once, and which the next child finds in the first cache.
constexpr Int PARENTS = 16;
enum Detach : Int { NOTHING, VOTES, STATES, COUPLING };

}  // namespace

extern "C" {

// Everything that a call is given; native/dynamic.py has the same fields in the same order.
struct Job : LoopJob {
  Int odd_bias, leaky;
  double share;
  const float *prior;
  float *kept;  // couplings of the last iteration, as they lie in lanes
  float *of_prior;
};

}  // extern "C"

namespace {

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

// A part of the gradient of the votes of a pair: shares, `step` numbers from one block to the next,
// times poses of a parent.
struct Part {
  const float *share;
  Int step;
  const V *of;

  V shared(Int block) const {
    V here;
    std::memcpy(&here, share + block * step, sizeof here);
    return here;
  }
};

// out = Σ of all parts; poses of parents lie `step` apart
void sum_of_parts(const Part *parts, Int count, Int block, Int step, Int size, V *out) {
  Amount amounts[2 * MOST_ITERATIONS];
  for (Int each = 0; each < count; ++each)
    amounts[each] = {parts[each].shared(block), parts[each].of + block * step};
  sum_of_amounts(amounts, count, size, out);
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

struct Plan : Places {
  // A step is held as c and ∂b of every iteration but one that knows its couplings.
  Int terms, together;
  bool stored;
  V *parents, *partial;

  Plan(const Job &job, Int threads, bool backward)
      : Places(job, 2 * (job.iterations - !job.prior) * HELD * job.parents),
        terms(job.iterations - !job.prior) {
    stored = FEW * row * Int(sizeof(V)) <= STORED_BYTES;
    together = stored ? FEW : MORE;
    // Forwards A; backwards A and γ of every iteration, and the gradient of A.
    parents = take((backward ? 2 * job.iterations + 1 : 1) * parents_size);
    partial = take(threads * parents_size);
    const Int made = stored ? together * row : d_out;
    take_own(job, threads, backward, row + (made > row ? made : row) + 2 * together * job.parents);
  }
};

struct Worker : Thread<Job, Plan> {
  bool to_votes = job.of_pose || job.of_weight || job.of_vote_bias || job.of_coordinates;
  V *const summed = plan.partial + index * plan.parents_size;

  // Couplings that are kept lie by children, whose gradients are made one after the other.
  Int kept_at(Int i, Int block) const { return (i * plan.blocks + block) * job.parents * LANES; }

  // The logits that no vote has a part in.
  V start(Int i, Int j) const {
    return job.prior ? splat(job.prior[i * job.parents + j]) : V{};
  }

  // summed_j = Σ_i û_ij of my children
  void total() const {
    V *sum = scratch;
    const Int weight_step = plan.weights / job.types;
    std::memset(summed, 0, plan.parents_size * sizeof(V));
    for_my_tiles([&](Int from, Int to) {
      for (Int block = 0, two; block < plan.blocks; block += two) {
        two = block + 2 <= plan.blocks ? 2 : 1;
        std::memset(sum, 0, two * plan.row * sizeof(V));
        for (Int j = 0; j < job.parents; ++j)
          plan.sum[two - 1](plan.shape, weight(0, j), weight_step, type_of(from), job.types,
                            child(block, from, from), plan.tile * plan.d_in, to - from,
                            sum + j * plan.d_out, plan.row);
        for (Int each = 0; each < two; ++each) move(from, to, sum + each * plan.row);
        V *out = summed + block * plan.row;
        for (Int x = 0; x < two * plan.row; ++x) out[x] += sum[x];
      }
    });
  }

  // What vote bias and coordinates add to the sum of some children.
  void move(Int from, Int to, V *sum) const {
    const Int size = plan.d_out;
    for (Int j = 0; j < job.parents; ++j, sum += size) {
      if (const float *e = job.vote_bias)
        for (Int d = 0; d < size; ++d) sum[d] += float(to - from) * e[j * size + d];
      for (Int i = from; job.coordinates && i < to; ++i)
        for (Int d = 0; d < size; ++d) sum[d] += job.coordinates[i * size + d];
    }
  }

  // summed_j = Σ_i c_ij û_ij; with γ, Σ_i ∂b_ij û_ij. Couplings are written where `record` is.
  void routed(const V *agreed, const V *of_sum, const float *of_c, bool gradient,
              float *record, float *keep) const {
    const Int n_out = job.parents, size = plan.d_out;
    V *sum = scratch, *c = sum + plan.row, *h = c + plan.together * n_out;
    V *made = h + plan.together * n_out;
    std::memset(summed, 0, plan.parents_size * sizeof(V));
    for_my_tiles([&](Int from, Int to) {
      for (Int block = 0; block < plan.blocks; ++block) {
        const V *agreed_here = agreed ? agreed + block * plan.row : nullptr;
        const V *of_here = of_sum ? of_sum + block * plan.row : nullptr;
        V *out = summed + block * plan.row;
        // Of a tile first: a long sum in one line loses digits.
        std::memset(sum, 0, plan.row * sizeof(V));
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
            make_votes(i, child(block, i, from), j, count, v, step, found, n);
          };
          if (plan.stored)
            for (Int j = 0; j < n_out; j += PARENTS)
              for (Int i = i0; i < i1; ++i)
                votes_for(i, j, j + PARENTS < n_out ? PARENTS : n_out - j,
                          made + (j * plan.together + i - i0) * size, plan.together * size);
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
            V *into = sum + j * size;
            if (plan.stored) {
              mix(share + j, n_out, made + j * plan.together * size, size, i1 - i0, into);
              continue;
            }
            for (Int i = i0; i < i1; ++i) {
              make_votes(i, child(block, i, from), j, 1, made, 0);
              mix(share + (i - i0) * n_out + j, n_out, made, size, 1, into);
            }
          }
        }
        for (Int x = 0; x < plan.row; ++x) out[x] += sum[x];
      }
    });
  }

  // κ of child i, added to h
  void add_given(const float *of_c, Int i, Int block, V *h) const {
    const Int stride = job.children * job.parents;
    const float *from = of_c + block * LANES * stride + i * job.parents;
    float *numbers = reinterpret_cast<float *>(h);
    for (Int lane = 0; lane < samples(block); ++lane)
      for (Int j = 0; j < job.parents; ++j) numbers[j * LANES + lane] += from[lane * stride + j];
  }

  // Logits to couplings; where h is there, the gradient of c to that of the logits.
  void couple(Int i, Int block, V *c, V *h, const float *of_c, float *record) const {
    const Int n_out = job.parents, stride = job.children * n_out;
    softmax(c, n_out, job.leaky);
    if (record)
      from_lanes(c, stride, samples(block), n_out, record + block * LANES * stride + i * n_out);
    if (!h) return;
    if (of_c) add_given(of_c, i, block, h);
    softmax_gradient(c, h, n_out);
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

  void forward() const {
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
      float *sums = job.sums + t * job.lanes * plan.row;
      float *poses = recorded(job.poses, job.n_poses, t, plan.row);
      for_my_parents([&](Int j, Int block, Int at) {
        gather(plan.partial + at, plan.parents_size, uniform ? float(job.share) : 1.0f, s);
        write_parent(s, block, j, sums);
        add_bias(j, s);
        const V f = squash_scale(job.squash, s, plan.d_out);
        for (Int d = 0; d < plan.d_out; ++d) {
          s[d] *= f;
          plan.parents[at + d] = t ? plan.parents[at + d] + s[d] : s[d];
        }
        if (poses) write_parent(s, block, j, poses);
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
    for_my_parents([&](Int j, Int block, Int at) {
      V *s = scratch;
      for (Int t = 0; t + 1 < n; ++t) {
        read_parent(job.sums + t * job.lanes * plan.row, block, j, s);
        add_bias(j, s);
        const V f = squash_scale(job.squash, s, plan.d_out);
        for (Int d = 0; d < plan.d_out; ++d)
          agreed(t + 1)[at + d] = f * s[d] + (t ? agreed(t)[at + d] : V{});
      }
    });
    Term terms[MOST_ITERATIONS];
    Int count = 0;
    bool has_later = false;
    for (Int t = n - 1; t >= 0; --t) {
      const bool last = t == n - 1, uniform = t == 0 && !job.prior;
      const float *of_v = recorded(job.of_poses, job.n_poses, t, plan.row);
      const float *of_c =
          recorded(job.of_couplings, job.n_couplings, t, job.children * job.parents);
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
        gather(plan.partial + at, plan.parents_size, 1.0f, s);
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
      read_parent(job.sums + t * job.lanes * plan.row, block, j, s);
      const V sign = job.bias ? side(j, s) : V{};
      add_bias(j, s);
      if (of_v)
        read_parent(of_v, block, j, of);
      else
        for (Int d = 0; d < plan.d_out; ++d) of[d] = V{};
      if (has_later)
        for (Int d = 0; d < plan.d_out; ++d) of[d] += later()[at + d];
      squash_gradient(job.squash, s, plan.d_out, of);
      for (Int d = 0; d < plan.d_out; ++d) of_sum(t)[at + d] = of[d];
      if (job.of_bias)
        for (Int d = 0; d < plan.d_out; ++d)
          job.of_bias[j * plan.d_out + d] += lane_sum(sign * of[d]);
    });
  }

  V *held(const Bench &at, Int m, Int kind, Int i, Int block) const {
    return at.held + (((m * 2 + kind) * HELD + i) * plan.group + block) * job.parents;
  }

  // Of pose, weight, vote bias, coordinates and prior, from every iteration at once:
  // ∂û_ij = Σ_t c_ij γ_j + ∂b_ij A_j.
  void gradients(const Term *terms, Int count) const {
    const Bench at = bench();
    bool asks_votes = false;
    for (Int m = 0; m < count; ++m) asks_votes |= terms[m].asks();
    for_my_steps([&](const Step &step) {
      if (asks_votes) couplings_again(at, step, terms, count);
      if (to_votes) from_parts(at, step, terms, count);
    });
  }

  // c and ∂b of a step; that of the prior is theirs.
  void couplings_again(const Bench &at, const Step &step, const Term *terms, Int count) const {
    for (Int block = 0; block < step.blocks; ++block) {
      for (Int j = 0; j < job.parents; ++j) {
        const Int parent = (step.block + block) * plan.row + j * plan.d_out;
        for (Int i = step.i0; i < step.i1; ++i) {
          Agreement found[2 * MOST_ITERATIONS];
          int n = 0;
          for (Int m = 0; m < count; ++m) {
            const Term &term = terms[m];
            if (!term.asks()) continue;
            V &b = held(at, m, 0, i - step.i0, block)[j];
            V &of_b = held(at, m, 1, i - step.i0, block)[j];
            b = start(i, j);
            if (term.agreed) found[n++] = {term.agreed + parent, &b};
            if (!term.to_logits) continue;
            of_b = V{};
            if (term.of_sum) found[n++] = {term.of_sum + parent, &of_b};
          }
          make_votes(i, child(step.block + block, i, step.from), j, 1, at.vote, 0, found, n);
        }
      }
      for (Int i = step.i0; i < step.i1; ++i)
        for (Int m = 0; m < count; ++m) {
          const Term &term = terms[m];
          if (!term.asks()) continue;
          V *of_b = term.to_logits ? held(at, m, 1, i - step.i0, block) : nullptr;
          couple(i, step.block + block, held(at, m, 0, i - step.i0, block), of_b, term.of_c,
                 nullptr);
          if (job.of_prior && of_b)
            for (Int j = 0; j < job.parents; ++j)
              job.of_prior[i * job.parents + j] += lane_sum(of_b[j]);
        }
    }
  }

  // What the gradient of the votes of a pair is made of.
  Int parts_of(const Bench &at, const Step &step, const Term *terms, Int count, Int i, Int j,
               const V &share, Part *parts) const {
    const auto part = [&](const float *shares, Int blocks, const V *of) -> Part {
      return {shares, blocks * job.parents * LANES, of + step.block * plan.row + j * plan.d_out};
    };
    const auto numbers = [](const V *v) { return reinterpret_cast<const float *>(v); };
    Int n = 0;
    for (Int m = 0; m < count; ++m) {
      const Term &term = terms[m];
      if (term.mixes && term.uniform)
        parts[n++] = part(numbers(&share), 0, term.of_sum);
      else if (term.mixes)
        parts[n++] = part(term.asks() ? numbers(held(at, m, 0, i - step.i0, 0) + j)
                                      : term.kept + kept_at(i, step.block) + j * LANES,
                          1, term.of_sum);
      if (term.agrees)
        parts[n++] = part(numbers(held(at, m, 1, i - step.i0, 0) + j), 1, term.agreed);
    }
    return n;
  }

  void from_parts(const Bench &at, const Step &step, const Term *terms, Int count) const {
    const V share = splat(float(job.share));
    // Couplings of the next step come from far, in no order that a processor foresees.
    for (Int m = 0; m < count; ++m)
      for (Int i = step.i1; terms[m].kept && i < step.end && i < step.i1 + HELD; ++i)
        for (Int x = 0; x < step.blocks * job.parents; ++x)
          __builtin_prefetch(terms[m].kept + kept_at(i, step.block) + x * LANES, 0, 2);
    gradients_of(at, step, [&](Int i, Int j, V *of) {
      Part parts[2 * MOST_ITERATIONS];
      const Int n = parts_of(at, step, terms, count, i, j, share, parts);
      for (Int block = 0; block < step.blocks; ++block)
        sum_of_parts(parts, n, block, plan.row, plan.d_out, of + block * plan.d_out);
    });
  }
};

}  // namespace

extern "C" {

SEEN void torchcaps_use_team(Team theirs) { team = theirs; }

SEEN Int torchcaps_job_size() { return sizeof(Job); }

SEEN void torchcaps_dynamic_plan(Job *job, Int backward) {
  job->workspace_size = (Plan(*job, job->threads, backward).total + 1) * LANES;
}

SEEN void torchcaps_dynamic(const Job *job, Int backward) {
  const Plan plan(*job, job->threads, backward);
  in_threads(job->threads, [&](Barrier &barrier, Int index, Int threads) {
    const Worker worker{{*job, plan, barrier, index, threads}};
    backward ? worker.backward() : worker.forward();
  });
}

}  // extern "C"
