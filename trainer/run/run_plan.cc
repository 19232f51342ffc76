#include "trainer/run/run_plan.h"

#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/job/path/data_path.h"
#include "topology/limits.h"
#include "topology/options.h"
#include "trainer/run/run_cache.h"

namespace telegrad {
namespace {

constexpr const char* kVariables[] = {"FI_PROVIDER", "TELEGRAD_GDR",
                                      "UCX_PROTO_ENABLE", "UCX_TLS"};
constexpr size_t kMaxValue = 200;

int CpusOf(const RunContext& context) {
  const absl::StatusOr<Machine>& machine = context.detection.Get().machine;
  const int usable = UsableCpus();
  const bool is_known = machine.ok() && machine->cpus > 0;
  return is_known ? std::min(machine->cpus, usable) : usable;
}

// What the run's flags say of the exchange, as constraints.
absl::StatusOr<PlanRequest> RequestFor(const RunContext& context,
                                       std::span<const TensorSpec> tensors) {
  const TrainOptions& options = context.options;
  KVStore& store = context.store;
  PlanRequest request;
  request.profile = ProfileOf(options.network, tensors);
  request.aggregation.by = absl::StrCat(
      options.kv_store, " with ",
      options.hosts_parts
          ? "a part in each worker"
          : absl::StrCat(store.group().num_servers(), " server(s)"));
  request.gc_type = "none";  // for tensors that AutoCompression decides
  if (options.path.given != nullptr) return request;
  request.link_gbps = 8e-9 * options.link_spec.bytes_per_s;
  if (!options.has_auto_chunk) {
    request.chunk_bytes = {static_cast<int64_t>(4 * options.chunk_elems),
                           "the size of this run's"};
  }
  ASSIGN_OR_RETURN(
      request.tensor_codecs,
      CodecsOf(tensors, context.setting.compression, context.setting.is_auto));
  return request;
}

void SayNotes(RunContext& context, CalibrationCache& cache) {
  for (std::string& note : cache.TakeNotes()) {
    context.observer.OnLine(note);
    context.decisions.push_back(std::move(note));
  }
}

CompressionConfig PackedCompressionOf(const RunContext& context) {
  CompressionConfig compression = CompressionOf(context.setting);
  compression.packing = context.packing;
  return compression;
}

}  // namespace

Facts NetworkVariables() {
  Facts facts;
  const auto options = TopologyOptionsFromEnvironment();
  // Wrong values are told with the machine, which cannot be described then.
  if (!options.ok()) return facts;
  for (const char* name : kVariables) {
    const auto found = options->environment.find(name);
    facts.emplace_back(name, found == options->environment.end()
                                 ? "unset"
                                 : found->second.substr(0, kMaxValue));
  }
  return facts;
}

void SayPacking(RunContext& context) {
  const PackingMode told = context.setting.compression.packing;
  const DataPath& path = context.store.group().data_path();
  const double rate = path.link_bytes_per_s();
  context.packing = ChoosePacking(told, rate);
  const std::vector<TensorReport> tensors = context.store.codecs().Report();
  const bool packs = absl::c_any_of(tensors, [](const TensorReport& tensor) {
    return absl::StartsWith(tensor.codec, "2bit");
  });
  if (told != PackingMode::kAuto || !packs) return;
  const char* const link = path.transport.link_bytes_per_s > 0
                               ? "emulated link"
                               : "slowest machine's link";
  const std::string why =
      rate > 0
          ? absl::StrFormat(
                "the %s of %.3g Gb/s is %s than a core packs", link,
                8e-9 * rate,
                context.packing == PackingMode::kRadix ? "slower" : "faster")
          : std::string(
                "gradients stay on a machine, or no port tells its rate");
  context.decisions.push_back(
      absl::StrCat("packing ", ToString(context.packing), ": ", why));
  context.observer.OnLine(context.decisions.back());
}

absl::Status RunPlan::Agree(RunContext& context,
                            std::span<TensorSpec> tensors) {
  context_ = &context;
  const TrainOptions& options = context.options;
  WorkerGroup& group = context.store.group();
  machines_ = std::max(1, group.data_path().plan.workers);
  const bool is_given = options.path.given != nullptr;
  const bool is_used = is_given || options.has_auto_chunk;
  if (group.num_workers() == 1 && !is_used) return absl::OkStatus();
  ASSIGN_OR_RETURN(PlanRequest request, RequestFor(context, tensors));
  ASSIGN_OR_RETURN(const ExchangePlan exchange,
                   AgreeOnExchange(group, AssumedCalibration(),
                                   std::move(request), is_used));
  Show(exchange);
  if (!is_used) return absl::OkStatus();
  GiveTensors(exchange.plan, is_given, tensors);
  ShowChunks(tensors);
  return absl::OkStatus();
}

// The elements that a codec takes together are those of a chunk.
void RunPlan::ShowChunks(std::span<const TensorSpec> tensors) {
  std::set<std::string> codecs;
  const auto add = [&codecs](const std::string& text) {
    const auto spec = ParseCodecSpec(text);
    if (spec.ok() && !spec->codec->traits().keeps_nonfinite) {
      codecs.insert(text);
    }
  };
  for (const TensorSpec& each : tensors) {
    if (!each.codec.empty()) add(each.codec);
  }
  if (context_->options.path.given == nullptr) {
    for (const std::string& type : context_->setting.compression.types()) {
      add(type);
    }
  }
  if (codecs.empty()) return;
  context_->decisions.push_back(absl::StrCat(
      "chunks by the plan: with ", absl::StrJoin(codecs, ", "),
      " the weights' bits may depend on them, and so on machines and network; "
      "--chunk-elems N gives the same everywhere"));
  context_->observer.OnNotice(context_->decisions.back());
}

absl::Status RunPlan::Start(std::span<const TensorSpec> tensors,
                            const std::string& choice) {
  context_->tensors.assign(tensors.begin(), tensors.end());
  const std::string base = TraceBaseOf(*context_);
  if (!base.empty()) {
    context_->timeline.KeepLast(base, context_->store.group().rank(),
                                context_->tensors);
  }
  return context_->setting.is_auto ? StartAuto(tensors, choice)
                                   : absl::OkStatus();
}

void RunPlan::Show(const ExchangePlan& exchange) {
  for (const TensorPlan& each : exchange.plan.tensors) {
    priorities_.push_back(each.priority);
  }
  ReportedPlan& summary = context_->plan;
  summary.digest = exchange.plan.digest;
  if (!exchange.plan.digest.empty()) summary.file = PlanToJson(exchange.plan);
  for (const Decision& each : exchange.plan.decisions) {
    const bool is_later =
        context_->setting.is_auto && each.what == Decision::Kind::kCodec;
    if (is_later) continue;  // AutoCompression says it
    // Groups obey it; a run's store sums in its own way.
    if (each.what == Decision::Kind::kSums) continue;
    summary.decisions.push_back({Name(each.what), each.choice, each.why});
    context_->observer.OnLine(absl::StrCat("plan: ", ToText(each)));
  }
  for (const std::vector<std::string>* all :
       {&exchange.plan.warnings, &exchange.notes}) {
    for (const std::string& each : *all) {
      summary.decisions.push_back({"warning", "", each});
      context_->observer.OnLine(absl::StrCat("plan: warning: ", each));
    }
  }
}

absl::Status RunPlan::StartAuto(std::span<const TensorSpec> tensors,
                                const std::string& choice) {
  ASSIGN_OR_RETURN(const auto kept, AutoChoiceFromJson(choice));
  CalibrationCache cache(CacheOptionsOf(*context_));
  KVStore& store = context_->store;
  const int members = store.group().num_workers() + store.group().num_servers();
  const std::vector<std::string> codecs =
      CodecsToMeasure(store.codecs(), context_->setting.compression);
  AutoOptions options = {
      .speeds = {.compression = PackedCompressionOf(*context_),
                 .codecs = codecs,
                 .cpus = CpusOf(*context_),
                 .cache = &cache},
      .threads = context_->options.threads,
      .processes = (members + machines_ - 1) / machines_,
      .chunk_elems = context_->options.chunk_elems};
  for (const TensorSpec& tensor : tensors) {
    options.speeds.num_elems += tensor.num_elems;
    if (!tensor.devices.empty()) {
      options.speeds.device = tensor.devices.front();
    }
  }
  auto_ = std::make_unique<AutoCompression>(store, std::move(options));
  AutoCompression::Decisions decisions;
  if (kept.has_value()) {
    RETURN_IF_ERROR(auto_->Resume(*kept));
    decisions.push_back(
        {.what = Decision::Kind::kCodec,
         .choice = absl::StrCat(kept->codec, " for ", kept->tensors.size(),
                                " of ", tensors.size(), " tensors"),
         .why = "the checkpoint's run had chosen it"});
  } else {
    ASSIGN_OR_RETURN(decisions, auto_->Start());
  }
  SayNotes(*context_, cache);
  for (const std::string& note : auto_->notes()) {
    context_->observer.OnLine(absl::StrCat("auto: ", note));
  }
  Say(decisions);
  return absl::OkStatus();
}

absl::Status RunPlan::AfterStep(const StepTimes& times) {
  if (auto_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const AutoCompression::Decisions decisions,
                   auto_->AfterStep(times));
  Say(decisions);
  return absl::OkStatus();
}

void RunPlan::Say(const AutoCompression::Decisions& decisions) {
  for (const Decision& each : decisions) {
    context_->decisions.push_back(
        absl::StrCat("auto, step ", auto_->step(), ": ", ToText(each)));
    context_->observer.OnLine(context_->decisions.back());
  }
}

}  // namespace telegrad
