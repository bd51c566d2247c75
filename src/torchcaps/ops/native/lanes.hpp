// What the kernels share: samples in the lanes of vectors, products of poses and weights, threads.
//
// IEEE arithmetic throughout, but for fused multiply-add: with -ffast-math a NaN or an infinity
// might leave as a number.

#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#define SEEN __attribute__((visibility("default")))

namespace {

using Int = int64_t;

// Registers have no index: what runs over an array of them is written out.
#define UNROLLED _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float V __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef uint32_t U __attribute__((vector_size(4 * LANES)));

constexpr Int MOST_THREADS = 256;

// Of the matrices: a pose is `rows` rows of `inner` numbers, a vote as many of `columns`.
struct Shape {
  Int rows, inner, columns;
};

// A sum with V{} would lose the sign of zero, and time.
inline V splat(float x) { return x - V{}; }

// Of x ≤ 0; NaN stays NaN. Error below 2 ulp, but for what float32 holds without full precision.
// That is not 0: a sum of nothing else has a direction.
inline V exponential(V x) {
  const float shift = 12582912.0f;  // 1.5 · 2²³: adding it rounds to whole numbers
  V turned = x * 1.44269504f + shift;
  V n = turned - shift;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  U bits;  // which wrap where x is far below, and are not used then
  std::memcpy(&bits, &turned, sizeof bits);
  bits -= 0x4B400000;
  // Half of the power at a time, for a whole one may be too small.
  const U half = U(I(bits) >> 1), first = (half + 127) << 23, second = (bits - half + 127) << 23;
  V power, rest;
  std::memcpy(&power, &first, sizeof power);
  std::memcpy(&rest, &second, sizeof rest);
  return x < splat(-104.0f) ? V{} : p * power * rest;
}

inline V root(V x) {
  V y;
  for (int lane = 0; lane < LANES; ++lane) y[lane] = std::sqrt(x[lane]);
  return y;
}

inline V dot(const V *a, const V *b, Int n) {
  V x{}, y{};
  Int d = 0;
  for (; d + 2 <= n; d += 2) {
    x += a[d] * b[d];
    y += a[d + 1] * b[d + 1];
  }
  if (d < n) x += a[d] * b[d];
  return x + y;
}

// The sum of f(first, how many), of up to 32 numbers each, in pairs: one line of thousands loses
// digits.
template <class F>
inline V in_blocks(Int count, const F &f, Int first = 0) {
  if (count <= 32) return f(first, count);
  const Int half = count / 2;
  return in_blocks(half, f, first) + in_blocks(count - half, f, first + half);
}

// Softmax over `count` parents; `leaky` knows one more, with logit zero.
inline void softmax(V *logits, Int count, bool leaky) {
  V most = leaky ? V{} : logits[0];
  for (Int j = 0; j < count; ++j) most = logits[j] > most ? logits[j] : most;
  const V total = in_blocks(count, [&](Int first, Int some) {
    V here{};
    for (Int j = first; j < first + some; ++j) here += logits[j] = exponential(logits[j] - most);
    return here;
  });
  const V part = 1.0f / (leaky ? exponential(-most) + total : total);
  for (Int j = 0; j < count; ++j) logits[j] *= part;
}

// The gradient of the logits, in place of that of the couplings.
inline void softmax_gradient(const V *c, V *h, Int count) {
  const V mean = in_blocks(
      count, [&](Int first, Int some) { return dot(c + first, h + first, some); });
  for (Int j = 0; j < count; ++j) h[j] = c[j] * (h[j] - mean);
}

inline float lane_sum(V x) {
  float total = 0;
  for (int lane = 0; lane < LANES; ++lane) total += x[lane];
  return total;
}

// The lanes of a, then those of b, numbered from 0 on, as they are asked for.
template <int... AT>
inline V lanes_of(V a, V b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, AT...);
#else
  return __builtin_shuffle(a, b, I{AT...});
#endif
}

// Blocks of H lanes: the even ones of a and b, or the odd ones, in turn.
template <int H, int ODD, size_t... N>
inline V blocks(V a, V b, std::index_sequence<N...>) {
  return lanes_of<((int(N) / H & ~1) + ODD) * H + int(N) % H + ((int(N) / H) & 1) * LANES...>(a, b);
}

