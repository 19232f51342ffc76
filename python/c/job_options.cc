#include "python/c/job_options.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/device_scope.h"
#include "kvstore/server.h"
#include "kvstore/tuning/machine_detection.h"
#include "python/c/status.h"
#include "transport/check_transport.h"
#include "transport/encryption.h"

namespace telegrad::c {
namespace {

constexpr int kMaxMembers = 1024;
constexpr double kLongestS = 864000;

absl::Status CheckNumber(const char* name, double value, double low,
                         double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " ", value, ": it takes ", low, " to ", high));
}

}  // namespace

absl::Status CheckOptions(const telegrad_job_options& options) {
  RETURN_IF_ERROR(CheckNumber("role", options.role, 0, 2));
  RETURN_IF_ERROR(CheckNumber("rank", options.rank, -1, kMaxMembers - 1));
  RETURN_IF_ERROR(
      CheckNumber("num_workers", options.num_workers, 1, kMaxMembers));
  RETURN_IF_ERROR(
      CheckNumber("num_servers", options.num_servers, 1, kMaxMembers));
  RETURN_IF_ERROR(
      CheckNumber("servers_here", options.servers_here, 0, kMaxMembers));
  if (options.hosts_part != 0 && options.servers_here > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "servers_here ", options.servers_here,
        " beside hosts_part: the worker's part stands for its server"));
  }
  RETURN_IF_ERROR(CheckNumber("num_threads", options.num_threads, 0, 256));
  RETURN_IF_ERROR(
      CheckNumber("join_timeout_s", options.join_timeout_s, 0.1, kLongestS));
  RETURN_IF_ERROR(
      CheckNumber("dead_timeout_s", options.dead_timeout_s, 0.5, kLongestS));
  RETURN_IF_ERROR(CheckNumber("operation_timeout_s",
                              options.operation_timeout_s, 0.5, kLongestS));
  RETURN_IF_ERROR(CheckNumber("metrics_port", options.metrics_port, -1, 65535));
  RETURN_IF_ERROR(CheckNumber("gpu", options.gpu, -1, kMaxMembers - 1));
  if (options.servers_here <= options.num_servers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("servers_here ", options.servers_here, " of num_servers ",
                   options.num_servers));
}

absl::Status CheckLimits(const telegrad_job_options& options, int num_workers) {
  const ElasticLimits limits = {options.elastic_min, options.elastic_max};
  RETURN_IF_ERROR(
      CheckElastic("elastic_min and elastic_max", limits, num_workers));
  RETURN_IF_ERROR(CheckNumber("elastic_max", limits.max, 0, kMaxMembers));
  if (limits.min == 0 || TextOf(options.tier1, "off") != "on") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "tier1 'on' of a job with elastic_min: workers of a host do not sum "
      "first "
      "there");
}

absl::StatusOr<DistOptions> DistOptionsOf(const telegrad_job_options& options,
                                          const std::string& bind) {
  DistOptions dist;
  dist.job_id = TextOf(options.job_id, "local");
  if (options.secret_bytes > 0) {
    if (options.secret == nullptr) {
      return absl::InvalidArgumentError("secret_bytes without a secret");
    }
    ASSIGN_OR_RETURN(dist.secret,
                     Secret::Derive({static_cast<const char*>(options.secret),
                                     options.secret_bytes},
                                    dist.job_id));
  }
  dist.path.transport.name = TextOf(options.transport, "tcp");
  dist.path.transport.tls = TextOf(options.tls, "");
  dist.path.transport.bind_address = bind;
  ASSIGN_OR_RETURN(dist.path.transport.encryption,
                   ParseEncryption(TextOf(options.encryption, "auto")));
  RETURN_IF_ERROR(CheckEncryption(dist.path.transport, dist.secret.has_key()));
  dist.facts = {{"emulated link", TextOf(options.link, "none")}};
  ASSIGN_OR_RETURN(const LinkSpec link, ParseLink(dist.facts.front().second));
  if (options.gdr != nullptr) {
    ASSIGN_OR_RETURN(dist.path.gdr, ParseGdr(options.gdr));
  }
  if (options.gpu >= 0) {
    dist.path.gpu_bus_id = kernels::BusIdOf({DeviceKind::kCuda, options.gpu});
  }
  dist.elastic = {options.elastic_min, options.elastic_max};
  std::string tier1 = TextOf(options.tier1, "auto");
  if (dist.elastic.min > 0 && tier1 == "auto") tier1 = "off";
  ASSIGN_OR_RETURN(dist.path.tier_one, ParseTierOne(tier1));
  // Where the planner has nothing to choose nobody needs to know the machine.
  if (dist.path.transport.name != "tcp" && !IsOneHost(bind)) {
    dist.path.look = [detection = std::make_shared<MachineDetection>(bind)] {
      return detection->Get();
    };
  }
  dist.path.transport.link_bytes_per_s = link.bytes_per_s;
  dist.path.transport.link_latency_s = link.latency_s;
  dist.timing.join = FromSeconds(options.join_timeout_s);
  dist.timing.dead = FromSeconds(options.dead_timeout_s);
  dist.timing.heartbeat =
      std::min<Duration>(dist.timing.heartbeat, dist.timing.dead / 5);
  dist.operation_timeout = FromSeconds(options.operation_timeout_s);
  dist.num_threads = options.num_threads;
  if (options.hosts_part != 0) dist.part = HostPart(options.num_threads);
  return dist;
}

}  // namespace telegrad::c
