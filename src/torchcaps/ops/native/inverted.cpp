// An iteration of inverted routing from present parents, forwards and backwards; the equations are
// those of ops/fused/inverted.py.
//
//   r_ij = softmax_j(scale ⟨p_j, v_ij⟩),   s_j = Σ_i r_ij v_ij
//
// Votes are made twice, for the agreement and for the sum: all those of a child are more than a
// core's first cache holds. How they are made, and who makes them, is told in windows.hpp.

#include "windows.hpp"

extern "C" {

// Everything that a call is given; native/inverted.py has the same fields in the same order. Lanes
// are rows, of couplings [i, j]; what is not wanted is null.
struct InvertedJob {
  Seen seen_by;
  double scale;
  const float *now;  // the present parents
  float *sums, *couplings;
  const float *of_sums, *of_couplings;
  float *of_now;
};

}  // extern "C"

namespace {

// Vectors that a thread has for itself.
Int inverted_scratch(const InvertedJob &job, bool backward) {
  const Seen &seen = job.seen_by;
  const Int row = seen.parents * seen.rows * seen.columns, tile = TILE * seen.parents;
  return backward ? 3 * row + 2 * tile + LanePlan::tile_size(seen)
                  : 2 * row + tile + TILE * seen.rows * seen.inner;
}

// One thread of a call.
template <int SIDE>
struct InvertedWorker : LaneWorker<SIDE> {
  using Base = LaneWorker<SIDE>;
  using Base::barrier, Base::d_in, Base::end, Base::find_weights, Base::first, Base::matrix;
  using Base::parents, Base::plan, Base::scratch, Base::see, Base::size, Base::slots;
  using Base::strips;
  const InvertedJob &job;

  void run(bool backward) const {
    if (!backward) {
      for (Int n = first; n < end; ++n) sums(Block(job.seen_by, n));
      return;
    }
    this->begin_gradients();
    for (Int n = first; n < end; ++n) back(Block(job.seen_by, n));
    barrier.wait();
    this->sum_threads();
  }

  void sums(const Block &block) const {
    V *now = scratch, *sum = now + plan.row, *u = sum + plan.row, *r = u + TILE * d_in();
    block.read(job.now, plan.row, now);
    std::memset(static_cast<void *>(sum), 0, plan.row * sizeof(V));
    for (Int i0 = 0; i0 < slots; i0 += TILE) {
      const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
      const float *w[TILE];
      find_weights(i0, i1, w);
      for (Int i = i0; i < i1; ++i) see(block, i, u + (i - i0) * d_in());
      couple(i0, i1, u, w, now, r);
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
  void couple(Int i0, Int i1, const V *u, const float *const *w, const V *now, V *r,
              const V *other = nullptr, V *along = nullptr) const {
    for (Int j = 0; j < parents; ++j) {
      V x[TILE] = {}, y[TILE] = {};
      strips([&](auto width, Int row, Int c, Int d) {
        constexpr int M = decltype(width)::value;
        const V *p = now + j * size() + d, *q = other ? other + j * size() + d : nullptr;
        V v[M];
        for (Int i = i0; i < i1; ++i) {
          this->template vote<M>(i, row, c, w[i - i0] + j * matrix(), u + (i - i0) * d_in(), v);
          UNROLLED for (int m = 0; m < M; ++m) x[i - i0] += v[m] * p[m];
          if (q) UNROLLED for (int m = 0; m < M; ++m) y[i - i0] += v[m] * q[m];
        }
      });
      for (Int i = i0; i < i1; ++i) {
        r[(i - i0) * parents + j] = float(job.scale) * x[i - i0];
        if (other) along[(i - i0) * parents + j] = y[i - i0];
      }
    }
    for (Int i = i0; i < i1; ++i) softmax(r + (i - i0) * parents, parents, false);
  }

  // With b, the gradient of the logits: ∂v_ij = r_ij γ_j + b_ij p_j,   ∂p_j = Σ_i b_ij v_ij
  void back(const Block &block) const {
    V *now = scratch, *of_sum = now + plan.row, *of_now = of_sum + plan.row;
    V *r = of_now + plan.row, *b = r + TILE * parents, *tile = b + TILE * parents;
    block.read(job.now, plan.row, now);
    block.read_gradient(job.of_sums, plan.row, of_sum);
    std::memset(static_cast<void *>(of_now), 0, plan.row * sizeof(V));
    V share, of_logit;
    this->gradients(
        block, tile,
        [&](Int i0, Int i1, const V *u, const float *const *w) {
          couple(i0, i1, u, w, now, r, of_sum, b);
          for (Int i = i0; i < i1; ++i) {
            V *h = b + (i - i0) * parents;
            if (job.of_couplings) add_recorded(block, i, h);
            softmax_gradient(r + (i - i0) * parents, h, parents);
            for (Int j = 0; j < parents; ++j) h[j] *= float(job.scale);
          }
        },
        [&](Int i, Int j) {
          share = r[i % TILE * parents + j];
          of_logit = b[i % TILE * parents + j];
        },
        [&](auto width, Int at, V *v) {
          UNROLLED for (int m = 0; m < decltype(width)::value; ++m) {
            of_now[at + m] += of_logit * v[m];
            v[m] = share * of_sum[at + m] + of_logit * now[at + m];
          }
        },
        [](Int, Int) {});
    block.write(of_now, plan.row, job.of_now);
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

SEEN Int torchcaps_inverted_job_size() { return sizeof(InvertedJob); }

SEEN void torchcaps_inverted_plan(InvertedJob *job, Int backward) {
  const LanePlan plan(job->seen_by, inverted_scratch(*job, backward));
  job->seen_by.workspace_size = (plan.total + 1) * LANES;
}

SEEN void torchcaps_inverted(const InvertedJob *job, Int backward) {
  const Seen &seen = job->seen_by;
  const LanePlan plan(seen, inverted_scratch(*job, backward));
  in_threads(seen.threads, [&](Barrier &barrier, Int index, Int threads) {
    if (seen.rows == 4 && seen.inner == 4 && seen.columns == 4)
      InvertedWorker<4>{{seen, plan, barrier, index, threads}, *job}.run(backward);
    else
      InvertedWorker<0>{{seen, plan, barrier, index, threads}, *job}.run(backward);
  });
}

}  // extern "C"
