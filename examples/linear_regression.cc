// Finds the weights of y = w . x; docs/tutorial_cpp.md explains it.
#include <cstdlib>
#include <future>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/kvstore.h"
#include "kvstore/server.h"
using namespace telegrad;

constexpr char kUsage[] =
    "linear_regression [local | scheduler PORT | server HOST:PORT | worker "
    "HOST:PORT]\n";
constexpr size_t kShares = 2, kSize = 1024, kRows = 2048;  // of each share

// A share of the data. The weights that fit it are 0, 1, 2, 0, 1, 2 ...
struct Share {
  explicit Share(size_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    for (float& elem : rows) elem = std::normal_distribution<float>()(random);
  }
  // Fills `grad`, summed over rows; gives the mean of error^2 / 2.
  float Backward(const std::vector<float>& w, std::vector<float>& grad) const {
    float loss = 0;
    grad.assign(kSize, 0);
    for (const float* x = &rows[0]; x < &rows.back(); x += kSize) {
      float error = 0;
      for (size_t i = 0; i < kSize; ++i) error += (w[i] - float(i % 3)) * x[i];
      for (size_t i = 0; i < kSize; ++i) grad[i] += error * x[i];
      loss += error * error / 2 / kRows;
    }
    return loss;
  }
  std::vector<float> rows = std::vector<float>(kRows * kSize);
};

// With `count` shares from `first` on, each as a device of this process.
absl::Status Train(KVStore& store, size_t first, size_t count) {
  RETURN_IF_ERROR(store.SetCompression({.type = "2bit"}));
  const std::vector<TensorSpec> tensors = {{"weights", kSize}};
  ASSIGN_OR_RETURN(const std::vector<Key> keys, store.Init(tensors, {}));
  std::vector<float> w(kSize);  // zeros, on all workers
  std::vector<Share> shares;
  std::vector<std::vector<float>> grads(count, w);
  std::vector<TensorView> views;
  for (size_t i = 0; i < count; ++i) {
    shares.emplace_back(first + i);
    views.push_back(HostTensor(grads[i].data(), kSize));
  }
  for (int step = 1; step <= 60; ++step) {
    float loss = 0;
    for (size_t i = 0; i < count; ++i) loss = shares[i].Backward(w, grads[i]);
    const Ticket ticket = store.PushPull(keys[0], views, views, 0);
    RETURN_IF_ERROR(ticket.Wait(Clock::now() + std::chrono::seconds(60)));
    const float rate = 0.2f / (kShares * kRows);  // the store gives sums
    for (size_t i = 0; i < kSize; ++i) w[i] -= rate * grads[0][i];
    if (step % 10 == 0) absl::PrintF("step %d loss %.4f\n", step, loss);
  }
  const StoreStats sent = store.stats();
  absl::PrintF("pushed %d bytes as %d, pulled %d as %d\n", sent.push_raw_bytes,
               sent.push_wire_bytes, sent.pull_raw_bytes, sent.pull_wire_bytes);
  store.Close();
  return absl::OkStatus();
}

absl::Status Run(const std::string& role, const std::string& where) {
  DistOptions options;
  options.path.transport.name = "tcp";
  options.scheduler_address = where;
  if (role == "server") return RunServer({.job = options});
  if (role == "worker") {
    ASSIGN_OR_RETURN(auto group, JoinWorkers(options));
    ASSIGN_OR_RETURN(auto store, MakeKVStore("dist_sync", options, &*group));
    return Train(*store, static_cast<size_t>(group->rank()), 1);
  }
  if (role == "local") {
    options.num_devices = kShares;
    ASSIGN_OR_RETURN(auto store, MakeKVStore("local", options, nullptr));
    return Train(*store, 0, kShares);
  }
  SchedulerOptions job;
  job.num_workers = kShares;
  job.port = std::atoi(where.c_str());  // 0: any free one
  ASSIGN_OR_RETURN(const auto scheduler, Scheduler::Start(job));
  std::vector<std::future<absl::Status>> members;
  for (const char* member : {"server", "worker", "worker"}) {
    if (role == "scheduler") break;  // the user starts them
    members.push_back(
        std::async(std::launch::async, Run, member, scheduler->address()));
  }
  FatalEvent event;
  return scheduler->Wait(&event);
}

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  const std::set<std::string> alone = {"", "local"};
  const std::set<std::string> placed = {"scheduler", "server", "worker"};
  if (argc > 2 ? argc > 3 || !placed.count(role) : !alone.count(role)) {
    absl::FPrintF(role == "--help" ? stdout : stderr, kUsage);
    return role == "--help" ? 0 : 2;
  }
  const absl::Status status = Run(role, argc > 2 ? argv[2] : "");
  if (!status.ok()) absl::FPrintF(stderr, "%s\n", status.message());
  return static_cast<int>(ExitCodeOf(status));
}
