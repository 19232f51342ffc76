#include "trainer/run_plan.h"

#include <algorithm>
#include <set>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/network_device.h"
#include "base/status_macros.h"
#include "kvstore/link_calibration.h"
#include "kvstore/packing.h"
#include "topology/options.h"
#include "trainer/cluster.h"
#include "trainer/run_cache.h"

namespace telegrad {
namespace {

constexpr const char* kVariables[] = {"FI_PROVIDER", "TELEGRAD_GDR",
                                      "UCX_PROTO_ENABLE", "UCX_TLS"};
constexpr size_t kMaxValue = 200;

GradientProfile ProfileOf(const std::string& name,
                          std::span<const TensorSpec> tensors) {
  GradientProfile profile{.name = name};
  for (const TensorSpec& tensor : tensors) {
    profile.tensors.push_back(
        {.name = tensor.name,
         .num_elems = static_cast<int64_t>(tensor.num_elems),
         .is_matrix = !absl::EndsWith(tensor.name, "bias")});
  }
  return profile;
}

// The codecs that the run uses or may use, each once.
std::vector<std::string> CodecsToMeasure(const RunContext& context) {
  const CompressionConfig& gc = context.setting.compression;
  std::set<std::string> codecs;
  for (const TensorReport& report : context.store.Report()) {
    codecs.insert(report.setting);
  }
  if (context.setting.is_auto) {
    const std::vector<std::string> types = gc.types();
    codecs.insert(types.begin(), types.end());
  }
  codecs.erase("none");
  return {codecs.begin(), codecs.end()};
}

int CpusOf(const RunContext& context) {
  const absl::StatusOr<Machine>& machine = context.detection.Get().machine;
  if (machine.ok() && machine->cpus > 0) return machine->cpus;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// "tcp: no card here does RDMA"; what was asked for stands alone.
std::string TransportOf(const RunContext& context) {
  const TransportChoice choice = context.store.transport_choice();
  return absl::StrCat(choice.name, choice.reason.empty() ? "" : ": ",
                      choice.reason);
}

bool IsTcp(const TransportChoice& transport) {
  return transport.name == "tcp" || transport.tls == "tcp";
}

std::string UsedTransport(const RunContext& context) {
  return absl::StrCat("this run uses --transport ", TransportOf(context), " (",
                      context.store.transport_details(), ")");
}

// What is settled by now.
FixedByRun FixedBy(const RunContext& context) {
  const KVStore& store = context.store;
  const ConnectionChoice connections = store.connection_choice();
  return {.network_why = UsedTransport(context),
          .aggregation_why =
              absl::StrCat("fixed by --kv-store ", context.options.kv_store,
                           " with ", store.num_servers(), " server(s)"),
          .alternatives = {Aggregation::kColocatedServers},
          .memory_why = "gradients of this run are in host memory",
          .connections = static_cast<int>(connections.connections),
          .connections_why = connections.reason.empty()
                                 ? absl::StrCat("by --connections ",
                                                context.options.connections)
                                 : connections.reason};
}

// What the run compresses; where that is known from its codecs alone.
PlanRequest RequestFor(const RunContext& context,
                       const GradientProfile& profile,
                       const Calibration& speeds) {
  PlanRequest request;
  request.profile = profile;
  request.fixed = FixedBy(context);
  if (IsTcp(context.store.transport_choice())) {
    request.network = Name(NetworkKind::kTcp);
  } else {
    request.network = WishedNetwork(TransportOptionsOf(context.options));
    request.fixed.network_why.clear();  // the machines decide, or refuse
  }
  request.chunk_bytes = static_cast<int64_t>(4 * context.options.chunk_elems);
  request.tensor_codecs =
      CodecsOf(context.store.Report(), context.setting.is_auto, &speeds);
  request.gc_allow = ChoicesOf(context.setting.compression, speeds);
  if (request.gc_allow.empty()) request.gc_type = "none";
  request.is_link_of_busy_servers = true;
  return request;
}

// The networks that the run's transport may stand for in a plan.
std::vector<NetworkKind> NetworksOf(const TransportChoice& transport) {
  if (IsTcp(transport)) {
    return {NetworkKind::kLocal, NetworkKind::kTcp};
  }
  return {NetworkKind::kLocal, NetworkKind::kTcp, NetworkKind::kInfiniBand,
          NetworkKind::kRoceV2, NetworkKind::kEfa};
}

// Whose costs the exchange is reckoned with: of the plan's network where the
// run uses it. None are known of a machine's own: those of TCP.
NetworkKind CostsOf(const JobPlan& job, const TransportChoice& transport) {
  const NetworkKind network = job.plan.network;
  if (job.plan.digest.empty() || network == NetworkKind::kLocal) {
    return NetworkKind::kTcp;
  }
  const std::vector<NetworkKind> used = NetworksOf(transport);
  return absl::c_linear_search(used, network) ? network : NetworkKind::kTcp;
}

// What was measured takes the place of what is assumed.
Calibration CalibrationWith(const LinkFigures& measured, Calibration speeds,
                            const TransportChoice& transport) {
  speeds.links = AssumedCalibration().links;
  for (const NetworkKind network : NetworksOf(transport)) {
    const LinkFigures link = LinkOf(network, measured, speeds.handover_s);
    std::erase_if(speeds.links, [&](const LinkFigures& each) {
      return each.name == link.name;
    });
    speeds.links.push_back(link);
  }
  return speeds;
}

// What binds this worker's traffic to its cards.
std::string CardsInUse(const RunContext& context) {
  const TrainOptions& options = context.options;
  std::string text = absl::StrCat("worker/", context.store.rank(), " opens ");
  if (!IsTcp(context.store.transport_choice())) {
    return absl::StrCat(text,
                        "what its transport says (TELEGRAD_NICS, --bind)");
  }
  const auto device = DeviceOfAddress(options.bind);
  absl::StrAppend(&text, device.ok() ? *device : "the device", " by --bind ",
                  options.bind);
  if (options.rails.empty()) return text;
  return absl::StrCat(text, " and ", absl::StrJoin(options.rails, ", "),
                      " by --rails");
}

// A decision of the plan as it is in this run.
std::string InThisRun(const RunContext& context, const Plan& plan,
                      const PlanDecision& decision) {
  const std::string said = absl::StrCat(decision.what, " ", decision.text);
  const bool is_local = plan.network == NetworkKind::kLocal;
  if (decision.what == "network" &&
      (is_local || !IsTcp(context.store.transport_choice()))) {
    return absl::StrCat(said, "; ", UsedTransport(context));
  }
  if (decision.what == "cards" && !is_local) {
    return absl::StrCat("cards ", CardsInUse(context), "; ports of ",
                        Name(plan.network), " are ", decision.text);
  }
  if (decision.what == "advice") {
    return absl::StrCat(said,
                        "; a server beside each worker does that: a launcher "
                        "without --servers, or as many server roles");
  }
  return said;
}

// Whether there is anything to say of it: one connection is no choice.
bool IsChosen(const ConnectionChoice& choice) {
  return choice.connections > 1 || !choice.reason.empty();
}

std::vector<std::string> LinesFor(const RunContext& context,
                                  const JobPlan& job) {
  std::vector<std::string> lines;
  for (const std::string& note : job.notes) {
    lines.push_back(absl::StrCat("plan: ", note));
  }
  if (job.plan.digest.empty()) return lines;
  lines.insert(
      lines.begin(),
      absl::StrCat("plan ", job.plan.digest.substr(0, 16), ": agreed by ",
                   context.store.num_workers(), " workers on ", job.machines,
                   job.machines == 1 ? " machine" : " machines"));
  for (const PlanDecision& each : PlanDecisions(job.plan)) {
    if (each.what == "compression") continue;  // is that of the exchange
    if (each.what == "connections" &&
        !IsChosen(context.store.connection_choice())) {
      continue;
    }
    lines.push_back(absl::StrCat("plan: ", InThisRun(context, job.plan, each)));
  }
  for (const std::string& warning : job.plan.warnings) {
    lines.push_back(absl::StrCat("plan: warning: ", warning));
  }
  return lines;
}

void SayNotes(RunContext& context, CalibrationCache& cache,
              bool are_decisions = false) {
  for (std::string& note : cache.TakeNotes()) {
    context.observer.OnLine(note);
    if (are_decisions) context.decisions.push_back(std::move(note));
  }
}

// What the store does: servers with an optimizer answer with weights.
CompressionConfig CompressionOf(const RunContext& context) {
  CompressionConfig compression = context.setting.compression;
  compression.packing = context.packing;
  if (context.setting.update_on == UpdateOn::kServer) {
    compression.reply = ReplyMode::kDense;
  }
  return compression;
}

absl::Status MeasureLinkOnce(RunContext& context, CalibrationCache& cache) {
  if (context.link.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(context.link, CalibrateLink(context.store, &cache, {}));
  SayNotes(context, cache);
  context.observer.OnLine(absl::StrCat("link: ", Describe(*context.link)));
  return absl::OkStatus();
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

// An emulated link's rate is known, so that nothing is measured for `auto`.
void SayPackingOfLink(RunContext& context) {
  const std::vector<TensorReport> tensors = context.store.Report();
  const bool packs = absl::c_any_of(tensors, [](const TensorReport& tensor) {
    return absl::StartsWith(tensor.codec, "2bit");
  });
  if (context.setting.compression.packing != PackingMode::kAuto || !packs ||
      context.options.link_spec.bytes_per_s <= 0) {
    return;
  }
  context.decisions.push_back(absl::StrFormat(
      "packing %s: the emulated link of %.3g Gb/s is %s than a core packs",
      ToString(context.packing), 8e-9 * context.options.link_spec.bytes_per_s,
      context.packing == PackingMode::kRadix ? "slower" : "faster"));
  context.observer.OnLine(context.decisions.back());
}

absl::Status PackRun(RunContext& context) {
  context.packing = context.store.packing();
  if (context.packing != PackingMode::kAuto) {
    SayPackingOfLink(context);
    return absl::OkStatus();
  }
  CalibrationCache cache(CacheOptionsOf(context));
  RETURN_IF_ERROR(MeasureLinkOnce(context, cache));
  const PackingOptions options{.compression = CompressionOf(context),
                               .link = context.link->figures,
                               .cores = context.options.threads,
                               .chunk_elems = context.options.chunk_elems,
                               .cache = &cache};
  ASSIGN_OR_RETURN(const std::optional<PackingDecision> decision,
                   SettlePacking(context.store, options));
  SayNotes(context, cache);
  context.packing = context.store.packing();
  if (!decision.has_value()) return absl::OkStatus();
  context.decisions.push_back(absl::StrCat("packing ", ToString(decision->mode),
                                           ": ", decision->reason));
  context.observer.OnLine(context.decisions.back());
  return absl::OkStatus();
}

absl::StatusOr<RunCalibration> RunPlan::Measure(
    std::span<const TensorSpec> tensors, CalibrationCache& cache) {
  options_ = {.compression = CompressionOf(*context_),
              .codecs = CodecsToMeasure(*context_),
              .cpus = CpusOf(*context_),
              .cache = &cache};
  for (const TensorSpec& tensor : tensors) {
    options_.num_elems += tensor.num_elems;
  }
  ASSIGN_OR_RETURN(RunCalibration speeds,
                   CalibrateRun(context_->store, options_));
  options_.cache = nullptr;
  speeds_ = speeds.mine;
  // With auto they are what the codec is chosen by.
  SayNotes(*context_, cache, context_->setting.is_auto);
  for (const std::string& note : speeds.notes) {
    context_->observer.OnLine(absl::StrCat("plan: ", note));
  }
  return speeds;
}

absl::Status RunPlan::Start(RunContext& context,
                            std::span<const TensorSpec> tensors) {
  if (const ConnectionChoice choice = context.store.connection_choice();
      !choice.reason.empty()) {
    context.decisions.push_back(Describe(choice));
    context.observer.OnLine(context.decisions.back());
  }
  if (context.store.num_workers() < 2) return absl::OkStatus();
  context_ = &context;
  profile_ = ProfileOf(context.options.network, tensors);
  CalibrationCache cache(CacheOptionsOf(context));
  ASSIGN_OR_RETURN(const RunCalibration speeds, Measure(tensors, cache));
  RETURN_IF_ERROR(MeasureLinkOnce(context, cache));
  const LinkFigures& link = context.link->figures;
  const Calibration calibration =
      CalibrationWith(link, speeds.agreed, context.store.transport_choice());
  ASSIGN_OR_RETURN(
      const JobPlan job,
      AgreeOnPlan(context.store, context.detection.Get(), calibration,
                  RequestFor(context, profile_, speeds.agreed)));
  context.plan = {.digest = job.plan.digest, .lines = LinesFor(context, job)};
  RETURN_IF_ERROR(StartLive(speeds, link, job));
  for (const std::string& line : context.plan.lines) {
    context.observer.OnLine(line);
  }
  return absl::OkStatus();
}

absl::Status RunPlan::StartLive(const RunCalibration& speeds,
                                const LinkFigures& link, const JobPlan& job) {
  const TrainOptions& options = context_->options;
  live_.emplace(context_->store,
                LivePlanOptions{.profile = profile_,
                                .speeds = options_,
                                .is_auto = context_->setting.is_auto,
                                .chunk_elems = options.chunk_elems,
                                .threads = options.threads,
                                .machines = job.machines,
                                .network = CostsOf(
                                    job, context_->store.transport_choice())});
  ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                   live_->Start(speeds.agreed, link));
  for (const std::string& line : lines) {
    context_->plan.lines.push_back(absl::StrCat("plan: ", line));
  }
  priorities_ = live_->priorities();
  return absl::OkStatus();
}

absl::Status RunPlan::AfterStep(const StepTimes& times, AutoRun& automatic) {
  if (!live_.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<std::string> lines, live_->AfterStep(times));
  if (const auto measured = automatic.TakeMeasurement()) {
    ASSIGN_OR_RETURN(lines, live_->AfterDecision(*measured));
  }
  for (std::string& line : lines) {
    context_->observer.OnLine(line);
    context_->decisions.push_back(std::move(line));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
