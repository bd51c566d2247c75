// The two steps of EM routing that meet votes, forwards and backwards; the equations are those of
// ops/native/em.py.
//
//   V_ij = W_ij u_i + x_i          made when needed, forgotten at once
//   FIT     w_ij ∝ r_ij a_i,   m_j = Σ_i r_ij a_i,
//           μ_j = Σ_i w_ij V_ij,   σ_j² = Σ_i w_ij (V_ij − μ_j)²
//   ASSIGN  r_ij ∝ exp(ℓ_j − ½ Σ_h (V_ij − μ_j)² / σ_j²), which sums to one over parents
//
// Couplings lie as lanes do, [block of 16 lanes, i, j, lane]. How votes are made, and who makes them,
// is told in windows.hpp.

#include "windows.hpp"

extern "C" {

// Everything that a call is given; native/em.py has the same fields in the same order. Lanes are
// rows but for `log_r` and its gradient. Without log_r every parent has the same share.
struct EMJob {
  Seen seen_by;
  Int pass;
  float *log_r, *log_a, *mass, *mean, *variance;  // of FIT
  float *top, *total;  // w = exp(t − top) / total
  float *rest;         // Σ_i w_ij (V_ij − μ_j), zero but for rounding
  float *likely, *seen;  // of ASSIGN; `seen`: the logarithm of what r was divided by
  const float *of_mean, *of_variance, *rise, *of_log_r, *of_seen;
  float *to_log_r, *to_log_a, *to_likely, *to_mean, *to_variance;
};

}  // extern "C"

namespace {

// Couplings lie so on every machine.
constexpr Int PLACES = 16;
enum Pass : Int { FIT, FIT_BACK, ASSIGN, ASSIGN_BACK };

// Vectors that a thread has for itself.
Int em_scratch(const EMJob &job) {
  const Seen &seen = job.seen_by;
  const Int slots = seen.slots, parents = seen.parents, d_in = seen.rows * seen.inner;
  const Int row = parents * seen.rows * seen.columns, back = LanePlan::tile_size(seen);
  switch (job.pass) {
    case FIT: return slots * (d_in + 1 + parents) + 2 * parents + 3 * row;
    case FIT_BACK: return back + 3 * row + 4 * parents + 2 * slots;
    case ASSIGN: return TILE * (d_in + parents) + 2 * row + parents + slots;
    default: return back + 4 * row + (1 + TILE) * parents + slots;
  }
}

// One thread of a call.
template <int SIDE>
struct EMWorker : LaneWorker<SIDE> {
  using Base = LaneWorker<SIDE>;
  using Base::barrier, Base::d_in, Base::end, Base::find_weights, Base::first, Base::matrix;
  using Base::parents, Base::plan, Base::scratch, Base::see, Base::size, Base::slots;
  using Base::strips;
  const EMJob &job;

  // Couplings of slot i.
  float *at(float *all, const Block &block, Int i) const {
    return all + ((block.first / PLACES * slots + i) * parents) * PLACES + block.first % PLACES;
  }
  const float *at(const float *all, const Block &block, Int i) const {
    return at(const_cast<float *>(all), block, i);
  }

  void run() const {
    switch (job.pass) {
      case FIT:
        for (Int n = first; n < end; ++n) fit(Block(job.seen_by, n));
        break;
      case ASSIGN:
        for (Int n = first; n < end; ++n) assign(Block(job.seen_by, n));
        break;
      default:
        this->begin_gradients();
        for (Int n = first; n < end; ++n)
          job.pass == FIT_BACK ? fit_back(Block(job.seen_by, n)) : assign_back(Block(job.seen_by, n));
        barrier.wait();
        this->sum_threads();
    }
  }

