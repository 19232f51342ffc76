#include "transport/ucx/config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <initializer_list>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "transport/gid_row.h"

namespace telegrad {

absl::Status CheckUcxTransport(const TransportOptions& options) {
  for (const char* known : {"tcp", "shm", ""}) {
    if (options.tls == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "transport ucx: tls \"", options.tls, "\" is none of tcp, shm, \"\""));
}

}  // namespace telegrad

namespace telegrad::ucx {
namespace {

// What ucp_config_print shows for `name` ("UCX_TLS").
std::string ConfigValue(const ucp_config_t* config, const std::string& name) {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
  fclose(stream);
  const std::string printed(text, size);
  free(text);
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (entry.first == name) return std::string(entry.second);
  }
  return "";
}

absl::Status Modify(ucp_config_t* config, const char* name,
                    const std::string& value) {
  const ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status == UCS_OK) return absl::OkStatus();
  return UcxError(absl::StrCat("UCX_", name, "=", value), status);
}

// "cuda" stands for all of UCX's ways to and from CUDA devices.
std::string WithCuda(const TransportOptions& options, std::string tls) {
  if (options.memory == "direct") absl::StrAppend(&tls, ",cuda");
  return tls;
}

// Shared memory has a context of its own; sysv is out because its segments
// outlive a killed process.
std::string NetTls(const TransportOptions& options, const SocketAddress& bind) {
  if (options.tls != "tcp" && !IsLoopback(bind)) return "^sm";
  return WithCuda(options, "tcp,self");
}

// What the user has set of a setting that UCX reads under any of `names`.
std::optional<std::string> Users(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = getenv(name)) {
      return absl::StrCat(name, "=", value);
    }
  }
  return std::nullopt;
}

bool IsNo(const std::optional<std::string>& users) {
  if (!users.has_value()) return false;
  for (const char* no : {"=n", "=no", "=0", "=off"}) {
    if (absl::EndsWithIgnoreCase(*users, no)) return true;
  }
  return false;
}

// Sets `key`, which the environment calls `name`, where the user has not.
absl::Status SetUnless(const std::optional<std::string>& users, Config& config,
                       const char* key, const char* name,
                       const std::string& value) {
  if (users.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(Modify(config.handle.get(), key, value));
  config.ours.push_back(absl::StrCat(name, "=", value));
  return absl::OkStatus();
}

// The interface, and the RDMA ports that were chosen.
std::string Devices(const TransportOptions& options, const SocketAddress& bind,
                    const std::string& interface) {
  if (IsLoopback(bind) || options.rdma_ports.empty()) return interface;
  return absl::StrCat(interface, ",", absl::StrJoin(options.rdma_ports, ","));
}

// UCX 1.13 ends its own search at the first row of the GID table that cannot
// be read, as hidden ones of a container (uct_ib_device_select_gid).
absl::Status SetGidRow(const TransportOptions& options, Config& config) {
  const std::optional<int> row =
      CommonGidRow(RdmaPortsOf(config.devices), options.gid_rows);
  if (!row.has_value()) return absl::OkStatus();
  return SetUnless(Users({"UCX_IB_GID_INDEX"}), config, "GID_INDEX",
                   "UCX_IB_GID_INDEX", absl::StrCat(*row));
}

// Our transports of shared memory that the user's UCX_TLS leaves.
std::string ShmTls(absl::string_view users) {
  const bool is_negative = absl::ConsumePrefix(&users, "^");
  std::set<std::string> named;
  for (absl::string_view name : absl::StrSplit(users, ',')) {
    if (name == "all" || name == "sm" || name == "shm") {
      named.insert({"posix", "cma"});
    } else {
      named.insert(name == "mm" ? "posix" : std::string(name));
    }
  }
  std::string tls = "self";
  for (const char* ours : {"cma", "posix"}) {
    if ((named.count(ours) > 0) != is_negative) {
      tls = absl::StrCat(ours, ",", tls);
    }
  }
  return tls;
}

std::string WithoutCma(const std::string& tls) {
  return absl::StrReplaceAll(tls, {{"cma,", ""}});
}

absl::StatusOr<Config> ReadConfig() {
  ucp_config_t* raw = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
      status != UCS_OK) {
    return UcxError("ucp_config_read", status);
  }
  Config config;
  config.handle.reset(raw);
  config.tls = ConfigValue(raw, "UCX_TLS");
  config.devices = ConfigValue(raw, "UCX_NET_DEVICES");
  return config;
}

// False: the user has said who handles them.
bool RemoveHandlers() {
  char value[64] = "";
  const ucs_status_t status =
      ucs_global_opts_get_value("HANDLE_ERRORS", value, sizeof(value));
  if (status != UCS_OK || absl::string_view(value) != "bt") return false;
  if (Users({"UCX_HANDLE_ERRORS"}).has_value()) return false;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ucs_debug_disable_signal(signal);
  }
  ucs_global_opts_set_value("HANDLE_ERRORS", "none");
  return true;
}

}  // namespace

