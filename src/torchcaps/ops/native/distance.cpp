// Distance routing without a vote tensor, forwards and backwards; the equations are those of
// ops/fused/distance.py.
//
//   û_ij = φ_ij w_ij,  φ_ij = min(1, a_i / ‖w_ij‖)        made when needed, forgotten at once
//   d_ij = ‖v_j − û_ij‖,   c_ij = softmax_j(f d_ij),   s_j = Σ_i c_ij û_ij
//
// An iteration asks for two passes, as f is known when all distances are; the second one measures
// once more, which is cheaper than to read what the first one would have stored. Backwards a pass
// for each iteration finds what the parents before are owed; one at the end makes the gradients of
// all iterations at once.

#include "routing.hpp"

namespace {

// Children at most that are summed in one line.
constexpr Int LINE = 64;
// No shorter vote is shortened; as in ops/routing/distance.py.
constexpr float SHORTEST = 1e-18f;

enum Detach : Int { NOTHING, VOTES, ITERATIONS };

}  // namespace

extern "C" {

// Everything that a call is given; native/distance.py has the same fields in the same order. Means
// are [t, b] or [t].
struct DistanceJob : LoopJob {
  Int by_sample;
  double log_odds;
  const float *length, *scale;
  float *slopes, *means;
  const float *of_means;
  float *of_length, *of_scale;
};

}  // extern "C"

namespace {

inline void clear(V *from, Int count) {
  std::memset(static_cast<void *>(from), 0, count * sizeof(V));
}

// 1/√x by Newton from what half the exponent is; large, not infinite, at 0. The last step adds what
// is missing, which is small and rounded little.
inline V inverse_root(V x) {
  I bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = 0x5F375A86 - (bits >> 1);
  V y;
  std::memcpy(&y, &bits, sizeof y);
  const V half = 0.5f * x;
  UNROLLED for (int step = 0; step < 2; ++step) y = y * (1.5f - half * y * y);
  const V near = x * y;
  return y + 0.5f * y * (1.0f - near * y);
}

// √x of x > 0, given one by it
inline V root_by(V x, V inverse) {
  const V y = x * inverse;
  return y + 0.5f * inverse * (x - y * y);
}

// φ, and 1/‖w‖ of a vote that is longer than its child; 0 of others, through which no length acts.
struct Shortening {
  V factor, inverse;

