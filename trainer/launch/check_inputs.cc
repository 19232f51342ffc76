#include "trainer/launch/check_inputs.h"

#include <algorithm>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/folder.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/machine_detection.h"
#include "trainer/checkpoint/checkpointing.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/check_gpus.h"
#include "trainer/flags/given_plan.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/launch/cluster.h"
#include "trainer/networks/network.h"
#include "trainer/report/results.h"
#include "trainer/run/injection.h"
#include "transport/check_transport.h"

namespace telegrad {
namespace {

// The devices that there will be, 0 where only the scheduler knows.
int WorkersOf(const TrainOptions& options,
              const std::optional<Placement>& placement) {
  if (!placement.has_value()) return options.workers * options.devices;
  const auto parts = PartsOf(*placement, options);
  return parts.ok() ? parts->num_workers * options.devices : 0;
}

absl::Status CheckInjection(const TrainOptions& options,
                            const std::vector<Parameter>& parameters,
                            int workers) {
  if (options.inject.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Injection injection, ParseInjection(options.inject));
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--inject ", options.inject, ": ", why...));
  };
  if (injection.worker < 0 || injection.worker >= workers) {
    return refuse("there are ", workers, " workers, from 0 on");
  }
  if (injection.delay_ms > 0) return absl::OkStatus();
  if (injection.step < 0) return refuse("steps count from 0 on");
  const auto found = absl::c_find_if(parameters, [&](const Parameter& each) {
    return each.name == injection.tensor;
  });
  if (found == parameters.end()) {
    return refuse(options.network, " has no tensor of this name; its first is ",
                  parameters.front().name);
  }
  if (injection.element >= found->num_elements) {
    return refuse("the tensor has ", found->num_elements, " elements");
  }
  return absl::OkStatus();
}

// Refuses data that do not fit `network`, with what it is made for.
absl::Status Unfit(const TrainOptions& options, const NetworkSpec& network,
                   const absl::Status& why) {
  std::string wanted;
  if (network.context == 0) {
    wanted = absl::StrCat("; ", network.name, " is made for ", network.channels,
                          " x ", network.rows, " x ", network.cols, ", ",
                          network.num_classes, " classes");
  }
  return OfFlag("--data", options.data,
                absl::Status(why.code(), absl::StrCat(why.message(), wanted)));
}

// At least one step of all workers.
absl::Status CheckNumSamples(const TrainOptions& options, int workers,
                             size_t samples) {
  const int parts = options.grad_accumulation;
  const int64_t step = int64_t{options.batch_size} * parts * workers;
  if (step <= static_cast<int64_t>(samples)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--batch-size ", options.batch_size,
      parts > 1 ? absl::StrCat(" times --grad-accumulation ", parts) : "",
      " times ", workers, " workers is more than the ", samples, " samples of ",
      options.benchmark ? "an epoch (--num-examples)" : options.data));
}

absl::Status CheckTraining(const TrainOptions& options, int workers) {
  if (IsProfile(options.network)) {
    ASSIGN_OR_RETURN(const auto tensors, LoadProfile(options.network));
    return CheckPlannedTensors(options, tensors);
  }
  ASSIGN_OR_RETURN(NetworkSpec spec, RequestedSpec(options));
  const NetworkSpec wanted = spec;
  RETURN_IF_ERROR(
      OfFlag("--network", options.network, ShapeOf(wanted).status()));
  const int known = std::max(1, workers);
  auto samples = static_cast<size_t>(NumNoiseSamples(options, known));
  if (!options.benchmark) {
    ASSIGN_OR_RETURN(
        const DatasetShape data,
        OfFlag("--data", options.data,
               FindDataset(options.data, RequestedData(options, spec))));
    samples = data.num_training;
    Fit(data, spec);
  }
  const auto shape = ShapeOf(spec);
  if (!shape.ok()) return Unfit(options, wanted, shape.status());
  if (options.batch_size < shape->least_batch) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch-size ", options.batch_size, ": ", options.network,
                     " normalises single pixels of such images; it takes ",
                     shape->least_batch, " or more"));
  }
  if (options.given.contains("--bn-stats") && shape->buffers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--bn-stats has no effect: ", options.network,
                     " has no batch normalisation"));
  }
  RETURN_IF_ERROR(CheckInjection(options, shape->parameters, workers));
  std::vector<TensorSpec> tensors;
  for (const Parameter& each : shape->parameters) {
    tensors.push_back({each.name, each.num_elements});
  }
  RETURN_IF_ERROR(CheckPlannedTensors(options, tensors));
  return CheckNumSamples(
      options, std::max(known, options.elastic.max * options.devices), samples);
}

