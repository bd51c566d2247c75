// Distance routing without a vote tensor, forwards and backwards; the equations are those of
// ops/fused/distance.py.
//
//   û_ij = φ_ij w_ij,  φ_ij = min(1, a_i / ‖w_ij‖)        made when needed, forgotten at once
//   d_ij = ‖v_j − û_ij‖,   c_ij = softmax_j(f d_ij),   s_j = Σ_i c_ij û_ij
//
// Samples lie in the lanes of a vector, and threads share out the children, as in dynamic.cpp. An
// iteration asks for two passes, as f is known when all distances are; the second one measures once
// more, which is cheaper than to read what the first one would have stored. Backwards a pass for
// each iteration finds what the parents before are owed; one at the end makes the gradients of all
// iterations at once.

#include "routing.hpp"

namespace {

// Children that share what is read of the sums.
constexpr Int PAIR = 2;
// No shorter vote is shortened; as in ops/routing/distance.py.
constexpr float SHORTEST = 1e-18f;

enum Detach : Int { NOTHING, VOTES, ITERATIONS };

}  // namespace

extern "C" {

// Everything that a call is given; native/distance.py has the same fields in the same order. Poses,
// lengths and parents are [b, …], couplings [t, b, i, j], means [t, b] or [t]; what is not wanted
// is null.
struct DistanceJob {
  Int batch, children, parents, rows, inner, columns, types, iterations, threads;
  Int n_poses, n_couplings;  // how many of the last iterations are recorded, or have gradients
  Int workspace_size;        // how many numbers; planning writes it
  Int squash, detach, by_sample;
  double log_odds;
  const float *pose, *weight, *vote_bias, *coordinates, *length, *bias, *scale;
  float *sums, *slopes, *means, *poses, *couplings;
  const float *of_means, *of_poses, *of_couplings;
  float *of_pose, *of_weight, *of_vote_bias, *of_coordinates, *of_length, *of_bias, *of_scale;
  float *workspace;
};

}  // extern "C"