  Shortening(V limit, V square) {
    const V found = inverse_root(square), norm = square * found;
    const V least = limit < splat(SHORTEST) ? splat(SHORTEST) : limit;  // NaN stays
    factor = norm > least ? limit * found : splat(1);
    inverse = norm > least ? found : V{};
  }
};

// ‖v − φ w‖². Logits are many times a distance, and so are their errors: what is summed in one line
// is short.
inline V gap(const V *v, V factor, const V *w, Int size) {
  V sums[8] = {};
  in_parts<8>(size, [&](Int d, auto wide) __attribute__((always_inline)) {
    UNROLLED for (int m = 0; m < decltype(wide)::value; ++m) {
      const V n = v[d + m] - factor * w[d + m];
      sums[m] += n * n;
    }
  });
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// out_j += share_j w_j
void mix(const V *share, const V *w, Int parents, Int size, V *out) {
  for (Int j = 0; j < parents; ++j, w += size, out += size)
    for (Int d = 0; d < size; ++d) out[d] += share[j] * w[d];
}

// out_j += q_j (v_j − φ_j w_j)
void pull(const V *q, const V *v, const V *factor, const V *w, Int parents, Int size, V *out) {
  for (Int j = 0; j < parents; ++j, v += size, w += size, out += size)
    for (Int d = 0; d < size; ++d) out[d] += q[j] * (v[d] - factor[j] * w[d]);
}

struct DistancePlan : Places {
  Int updates;
  Int outs;  // what a pass sums for a parent: s, or s and S
  V *lengths, *parents, *partial, *totals, *rates;

  // A step is held as c, q and 1/d of every update, and as gradients of lengths.
  DistancePlan(const DistanceJob &job, Int threads, bool backward)
      : Places(job, HELD * (3 * (job.iterations - 1) * job.parents + 1)),
        updates(job.iterations - 1),
        outs(!backward && job.slopes ? 2 : 1) {
    tile = tile < LINE ? tile : LINE;
    lengths = take(blocks * job.children);
    // Forwards v; backwards v of all iterations but the last, γ of all, and the gradient of v.
    parents = take((backward ? 2 * job.iterations : 1) * parents_size);
    partial = take(threads * outs * parents_size);
    totals = take(threads * blocks);
    rates = take(threads * 2 * updates * blocks);
    take_own(job, threads, backward, (outs + 1) * row + 5 * job.parents);
  }
};

struct DistanceWorker : Thread<DistanceJob, DistancePlan> {
  bool to_votes = job.of_pose || job.of_weight || job.of_vote_bias || job.of_coordinates ||
                  job.of_length;
  V *const summed = plan.partial + index * plan.outs * plan.parents_size;
  V *const totals = plan.totals + index * plan.blocks;
  V *const rates = plan.rates + index * 2 * plan.updates * plan.blocks;

  // Of one child in a pass, by parents.
  V *const sum = scratch, *const votes = sum + plan.outs * plan.row;
  V *const factor = votes + plan.row, *const d = factor + job.parents;
  V *const inverse = d + job.parents, *const c = inverse + job.parents, *const h = c + job.parents;

  V length(Int block, Int i) const { return plan.lengths[block * job.children + i]; }

  void read_lengths() const {
    for (Int block = 0; block < plan.blocks; ++block)
      to_lanes(job.length + block * LANES * job.children + first, job.children, samples(block),
               end - first, plan.lengths + block * job.children + first);
  }

  // All votes of child i, what shortens them and, with γ, h = ⟨û_ij, γ_j⟩.
  void see(Int i, const V *pose, Int block, const V *of_sum = nullptr) const {
    const Int n_out = job.parents;
    clear(factor, n_out);
    clear(h, n_out);
    // A vote agrees with itself as far as it is long.
    const Agreement found[] = {{votes, factor}, {of_sum, h}};
    make_votes(i, pose, 0, n_out, votes, plan.d_out, found, of_sum ? 2 : 1);
    for (Int j = 0; j < n_out; ++j) {
      factor[j] = Shortening(length(block, i), factor[j]).factor;
      h[j] *= factor[j];
    }
  }

  // Distances to parents of a block, and one by them.
  void measure(const V *v) const {
    const Int size = plan.d_out;
    for (Int j = 0; j < job.parents; ++j) {
      const V square = gap(v + j * size, factor[j], votes + j * size, size) + EPSILON;
      inverse[j] = inverse_root(square);
      d[j] = root_by(square, inverse[j]);
    }
  }

  // d_ij − min_k d_ik, which has the same d_ij − Σ_k c_ik d_ik: where one parent has nearly all of a
  // child, that difference of two long distances would be rounding.
  void from_nearest() const {
    V least = d[0];
    for (Int j = 1; j < job.parents; ++j) least = d[j] < least ? d[j] : least;
    for (Int j = 0; j < job.parents; ++j) d[j] -= least;
  }

  // c_ij = softmax_j(f d_ij)
  void couple(const V *d, V rate, V *c) const {
    for (Int j = 0; j < job.parents; ++j) c[j] = rate * d[j];
    softmax(c, job.parents, false);
  }

  // f(child, its pose, block) for my children, which add to `sum`; `out` has as many numbers for
  // every block. A tile is summed by itself: a long sum in one line loses digits.
  template <class F>
  void pass(V *out, Int count, F f) const {
    clear(out, plan.blocks * count);
    for_my_tiles([&](Int from, Int to) {
      for (Int block = 0; block < plan.blocks; ++block) {
        clear(sum, count);
        for (Int i = from; i < to; ++i) f(i, child(block, i, from), block);
        for (Int x = 0; x < count; ++x) out[block * count + x] += sum[x];
      }
    });
  }

  // summed_j = Σ_i û_ij
  void shortened() const {
    pass(summed, plan.outs * plan.row, [&](Int i, const V *pose, Int block) {
      see(i, pose, block);
      mix(factor, votes, job.parents, plan.d_out, sum);
    });
  }

  // The sums of distances to parents v.
  void distances(const V *v) const {
    pass(totals, 1, [&](Int i, const V *pose, Int block) {
      see(i, pose, block);
      measure(v + block * plan.row);
      *sum += in_blocks(job.parents, [&](Int first, Int some) {
        V here{};
        for (Int j = first; j < first + some; ++j) here += d[j];
        return here;
      });
    });
  }

  // summed_j = Σ_i c_ij û_ij and, where slopes are kept, Σ_i c_ij (d_ij − Σ_k c_ik d_ik) û_ij
  void routed(const V *v, float *record) const {
    const Int n_out = job.parents, stride = job.children * n_out;
    pass(summed, plan.outs * plan.row, [&](Int i, const V *pose, Int block) {
      see(i, pose, block);
      measure(v + block * plan.row);
      couple(d, rates[block], c);
      if (record)
        from_lanes(c, stride, samples(block), n_out, record + block * LANES * stride + i * n_out);
      from_nearest();
      const V mean = dot(c, d, n_out);
      for (Int j = 0; j < n_out; ++j) {
        c[j] *= factor[j];
        d[j] = c[j] * (d[j] - mean);
      }
      mix(c, votes, n_out, plan.d_out, sum);
      if (job.slopes) mix(d, votes, n_out, plan.d_out, sum + plan.row);
    });
  }

  // What all threads have summed for a parent: s, or with `which` 1 S.
  void gathered(Int block, Int which, Int j, float scale, V *s) const {
    const Int at = (block * plan.outs + which) * plan.row + j * plan.d_out;
    gather(plan.partial + at, plan.outs * plan.parents_size, scale, s);
  }

  V total(Int block) const {
    V found{};
    for (Int each = 0; each < threads; ++each) found += plan.totals[each * plan.blocks + block];
    return found;
  }

  // Σ over all samples; a lane without one has distances too.
  template <class F>
  double over_samples(F f) const {
    double found = 0;
    for (Int block = 0; block < plan.blocks; ++block) {
      const V here = f(block);
      for (Int lane = 0; lane < samples(block); ++lane) found += here[lane];
    }
    return found;
  }

  double per_sample() const { return double(job.children) * double(job.parents); }

  // The mean distances of iteration t, from what all threads have measured or from what is given.
  void find_means(Int t) const {
    if (index) return;
    if (!job.by_sample) {
      job.means[t - 1] = job.scale ? job.scale[t - 1]
                                   : float(over_samples([&](Int block) { return total(block); }) /
                                           (per_sample() * double(job.lanes)));
      return;
    }
    for (Int block = 0; block < plan.blocks; ++block) {
      const V mean = total(block) / float(per_sample());
      std::memcpy(job.means + (t - 1) * job.lanes + block * LANES, &mean,
                  samples(block) * sizeof(float));
    }
  }

  // One where there is no sample: what is divided by it stays finite.
  V mean_of(Int t, Int block) const {
    V mean = splat(job.by_sample ? 1 : job.means[t - 1]);
    if (job.by_sample)
      std::memcpy(&mean, job.means + (t - 1) * job.lanes + block * LANES,
                  samples(block) * sizeof(float));
    return mean;
  }

  // Zero where there is no sample.
  V present(Int block, V x) const {
    for (Int lane = samples(block); lane < LANES; ++lane) x[lane] = 0;
    return x;
  }

  // f of iteration t and of all blocks
  void find_rates(Int t, V *to) const {
    for (Int block = 0; block < plan.blocks; ++block)
      to[block] = float(-2 * job.log_odds) / mean_of(t, block);
  }

  // v of s, whose place it takes
  void squash(Int j, V *s) const {
    add_bias(j, s);
    const V f = squash_scale(job.squash, s, plan.d_out);
    for (Int x = 0; x < plan.d_out; ++x) s[x] *= f;
  }

  void add_bias(Int j, V *s) const {
    if (!job.bias) return;
    for (Int x = 0; x < plan.d_out; ++x) s[x] += job.bias[j * plan.d_out + x];
  }

  void forward() const {
    const Int all = job.lanes * plan.row;
    read_lengths();
    for (Int t = 0; t < job.iterations; ++t) {
      if (t == 0) {
        shortened();
      } else {
        if (!job.scale) distances(plan.parents);
        barrier.wait();
        find_means(t);
        barrier.wait();
        find_rates(t, rates);
        routed(plan.parents,
               recorded(job.couplings, job.n_couplings, t, job.children * job.parents));
      }
      barrier.wait();
      float *poses = recorded(job.poses, job.n_poses, t, plan.row);
      for_my_parents([&](Int j, Int block, Int at) {
        V *s = plan.parents + at;
        if (t && job.slopes) {
          gathered(block, 1, j, 1.0f, s);
          write_parent(s, block, j, job.slopes + (t - 1) * all);
        }
        gathered(block, 0, j, t ? 1.0f : 1.0f / float(job.parents), s);
        write_parent(s, block, j, job.sums + t * all);
        squash(j, s);
        if (poses) write_parent(s, block, j, poses);
      });
      barrier.wait();
    }
  }

  V *parents(Int t) const { return plan.parents + t * plan.parents_size; }
  V *of_sum(Int t) const { return plan.parents + (plan.updates + t) * plan.parents_size; }
  V *later() const { return of_sum(job.iterations); }
  // f of iteration t, and the share of each distance in the gradient of their mean.
  V *rate(Int t) const { return rates + 2 * (t - 1) * plan.blocks; }
  V *share(Int t) const { return rate(t) + plan.blocks; }

  void backward() const {
    const Int n = job.iterations;
    const bool every = to_votes && job.detach == NOTHING;
    const bool goes_back = job.detach != ITERATIONS && (every || job.of_bias || job.of_scale);
    read_lengths();
    for_my_parents([&](Int j, Int block, Int at) {
      for (Int t = 0; t + 1 < n; ++t) {
        read_parent(job.sums + t * job.lanes * plan.row, block, j, parents(t) + at);
        squash(j, parents(t) + at);
      }
    });
    barrier.wait();
    Int earliest = n;
    for (Int t = n - 1; t >= 0; --t) {
      const bool last = t == n - 1;
      if (to_votes && (last || every)) earliest = t;
      if (!last && !goes_back) break;
      of_sums(t, last);
      if (t == 0) break;
      find_rates(t, rate(t));
      if (!goes_back) continue;
      barrier.wait();  // γ and what f is owed are whole
      find_shares(t);
      back(t);
      barrier.wait();
      for_my_parents([&](Int j, Int block, Int at) { gathered(block, 0, j, 1.0f, later() + at); });
    }
    barrier.wait();
    if (earliest < n) gradients(earliest, every);
    barrier.wait();
    sum_threads();
  }

  // γ_t from the gradient of v_t, and Σ_j ⟨γ_j, S_j⟩ of my parents; the gradient of the bias is
  // kept.
  void of_sums(Int t, bool last) const {
    const float *of_v = recorded(job.of_poses, job.n_poses, t, plan.row);
    V *s = scratch;
    clear(totals, plan.blocks);
    for_my_parents([&](Int j, Int block, Int at) {
      V *of = of_sum(t) + at;
      clear(of, plan.d_out);
      if (of_v) read_parent(of_v, block, j, of);
      for (Int x = 0; !last && x < plan.d_out; ++x) of[x] += later()[at + x];
      read_parent(job.sums + t * job.lanes * plan.row, block, j, s);
      add_bias(j, s);
      squash_gradient(job.squash, s, plan.d_out, of);
      for (Int x = 0; job.of_bias && x < plan.d_out; ++x)
        job.of_bias[j * plan.d_out + x] += lane_sum(of[x]);
      if (!t || !job.slopes) return;
      read_parent(job.slopes + (t - 1) * job.lanes * plan.row, block, j, s);
      totals[block] += dot(of, s, plan.d_out);
    });
  }

  // What each distance of iteration t has of the gradient of their mean; that of a mean that was
  // given is kept.
  void find_shares(Int t) const {
    const V *f = rate(t);
    V *to = share(t);
    clear(to, plan.blocks);
    if (!job.slopes) return;
    const float *of_means = job.of_means;
    if (job.by_sample) {
      for (Int block = 0; block < plan.blocks; ++block) {
        V of_mean{};
        if (of_means)
          std::memcpy(&of_mean, of_means + (t - 1) * job.lanes + block * LANES,
                      samples(block) * sizeof(float));
        of_mean -= total(block) * f[block] / mean_of(t, block);
        to[block] = present(block, of_mean / float(per_sample()));
      }
      return;
    }
    double of_mean = of_means ? of_means[t - 1] : 0;
    of_mean -= over_samples([&](Int block) { return total(block) * f[block]; }) / job.means[t - 1];
    if (job.of_scale && index == 0) job.of_scale[t - 1] = float(of_mean);
    if (job.scale) return;
    const float each = float(of_mean / (per_sample() * double(job.lanes)));
    for (Int block = 0; block < plan.blocks; ++block) to[block] = present(block, splat(each));
  }

  // q_ij = (f β_ij + share) / d_ij, in place of h
  void find_pulls(Int t, Int block, const V *c, const V *inverse, V *h) const {
    softmax_gradient(c, h, job.parents);
    const V f = rate(t)[block], even = share(t)[block];
    for (Int j = 0; j < job.parents; ++j) h[j] = (f * h[j] + even) * inverse[j];
  }

  // summed_j = Σ_i q_ij n_ij
  void back(Int t) const {
    pass(summed, plan.row, [&](Int i, const V *pose, Int block) {
      const V *v = parents(t - 1) + block * plan.row;
      see(i, pose, block, of_sum(t) + block * plan.row);
      measure(v);
      couple(d, rate(t)[block], c);
      find_pulls(t, block, c, inverse, h);
      pull(h, v, factor, votes, job.parents, plan.d_out, sum);
    });
  }

  // c, q or 1/d of iteration t, for all parents.
  V *held(const Bench &at, Int t, Int kind, Int i, Int block) const {
    return at.held + ((((t - 1) * 3 + kind) * HELD + i) * plan.group + block) * job.parents;
  }

  // Of pose, weight, vote bias, coordinates and length, from the iterations since `earliest` at
  // once: ∂û_ij = Σ_t c_ij γ_j − q_ij n_ij, the second term where votes are `measured`.
  void gradients(Int earliest, bool measured) const {
    const Bench at = bench();
    V *of_length = at.held + 3 * plan.updates * HELD * plan.group * job.parents;
    for_my_steps([&](const Step &step) {
      for (Int block = 0; block < step.blocks; ++block)
        compare(at, step, block, earliest ? earliest : 1, measured);
      clear(of_length, HELD * plan.group);
      gradients_of(at, step, [&](Int i, Int j, V *of) {
        for (Int block = 0; block < step.blocks; ++block)
          of_length[block * HELD + i - step.i0] +=
              of_vote(at, step, i, j, block, earliest, measured, of + block * plan.d_out);
      });
      for (Int block = 0; job.of_length && block < step.blocks; ++block)
        from_lanes(of_length + block * HELD, job.children, samples(step.block + block),
                   step.i1 - step.i0,
                   job.of_length + (step.block + block) * LANES * job.children + step.i0);
    });
  }

  // c, q and 1/d of the children of a step, of iterations that are not even.
  void compare(const Bench &at, const Step &step, Int block, Int begin, bool measured) const {
    const Int n = job.iterations, size = plan.d_out, here = step.block + block;
    for (Int j = 0; begin < n && j < job.parents; ++j)
      for (Int i = step.i0; i < step.i1; ++i) {
        const Int parent = here * plan.row + j * size;
        V square{};
        Agreement found[1 + MOST_ITERATIONS] = {{at.vote, &square}};
        int count = 1;
        for (Int t = begin; t < n; ++t) {
          V &h = held(at, t, 1, i - step.i0, block)[j] = V{};
          if (measured) found[count++] = {of_sum(t) + parent, &h};
        }
        make_votes(i, child(here, i, step.from), j, 1, at.vote, size, found, count);
        const V phi = Shortening(length(here, i), square).factor;
        for (Int t = begin; t < n; ++t) {
          const V x = gap(parents(t - 1) + parent, phi, at.vote, size) + EPSILON;
          const V by = held(at, t, 2, i - step.i0, block)[j] = inverse_root(x);
          held(at, t, 0, i - step.i0, block)[j] = root_by(x, by);
          held(at, t, 1, i - step.i0, block)[j] *= phi;
        }
      }
    for (Int i = 0; i < step.i1 - step.i0; ++i)
      for (Int t = begin; t < n; ++t) {
        V *c = held(at, t, 0, i, block);
        couple(c, rate(t)[here], c);
        if (measured)
          find_pulls(t, here, c, held(at, t, 2, i, block), held(at, t, 1, i, block));
      }
  }

  // Writes ∂w_ij of a block, and gives what the length of child i is owed.
  V of_vote(const Bench &at, const Step &step, Int i, Int j, Int block, Int earliest,
            bool measured, V *of) const {
    const Int n = job.iterations, size = plan.d_out, here = step.block + block;
    const Int parent = here * plan.row + j * size, begin = earliest ? earliest : 1;
    V *v = at.vote, square{};
    const Agreement itself = {v, &square};
    make_votes(i, child(here, i, step.from), j, 1, v, size, &itself, 1);
    const Shortening shortening(length(here, i), square);
    Amount parts[MOST_ITERATIONS + 1];
    Int n_parts = 0;
    for (Int t = begin; t < n; ++t)
      parts[n_parts++] = {held(at, t, 0, i - step.i0, block)[j], of_sum(t) + parent};
    if (!earliest) parts[n_parts++] = {splat(1.0f / float(job.parents)), of_sum(0) + parent};
    sum_of_amounts(parts, n_parts, size, of);
    // Not q v and q φ w by themselves: where a vote meets its parent, q is large and both cancel.
    for (Int t = begin; measured && t < n; ++t) {
      const V q = -held(at, t, 1, i - step.i0, block)[j];
      pull(&q, parents(t - 1) + parent, &shortening.factor, v, 1, size, of);
    }
    const V inward = dot(of, v, size) * shortening.inverse;
    const V excess = inward * shortening.inverse;
    for (Int x = 0; x < size; ++x) of[x] = shortening.factor * (of[x] - excess * v[x]);
    // Beside one number nothing lies across it, and rounding must not stay.
    if (size == 1) of[0] = shortening.inverse > V{} ? V{} : of[0];
    return inward;
  }
};

}  // namespace

extern "C" {

SEEN Int torchcaps_distance_job_size() { return sizeof(DistanceJob); }

SEEN void torchcaps_distance_plan(DistanceJob *job, Int backward) {
  job->workspace_size = (DistancePlan(*job, job->threads, backward).total + 1) * LANES;
}

SEEN void torchcaps_distance(const DistanceJob *job, Int backward) {
  const DistancePlan plan(*job, job->threads, backward);
  in_threads(job->threads, [&](Barrier &barrier, Int index, Int threads) {
    const DistanceWorker worker{{*job, plan, barrier, index, threads}};
    backward ? worker.backward() : worker.forward();
  });
}

}  // extern "C"