// The sums of the lanes of N vectors: they are folded into one another, half as many at every step.
template <int N, int H = LANES / 2, int LEFT = N>
inline void lane_sums(V *a, float *out) {
  if constexpr (H == 0) {
    UNROLLED for (int x = 0; x < N; ++x)
      out[x] = N < LANES ? a[0][x * (LANES / N)] : a[x % LEFT][x / LEFT];
  } else {
    constexpr auto every = std::make_index_sequence<LANES>();
    constexpr int NEXT = LEFT > 1 ? LEFT / 2 : 1;
    UNROLLED for (int x = 0; x < NEXT; ++x) {
      V p = a[x], q = a[LEFT > 1 ? x + NEXT : x];
      a[x] = blocks<H, 0>(p, q, every) + blocks<H, 1>(p, q, every);
    }
    lane_sums<N, H / 2, NEXT>(a, out);
  }
}

// Numbers that are made at once, each in a register: half of the registers there are.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int WIDE = 16;
#else
constexpr int WIDE = 8;
#endif

// f(place, M) for parts of a row as wide as they come: M is 16 where that many are left, or 8, 4, …
template <int M = WIDE, class F>
inline void in_parts(Int count, F f, Int at = 0) {
  for (; at + M <= count; at += M) f(at, std::integral_constant<int, M>());
  if constexpr (M > 1) in_parts<M / 2>(count, f, at);
}

// a[m] += Σ_k w[m, k] u[k]
template <int K_, int M>
inline void product(const float *w, const V *u, V *a, Int k_) {
  // Poses of children stay in registers where there are enough.
  if constexpr (K_ > 0 && K_ + M < 2 * WIDE) {
    UNROLLED for (int k = 0; k < K_; ++k)
      UNROLLED for (int m = 0; m < M; ++m) a[m] += w[m * K_ + k] * u[k];
    return;
  }
  for (Int k = 0; k < k_; ++k)
    UNROLLED for (int m = 0; m < M; ++m) a[m] += w[m * k_ + k] * u[k];
}

// What votes are compared with, as many numbers as a vote has, and where ⟨v, with⟩ is added.
struct Agreement {
  const V *with;
  V *to;
};

// v_j = W_j u for parents whose votes lie `step` apart, and N agreements of each.
template <int K_, int N>
void votes_of(const Shape &shape, const float *w, const V *u, V *v, Int step, Int parents,
              const Agreement *agreements) {
  const Int inner = K_ ? K_ : shape.inner, columns = shape.columns, size = shape.rows * columns;
  for (Int j = 0; j < parents; ++j, w += columns * inner, v += step) {
    V x[N ? N : 1][2] = {};
    for (Int row = 0; row < shape.rows; ++row)
      in_parts(columns, [&](Int c, auto wide) __attribute__((always_inline)) {
        constexpr int M = decltype(wide)::value;
        const Int at = row * columns + c;
        V a[M] = {};
        product<K_, M>(w + c * inner, u + row * inner, a, inner);
        UNROLLED for (int m = 0; m < M; ++m) v[at + m] = a[m];
        UNROLLED for (int n = 0; n < N; ++n) {
          const V *with = agreements[n].with + j * size + at;
          UNROLLED for (int m = 0; m < M; ++m) x[n][m % 2] += a[m] * with[m];
        }
      });
    UNROLLED for (int n = 0; n < N; ++n) agreements[n].to[j] += x[n][0] + x[n][1];
  }
}

// v += Σ_i W_i u_i over children in a row, whose weights have types in turn, for B blocks of lanes,
// which read every weight once
template <int K_, int B>
void sum_of(const Shape &shape, const float *w, Int w_step, Int type, Int types, const V *u,
            Int u_step, Int children, V *v, Int v_step) {
  const Int inner = K_ ? K_ : shape.inner, columns = shape.columns;
  for (Int row = 0; row < shape.rows; ++row)
    in_parts<WIDE / B>(columns, [&](Int c, auto wide) __attribute__((always_inline)) {
      constexpr int M = decltype(wide)::value;
      V a[B][M], *to = v + row * columns + c;
      UNROLLED for (int b = 0; b < B; ++b)
        UNROLLED for (int m = 0; m < M; ++m) a[b][m] = to[b * v_step + m];
      Int type_of_child = type;
      for (Int i = 0; i < children; ++i) {
        const float *x = w + type_of_child * w_step + c * inner;
        const V *y = u + (i * shape.rows + row) * inner;
        for (Int k = 0; k < inner; ++k)
          UNROLLED for (int m = 0; m < M; ++m)
            UNROLLED for (int b = 0; b < B; ++b) a[b][m] += x[m * inner + k] * y[b * u_step + k];
        type_of_child = type_of_child + 1 == types ? 0 : type_of_child + 1;
      }
      UNROLLED for (int b = 0; b < B; ++b)
        UNROLLED for (int m = 0; m < M; ++m) to[b * v_step + m] = a[b][m];
    });
}

