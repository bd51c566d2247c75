// Calls all kernels in three threads at once, each of which starts threads of its own, and compares
// what they made. There is no PyTorch here and no OpenMP, whose waiting ThreadSanitizer does not see.
// With an argument they write to the same places, which it must tell.

#include <cstdio>
#include <vector>

#include "lanes.hpp"

namespace dynamic {
#include "dynamic.cpp"
}
namespace em {
#include "em.cpp"
}
namespace winograd {
#include "winograd.cpp"
}

namespace {

constexpr Int BATCH = 19, CHILDREN = 24, PARENTS = 5, SIZE = 4, TURNS = 3, THREADS = 3;
// Two windows that have children in common.
constexpr Int WINDOWS = 2, SLOTS = 16, LANES_SEEN = BATCH * WINDOWS;
constexpr Int POSES = BATCH * PARENTS * SIZE, COUPLINGS = BATCH * CHILDREN * PARENTS;
constexpr Int ROWS_SEEN = LANES_SEEN * PARENTS, LAID = (LANES_SEEN + 15) / 16 * 16 * SLOTS * PARENTS;
constexpr Int SIDE = 9, IN = 5, OUT = 18;

struct Floats : std::vector<float> {
  explicit Floats(Int count, float least = -1) : std::vector<float>(count) {
    for (Int n = 0; n < count; ++n) at(n) = least + float((n * 7919 + 13) % 1000) / 1000;
  }
  operator float *() { return data(); }
};

// What every call reads.
Floats pose(BATCH *CHILDREN *SIZE), weight(CHILDREN *PARENTS *SIZE *SIZE), bias(PARENTS *SIZE);
Floats prior(CHILDREN *PARENTS), of_poses(TURNS *POSES), of_couplings(TURNS *COUPLINGS);
Floats log_a(LANES_SEEN *SLOTS), likely(ROWS_SEEN), of_rows(ROWS_SEEN *SIZE), of_log_r(LAID);
Floats maps(BATCH *IN *SIDE *SIDE), kernels(OUT *IN * 9), of_maps(BATCH *OUT *SIDE *SIDE);
std::vector<Int> child_id;

// What a call writes.
struct Made {
  Floats sums{TURNS * POSES}, poses{TURNS * POSES}, couplings{TURNS * COUPLINGS};
  Floats of_pose{BATCH * CHILDREN * SIZE}, of_weight{CHILDREN * PARENTS * SIZE * SIZE};
  Floats of_bias{PARENTS * SIZE, 0}, of_prior{CHILDREN * PARENTS, 0};
  Floats mass{ROWS_SEEN}, top{ROWS_SEEN}, total{ROWS_SEEN}, to_likely{ROWS_SEEN};
  Floats mean{ROWS_SEEN * SIZE}, variance{ROWS_SEEN * SIZE}, rest{ROWS_SEEN * SIZE};
  Floats to_mean{ROWS_SEEN * SIZE}, to_variance{ROWS_SEEN * SIZE};
  Floats log_r{LAID}, to_log_r{LAID}, to_log_a{LANES_SEEN * SLOTS}, seen{LANES_SEEN * SLOTS};
  Floats seen_pose{BATCH * CHILDREN * SIZE}, seen_weight{SLOTS * PARENTS * SIZE * SIZE};
  Floats out{BATCH * OUT * SIDE * SIDE}, of_kernels{OUT * IN * 9};

  std::vector<Floats *> all() {
    return {&sums, &poses, &couplings, &of_pose, &of_weight, &of_bias, &of_prior, &mass, &mean,
            &variance, &log_r, &seen_pose, &seen_weight, &to_log_a, &to_mean, &out, &of_kernels};
  }

  void route() {
    dynamic::Job job{};
    job.lanes = BATCH, job.children = job.types = CHILDREN, job.parents = PARENTS;
    job.rows = 1, job.inner = job.columns = SIZE, job.threads = THREADS, job.share = 1.0 / PARENTS;
    job.iterations = job.n_poses = job.n_couplings = TURNS;
    job.pose = pose, job.weight = weight, job.bias = bias, job.prior = prior;
    job.sums = sums, job.poses = poses, job.couplings = couplings;
    for (Int backward = 0; backward < 2; ++backward) {
      if (backward) {
        job.of_poses = ::of_poses, job.of_couplings = ::of_couplings;
        job.of_pose = of_pose, job.of_weight = of_weight;
        job.of_bias = of_bias, job.of_prior = of_prior;
      }
      dynamic::torchcaps_dynamic_plan(&job, backward);
      Floats workspace(job.workspace_size);
      job.workspace = workspace;
      dynamic::torchcaps_dynamic(&job, backward);
    }
  }

  void fit_and_assign() {
    em::EMJob job{};
    job.lanes = LANES_SEEN, job.windows = WINDOWS, job.children = CHILDREN;
    job.slots = job.types = SLOTS, job.parents = PARENTS, job.threads = THREADS;
    job.rows = 1, job.inner = job.columns = SIZE;
    job.pose = pose, job.weight = weight, job.child_id = child_id.data();
    job.of_pose = seen_pose, job.of_weight = seen_weight;
    job.log_a = log_a, job.mass = mass, job.mean = mean, job.variance = variance;
    job.top = top, job.total = total, job.rest = rest, job.likely = likely, job.seen = seen;
    job.of_mean = job.of_variance = of_rows, job.rise = likely;
    job.of_log_r = of_log_r, job.of_seen = log_a;
    job.to_log_r = to_log_r, job.to_log_a = to_log_a, job.to_likely = to_likely;
    job.to_mean = to_mean, job.to_variance = to_variance;
    for (Int pass : {em::FIT, em::ASSIGN, em::FIT, em::FIT_BACK, em::ASSIGN_BACK}) {
      job.pass = pass;
      em::torchcaps_em_plan(&job);
      Floats workspace(job.workspace_size);
      job.workspace = workspace;
      em::torchcaps_em(&job);
      job.log_r = log_r;  // the first fit has none
    }
  }

  void convolve() {
    winograd::WinogradJob job{};
    job.x = {maps, IN, SIDE, SIDE, IN * SIDE * SIDE, SIDE * SIDE, SIDE, 1};
    job.y = {out, OUT, SIDE, SIDE, OUT * SIDE * SIDE, SIDE * SIDE, SIDE, 1};
    job.weight = kernels, job.of_output = IN * 9, job.of_input = 9, job.of_tap = 1;
    job.batch = BATCH, job.padding = 1, job.threads = THREADS;
    for (Int of_weights = 0; of_weights < 2; ++of_weights) {
      if (of_weights) job.weight = of_kernels, job.y.at = of_maps;
      winograd::torchcaps_winograd_plan(&job, of_weights);
      Floats workspace(job.workspace_size);
      job.workspace = workspace;
      winograd::torchcaps_winograd(&job, of_weights);
    }
  }

  void make() { route(), fit_and_assign(), convolve(); }
};
}  // namespace

int main(int count, char **) {
  for (Int n = 0; n < WINDOWS * SLOTS; ++n) child_id.push_back(n % SLOTS + n / SLOTS * 8);
  std::vector<Made> made(THREADS + 1);
  made[0].make();
  std::vector<std::thread> threads;
  for (Int n = 1; n <= THREADS; ++n)
    threads.emplace_back([&made, n, count] { made[count > 1 ? 1 : n].make(); });
  for (auto &each : threads) each.join();
  for (Int n = 1; n <= THREADS; ++n)
    for (size_t x = 0; x < made[0].all().size(); ++x)
      if (count == 1 && *made[0].all()[x] != *made[n].all()[x]) return 1;
  std::puts("alike");
}
