// The two steps of EM routing that meet votes, forwards and backwards; the equations are those of
// ops/native/em.py.
//
//   V_ij = W_ij u_i + x_i          made when needed, forgotten at once
//   FIT     w_ij ∝ r_ij a_i,   m_j = Σ_i r_ij a_i,
//           μ_j = Σ_i w_ij V_ij,   σ_j² = Σ_i w_ij (V_ij − μ_j)²
//   ASSIGN  r_ij ∝ exp(ℓ_j − ½ Σ_h (V_ij − μ_j)² / σ_j²), which sums to one over parents
//
// Couplings lie as lanes do, [block of 16 lanes, i, j, lane], and lanes are b · windows + p. A block of
// lanes is done from its children to its parents before the next; its numbers are a row in memory a
// lane, and turned when they are read. Votes are made in strips, up to four columns of a row, so that
// what is summed over children stays in registers.
//
// Threads share out the blocks. Two may see one sample: who comes second keeps the gradient of its
// pose apart until the end.

#include "lanes.hpp"

extern "C" {

// Everything that a call is given; native/em.py has the same fields in the same order. Lanes are
// rows but for `log_r` and its gradient. Without log_r every parent has the same share.
struct EMJob : VotesJob {
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
// Children that share what is read of a parent.
constexpr Int TILE = 4;
enum Pass : Int { FIT, FIT_BACK, ASSIGN, ASSIGN_BACK };

inline V load(const float *from) {
  V x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

inline void store(float *to, V x) { std::memcpy(to, &x, sizeof x); }

// `count` numbers of every lane.
void gather(const float *const *rows, Int count, V *to) {
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    V a[LANES] = {};
    if (here == LANES)
      for (Int lane = 0; lane < LANES; ++lane) a[lane] = load(rows[lane] + x);
    else
      for (Int lane = 0; lane < LANES; ++lane)
        std::memcpy(a + lane, rows[lane] + x, here * sizeof(float));
    transpose(a);
    for (Int each = 0; each < here; ++each) to[x + each] = a[each];
  }
}

// Adds `count` numbers of every lane to what is there.
void scatter(const V *from, Int count, Int samples, float *const *rows) {
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    V a[LANES] = {};
    for (Int each = 0; each < here; ++each) a[each] = from[x + each];
    transpose(a);
    for (Int lane = 0; lane < samples; ++lane) {
      float *to = rows[lane] + x;
      if (here == LANES)
        store(to, load(to) + a[lane]);
      else
        for (Int each = 0; each < here; ++each) to[each] += a[lane][each];
    }
  }
}

// Where everything lies. Sizes count vectors; a thread has `scratch_size` of its own.
struct EMPlan {
  Shape shape;
  Int d_in, d_out, row, blocks, weights, scratch_size, total = 0;
  V *scratch;
  float *of_weight, *of_place, *of_sample;
  Int weight_stride, place_stride, sample_stride;

  explicit EMPlan(const EMJob &job) : shape{job.rows, job.inner, job.columns} {
    d_in = job.rows * job.inner;
    d_out = job.rows * job.columns;
    row = job.parents * d_out;
    blocks = blocks_of(job.lanes);
    weights = job.types * job.parents * job.columns * job.inner;
    scratch_size = scratch_of(job);
    V *start = aligned(job.workspace);
    auto take = [&](Int each, Int count) {
      V *at = start + total;
      total += each * count;
      return at;
    };
    auto numbers = [](bool wanted, Int count) { return wanted ? blocks_of(count) : 0; };
    scratch = take(scratch_size, job.threads);
    weight_stride = numbers(job.of_weight, weights);
    place_stride = numbers(job.of_coordinates, job.slots * d_out);
    sample_stride = numbers(job.of_pose && job.windows > 1, job.children * d_in);
    // The first thread has the result itself.
    of_weight = reinterpret_cast<float *>(take(weight_stride, job.threads - 1));
    of_place = reinterpret_cast<float *>(take(place_stride, job.threads - 1));
    of_sample = reinterpret_cast<float *>(take(sample_stride, job.threads));
  }

  // Vectors that a thread has for itself.
  Int scratch_of(const EMJob &job) const {
    const Int slots = job.slots, parents = job.parents;
    // What the gradients of a tile need, beside what is told.
    const Int back = TILE * (2 * d_in + d_out) + d_out;
    switch (job.pass) {
      case FIT: return slots * (d_in + 1 + parents) + 2 * parents + 3 * row;
      case FIT_BACK: return back + 3 * row + 4 * parents + 2 * slots;
      case ASSIGN: return TILE * (d_in + parents) + 2 * row + parents + slots;
      default: return back + 4 * row + (1 + TILE) * parents + slots;
    }
  }
};

// Some lanes; those that are missing at the end are the last one once more.
struct Block {
  Int first, samples;
  Int row[LANES], sample[LANES];
  const Int *child[LANES];

  Block(const EMJob &job, Int n) : first(n * LANES) {
    samples = job.lanes - first < LANES ? job.lanes - first : LANES;
    for (Int lane = 0; lane < LANES; ++lane) {
      row[lane] = first + (lane < samples ? lane : samples - 1);
      sample[lane] = row[lane] / job.windows;
      child[lane] = job.child_id ? job.child_id + row[lane] % job.windows * job.slots : nullptr;
    }
  }

  // Rows of `count` numbers.
  void read(const float *all, Int count, V *to) const {
    const float *rows[LANES];
    for (Int lane = 0; lane < LANES; ++lane) rows[lane] = all + row[lane] * count;
    gather(rows, count, to);
  }
  // The same, but zeros where a lane is missing: gradients.
  void read_gradient(const float *all, Int count, V *to) const {
    to_lanes(all + first * count, count, samples, count, to);
  }
  void write(const V *from, Int count, float *all) const {
    from_lanes(from, count, samples, count, all + first * count);
  }
};

// One thread of a call. SIDE: of square poses and matrices, if that is known.
template <int SIDE>
struct EMWorker {
  const EMJob &job;
  const EMPlan &plan;
  Barrier &barrier;
  const Int index, threads;
  const Int slots = job.slots, parents = job.parents;
  const Int first = plan.blocks * index / threads, end = plan.blocks * (index + 1) / threads;
  V *const scratch = plan.scratch + index * plan.scratch_size;
  float *const of_weight = index ? plan.of_weight + (index - 1) * plan.weight_stride * LANES
                                 : job.of_weight;
  float *const of_place = index ? plan.of_place + (index - 1) * plan.place_stride * LANES
                                : job.of_coordinates;
  float *const of_sample = plan.of_sample + index * plan.sample_stride * LANES;

  Int rows() const { return SIDE ? SIDE : job.rows; }
  Int inner() const { return SIDE ? SIDE : job.inner; }
  Int columns() const { return SIDE ? SIDE : job.columns; }
  Int d_in() const { return rows() * inner(); }
  Int size() const { return rows() * columns(); }
  Int matrix() const { return columns() * inner(); }

  // The sample that another thread has begun, or −1.
  Int begun() const {
    const Int lane = first * LANES;
    return first < end && lane % job.windows ? lane / job.windows : -1;
  }

  // The weights of some slots and the first parent: a division costs as much as half a vote.
  void find_weights(Int i0, Int i1, const float **w) const {
    for (Int i = i0; i < i1; ++i) w[i - i0] = job.weight + i % job.types * parents * matrix();
  }

  // The children of a slot.
  void see(const Block &block, Int i, V *u) const {
    const float *rows[LANES];
    for (Int lane = 0; lane < LANES; ++lane) {
      const Int child = block.child[lane] ? block.child[lane][i] : i;
      rows[lane] = job.pose + (block.sample[lane] * job.children + child) * d_in();
    }
    gather(rows, d_in(), u);
  }

  void add_to_pose(const Block &block, Int i, const V *of) const {
    float *rows[LANES];
    const Int apart = begun();
    for (Int lane = 0; lane < block.samples; ++lane) {
      const Int child = block.child[lane] ? block.child[lane][i] : i;
      const Int sample = block.sample[lane];
      float *all = sample == apart ? of_sample : job.of_pose + sample * job.children * d_in();
      rows[lane] = all + child * d_in();
    }
    scatter(of, d_in(), block.samples, rows);
  }

  // Calls f(how many columns, row, first column, place in a pose).
  template <class F>
  void strips(F f) const {
    if constexpr (SIDE) {
      for (Int r = 0; r < SIDE; ++r) f(std::integral_constant<int, SIDE>(), r, 0, r * SIDE);
      return;
    }
    for (Int r = 0; r < rows(); ++r) {
      Int c = 0;
      for (; c + 4 <= columns(); c += 4)
        f(std::integral_constant<int, 4>(), r, c, r * columns() + c);
      for (; c < columns(); ++c)
        f(std::integral_constant<int, 1>(), r, c, r * columns() + c);
    }
  }

  // A strip of the vote of child i at u, by weights at w.
  template <int M>
  void vote(Int i, Int r, Int c, const float *w, const V *u, V *v) const {
    w += c * inner();
    u += r * inner();
    UNROLLED for (int m = 0; m < M; ++m) v[m] = w[m * inner()] * u[0];
    if constexpr (SIDE) {
      UNROLLED for (int k = 1; k < SIDE; ++k)
        UNROLLED for (int m = 0; m < M; ++m) v[m] += w[m * SIDE + k] * u[k];
    } else {
      for (Int k = 1; k < inner(); ++k)
        UNROLLED for (int m = 0; m < M; ++m) v[m] += w[m * inner() + k] * u[k];
    }
    if (job.coordinates) {
      const float *x = job.coordinates + i * size() + r * columns() + c;
      UNROLLED for (int m = 0; m < M; ++m) v[m] += x[m];
    }
  }

  // What it adds to the gradient of the child.
  template <int M>
  void vote_gradient(Int r, Int c, const float *w, const V *of, V *to) const {
    w += c * inner();
    to += r * inner();
    if constexpr (SIDE) {
      V a[SIDE];
      UNROLLED for (int k = 0; k < SIDE; ++k) a[k] = to[k];
      UNROLLED for (int m = 0; m < M; ++m)
        UNROLLED for (int k = 0; k < SIDE; ++k) a[k] += w[m * SIDE + k] * of[m];
      UNROLLED for (int k = 0; k < SIDE; ++k) to[k] = a[k];
    } else {
      for (Int k = 0; k < inner(); ++k) {
        V a = to[k];
        UNROLLED for (int m = 0; m < M; ++m) a += w[m * inner() + k] * of[m];
        to[k] = a;
      }
    }
  }

  // Makes the votes of slots i for parents j once more, and what they are made of gets its
  // gradient: begin(i, j), then turn(width, place, v) of every strip, a place of all parents, to make
  // the gradient of the votes in their place, then end(i, j).
  template <class Begin, class Turn, class End>
  void gradients(const Block &block, V *tile, Begin begin, Turn turn, End end) const {
    V *u = tile, *of_child = u + TILE * d_in(), *of = of_child + TILE * d_in();
    V *of_slot = of + size();
    for (Int i0 = 0; i0 < slots; i0 += TILE) {
      const Int i1 = i0 + TILE < slots ? i0 + TILE : slots;
      for (Int i = i0; i < i1; ++i) see(block, i, u + (i - i0) * d_in());
      std::memset(static_cast<void *>(of_child), 0, TILE * d_in() * sizeof(V));
      std::memset(static_cast<void *>(of_slot), 0, TILE * size() * sizeof(V));
      const float *w[TILE];
      find_weights(i0, i1, w);
      for (Int j = 0; j < parents; ++j)
        for (Int i = i0; i < i1; ++i) {
          const V *seen = u + (i - i0) * d_in();
          V *of_seen = of_child + (i - i0) * d_in();
          V sums[SIDE ? SIDE * SIDE : 1] = {};
          begin(i, j);
          strips([&](auto width, Int r, Int c, Int d) {
            constexpr int M = decltype(width)::value;
            V v[M];
            vote<M>(i, r, c, w[i - i0], seen, v);
            turn(width, j * size() + d, v);
            // Weights are read twice: they and the sums are more than there are registers.
            std::atomic_signal_fence(std::memory_order_seq_cst);
            vote_gradient<M>(r, c, w[i - i0], v, of_seen);
            if constexpr (SIDE) {
              UNROLLED for (int m = 0; m < SIDE; ++m)
                UNROLLED for (int k = 0; k < SIDE; ++k)
                  sums[m * SIDE + k] += v[m] * seen[r * SIDE + k];
            } else {
              UNROLLED for (int m = 0; m < M; ++m) of[d + m] = v[m];
            }
            if (job.of_coordinates)
              UNROLLED for (int m = 0; m < M; ++m) of_slot[(i - i0) * size() + d + m] += v[m];
          });
          end(i, j);
          if (job.of_weight) {
            float *to = of_weight + (w[i - i0] - job.weight);
            if constexpr (SIDE) {
              float numbers[SIDE * SIDE];
              lane_sums<SIDE * SIDE>(sums, numbers);
              for (int x = 0; x < SIDE * SIDE; ++x) to[x] += numbers[x];
            } else {
              weights_of(plan.shape, of, seen, to, 1, true);
            }
          }
          w[i - i0] += matrix();
        }
      if (job.of_pose)
        for (Int i = i0; i < i1; ++i) add_to_pose(block, i, of_child + (i - i0) * d_in());
      if (job.of_coordinates)
        for (Int x = 0; x < (i1 - i0) * size(); ++x)
          of_place[i0 * size() + x] += lane_sum(of_slot[x]);
    }
  }

  void begin_gradients() const {
    if (index && job.of_weight)
      std::memset(of_weight, 0, plan.weight_stride * sizeof(V));
    if (index && job.of_coordinates)
      std::memset(of_place, 0, plan.place_stride * sizeof(V));
    if (plan.sample_stride) std::memset(of_sample, 0, plan.sample_stride * sizeof(V));
  }

  // What every thread has summed by itself, in the order of the threads.
  void sum_threads() const {
    const auto sum = [&](float *to, const float *from, Int stride, Int count) {
      if (!to) return;
      for (Int x = count * index / threads; x < count * (index + 1) / threads; ++x)
        for (Int each = 0; each + 1 < threads; ++each) to[x] += from[each * stride * LANES + x];
    };
    sum(job.of_weight, plan.of_weight, plan.weight_stride, plan.weights);
    sum(job.of_coordinates, plan.of_place, plan.place_stride, slots * size());
    if (index || !plan.sample_stride) return;
    for (Int each = 1; each < threads; ++each) {
      const EMWorker other{job, plan, barrier, each, threads};
      const Int sample = other.begun(), count = job.children * d_in();
      if (sample < 0) continue;
      for (Int x = 0; x < count; ++x) job.of_pose[sample * count + x] += other.of_sample[x];
    }
  }

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
        for (Int n = first; n < end; ++n) fit(Block(job, n));
        break;
      case ASSIGN:
        for (Int n = first; n < end; ++n) assign(Block(job, n));
        break;
      default:
        begin_gradients();
        for (Int n = first; n < end; ++n)
          job.pass == FIT_BACK ? fit_back(Block(job, n)) : assign_back(Block(job, n));
        barrier.wait();
        sum_threads();
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
                vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + i * d_in(), v);
                UNROLLED for (int m = 0; m < M; ++m) {
                  const V e = v[m] - about[m], part = share[i * n] * e;
                  left[m] += part;
                  sum[m] += part * e;
                }
              }
            else
              for (Int i = i0; i < i1; ++i) {
                vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + i * d_in(), v);
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
            vote<M>(i, r, c, of_tile[i - i0] + j * matrix(), u + (i - i0) * d_in(), v);
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
    gradients(
        block, tile,
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
    gradients(
        block, tile,
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
  job->workspace_size = (EMPlan(*job).total + 1) * LANES;
}

SEEN void torchcaps_em(const EMJob *job) {
  const EMPlan plan(*job);
  in_threads(job->threads, [&](Barrier &barrier, Int index, Int threads) {
    if (job->rows == 4 && job->inner == 4 && job->columns == 4)
      EMWorker<4>{*job, plan, barrier, index, threads}.run();
    else
      EMWorker<0>{*job, plan, barrier, index, threads}.run();
  });
}

}  // extern "C"