// u[m] += Σ_c w[c, m] g[c] for B blocks of lanes, which read every weight once
template <int K_, int B>
void back_of(const Shape &shape, const float *w, const V *g, Int g_step, V *u, Int u_step) {
  const Int inner = K_ ? K_ : shape.inner, columns = shape.columns;
  for (Int row = 0; row < shape.rows; ++row, u += inner, g += columns)
    in_parts<WIDE / B>(inner, [&](Int k, auto wide) __attribute__((always_inline)) {
      constexpr int M = decltype(wide)::value;
      V a[B][M] = {};
      for (Int c = 0; c < columns; ++c)
        UNROLLED for (int m = 0; m < M; ++m)
          UNROLLED for (int b = 0; b < B; ++b) a[b][m] += w[c * inner + k + m] * g[b * g_step + c];
      UNROLLED for (int b = 0; b < B; ++b)
        UNROLLED for (int m = 0; m < M; ++m) u[b * u_step + k + m] += a[b][m];
    });
}

// w[m, n] = Σ_b Σ_r g[b, r, m] u[b, r, n] over `count` blocks of lanes, or added to what is there
template <int M, int N>
void weights_block(const Shape &shape, const V *g, const V *u, float *w, Int count, bool add) {
  const Int inner = shape.inner, columns = shape.columns, all = count * shape.rows;
  V a[M * N] = {};
  for (Int each = 0; each < all; ++each, g += columns, u += inner)
    UNROLLED for (int m = 0; m < M; ++m)
      UNROLLED for (int n = 0; n < N; ++n) a[m * N + n] += g[m] * u[n];
  float sums[M * N];
  lane_sums<M * N>(a, sums);
  UNROLLED for (int m = 0; m < M; ++m)
    UNROLLED for (int n = 0; n < N; ++n)
      w[m * inner + n] = add ? w[m * inner + n] + sums[m * N + n] : sums[m * N + n];
}

template <int M>
inline void weights_rows(const Shape &shape, const V *g, const V *u, float *w, Int count,
                         bool add) {
  const Int inner = shape.inner;
  // Sixteen sums and what they are made of need more than 16 registers.
  constexpr int WIDE = LANES == 8 ? 2 : 4;
  Int k = 0;
  for (; k + WIDE <= inner; k += WIDE) weights_block<M, WIDE>(shape, g, u + k, w + k, count, add);
  if (inner % WIDE & 2) weights_block<M, 2>(shape, g, u + k, w + k, count, add), k += 2;
  if (inner & 1) weights_block<M, 1>(shape, g, u + k, w + k, count, add);
}

void weights_of(const Shape &shape, const V *g, const V *u, float *w, Int count, bool add) {
  const Int inner = shape.inner, columns = shape.columns;
  Int c = 0;
  for (; c + 4 <= columns; c += 4) weights_rows<4>(shape, g + c, u, w + c * inner, count, add);
  if (columns & 2) weights_rows<2>(shape, g + c, u, w + c * inner, count, add), c += 2;
  if (columns & 1) weights_rows<1>(shape, g + c, u, w + c * inner, count, add);
}

// A vector and how much of it there is.
struct Amount {
  V share;
  const V *of;
};

// out = Σ of all amounts
inline void sum_of_amounts(const Amount *amounts, Int count, Int size, V *out) {
  in_parts(size, [&](Int d, auto wide) {
    constexpr int M = decltype(wide)::value;
    V a[M] = {};
    for (Int each = 0; each < count; ++each)
      UNROLLED for (int m = 0; m < M; ++m) a[m] += amounts[each].share * amounts[each].of[d + m];
    UNROLLED for (int m = 0; m < M; ++m) out[d + m] = a[m];
  });
}

// Rows to columns of a square of numbers: blocks of it change places, ever smaller ones.
template <int H = LANES / 2>
inline void transpose(V *a) {
  if constexpr (H > 0) {
    constexpr auto every = std::make_index_sequence<LANES>();
    UNROLLED for (int x = 0; x < LANES; ++x) {
      if (x & H) continue;
      V p = a[x], q = a[x + H];
      a[x] = blocks<H, 0>(p, q, every);
      a[x + H] = blocks<H, 1>(p, q, every);
    }
    transpose<H / 2>(a);
  }
}

