#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/cpu_time.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "kvstore/kvstore.h"
#include "kvstore/metrics.h"
#include "kvstore/server.h"
#include "perf/network/command.h"
#include "perf/network/commands.h"
#include "perf/network/launch.h"
#include "perf/network/measurement.h"
#include "perf/network/patterns.h"
#include "perf/network/push_pull_batch.h"
#include "perf/network/push_pull_check.h"
#include "perf/network/push_pull_join.h"
#include "perf/network/push_pull_options.h"
#include "perf/network/report.h"
#include "perf/payload_memory.h"

// Push and pull through Telegrad's own store: workers, servers, a codec.
namespace telegrad::perf {
namespace {

using Options = PushPullOptions;

// What a device pushes, and the sum that it gets.
struct Payload {
  std::unique_ptr<PayloadMemory> gradient;
  std::unique_ptr<PayloadMemory> sum;
};

class Worker {
 public:
  // `tensors` by key, in a store that compresses so.
  Worker(const Options& options, std::vector<TensorSpec> tensors,
         CompressionConfig compression, std::unique_ptr<KVStore> store)
      : options_(options),
        tensors_(std::move(tensors)),
        compression_(std::move(compression)),
        store_of_(std::move(store)),
        store_(*store_of_),
        rank_(store_.group()) {}
  KVStore& store() { return store_; }

  absl::StatusOr<NetworkRow> Measure(const Batch& batch) {
    RETURN_IF_ERROR(MakePayloads(batch.num_elems()));
    raw_bytes_ = wire_bytes_ = num_steps_ = 0;
    if (options_.network.checks) RETURN_IF_ERROR(BeginCheck(batch));
    io_.clear();
    ASSIGN_OR_RETURN(Series series, RunIterations(options_.network, rank_,
                                                  [&] { return Step(batch); }));
    // Iterations that warmed up count alike.
    const auto timed = static_cast<int64_t>(series.us.size());
    series.payload_bytes = raw_bytes_ * timed / num_steps_;
    series.header_bytes = (wire_bytes_ - raw_bytes_) * timed / num_steps_;
    ASSIGN_OR_RETURN(const Result result, Combine(rank_, series));
    return RowOf(batch, result);
  }

 private:
  // One step's, for the threads that call, send and receive.
  struct Io {
    double frames = 0;
    double cpu_ns = 0;
    double up_bytes = 0;  // to the device
    double down_bytes = 0;
  };

  absl::Status MakePayloads(size_t num_elems) {
    const std::vector<Device>& devices = tensors_.front().devices;
    payloads_.clear();
    for (int i = 0; i < options_.devices; ++i) {
      const Device device =
          devices.empty() ? Device{} : devices[static_cast<size_t>(i)];
      Payload& made = payloads_.emplace_back();
      ASSIGN_OR_RETURN(made.gradient, PayloadMemory::Make(
                                          device, 4 * (num_elems + kMaxShift)));
      ASSIGN_OR_RETURN(made.sum, PayloadMemory::Make(device, 4 * num_elems));
      const Buffer filled(made.gradient->size());
      FillGradient(store_.group().rank() * options_.devices + i, 0,
                   num_elems + kMaxShift, filled.as<float>());
      RETURN_IF_ERROR(made.gradient->Write(filled.view()));
    }
    if (options_.network.checks) {
      seen_ = Buffer(4 * num_elems);
      others_ = Buffer(options_.devices > 1 ? 4 * num_elems : 0);
    }
    return absl::OkStatus();
  }

  NetworkRow RowOf(const Batch& batch, const Result& result) const {
    const int workers = store_.group().num_workers();
    const int servers =
        options_.traits.hosts_parts ? 0 : store_.group().num_servers();
    return {
        .what = "pushpull",
        .algorithm = options_.type,
        .profile = batch.profile,
        .ranks = workers + servers,
        .size_bytes = 4 * batch.num_elems(),
        .bytes_moved = 4 * static_cast<double>(batch.num_elems()),
        .raw_bytes = result.payload_bytes,
        .wire_bytes = result.payload_bytes + result.header_bytes,
        .checked = options_.network.checks ? "values" : "no",
        .result = result,
        .settings = {{"kv_store", store_.traits().type},
                     {"gc_type", options_.type},
                     {"gc_reply", options_.reply},
                     {"gc_packing", ToString(compression_.packing)},
                     {"workers", int64_t{workers}},
                     {"servers", int64_t{servers}},
                     {"devices", int64_t{options_.devices}},
                     {"memory", options_.network.memory},
                     {"to_device_bytes", Typical(&Io::up_bytes, result)},
                     {"from_device_bytes", Typical(&Io::down_bytes, result)},
                     {"frames", Typical(&Io::frames, result)},
                     {"io_cpu_ns", Typical(&Io::cpu_ns, result)}}};
  }

  // Median of the steps that were timed: the last ones.
  int64_t Typical(double Io::*member, const Result& result) const {
    std::vector<double> values;
    for (auto step = io_.end() - result.iterations; step != io_.end(); ++step) {
      values.push_back((*step).*member);
    }
    return static_cast<int64_t>(Median(values));
  }

