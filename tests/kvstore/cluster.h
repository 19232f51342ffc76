#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/kvstore.h"
#include "kvstore/server.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

using std::chrono::seconds;

constexpr seconds kPatience{60};  // far above what any step takes

inline TimePoint Soon() { return Clock::now() + kPatience; }

inline ControlTiming TestTiming() {
  return {.join = seconds(30),
          .heartbeat = std::chrono::milliseconds(200),
          .dead = seconds(10),
          .teardown = seconds(2)};
}

struct ClusterConfig {
  int workers = 2;
  int servers = 1;
  CompressionConfig compression = {};
  OptimizerConfig optimizer = {};
  std::string store = "dist_sync";
  bool hosts_parts = false;  // its workers', as many as servers
  int64_t max_staleness = kAnyStaleness;
  int drop_slowest = 0;
  std::vector<TensorSpec> tensors = {{"a", 33}};
  bool has_values = true;
  size_t chunk_elems = 32;
  int num_threads = 1;
  std::string transport = "inproc";
  std::string memory = "host";  // workers', as TransportOptions takes it
  size_t device_group_elems = StoreOptions().device_group_elems;
  Duration device_patience = StoreOptions().device_patience;
  double link_bytes_per_s = 0;  // > 0: emulated
  double link_latency_s = 0;    // as well
  std::string fault = {};       // as TransportOptions takes it
  bool resends = false;
  Secret secret = {};
  // Of each worker; those of one sum first, and servers are on the first.
  // Empty: no tier one.
  std::vector<std::string> hosts = {};
};

inline ClusterConfig Job(int workers, int servers = 1) {
  ClusterConfig config;
  config.workers = workers;
  config.servers = servers;
  return config;
}