absl::Status CheckSecurity(const TrainOptions& options) {
  if (!options.secret_file.empty()) {
    return OfFlag("--secret-file",
                  Secret::FromFile(options.secret_file, "any").status());
  }
  if (options.insecure) return absl::OkStatus();
  if (!options.path.transport.rails.empty()) {
    return absl::InvalidArgumentError(
        "--rails listens where others may reach it: it needs --secret-file, "
        "or --insecure");
  }
  const bool has_peers = options.hosts_parts || options.servers > 0;
  if (!has_peers || IsOneHost(options.path.transport.bind_address))
    return absl::OkStatus();
  return WithExitCode(
      ExitCode::kAuthentication,
      absl::FailedPreconditionError(absl::StrCat(
          "--bind ", options.path.transport.bind_address,
          ": others reach this address: give --secret-file, or --insecure to "
          "accept that anyone there may join")));
}

// The numbers of a launcher, which flags do not change.
absl::Status CheckWorkers(const TrainOptions& options,
                          const Placement& placement) {
  if (!options.scheduler.empty() || !options.given.contains("--workers")) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Parts parts, PartsOf(placement, options));
  if (parts.num_workers == options.workers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--workers ", options.workers, ": ", placement.launcher,
                   " has started ", parts.num_workers, "; leave it out"));
}

// Somebody is waited for, also when some have died.
absl::Status CheckDropped(const TrainOptions& options, int devices) {
  const int workers = devices / std::max(1, options.devices);
  const int least = options.elastic.min > 0 ? options.elastic.min : workers;
  if (options.drop_slowest == 0 || options.drop_slowest < least ||
      workers == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--drop-slowest ", options.drop_slowest, " of ", least, " workers",
      options.elastic.min > 0 ? ", the least that --elastic allows" : "",
      ": it takes 0 to ", least - 1));
}

// Where this process may write: each worker its part, the first one results.
absl::Status MakeFolders(const TrainOptions& options,
                         const Placement& placement) {
  if (placement.role.value_or(Role::kWorker) != Role::kWorker) {
    return absl::OkStatus();
  }
  if (!options.checkpoint.empty()) {
    RETURN_IF_ERROR(MakeLastingFolder("--checkpoint", options.checkpoint));
  }
  if (placement.rank > 0) return absl::OkStatus();
  return MakeFolder("--out", options.out);
}

}  // namespace

absl::Status CheckInputs(const TrainOptions& options,
                         const std::optional<Placement>& placement) {
  RETURN_IF_ERROR(CheckGpus(options));
  if (options.workers_serve && !placement.has_value()) {
    return absl::InvalidArgumentError(
        "--workers-serve is for processes that a launcher starts, and none has "
        "started this one: --servers says how many this program starts");
  }
  RETURN_IF_ERROR(
      CheckFilesOfTransport(options.path.transport.name,
                            WorkersOf(options, placement) + options.servers));
  if (placement.has_value()) RETURN_IF_ERROR(CheckWorkers(options, *placement));
  RETURN_IF_ERROR(CheckPlannedMachines(options, placement));
  RETURN_IF_ERROR(CheckMemberPath(options, [&options] {
    return MachineDetection(options.path.transport.bind_address).Get();
  }));
  RETURN_IF_ERROR(CheckSecurity(options));
  RETURN_IF_ERROR(CheckTraining(options, WorkersOf(options, placement)));
  RETURN_IF_ERROR(CheckElastic("--elastic", options.elastic,
                               WorkersOf(options, placement)));
  RETURN_IF_ERROR(CheckDropped(options, WorkersOf(options, placement)));
  // A setting with flags of its own is checked with these.
  const bool is_whole = options.settings.front().own == nullptr;
  // Who comes in place of a dead worker finds checkpoints of its job.
  const bool may_replace = options.elastic.min > 0 && placement.has_value();
  if (!options.checkpoint.empty() && is_whole && !may_replace) {
    RETURN_IF_ERROR(CheckCheckpointFolder(options, !placement.has_value()));
  }
  if (options.laboratory.explain) return absl::OkStatus();
  return MakeFolders(options, placement.value_or(Placement()));
}

}  // namespace telegrad
