// Sums over children whose couplings are a softmax over parents, forwards and backwards; the equations
// are those of ops/fused/loop.py.
//
//   c_ij = softmax_j(⟨û_ij, q_j⟩ + prior_ij) + added_ij,   s_j = Σ_i c_ij û_ij
//
// Votes are made twice, for the agreement and for the sum: all those of a child are more than a
// core's first cache holds. How they are made, and who makes them, is told in windows.hpp.

#include "windows.hpp"

extern "C" {

// Everything that a call is given; native/mixing.py has the same fields in the same order. Lanes are
// rows, of couplings [i, j]; prior and added are [i, j] for all; what is not wanted is null.
struct MixingJob {
  Seen seen_by;
  Int leaky;
  const float *prior, *added, *query;
  float *sums, *couplings;
  const float *of_sums, *of_couplings;
  float *of_query, *of_prior, *of_added;
};

}  // extern "C"

namespace {

// Vectors that hold a number of every pair of a child and a parent.
Int pairs_of(const Seen &seen) { return (seen.slots * seen.parents + LANES - 1) / LANES; }

// Vectors that a thread has for itself; last its gradients of prior and added.
Int mixing_scratch(const MixingJob &job, bool backward) {
  const Seen &seen = job.seen_by;
  const Int row = seen.parents * seen.rows * seen.columns, tile = TILE * seen.parents;
  const Int pairs = (bool(job.of_prior) + bool(job.of_added)) * pairs_of(seen);
  return backward ? 3 * row + 2 * tile + LanePlan::tile_size(seen) + pairs
                  : 2 * row + tile + TILE * seen.rows * seen.inner;
}

// One thread of a call.
template <int SIDE>
struct MixingWorker : LaneWorker<SIDE> {
  using Base = LaneWorker<SIDE>;
  using Base::barrier, Base::d_in, Base::end, Base::find_weights, Base::first, Base::matrix;
  using Base::parents, Base::plan, Base::scratch, Base::see, Base::size, Base::slots;
  using Base::strips;
  const MixingJob &job;

  void run(bool backward) const {
    if (!backward) {
      for (Int n = first; n < end; ++n) sums(Block(job.seen_by, n));
      return;
    }
    this->begin_gradients();
    for (Int which = 0; which < 2; ++which)
      if (float *mine = of_pairs(which, this->index))
        std::memset(mine, 0, pairs_of(job.seen_by) * sizeof(V));
    for (Int n = first; n < end; ++n) back(Block(job.seen_by, n));
    barrier.wait();
    this->sum_threads();
    for (Int which = 0; which < 2; ++which) sum_pairs(which);
  }

  // Where a thread sums the gradient of prior (0) or of added (1), if anybody asks for that.
  float *of_pairs(Int which, Int thread) const {
    if (!(which ? job.of_added : job.of_prior)) return nullptr;
    const Int from_end = which && job.of_prior ? 1 : bool(job.of_prior) + bool(job.of_added);
    V *const end_of_scratch = plan.scratch + (thread + 1) * plan.scratch_size;
    return reinterpret_cast<float *>(end_of_scratch - from_end * pairs_of(job.seen_by));
  }

  void sum_pairs(Int which) const {
    float *to = which ? job.of_added : job.of_prior;
    const Int count = slots * parents;
    for (Int each = 0; to && each < this->threads; ++each) {
      const float *from = of_pairs(which, each);
      for (Int x = count * this->index / this->threads;
           x < count * (this->index + 1) / this->threads; ++x)
        to[x] += from[x];
    }
  }

  void sums(const Block &block) const {
    V *query = scratch, *sum = query + plan.row, *u = sum + plan.row, *r = u + TILE * d_in();
    block.read(job.query, plan.row, query);
    std::memset(static_cast<void *>(sum), 0, plan.row * sizeof(V));
    for (Int i0 = 0; i0 < slots; i0 += TILE) {
      const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
      const float *w[TILE];
      find_weights(i0, i1, w);
      for (Int i = i0; i < i1; ++i) see(block, i, u + (i - i0) * d_in());
      couple(i0, i1, u, w, query, r);
      for (Int x = i0 * parents; job.added && x < i1 * parents; ++x)
        r[x - i0 * parents] += job.added[x];
      if (job.couplings) {
        const Int stride = slots * parents;
        from_lanes(r, stride, block.samples, (i1 - i0) * parents,
                   job.couplings + block.first * stride + i0 * parents);
      }
      for (Int j = 0; j < parents; ++j)
        strips([&](auto width, Int row, Int c, Int d) {
          constexpr int M = decltype(width)::value;
          V a[M], v[M], *to = sum + j * size() + d;
          UNROLLED for (int m = 0; m < M; ++m) a[m] = to[m];
          for (Int i = i0; i < i1; ++i) {
            this->template vote<M>(i, row, c, w[i - i0] + j * matrix(), u + (i - i0) * d_in(), v);
            const V share = r[(i - i0) * parents + j];
            UNROLLED for (int m = 0; m < M; ++m) a[m] += share * v[m];
          }
          UNROLLED for (int m = 0; m < M; ++m) to[m] = a[m];
        });
    }
    block.write(sum, plan.row, job.sums);
  }

