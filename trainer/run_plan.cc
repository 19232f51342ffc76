#include "trainer/run_plan.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/link_calibration.h"
#include "topology/options.h"
#include "trainer/cluster.h"
#include "trainer/run_cache.h"

namespace telegrad {
namespace {

constexpr const char* kVariables[] = {"FI_PROVIDER", "TELEGRAD_GDR",
                                      "UCX_PROTO_ENABLE", "UCX_TLS"};
constexpr size_t kMaxValue = 200;
constexpr Duration kLinkTime = std::chrono::milliseconds(150);

PlanRequest RequestFor(const RunContext& context,
                       std::span<const TensorSpec> tensors) {
  PlanRequest request;
  request.profile.name = context.options.network;
  for (const TensorSpec& tensor : tensors) {
    request.profile.tensors.push_back(
        {.name = tensor.name,
         .num_elems = static_cast<int64_t>(tensor.num_elems)});
  }
  for (const NetworkKind each :
       {NetworkKind::kInfiniBand, NetworkKind::kRoceV2, NetworkKind::kEfa}) {
    if (absl::EqualsIgnoreCase(context.options.transport, Name(each))) {
      request.network = Name(each);
    }
  }
  // What is compressed is the run's setting, or what it measures (auto).
  request.gc_type = "none";
  return request;
}

// The networks that the run's transport may stand for in a plan.
std::vector<NetworkKind> NetworksOf(const TransportOptions& options) {
  const std::string name = ChooseTransport(options).name;
  if (name == "tcp" || options.tls == "tcp") {
    return {NetworkKind::kLocal, NetworkKind::kTcp};
  }
  return {NetworkKind::kLocal, NetworkKind::kTcp, NetworkKind::kInfiniBand,
          NetworkKind::kRoceV2, NetworkKind::kEfa};
}

// What was measured takes the place of what is assumed.
Calibration CalibrationWith(const LinkFigures& measured,
                            const TransportOptions& options) {
  Calibration calibration = AssumedCalibration();
  for (const NetworkKind network : NetworksOf(options)) {
    LinkFigures link = measured;
    link.name = Name(network);
    if (const LinkFigures* known = calibration.FindLink(link.name)) {
      link.message_cpu_s = known->message_cpu_s;
      link.cpu_s_per_byte = known->cpu_s_per_byte;
    }
    std::erase_if(calibration.links, [&](const LinkFigures& each) {
      return each.name == link.name;
    });
    calibration.links.push_back(link);
  }
  return calibration;
}

// "tcp: no card here does RDMA"; what was asked for stands alone.
std::string TransportOf(const RunContext& context) {
  const TransportChoice choice =
      ChooseTransport(TransportOptionsOf(context.options));
  return absl::StrCat(choice.name, choice.reason.empty() ? "" : ": ",
                      choice.reason);
}

// What the run does about a decision, where that is not what it says.
std::string InThisRun(const RunContext& context, const std::string& what) {
  const KVStore& store = context.store;
  if (what == "network") {
    return absl::StrCat("; this run uses --transport ", TransportOf(context),
                        " (", store.transport_details(), ")");
  }
  if (what == "cards") return "; in this run the transport chooses";
  if (what == "memory") return "; gradients of this run are in host memory";
  if (what == "connections") {
    return absl::StrCat("; this run has ",
                        NumConnections(TransportOptionsOf(context.options)),
                        " (--connections)");
  }
  if (what == "aggregation") {
    return absl::StrCat("; this run uses ", context.options.kv_store, " with ",
                        store.num_servers(), " server(s) that share the sums");
  }
  return "; not followed by this run";
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
    if (each.what == "compression") continue;  // has its own table
    const std::string here =
        each.what == "link" ? "" : InThisRun(context, each.what);
    lines.push_back(absl::StrCat("plan: ", each.what, " ", each.text, here));
  }
  for (const std::string& warning : job.plan.warnings) {
    lines.push_back(absl::StrCat("plan: warning: ", warning));
  }
  return lines;
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

absl::Status PlanRun(RunContext& context, std::span<const TensorSpec> tensors) {
  if (context.store.num_workers() < 2) return absl::OkStatus();
  CalibrationCache cache(CacheOptionsOf(context));
  ASSIGN_OR_RETURN(const LinkCalibration link,
                   CalibrateLink(context.store, &cache, kLinkTime));
  for (const std::string& note : cache.TakeNotes()) {
    context.observer.OnLine(note);
  }
  context.observer.OnLine(absl::StrCat("link: ", Describe(link)));
  const Calibration calibration =
      CalibrationWith(link.figures, TransportOptionsOf(context.options));
  ASSIGN_OR_RETURN(const JobPlan job,
                   AgreeOnPlan(context.store, context.detection.Get(),
                               calibration, RequestFor(context, tensors)));
  context.plan = {.digest = job.plan.digest, .lines = LinesFor(context, job)};
  for (const std::string& line : context.plan.lines) {
    context.observer.OnLine(line);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