// What on_fatal was told, by any member.
class FatalLog {
 public:
  std::function<void(const FatalEvent&)> Listener() {
    return [this](const FatalEvent& event) {
      MutexLock lock(&mutex_);
      events_.push_back(event);
      changed_.NotifyAll();
    };
  }
  // Nullopt when fewer than `count` came in time.
  std::optional<std::vector<FatalEvent>> Await(size_t count) {
    const TimePoint deadline = Soon();
    MutexLock lock(&mutex_);
    while (events_.size() < count) {
      if (Clock::now() >= deadline) return std::nullopt;
      changed_.WaitUntil(&mutex_, deadline);
    }
    return events_;
  }
  size_t size() {
    MutexLock lock(&mutex_);
    return events_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<FatalEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// A worker's place in the job and its store, once Init was called.
class Worker {
 public:
  explicit Worker(const DistOptions& options,
                  const CompressionConfig& compression = {},
                  const OptimizerConfig& optimizer = {},
                  const std::string& type = "dist_sync")
      : options_(options),
        compression_(compression),
        optimizer_(optimizer),
        type_(type) {}

  absl::Status Init(std::span<const TensorSpec> tensors, TensorViews values) {
    RETURN_IF_ERROR(Join());
    return store_->Init(tensors, values).status();
  }
  absl::Status Join() {
    ASSIGN_OR_RETURN(group_, JoinWorkers(options_));
    ASSIGN_OR_RETURN(store_, MakeKVStore(type_, options_, group_.get()));
    RETURN_IF_ERROR(store_->SetCompression(compression_));
    return store_->SetOptimizer(optimizer_);
  }
  KVStore* operator->() { return store_.get(); }
  KVStore& operator*() { return *store_; }
  void set_compression(const CompressionConfig& config) {
    compression_ = config;
  }

 private:
  DistOptions options_;
  CompressionConfig compression_;
  OptimizerConfig optimizer_;
  std::string type_;
  std::unique_ptr<WorkerGroup> group_;
  std::unique_ptr<KVStore> store_;
};

// A scheduler and servers of this process; the test adds the workers.
class Cluster {
 public:
  using Body = std::function<void(KVStore&)>;

  explicit Cluster(const ClusterConfig& config) : config_(config) {
    SchedulerOptions options;
    options.num_workers = config.workers;
    options.num_servers = config.servers;
    options.secret = config.secret;
    options.timing = TestTiming();
    scheduler_ = *Scheduler::Start(options);
  }
  ~Cluster() {
    for (auto& server : servers_) {
      if (server.valid()) server.wait();
    }
  }

  void StartServers() {
    for (int i = 0; i < config_.servers; ++i) {
      ServerOptions options{.job = Options(),
                            .num_threads = config_.num_threads};
      options.job.wanted_rank = i;
      options.job.on_fatal = nullptr;
      servers_.push_back(std::async(std::launch::async,
                                    [options] { return RunServer(options); }));
    }
  }
  absl::Status ServerStatus(size_t i) { return servers_[i].get(); }

  DistOptions Options() {
    DistOptions options;
    options.scheduler_address = scheduler_->address();
    options.secret = config_.secret;
    options.path.transport.name = config_.transport;
    options.path.transport.tls = "tcp";
    options.path.transport.link_bytes_per_s = config_.link_bytes_per_s;
    options.path.transport.link_latency_s = config_.link_latency_s;
    options.path.transport.fault = config_.fault;
    options.path.transport.resend = config_.resends;
    options.timing = TestTiming();
    options.operation_timeout = kPatience;
    options.num_threads = config_.num_threads;
    options.chunk_elems = config_.chunk_elems;
    options.device_group_elems = config_.device_group_elems;
    options.device_patience = config_.device_patience;
    options.max_staleness = config_.max_staleness;
    options.drop_slowest = config_.drop_slowest;
    if (!config_.hosts.empty())
      options.path.host = config_.hosts[0];  // servers'
    options.on_fatal = log_.Listener();
    return options;
  }

  // A worker that has not joined.
  Worker MakeWorker(int rank) {
    DistOptions options = Options();
    options.wanted_rank = rank;
    options.path.transport.memory = config_.memory;
    if (!config_.hosts.empty()) {
      options.path.tier_one = std::nullopt;
      options.path.host = config_.hosts[static_cast<size_t>(rank)];
    }
    if (config_.hosts_parts) options.part = HostPart(options.num_threads);
    return Worker(options, config_.compression, config_.optimizer,
                  config_.store);
  }

  // Worker r's values are r + 1 + element / 8; worker 0's count.
  std::vector<Buffer> MakeValues(int rank) const {
    std::vector<Buffer> values;
    for (const TensorSpec& tensor : config_.tensors) {
      values.emplace_back(4 * tensor.num_elems);
      for (size_t i = 0; i < tensor.num_elems; ++i) {
        values.back().as<float>()[i] =
            static_cast<float>(rank + 1) + 0.125f * static_cast<float>(i % 64);
      }
    }
    return values;
  }

  absl::Status Init(Worker& worker, const std::vector<Buffer>& values) const {
    std::vector<TensorView> views;
    for (const Buffer& value : values) {
      views.push_back(FloatTensor(value.view()));
    }
    if (!config_.has_values) views.clear();
    return worker.Init(config_.tensors, views);
  }

  // Starts servers and all workers; runs `body` on each worker's thread after
  // a successful Init, then Close.
  void Run(const Body& body) {
    if (!config_.hosts_parts) StartServers();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < config_.workers; ++rank) {
      threads.emplace_back([this, rank, &body] {
        Worker worker = MakeWorker(rank);
        ASSERT_THAT(Init(worker, MakeValues(rank)), IsOk());
        body(*worker);
        worker->Close();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const ClusterConfig& config() const { return config_; }
  FatalLog& log() { return log_; }
  Scheduler& scheduler() { return *scheduler_; }

 private:
  const ClusterConfig config_;
  FatalLog log_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::future<absl::Status>> servers_;
};

}  // namespace telegrad::testing