namespace {

inline V eight(const V *x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

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

// As softmax, but every block is summed in eight lines: in one, parents that are far would be lost
// beside one that is near.
inline void softmax_of_many(V *logits, Int count) {
  V most = logits[0];
  for (Int j = 0; j < count; ++j) most = logits[j] > most ? logits[j] : most;
  const V part = 1.0f / in_blocks(count, [&](Int first, Int some) {
    V totals[8] = {}, *x = logits + first;
    in_parts<8>(some, [&](Int j, auto wide) __attribute__((always_inline)) {
      UNROLLED for (int m = 0; m < decltype(wide)::value; ++m)
        totals[m] += x[j + m] = exponential(x[j + m] - most);
    });
    return eight(totals);
  });
  for (Int j = 0; j < count; ++j) logits[j] *= part;
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
  return eight(sums);
}

// out_j += Σ_i share_ij w_ij of one child or two, whose shares lie `parents` apart
void mix(const V *share, const V *w, Int parents, Int size, Int count, V *out) {
  const V *other = w + parents * size;
  for (Int j = 0; j < parents; ++j, w += size, other += size, out += size) {
    const V p = share[j];
    if (count == 1) {
      for (Int d = 0; d < size; ++d) out[d] += p * w[d];
      continue;
    }
    const V q = share[parents + j];
    for (Int d = 0; d < size; ++d) out[d] = (out[d] + p * w[d]) + q * other[d];
  }
}

// out_j += q_ij (v_j − φ_ij w_ij)
void pull(const V *q, const V *v, const V *factor, const V *w, Int parents, Int size, V *out) {
  for (Int j = 0; j < parents; ++j, v += size, w += size, out += size)
    for (Int d = 0; d < size; ++d) out[d] += q[j] * (v[d] - factor[j] * w[d]);
}

struct DistancePlan : Places {
  Int outs;  // what a pass sums for a parent: s, or s and S
  Int tile, group, updates;
  V *children, *lengths, *parents, *partial, *totals, *rates, *scratch;
  Int scratch_size;
  Back back;

  DistancePlan(const DistanceJob &job, Int threads, bool backward) : Places(job) {
    outs = !backward && job.slopes ? 2 : 1;
    updates = job.iterations - 1;
    tile = TILE_BYTES / (job.parents * job.columns * job.inner * 4);
    tile = tile < PAIR ? PAIR : tile;
    const Int held = 2 * updates * HELD * job.parents;
    group = group_of(held, blocks);
    children = take(blocks * job.children * d_in);
    lengths = take(blocks * job.children);
    // Forwards v; backwards v of all iterations but the last, γ of all, and the gradient of v.
    parents = take((backward ? 2 * job.iterations : 1) * parents_size);
    partial = take(threads * outs * parents_size);
    totals = take(threads * blocks);
    rates = take(threads * 2 * updates * blocks);
    const Int routed = outs * row + PAIR * row + 5 * PAIR * job.parents;
    const Int gradients = held * group + HELD * updates * job.parents +
                          HELD * (2 * group * d_in + d_out + group) + (group + 1) * d_out;
    scratch_size = backward && gradients > routed ? gradients : routed;
    scratch = take(threads * scratch_size);
    take_sums(job, threads, backward);
    for_inner(job.inner, [&](auto known) { back = back_of<decltype(known)::value, 1>; });
  }
};

struct DistanceWorker : Thread<DistanceJob, DistancePlan> {
  bool to_votes = job.of_pose || job.of_weight || job.of_vote_bias || job.of_coordinates ||
                  job.of_length;
  V *const summed = plan.partial + index * plan.outs * plan.parents_size;
  V *const totals = plan.totals + index * plan.blocks;
  V *const rates = plan.rates + index * 2 * plan.updates * plan.blocks;
  V *const scratch = plan.scratch + index * plan.scratch_size;

  // Of one child or two in a pass, by parents.
  V *const sum = scratch, *const votes = sum + plan.outs * plan.row;
  V *const factor = votes + PAIR * plan.row, *const d = factor + PAIR * job.parents;
  V *const inverse = d + PAIR * job.parents, *const c = inverse + PAIR * job.parents;
  V *const h = c + PAIR * job.parents;

  const V *child(Int block, Int i) const {
    return plan.children + (block * job.children + i) * plan.d_in;
  }

  V length(Int block, Int i) const { return plan.lengths[block * job.children + i]; }

  void read_children() const {
    const Int stride = job.children * plan.d_in, count = end - first;
    for (Int block = 0; block < plan.blocks; ++block) {
      to_lanes(job.pose + block * LANES * stride + first * plan.d_in, stride, samples(block),
               count * plan.d_in, const_cast<V *>(child(block, first)));
      to_lanes(job.length + block * LANES * job.children + first, job.children, samples(block),
               count, plan.lengths + block * job.children + first);
    }
  }

  // All votes of child i, what shortens them and, with γ, h = ⟨û_ij, γ_j⟩; `each` is its place in
  // a pair.
  void see(Int i, Int block, Int each, const V *of_sum = nullptr) const {
    const Int n_out = job.parents;
    V *w = votes + each * plan.row, *phi = factor + each * n_out, *along = h + each * n_out;
    clear(phi, n_out);
    clear(along, n_out);
    // A vote agrees with itself as far as it is long.
    const Agreement found[] = {{w, phi}, {of_sum, along}};
    make_votes(i, child(block, i), 0, n_out, w, plan.d_out, found, of_sum ? 2 : 1);
    for (Int j = 0; j < n_out; ++j) {
      phi[j] = Shortening(length(block, i), phi[j]).factor;
      along[j] *= phi[j];
    }
  }

  // Distances to parents of a block, and one by them.
  void measure(const V *v, Int each) const {
    const Int n_out = job.parents, size = plan.d_out;
    for (Int j = 0; j < n_out; ++j) {
      const Int at = each * n_out + j;
      const V *w = votes + each * plan.row + j * size;
      const V square = gap(v + j * size, factor[at], w, size) + EPSILON;
      inverse[at] = inverse_root(square);
      d[at] = root_by(square, inverse[at]);
    }
  }

  // d_ij − min_k d_ik, which has the same d_ij − Σ_k c_ik d_ik: where one parent has nearly all of a
  // child, that difference of two long distances would be rounding.
  void from_nearest(V *d) const {
    V least = d[0];
    for (Int j = 1; j < job.parents; ++j) least = d[j] < least ? d[j] : least;
    for (Int j = 0; j < job.parents; ++j) d[j] -= least;
  }

  // c_ij = softmax_j(f d_ij)
  void couple(const V *d, V rate, V *c) const {
    for (Int j = 0; j < job.parents; ++j) c[j] = rate * d[j];
    softmax_of_many(c, job.parents);
  }

  // f(first child, how many, block) for one child or two of this thread at a time, which add to `sum`;
  // `out` has as many numbers for every block. A tile is summed by itself: a long sum in one line
  // loses digits.
  template <class F>
  void pass(V *out, Int count, F f) const {
    for (Int from = first; from < end; from += plan.tile) {
      const Int to = from + plan.tile < end ? from + plan.tile : end;
      for (Int block = 0; block < plan.blocks; ++block) {
        clear(sum, count);
        for (Int i = from; i < to; i += PAIR) f(i, to - i < PAIR ? to - i : PAIR, block);
        for (Int x = 0; x < count; ++x) out[block * count + x] += sum[x];
      }
    }
  }

  // summed_j = Σ_i û_ij
  void shortened() const {
    clear(summed, plan.outs * plan.parents_size);
    pass(summed, plan.outs * plan.row, [&](Int i, Int count, Int block) {
      for (Int each = 0; each < count; ++each) see(i + each, block, each);
      mix(factor, votes, job.parents, plan.d_out, count, sum);
    });
  }

  // The sums of distances to parents v.
  void distances(const V *v) const {
    clear(totals, plan.blocks);
    pass(totals, 1, [&](Int i, Int count, Int block) {
      for (Int each = 0; each < count; ++each) {
        see(i + each, block, each);
        measure(v + block * plan.row, each);
        *sum += in_blocks(job.parents, [&](Int first, Int some) {
          V here{};
          for (Int j = 0; j < some; ++j) here += d[each * job.parents + first + j];
          return here;
        });
      }
    });
  }

  // summed_j = Σ_i c_ij û_ij and, where slopes are kept, Σ_i c_ij (d_ij − Σ_k c_ik d_ik) û_ij
  void routed(const V *v, float *record) const {
    const Int n_out = job.parents, stride = job.children * n_out;
    clear(summed, plan.outs * plan.parents_size);
    pass(summed, plan.outs * plan.row, [&](Int i, Int count, Int block) {
      for (Int each = 0; each < count; ++each) {
        const Int at = each * n_out;
        see(i + each, block, each);
        measure(v + block * plan.row, each);
        couple(d + at, rates[block], c + at);
        if (record)
          from_lanes(c + at, stride, samples(block), n_out,
                     record + block * LANES * stride + (i + each) * n_out);
        from_nearest(d + at);
        const V mean = dot(c + at, d + at, n_out);
        for (Int j = at; j < at + n_out; ++j) {
          c[j] *= factor[j];
          d[j] = c[j] * (d[j] - mean);
        }
      }
      mix(c, votes, n_out, plan.d_out, count, sum);
      if (job.slopes) mix(d, votes, n_out, plan.d_out, count, sum + plan.row);
    });
  }

  // Σ over the threads of what a pass has summed for a parent.
  void gather(Int block, Int which, Int j, float scale, V *s) const {
    const Int at = (block * plan.outs + which) * plan.row + j * plan.d_out;
    const Int stride = plan.outs * plan.parents_size;
    for (Int x = 0; x < plan.d_out; ++x) s[x] = plan.partial[at + x];
    for (Int each = 1; each < threads; ++each)
      for (Int x = 0; x < plan.d_out; ++x) s[x] += plan.partial[each * stride + at + x];
    for (Int x = 0; x < plan.d_out; ++x) s[x] *= scale;
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
                                           (per_sample() * double(job.batch)));
      return;
    }
    for (Int block = 0; block < plan.blocks; ++block) {
      const V mean = total(block) / float(per_sample());
      std::memcpy(job.means + (t - 1) * job.batch + block * LANES, &mean,
                  samples(block) * sizeof(float));
    }
  }

