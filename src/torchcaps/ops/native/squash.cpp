// The squash of [sabour2017] for maps of capsules, and its gradient, each in one pass:
//
//     g(s) = f(q) s,   q = ‖s‖²,   f(q) = q / (1 + q) / n,   n = √(q + ε)
//     gradient: f(q) h + 2 f′(q) ⟨h, s⟩ s,   f′(q) = 1 / ((1 + q)² n) − q / (2 (1 + q) n³)
//
// Components lie `step` numbers apart and as many capsules next to each other; where step is one,
// capsules follow each other and share vectors.

#include "lanes.hpp"

namespace {

struct SquashJob {
  const float *pose, *upstream;  // what comes from above, in the backward pass
  float *out;
  Int groups, size, step, threads;
  double epsilon;
};

// Of a and of itself with lanes n and n ^ H exchanged.
template <int H, size_t... N>
inline V exchanged(V a, std::index_sequence<N...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, a, (int(N) ^ H)...);
#else
  const I chosen = {(int(N) ^ H)...};
  return __builtin_shuffle(a, chosen);
#endif
}

// In every lane the sum of the `size` lanes of its capsule; a power of two.
template <int H = 1>
inline V capsule_sum(V a, Int size) {
  if constexpr (H < LANES) {
    if (H < size) {
      a += exchanged<H>(a, std::make_index_sequence<LANES>());
      return capsule_sum<2 * H>(a, size);
    }
  }
  return a;
}

struct Scale {
  V of_upstream, of_pose;
};

inline V forward_scale(V square, float epsilon) {
  return square / (1.0f + square) / root(square + epsilon);
}

inline Scale backward_scale(V square, V agreement, float epsilon) {
  const V norm = root(square + epsilon), more = 1.0f + square, scale = square / more / norm;
  const V slope = 1.0f / (more * more * norm) - 0.5f * scale / (square + epsilon);
  return {scale, 2.0f * slope * agreement};
}

inline V part(const float *from, Int count) {
  V x{};
  if (count >= LANES)
    std::memcpy(&x, from, sizeof x);
  else
    std::memcpy(&x, from, count * sizeof(float));
  return x;
}

inline void part(float *to, V x, Int count) {
  if (count >= LANES)
    std::memcpy(to, &x, sizeof x);
  else
    std::memcpy(to, &x, count * sizeof(float));
}

// Capsules next to each other: a lane is a capsule.
void squash_apart(const SquashJob &job, Int group) {
  const Int first = group * job.size * job.step;
  for (Int at = 0; at < job.step; at += LANES) {
    const Int left = job.step - at;
    V square{}, agreement{};
    for (Int d = 0; d < job.size; ++d) {
      const Int place = first + d * job.step + at;
      const V s = part(job.pose + place, left);
      square += s * s;
      if (job.upstream) agreement += s * part(job.upstream + place, left);
    }
    const Scale scale = job.upstream ? backward_scale(square, agreement, job.epsilon)
                                     : Scale{V{}, forward_scale(square, job.epsilon)};
    for (Int d = 0; d < job.size; ++d) {
      const Int place = first + d * job.step + at;
      V y = scale.of_pose * part(job.pose + place, left);
      if (job.upstream) y += scale.of_upstream * part(job.upstream + place, left);
      part(job.out + place, y, left);
    }
  }
}

// Components next to each other: a lane is a component.
void squash_along(const SquashJob &job, Int first, Int last) {
  for (Int at = first; at < last; at += LANES) {
    const Int left = last - at;
    const V s = part(job.pose + at, left), square = capsule_sum(s * s, job.size);
    V y;
    if (job.upstream) {
      const V h = part(job.upstream + at, left);
      const Scale scale = backward_scale(square, capsule_sum(s * h, job.size), job.epsilon);
      y = scale.of_upstream * h + scale.of_pose * s;
    } else {
      y = forward_scale(square, job.epsilon) * s;
    }
    part(job.out + at, y, left);
  }
}

}  // namespace

extern "C" {

SEEN Int torchcaps_squash_job_size() { return sizeof(SquashJob); }

SEEN Int torchcaps_lanes() { return LANES; }

SEEN void torchcaps_squash(const SquashJob *job) {
  in_threads(job->threads, [&](Barrier &, Int index, Int threads) {
    const Int first = job->groups * index / threads, last = job->groups * (index + 1) / threads;
    if (job->step > 1)
      for (Int group = first; group < last; ++group) squash_apart(*job, group);
    else
      squash_along(*job, first * job->size, last * job->size);
  });
}

}  // extern "C"