  void fit(const Block &block) const {
    // Where shares are all alike, one parent speaks for all.
    const Int n = job.log_r ? parents : 1;
    V *u = scratch, *log_a = u + slots * d_in(), *w = log_a + slots, *top = w + slots * n;
    V *total = top + parents, *mean = total + parents, *variance = mean + plan.row;
    V *rest = variance + plan.row;
    for (Int i = 0; i < slots; ++i) see(block, i, u + i * d_in());
    block.read(job.log_a, slots, log_a);
    for (Int j = 0; j < n; ++j) top[j] = splat(-INFINITY), total[j] = V{};
    for (Int i = 0; i < slots; ++i) {
      const float *log_r = job.log_r ? at(job.log_r, block, i) : nullptr;
      for (Int j = 0; j < n; ++j) {
        const V t = log_r ? load(log_r + j * PLACES) + log_a[i] : log_a[i];
        w[i * n + j] = t;
        top[j] = t > top[j] ? t : top[j];
      }
    }
    for (Int i = 0; i < slots; ++i)
      for (Int j = 0; j < n; ++j) {
        w[i * n + j] = exponential(w[i * n + j] - top[j]);
        total[j] += w[i * n + j];
      }
    std::memset(static_cast<void *>(mean), 0, 3 * plan.row * sizeof(V));
    for (const bool second : {false, true})
      for (Int i0 = 0; i0 < slots; i0 += TILE) {
        const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
        const float *of_tile[TILE];
        find_weights(i0, i1, of_tile);
        for (Int j = 0; j < parents; ++j) {
          const V *share = w + (n > 1 ? j : 0);
          strips([&](auto width, Int r, Int c, Int d) {
            constexpr int M = decltype(width)::value;
            V sum[M] = {}, left[M] = {}, about[M], v[M];
            const Int at = j * size() + d;
            UNROLLED for (int m = 0; m < M; ++m) about[m] = mean[at + m];
            if (second)
              for (Int i = i0; i < i1; ++i) {
                this->template vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + i * d_in(), v);
                UNROLLED for (int m = 0; m < M; ++m) {
                  const V e = v[m] - about[m], part = share[i * n] * e;
                  left[m] += part;
                  sum[m] += part * e;
                }
              }
            else
              for (Int i = i0; i < i1; ++i) {
                this->template vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + i * d_in(), v);
                UNROLLED for (int m = 0; m < M; ++m) sum[m] += share[i * n] * v[m];
              }
            UNROLLED for (int m = 0; m < M; ++m) (second ? variance : mean)[at + m] += sum[m];
            UNROLLED for (int m = 0; m < M; ++m) rest[at + m] += left[m];
          });
          if (i1 == slots)
            for (Int d = 0; d < size(); ++d)
              (second ? variance : mean)[j * size() + d] /= total[n > 1 ? j : 0];
        }
      }
    block.write(mean, plan.row, job.mean);
    block.write(variance, plan.row, job.variance);
    for (Int x = 0; x < plan.row; ++x) rest[x] /= total[n > 1 ? x / size() : 0];
    block.write(rest, plan.row, job.rest);
    block.write(top, n, job.top);
    block.write(total, n, job.total);
    for (Int j = 0; j < n; ++j)
      for (int lane = 0; lane < LANES; ++lane) total[j][lane] *= std::exp(top[j][lane]);
    for (Int j = n; j < parents; ++j) total[j] = total[0];
    block.write(total, parents, job.mass);
  }

  void assign(const Block &block) const {
    V *mean = scratch, *inverse = mean + plan.row, *likely = inverse + plan.row;
    V *seen = likely + parents, *u = seen + slots, *logit = u + TILE * d_in();
    block.read(job.mean, plan.row, mean);
    block.read(job.variance, plan.row, inverse);
    for (Int x = 0; x < plan.row; ++x) inverse[x] = 1.0f / inverse[x];
    block.read(job.likely, parents, likely);
    for (Int i0 = 0; i0 < slots; i0 += TILE) {
      const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
      const float *of_tile[TILE];
      find_weights(i0, i1, of_tile);
      for (Int i = i0; i < i1; ++i) see(block, i, u + (i - i0) * d_in());
      for (Int j = 0; j < parents; ++j) {
        V distance[TILE] = {};
        strips([&](auto width, Int r, Int c, Int d) {
          constexpr int M = decltype(width)::value;
          V about[M], part[M], v[M];
          UNROLLED for (int m = 0; m < M; ++m) about[m] = mean[j * size() + d + m];
          UNROLLED for (int m = 0; m < M; ++m) part[m] = inverse[j * size() + d + m];
          for (Int i = i0; i < i1; ++i) {
            this->template vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + (i - i0) * d_in(), v);
            UNROLLED for (int m = 0; m < M; ++m) {
              const V e = v[m] - about[m];
              distance[i - i0] += e * part[m] * e;
            }
          }
        });
        for (Int i = i0; i < i1; ++i)
          logit[(i - i0) * parents + j] = likely[j] - 0.5f * distance[i - i0];
      }
      for (Int i = i0; i < i1; ++i) {
        const V *x = logit + (i - i0) * parents;
        V most = x[0];
        for (Int j = 1; j < parents; ++j) most = x[j] > most ? x[j] : most;
        V total = in_blocks(parents, [&](Int first, Int some) {
          V here{};
          for (Int j = first; j < first + some; ++j) here += exponential(x[j] - most);
          return here;
        });
        for (int lane = 0; lane < LANES; ++lane) total[lane] = std::log(total[lane]);
        seen[i] = most + total;
        float *log_r = at(job.log_r, block, i);
        for (Int j = 0; j < parents; ++j) store(log_r + j * PLACES, x[j] - most - total);
      }
    }
    block.write(seen, slots, job.seen);
  }

  // ∂V_ij = w_ij (α_j + 2 ν_j e_ij),   ∂w_ij = ⟨e_ij, α_j + ν_j e_ij⟩
  void fit_back(const Block &block) const {
    const Int n = job.log_r ? parents : 1, row = plan.row;
    V *mean = scratch, *alpha = mean + row, *nu = alpha + row, *rise = nu + row;
    V *top = rise + parents, *part = top + parents, *log_a = part + parents;
    V *of_log_a = log_a + slots, *sum = of_log_a + slots, *tile = sum + parents;
    block.read(job.mean, row, mean);
    block.read_gradient(job.of_mean, row, alpha);
    block.read_gradient(job.of_variance, row, nu);
    block.read_gradient(job.rise, parents, rise);
    block.read(job.top, n, top);
    block.read(job.total, n, part);
    for (Int j = 0; j < n; ++j) part[j] = 1.0f / part[j];
    block.read(job.log_a, slots, log_a);
    std::memset(static_cast<void *>(of_log_a), 0, (slots + parents) * sizeof(V));
    V here, of_share;
    const auto share = [&](Int i, Int j) {
      V t = log_a[i];
      if (job.log_r) t += load(at(job.log_r, block, i) + j * PLACES);
      const Int k = n > 1 ? j : 0;
      return exponential(t - top[k]) * part[k];
    };
    this->gradients(
        block, tile, [](Int, Int, const V *, const float *const *) {},
        [&](Int i, Int j) {
          here = share(i, j);
          of_share = V{};
        },
        [&](auto width, Int at, V *v) {
          UNROLLED for (int m = 0; m < decltype(width)::value; ++m) {
            const V e = v[m] - mean[at + m], slope = e * nu[at + m], both = slope + alpha[at + m];
            of_share += e * both;
            v[m] = here * (both + slope);
          }
        },
        [&](Int i, Int j) {
          sum[j] += here * of_share;
          if (job.log_r)
            store(at(job.to_log_r, block, i) + j * PLACES, of_share);
          else
            of_log_a[i] += of_share;
        });
    // ∂ln(r_ij a_i) = w_ij (∂w_ij − Σ_k w_kj ∂w_kj + m_j ∂m_j), with the sum of what was found: of
    // one child that has all the weight nothing is left.
    V left{};
    for (Int j = 0; j < parents; ++j) left += rise[j] - sum[j];
    for (Int i = 0; i < slots; ++i) {
      if (!job.log_r) {
        of_log_a[i] = share(i, 0) * (of_log_a[i] + left);
        continue;
      }
      for (Int j = 0; j < parents; ++j) {
        float *to = at(job.to_log_r, block, i) + j * PLACES;
        const V of = share(i, j) * ((load(to) - sum[j]) + rise[j]);
        store(to, of);
        of_log_a[i] += of;
      }
    }
    block.write(of_log_a, slots, job.to_log_a);
  }

  // With s_ij = (V_ij − μ_j) / σ_j² and g, the gradient of the logits: ∂V_ij = −g_ij s_ij,
  // ∂μ_j = Σ_i g_ij s_ij,   ∂σ_j² = ½ Σ_i g_ij s_ij²
  void assign_back(const Block &block) const {
    const Int row = plan.row;
    V *mean = scratch, *inverse = mean + row, *of_mean = inverse + row;
    V *of_variance = of_mean + row, *of_likely = of_variance + row;
    V *of_logit = of_likely + parents, *of_seen = of_logit + TILE * parents;
    V *tile = of_seen + slots;
    block.read(job.mean, row, mean);
    block.read(job.variance, row, inverse);
    for (Int x = 0; x < row; ++x) inverse[x] = 1.0f / inverse[x];
    if (job.of_seen) block.read_gradient(job.of_seen, slots, of_seen);
    std::memset(static_cast<void *>(of_mean), 0, (2 * row + parents) * sizeof(V));
    V of_here;
    this->gradients(
        block, tile, [](Int, Int, const V *, const float *const *) {},
        [&](Int i, Int j) {
          V *of_x = of_logit + i % TILE * parents;
          if (!j) of_logits(block, i, job.of_seen ? of_seen[i] : V{}, of_x, of_likely);
          of_here = of_x[j];
        },
        [&](auto width, Int at, V *v) {
          UNROLLED for (int m = 0; m < decltype(width)::value; ++m) {
            const V s = (v[m] - mean[at + m]) * inverse[at + m], moved = of_here * s;
            of_mean[at + m] += moved;
            of_variance[at + m] += 0.5f * moved * s;
            v[m] = -moved;
          }
        },
        [](Int, Int) {});
    block.write(of_mean, row, job.to_mean);
    block.write(of_variance, row, job.to_variance);
    block.write(of_likely, parents, job.to_likely);
  }

  // Back through the logarithm of a softmax; where a lane is missing all gradients are zero.
  void of_logits(const Block &block, Int i, V of_seen, V *of_x, V *of_likely) const {
    const float *of_log_r = at(job.of_log_r, block, i), *log_r = at(job.log_r, block, i);
    V left = of_seen;
    for (Int j = 0; j < parents; ++j) {
      of_x[j] = load(of_log_r + j * PLACES);
      left -= of_x[j];
    }
    for (Int j = 0; j < parents; ++j) {
      of_x[j] += left * exponential(load(log_r + j * PLACES));
      of_likely[j] += of_x[j];
    }
  }
};

}  // namespace

extern "C" {

SEEN Int torchcaps_em_job_size() { return sizeof(EMJob); }

SEEN void torchcaps_em_plan(EMJob *job) {
  job->seen_by.workspace_size = (LanePlan(job->seen_by, em_scratch(*job)).total + 1) * LANES;
}

SEEN void torchcaps_em(const EMJob *job) {
  const Seen &seen = job->seen_by;
  const LanePlan plan(seen, em_scratch(*job));
  in_threads(seen.threads, [&](Barrier &barrier, Int index, Int threads) {
    if (seen.rows == 4 && seen.inner == 4 && seen.columns == 4)
      EMWorker<4>{{seen, plan, barrier, index, threads}, *job}.run();
    else
      EMWorker<0>{{seen, plan, barrier, index, threads}, *job}.run();
  });
}

}  // extern "C"