  // Couplings [i, j] of a tile, and what its votes agree with another vector of every parent.
  void couple(Int i0, Int i1, const V *u, const float *const *w, const V *query, V *r,
              const V *other = nullptr, V *along = nullptr) const {
    for (Int j = 0; j < parents; ++j) {
      V x[TILE] = {}, y[TILE] = {};
      strips([&](auto width, Int row, Int c, Int d) {
        constexpr int M = decltype(width)::value;
        const V *p = query + j * size() + d, *q = other ? other + j * size() + d : nullptr;
        V v[M];
        for (Int i = i0; i < i1; ++i) {
          this->template vote<M>(i, row, c, w[i - i0] + j * matrix(), u + (i - i0) * d_in(), v);
          UNROLLED for (int m = 0; m < M; ++m) x[i - i0] += v[m] * p[m];
          if (q) UNROLLED for (int m = 0; m < M; ++m) y[i - i0] += v[m] * q[m];
        }
      });
      for (Int i = i0; i < i1; ++i) {
        r[(i - i0) * parents + j] = job.prior ? x[i - i0] + job.prior[i * parents + j] : x[i - i0];
        if (other) along[(i - i0) * parents + j] = y[i - i0];
      }
    }
    for (Int i = i0; i < i1; ++i) softmax(r + (i - i0) * parents, parents, job.leaky);
  }

  // With b, the gradient of the logits: ∂û_ij = c_ij γ_j + b_ij q_j,   ∂q_j = Σ_i b_ij û_ij
  void back(const Block &block) const {
    V *query = scratch, *of_sum = query + plan.row, *of_query = of_sum + plan.row;
    V *r = of_query + plan.row, *b = r + TILE * parents, *tile = b + TILE * parents;
    block.read(job.query, plan.row, query);
    block.read_gradient(job.of_sums, plan.row, of_sum);
    std::memset(static_cast<void *>(of_query), 0, plan.row * sizeof(V));
    V share, of_logit;
    this->gradients(
        block, tile,
        [&](Int i0, Int i1, const V *u, const float *const *w) {
          couple(i0, i1, u, w, query, r, of_sum, b);
          for (Int i = i0; i < i1; ++i) {
            V *h = b + (i - i0) * parents;
            if (job.of_couplings) add_recorded(block, i, h);
            keep_pairs(1, i, h);
            softmax_gradient(r + (i - i0) * parents, h, parents);
            keep_pairs(0, i, h);
          }
        },
        [&](Int i, Int j) {
          share = r[i % TILE * parents + j];
          if (job.added) share += job.added[i * parents + j];
          of_logit = b[i % TILE * parents + j];
        },
        [&](auto width, Int at, V *v) {
          UNROLLED for (int m = 0; m < decltype(width)::value; ++m) {
            of_query[at + m] += of_logit * v[m];
            v[m] = share * of_sum[at + m] + of_logit * query[at + m];
          }
        },
        [](Int, Int) {});
    block.write(of_query, plan.row, job.of_query);
  }

  // A row of the gradient of prior or added.
  void keep_pairs(Int which, Int i, const V *h) const {
    if (float *mine = of_pairs(which, this->index))
      for (Int j = 0; j < parents; ++j) mine[i * parents + j] += lane_sum(h[j]);
  }

  // κ of slot i; where a lane is missing it is zero.
  void add_recorded(const Block &block, Int i, V *h) const {
    const Int stride = slots * parents;
    const float *from = job.of_couplings + block.first * stride + i * parents;
    for (Int lane = 0; lane < block.samples; ++lane)
      for (Int j = 0; j < parents; ++j) h[j][lane] += from[lane * stride + j];
  }
};

}  // namespace

extern "C" {

SEEN Int torchcaps_mixing_job_size() { return sizeof(MixingJob); }

SEEN void torchcaps_mixing_plan(MixingJob *job, Int backward) {
  const LanePlan plan(job->seen_by, mixing_scratch(*job, backward));
  job->seen_by.workspace_size = (plan.total + 1) * LANES;
}

SEEN void torchcaps_mixing(const MixingJob *job, Int backward) {
  const Seen &seen = job->seen_by;
  const LanePlan plan(seen, mixing_scratch(*job, backward));
  in_threads(seen.threads, [&](Barrier &barrier, Int index, Int threads) {
    if (seen.rows == 4 && seen.inner == 4 && seen.columns == 4)
      MixingWorker<4>{{seen, plan, barrier, index, threads}, *job}.run(backward);
    else
      MixingWorker<0>{{seen, plan, barrier, index, threads}, *job}.run(backward);
  });
}

}  // extern "C"