// `count` numbers of each of some samples, to lanes and back; there are LANES samples but at the
// end, where the missing ones read as zeros: their gradients are zero then, whatever a bias makes of
// them.
void to_lanes(const float *from, Int stride, Int samples, Int count, V *to) {
  V a[LANES] = {};
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    if (here == LANES) {
      for (Int lane = 0; lane < samples; ++lane)
        std::memcpy(a + lane, from + lane * stride + x, sizeof(V));
    } else {
      for (Int lane = 0; lane < samples; ++lane)
        std::memcpy(a + lane, from + lane * stride + x, here * sizeof(float));
    }
    V b[LANES];
    std::memcpy(b, a, sizeof b);
    transpose(b);
    for (Int each = 0; each < here; ++each) to[x + each] = b[each];
  }
}

void from_lanes(const V *from, Int stride, Int samples, Int count, float *to) {
  V a[LANES] = {};
  for (Int x = 0; x < count; x += LANES) {
    const Int here = count - x < LANES ? count - x : LANES;
    for (Int each = 0; each < here; ++each) a[each] = from[x + each];
    transpose(a);
    if (here == LANES) {
      for (Int lane = 0; lane < samples; ++lane)
        std::memcpy(to + lane * stride + x, a + lane, sizeof(V));
    } else {
      for (Int lane = 0; lane < samples; ++lane)
        std::memcpy(to + lane * stride + x, a + lane, here * sizeof(float));
    }
  }
}

// All threads of a call wait here for each other.
class Barrier {
 public:
  explicit Barrier(int count = 0) : count_(count) {}
  // By one thread, before any waits.
  void expect(int count) { count_ = count; }
  void wait() {
    const int turn = turn_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    for (int tries = 0; turn_.load(std::memory_order_acquire) == turn; ++tries)
      if (tries > 2000) std::this_thread::yield();
  }

 private:
  int count_;
  std::atomic<int> arrived_{0}, turn_{0};
};

inline Int up_to(Int n, Int step) { return (n + step - 1) / step * step; }
inline Int blocks_of(Int lanes) { return up_to(lanes, LANES) / LANES; }

// Where the vectors of a workspace begin, which has one more than they need.
inline V *aligned(float *workspace) {
  return reinterpret_cast<V *>(up_to(reinterpret_cast<uintptr_t>(workspace), sizeof(V)));
}

}  // namespace

// What every call on votes is given, whose jobs begin with it: sizes, what votes are made of, and
// their gradients; native/layout.py has the same fields in the same order. A lane is a sample, or a
// sample seen through a window. Without child_id a slot is a child. What is not wanted is null.
struct VotesJob {
  Int lanes, windows, children, slots, parents, rows, inner, columns, types, threads;
  Int workspace_size;  // how many numbers; planning writes it
  const float *pose, *weight, *vote_bias, *coordinates;
  const Int *child_id;
  float *of_pose, *of_weight, *of_vote_bias, *of_coordinates, *workspace;
};

// The threads of PyTorch's own operators, where they are GNU's: GOMP_parallel, omp_get_thread_num,
// omp_get_num_threads, omp_get_max_threads. They stay awake for milliseconds after an operator, so
// that any others would share their processors with them.
struct Team {
  void (*run)(void (*)(void *), void *, unsigned, unsigned);
  int (*index)();
  int (*size)();
  int (*most)();
};
inline Team team{};

namespace {

// What the threads of a call share; they start when they are counted.
template <class Work>
struct Call {
  Work &work;
  Int wanted;
  Barrier barrier{};
  std::atomic<Int> count{0};

  void start(Int all) {
    barrier.expect(all);
    count.store(all, std::memory_order_release);
  }
  void take_part(Int index) {
    Int all;
    while (!(all = count.load(std::memory_order_acquire))) std::this_thread::yield();
    if (index < all) work(barrier, index, all);
  }
};

// Calls work(barrier, index, threads) in so many threads, or in fewer where these are not given.
template <class Work>
void in_threads(Int wanted, Work work) {
  Call<Work> call{work, wanted};
  if (team.run && wanted > 1) {
    const auto each = [](void *data) {
      auto &call = *static_cast<Call<Work> *>(data);
      const int index = team.index();
      if (index == 0) call.start(team.size() < call.wanted ? team.size() : call.wanted);
      call.take_part(index);
    };
    // All of them: a team that shrinks ends threads, which the next operator starts again.
    const Int most = team.most();
    team.run(each, &call, wanted < most ? most : wanted, 0);
    return;
  }
  std::thread others[MOST_THREADS];
  Int count = 1;
  try {
    for (; count < wanted; ++count)
      others[count] = std::thread([&call, count] { call.take_part(count); });
  } catch (...) {
  }
  call.start(count);
  call.take_part(0);
  for (Int n = 1; n < count; ++n) others[n].join();
}

}  // namespace