  absl::Status BeginCheck(const Batch& batch) {
    ASSIGN_OR_RETURN(
        check_,
        PushPullCheck::Make(
            {.tensors = tensors_,
             .compression = compression_,
             .chunk_elems = options_.chunk_elems,
             .num_gradients = store_.group().num_workers() * options_.devices,
             .pushers = Pushers(),
             .num_servers = options_.traits.has_workers
                                ? store_.group().num_servers()
                                : kServersOfOne,
             .first = batch.first,
             .count = batch.counts.size()}));
    return absl::OkStatus();
  }

  // By gradient the first of the worker that pushes it.
  std::vector<int> Pushers() const {
    std::vector<int> pushers;
    if (!options_.traits.has_workers) return pushers;
    const std::vector<int>& of_worker = store_.group().data_path().plan.pushers;
    for (int worker = 0; worker < store_.group().num_workers(); ++worker) {
      const int pusher =
          of_worker.empty() ? worker : of_worker[static_cast<size_t>(worker)];
      pushers.insert(pushers.end(), static_cast<size_t>(options_.devices),
                     pusher * options_.devices);
    }
    return pushers;
  }

  // All devices must have the sum.
  absl::Status VerifySums() {
    RETURN_IF_ERROR(payloads_.front().sum->Read(seen_.view()));
    RETURN_IF_ERROR(check_->Verify(store_.group().rank(), seen_.as<float>()));
    for (size_t i = 1; i < payloads_.size(); ++i) {
      RETURN_IF_ERROR(payloads_[i].sum->Read(others_.view()));
      if (std::memcmp(seen_.data(), others_.data(), seen_.size()) == 0)
        continue;
      return absl::DataLossError(
          absl::StrCat("check: worker ", store_.group().rank(), ": device ", i,
                       " has another sum than device 0"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Step(const Batch& batch) {
    const telegrad::StoreStats before = store_.stats();
    const double called_s = ThreadCpuSeconds();
    ASSIGN_OR_RETURN(const double us, PushPullAll(batch));
    const telegrad::StoreStats after = store_.stats();
    raw_bytes_ += after.push_raw_bytes - before.push_raw_bytes +
                  after.pull_raw_bytes - before.pull_raw_bytes;
    wire_bytes_ += after.push_wire_bytes - before.push_wire_bytes +
                   after.pull_wire_bytes - before.pull_wire_bytes;
    const double cpu_s =
        after.io_cpu_s - before.io_cpu_s + ThreadCpuSeconds() - called_s;
    io_.push_back(
        {static_cast<double>(after.num_frames - before.num_frames), 1e9 * cpu_s,
         static_cast<double>(after.to_device_bytes - before.to_device_bytes),
         static_cast<double>(after.from_device_bytes -
                             before.from_device_bytes)});
    ++num_steps_;
    if (check_.has_value()) {
      RETURN_IF_ERROR(
          VerdictOfAll(VerifySums(), num_steps_,
                       [&](absl::string_view name, absl::string_view payload) {
                         return store_.group().Gather(name, payload);
                       }));
    }
    return us;
  }

  // The last tensor first, as gradients become ready; those that are needed
  // first have priority.
  absl::StatusOr<double> PushPullAll(const Batch& batch) {
    std::vector<Ticket> tickets;
    std::vector<TensorView> grads(payloads_.size());
    std::vector<TensorView> sums(payloads_.size());
    const size_t shift = 4 * ShiftAt(num_steps_);
    const TimePoint start = Clock::now();
    size_t end = batch.num_elems();
    for (size_t i = batch.counts.size(); i-- > 0;) {
      const size_t begin = end - batch.counts[i];
      const size_t bytes = 4 * batch.counts[i];
      for (size_t device = 0; device < payloads_.size(); ++device) {
        const Bytes gradient = payloads_[device].gradient->view();
        const Bytes sum = payloads_[device].sum->view();
        grads[device] = FloatTensor(
            Bytes(gradient.data + shift + 4 * begin, bytes, gradient.device));
        sums[device] =
            FloatTensor(Bytes(sum.data + 4 * begin, bytes, sum.device));
      }
      tickets.push_back(store_.PushPull(batch.first + static_cast<Key>(i),
                                        grads, sums, -static_cast<int>(i)));
      end = begin;
    }
    const TimePoint deadline = Clock::now() + TimeoutOf(options_.network);
    for (const Ticket& ticket : tickets) {
      RETURN_IF_ERROR(ticket.Wait(deadline));
    }
    return SecondsSince(start) * 1e6;
  }

  const Options& options_;
  const std::vector<TensorSpec> tensors_;
  const CompressionConfig compression_;
  std::optional<PushPullCheck> check_;  // with --check
  // By device. The store uses them until it is gone, also after a ticket has
  // failed.
  std::vector<Payload> payloads_;
  Buffer seen_;    // the first device's sums, on the host
  Buffer others_;  // another's
  const std::unique_ptr<KVStore> store_of_;
  KVStore& store_;
  const Rank rank_;
  int64_t raw_bytes_ = 0;
  int64_t wire_bytes_ = 0;
  int64_t num_steps_ = 0;
  std::vector<Io> io_;  // one for each step
};

// Where a worker's tensors lie, by its devices; empty: on the host.
absl::StatusOr<std::vector<Device>> DevicesOf(const Options& options,
                                              int rank) {
  std::vector<Device> devices;
  for (int i = 0; i < options.devices; ++i) {
    ASSIGN_OR_RETURN(
        const Device device,
        PayloadDevice(options.network.memory, rank * options.devices + i));
    if (device != Device{}) devices.push_back(device);
  }
  return devices;
}

// `group`: null where the store sums within one process.
absl::Status RunWorker(const Options& options, WorkerGroup* group) {
  const int rank = group == nullptr ? 0 : group->rank();
  ASSIGN_OR_RETURN(const std::vector<Batch> batches, BatchesOf(options));
  ASSIGN_OR_RETURN(
      std::unique_ptr<KVStore> store,
      MakeKVStore(options.kv_store, StoreOptionsOf(options), group));
  std::vector<TensorSpec> tensors = TensorsOf(batches);
  ASSIGN_OR_RETURN(const std::vector<Device> devices, DevicesOf(options, rank));
  for (TensorSpec& each : tensors) each.devices = devices;
  ASSIGN_OR_RETURN(CompressionConfig compression,
                   JoinAsWorker(options, *store, tensors));
  if (rank == 0 && group != nullptr && options.tier_one == "auto") {
    SayDecision(group->data_path().plan, Decision::Kind::kTierOne);
  }
  Worker worker(options, std::move(tensors), std::move(compression),
                std::move(store));
  const StoreMetrics numbers(worker.store());
  Report report(
      options.network,
      absl::StrCat("pushpull with --kv-store ", options.kv_store,
                   ", --gc-type ", options.type, ", ", options.workers,
                   options.workers == 1 ? " worker" : " workers",
                   options.devices == 1
                       ? ""
                       : absl::StrCat(" of ", options.devices, " devices"),
                   ", ", options.servers,
                   options.servers == 1 ? " server" : " servers"));
  for (const Batch& batch : batches) {
    ASSIGN_OR_RETURN(const NetworkRow row, worker.Measure(batch));
    if (rank > 0) continue;
    const std::string details = worker.store().transport_details();
    const std::pair<std::string, std::string> transport =
        absl::StrSplit(details.empty() ? "none: one process" : details,
                       absl::MaxSplits(": ", 1));
    report.Add(row, {transport.first, transport.second});
  }
  worker.store().Close();
  return rank == 0 ? report.Finish() : absl::OkStatus();
}

absl::Status RunPushPull(const Options& options,
                         const std::vector<std::string>& words) {
  if (!options.traits.has_workers) {
    return RunAlone(options.network,
                    [&] { return RunWorker(options, nullptr); });
  }
  return RunRanks(
      options.network, words,
      {.facts = {{"command", "pushpull"},
                 {"--profile", options.profile},
                 {"--gc-type", options.type},
                 {"--gc-threshold", options.threshold},
                 {"--gc-reply", options.reply},
                 {"--gc-packing", options.packing},
                 {"--kv-store", options.kv_store},
                 {"--chunk", options.chunk},
                 {"--workers", absl::StrCat(options.workers)},
                 {"--servers", absl::StrCat(options.servers)},
                 {"--devices", absl::StrCat(options.devices)}},
       .num_servers = options.servers,
       .hosts_parts = options.traits.hosts_parts,
       .settle = [&](JobOptions& job) { return SettleJob(options, job); },
       .work =
           [&](const NetworkOptions& network, WorkerGroup& group) {
             Options mine = options;
             mine.network = network;
             return RunWorker(mine, &group);
           },
       .serve =
           [&](const JobOptions& job) {
             return RunServer({.job = job, .num_threads = options.threads});
           }});
}

}  // namespace

void AddPushPullCommand(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  AddNetworkFlags(app, "4K:16M:x8", options->network);
  AddMemoryFlag(app, options->network);
  AddPushPullFlags(app, *options);
  SetNetworkCallback(
      app, options->network, exit_code,
      [options, &app](std::vector<std::string> words) -> absl::Status {
        const int ranks = options->network.ranks;
        RETURN_IF_ERROR(SettleRoles(*options, words));
        if (app.count("--ranks") > 0 && ranks != options->network.ranks) {
          return absl::InvalidArgumentError(absl::StrCat(
              "--ranks ", ranks, " for ", options->workers, " --workers and ",
              options->servers, " servers; leave --ranks out"));
        }
        RETURN_IF_ERROR(FinishOptions(options->network));
        RETURN_IF_ERROR(SettlePlan(app, *options));
        RETURN_IF_ERROR(CompressionOf(*options).status());
        RETURN_IF_ERROR(CheckMemoryOf(*options));
        return RunPushPull(*options, words);
      });
}

}  // namespace telegrad::perf