absl::Status UcxError(absl::string_view what, ucs_status_t status) {
  const std::string text = absl::StrCat(what, ": ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_CANCELED:
      return absl::CancelledError(text);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(text);
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(text);
    case UCS_ERR_UNSUPPORTED:
      return absl::UnimplementedError(text);
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_BUSY:
    case UCS_ERR_IO_ERROR:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::StatusOr<Config> MakeConfig(const TransportOptions& options,
                                  const SocketAddress& bind) {
  ASSIGN_OR_RETURN(Config config, ReadConfig());
  ucp_config_t* handle = config.handle.get();
  ASSIGN_OR_RETURN(const std::string interface, InterfaceOf(bind));
  if (config.devices == "all") {
    config.devices = Devices(options, bind, interface);
    RETURN_IF_ERROR(Modify(handle, "NET_DEVICES", config.devices));
  } else if (IsLoopback(bind) && config.devices != interface) {
    return absl::InvalidArgumentError(absl::StrCat(
        "UCX_NET_DEVICES=", config.devices, " would listen beyond ",
        options.bind_address, "; unset it or bind to a device's address"));
  }
  if (config.tls == "all") {
    config.tls = NetTls(options, bind);
    RETURN_IF_ERROR(Modify(handle, "TLS", config.tls));
  }
  RETURN_IF_ERROR(SetGidRow(options, config));
  return config;
}

absl::StatusOr<Config> MakeShmConfig(const TransportOptions& options) {
  if (options.tls == "tcp") return absl::UnavailableError("tls tcp");
  const auto handling =
      Users({"UCX_POSIX_ERROR_HANDLING", "UCX_MM_ERROR_HANDLING"});
  if (IsNo(handling)) {
    return absl::UnavailableError(
        absl::StrCat(*handling,
                     ", but a peer that dies must be noticed; unset "
                     "it for shared memory"));
  }
  ASSIGN_OR_RETURN(Config config, ReadConfig());
  const std::string users = std::exchange(config.tls, ShmTls(config.tls));
  if (!absl::StrContains(config.tls, "posix")) {
    return absl::UnavailableError(
        absl::StrCat("UCX_TLS=", users, " leaves out posix"));
  }
  // Without it an endpoint that reports failures does not use cma. What it
  // stands for, that a sender's memory is no longer read after a cancel,
  // ReceiveCuts does.
  const auto invalidate = Users({"UCX_CMA_MEMORY_INVALIDATE"});
  if (IsNo(invalidate)) config.tls = WithoutCma(config.tls);
  config.tls = WithCuda(options, config.tls);
  RETURN_IF_ERROR(Modify(config.handle.get(), "TLS", config.tls));
  RETURN_IF_ERROR(SetUnless(handling, config, "MM_ERROR_HANDLING",
                            "UCX_MM_ERROR_HANDLING", "y"));
  if (absl::StrContains(config.tls, "cma")) {
    RETURN_IF_ERROR(SetUnless(invalidate, config, "MEMORY_INVALIDATE",
                              "UCX_CMA_MEMORY_INVALIDATE", "y"));
  }
  // 0.6 MB instead of 4.2 MB of /dev/shm for each lane.
  RETURN_IF_ERROR(
      SetUnless(Users({"UCX_POSIX_RX_BUFS_GROW", "UCX_MM_RX_BUFS_GROW"}),
                config, "MM_RX_BUFS_GROW", "UCX_MM_RX_BUFS_GROW", "64"));
  return config;
}

bool TakesCuda(ucp_context_h context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucp_context_query(context, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

absl::StatusOr<ucp_context_h> MakeContext(const Config& config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "telegrad";
  ucp_context_h context = nullptr;
  if (const ucs_status_t status =
          ucp_init(&params, config.handle.get(), &context);
      status != UCS_OK) {
    const std::string what = absl::StrCat("ucp_init with tls ", config.tls);
    const auto set = Users({"UCX_TLS", "UCX_NET_DEVICES"});
    if (status != UCS_ERR_NO_DEVICE || !set.has_value()) {
      return UcxError(what, status);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": ", ucs_status_string(status), "; the environment has ", *set,
        ", which may be meant for another program: unset it for this one"));
  }
  return context;
}

// The handlers are the process's, so are these flags.
std::string RemoveSignalHandlers() {
  static std::once_flag once;
  static bool are_removed = false;
  std::call_once(once, [] { are_removed = RemoveHandlers(); });
  return are_removed ? "UCX_HANDLE_ERRORS=none" : "";
}

}  // namespace telegrad::ucx