  // One where there is no sample: what is divided by it stays finite.
  V mean_of(Int t, Int block) const {
    V mean = splat(job.by_sample ? 1 : job.means[t - 1]);
    if (job.by_sample)
      std::memcpy(&mean, job.means + (t - 1) * job.batch + block * LANES,
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

  void add_bias(Int j, V *s) const {
    if (!job.bias) return;
    for (Int x = 0; x < plan.d_out; ++x) s[x] += job.bias[j * plan.d_out + x];
  }

  void forward() const {
    read_children();
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
      const Int size = job.batch * plan.row;
      float *poses = recorded(job.poses, job.n_poses, t, plan.row);
      for_my_parents([&](Int j, Int block, Int at) {
        V *s = scratch;
        if (t && job.slopes) {
          gather(block, 1, j, 1.0f, s);
          write_parent(s, block, j, job.slopes + (t - 1) * size);
        }
        gather(block, 0, j, t ? 1.0f : 1.0f / float(job.parents), s);
        write_parent(s, block, j, job.sums + t * size);
        add_bias(j, s);
        const V f = squash_scale(s);
        for (Int x = 0; x < plan.d_out; ++x) plan.parents[at + x] = s[x] *= f;
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
    read_children();
    for_my_parents([&](Int j, Int block, Int at) {
      for (Int t = 0; t + 1 < n; ++t) {
        V *s = parents(t) + at;
        read_parent(job.sums + t * job.batch * plan.row, block, j, s);
        add_bias(j, s);
        const V f = squash_scale(s);
        for (Int x = 0; x < plan.d_out; ++x) s[x] *= f;
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
      if (job.slopes) of_rates(t);
      barrier.wait();  // γ and what f is owed are whole
      find_shares(t);
      back(t);
      barrier.wait();
      for_my_parents([&](Int j, Int block, Int at) { gather(block, 0, j, 1.0f, later() + at); });
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
      if (of_v)
        read_parent(of_v, block, j, of);
      else
        for (Int x = 0; x < plan.d_out; ++x) of[x] = V{};
      if (!last)
        for (Int x = 0; x < plan.d_out; ++x) of[x] += later()[at + x];
      read_parent(job.sums + t * job.batch * plan.row, block, j, s);
      add_bias(j, s);
      squash_gradient(job.squash, s, plan.d_out, of);
      if (job.of_bias)
        for (Int x = 0; x < plan.d_out; ++x)
          job.of_bias[j * plan.d_out + x] += lane_sum(of[x]);
      if (!t || !job.slopes) return;
      read_parent(job.slopes + (t - 1) * job.batch * plan.row, block, j, s);
      totals[block] += dot(of, s, plan.d_out);
    });
  }

  const float *of_couplings(Int t) const {
    return recorded(job.of_couplings, job.n_couplings, t, job.children * job.parents);
  }

  // Σ_ij κ_ij c_ij (d_ij − Σ_k c_ik d_ik) of my children, added to the totals
  void of_rates(Int t) const {
    const Int n_out = job.parents;
    const float *of_c = of_couplings(t);
    if (!of_c) return;
    pass(totals, 1, [&](Int i, Int count, Int block) {
      for (Int each = 0; each < count; ++each) {
        const Int at = each * n_out;
        see(i + each, block, each);
        measure(parents(t - 1) + block * plan.row, each);
        couple(d + at, rate(t)[block], c + at);
        add_given(of_c, i + each, block, h + at);
        softmax_gradient(c + at, h + at, n_out);
        from_nearest(d + at);
        *sum += dot(h + at, d + at, n_out);
      }
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
          std::memcpy(&of_mean, of_means + (t - 1) * job.batch + block * LANES,
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
    const float each = float(of_mean / (per_sample() * double(job.batch)));
    for (Int block = 0; block < plan.blocks; ++block) to[block] = present(block, splat(each));
  }

  // q_ij = (f β_ij + share) / d_ij, in place of h
  void find_pulls(Int t, Int i, Int block, const V *c, const V *inverse, V *h) const {
    if (const float *of_c = of_couplings(t)) add_given(of_c, i, block, h);
    softmax_gradient(c, h, job.parents);
    const V f = rate(t)[block], even = share(t)[block];
    for (Int j = 0; j < job.parents; ++j) h[j] = (f * h[j] + even) * inverse[j];
  }

  // summed_j = Σ_i q_ij n_ij
  void back(Int t) const {
    const Int n_out = job.parents;
    clear(summed, plan.parents_size);
    pass(summed, plan.row, [&](Int i, Int count, Int block) {
      const V *v = parents(t - 1) + block * plan.row;
      for (Int each = 0; each < count; ++each) {
        const Int at = each * n_out;
        see(i + each, block, each, of_sum(t) + block * plan.row);
        measure(v, each);
        couple(d + at, rate(t)[block], c + at);
        find_pulls(t, i + each, block, c + at, inverse + at, h + at);
        pull(h + at, v, factor + at, votes + each * plan.row, n_out, plan.d_out, sum);
      }
    });
  }

  // Of pose, weight, vote bias, coordinates and length, from the iterations since `earliest` at
  // once: ∂û_ij = Σ_t c_ij γ_j − q_ij n_ij, the second term where votes are `measured`.
  void gradients(Int earliest, bool measured) const {
    const Int n = job.iterations, n_out = job.parents, size = plan.d_out, d_in = plan.d_in;
    const Int weight_size = job.columns * job.inner, group = plan.group;
    const Int begin = earliest ? earliest : 1;  // before, couplings are equal
    V *held = scratch;                          // [iteration, c or q, child, block, parent]
    V *near = held + 2 * plan.updates * HELD * group * n_out;  // 1/d [child, iteration, parent]
    V *of_child = near + HELD * plan.updates * n_out, *seen = of_child + HELD * group * d_in;
    V *of_place = seen + HELD * group * d_in, *of_length = of_place + HELD * size;
    V *of = of_length + HELD * group, *v = of + group * size;
    const auto held_at = [&](Int t, Int kind, Int i, Int block) {
      return held + ((((t - 1) * 2 + kind) * HELD + i) * group + block) * n_out;
    };
    const auto near_at = [&](Int t, Int i) { return near + (i * plan.updates + t - 1) * n_out; };
    float *of_weight = own_weights();
    V *of_bias = own_vote_bias();
    for (Int g0 = 0; g0 < plan.blocks; g0 += group) {
      const Int n_blocks = g0 + group < plan.blocks ? group : plan.blocks - g0;
      for (Int i0 = first; i0 < end; i0 += HELD) {
        const Int i1 = i0 + HELD < end ? i0 + HELD : end;
        for (Int block = 0; begin < n && block < n_blocks; ++block) {
          for (Int j = 0; j < n_out; ++j)
            for (Int i = i0; i < i1; ++i) {
              const Int at = (g0 + block) * plan.row + j * size;
              V square{};
              Agreement found[1 + MOST_ITERATIONS] = {{v, &square}};
              int count = 1;
              for (Int t = begin; t < n; ++t) {
                V &h = held_at(t, 1, i - i0, block)[j] = V{};
                if (measured) found[count++] = {of_sum(t) + at, &h};
              }
              make_votes(i, child(g0 + block, i), j, 1, v, size, found, count);
              const V factor = Shortening(length(g0 + block, i), square).factor;
              for (Int t = begin; t < n; ++t) {
                const V x = gap(parents(t - 1) + at, factor, v, size) + EPSILON;
                const V inverse = inverse_root(x);
                held_at(t, 0, i - i0, block)[j] = root_by(x, inverse);
                held_at(t, 1, i - i0, block)[j] *= factor;
                near_at(t, i - i0)[j] = inverse;
              }
            }
          for (Int i = i0; i < i1; ++i)
            for (Int t = begin; t < n; ++t) {
              V *c = held_at(t, 0, i - i0, block), *q = held_at(t, 1, i - i0, block);
              couple(c, rate(t)[g0 + block], c);
              if (measured) find_pulls(t, i, g0 + block, c, near_at(t, i - i0), q);
            }
        }
        clear(of_child, HELD * group * d_in);
        clear(of_place, HELD * size);
        clear(of_length, HELD * group);
        for (Int i = i0; i < i1; ++i)
          for (Int block = 0; block < n_blocks; ++block)
            std::memcpy(seen + ((i - i0) * group + block) * d_in, child(g0 + block, i),
                        d_in * sizeof(V));
        // Those of the next step lie far apart.
        for (Int block = 0; i1 < end && block < n_blocks; ++block)
          for (Int x = 0; x < HELD * d_in; ++x) __builtin_prefetch(child(g0 + block, i1) + x);
        for (Int j = 0; j < n_out; ++j)
          for (Int i = i0; i < i1; ++i) {
            for (Int block = 0; block < n_blocks; ++block) {
              const Int at = (g0 + block) * plan.row + j * size;
              V *o = of + block * size, square{};
              const Agreement itself = {v, &square};
              make_votes(i, child(g0 + block, i), j, 1, v, size, &itself, 1);
              const Shortening shortening(length(g0 + block, i), square);
              Amount parts[MOST_ITERATIONS + 1];
              Int n_parts = 0;
              for (Int t = begin; t < n; ++t)
                parts[n_parts++] = {held_at(t, 0, i - i0, block)[j], of_sum(t) + at};
              if (!earliest) parts[n_parts++] = {splat(1.0f / float(n_out)), of_sum(0) + at};
              sum_of_amounts(parts, n_parts, size, o);
              // Not q v and q φ w by themselves: where a vote meets its parent, q is large and both
              // cancel.
              for (Int t = begin; measured && t < n; ++t) {
                const V q = -held_at(t, 1, i - i0, block)[j];
                pull(&q, parents(t - 1) + at, &shortening.factor, v, 1, size, o);
              }
              const V inward = dot(o, v, size) * shortening.inverse;
              const V excess = inward * shortening.inverse;
              of_length[block * HELD + i - i0] += inward;
              for (Int x = 0; x < size; ++x) o[x] = shortening.factor * (o[x] - excess * v[x]);
              // Beside one number nothing lies across it, and rounding must not stay.
              if (size == 1) o[0] = shortening.inverse > V{} ? V{} : o[0];
              if (job.of_pose)
                plan.back(plan.shape, weight(i, j), o, 0,
                          of_child + (block * HELD + i - i0) * d_in, 0);
              if (of_bias)
                for (Int x = 0; x < size; ++x) of_bias[j * size + x] += o[x];
              if (job.of_coordinates)
                for (Int x = 0; x < size; ++x) of_place[(i - i0) * size + x] += o[x];
            }
            if (job.of_weight) {
              float *w = of_weight ? of_weight : job.of_weight;
              w += ((i % job.types) * n_out + j) * weight_size;
              weights_of(plan.shape, of, seen + (i - i0) * group * d_in, w, n_blocks,
                         of_weight || g0);
            }
          }
        for (Int block = 0; block < n_blocks; ++block) {
          const Int sample = (g0 + block) * LANES, here = samples(g0 + block);
          if (job.of_pose)
            from_lanes(of_child + block * HELD * d_in, job.children * d_in, here, (i1 - i0) * d_in,
                       job.of_pose + (sample * job.children + i0) * d_in);
          if (job.of_length)
            from_lanes(of_length + block * HELD, job.children, here, i1 - i0,
                       job.of_length + sample * job.children + i0);
        }
        if (job.of_coordinates)
          for (Int x = 0; x < (i1 - i0) * size; ++x)
            job.of_coordinates[i0 * size + x] += lane_sum(of_place[x]);
      }
    }
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
