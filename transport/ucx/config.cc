#include "transport/ucx/config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

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

// The connection manager listens with plain TCP whatever these say.
absl::StatusOr<std::string> TlsOf(const TransportOptions& options,
                                  const SocketAddress& bind) {
  if (options.tls == "tcp") return std::string("tcp,self");
  if (options.tls == "shm") return std::string("posix,cma,self,tcp");
  if (!options.tls.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "transport ucx: tls \"", options.tls, "\" is none of tcp, shm, \"\""));
  }
  if (IsLoopback(bind)) return std::string("tcp,posix,cma,self");
  return std::string("^sysv");  // its segments outlive a killed process
}

void RemoveHandlersOnce() {
  char value[64] = "";
  const ucs_status_t status =
      ucs_global_opts_get_value("HANDLE_ERRORS", value, sizeof(value));
  if (status != UCS_OK || absl::string_view(value) != "bt") return;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ucs_debug_disable_signal(signal);
  }
  ucs_global_opts_set_value("HANDLE_ERRORS", "none");
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
  ucp_config_t* raw = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
      status != UCS_OK) {
    return UcxError("ucp_config_read", status);
  }
  Config config;
  config.handle.reset(raw);
  ASSIGN_OR_RETURN(const std::string interface, InterfaceOf(bind));
  config.devices = ConfigValue(raw, "UCX_NET_DEVICES");
  if (config.devices == "all") {
    config.devices = DevicesOf(interface, "/sys");
    RETURN_IF_ERROR(Modify(raw, "NET_DEVICES", config.devices));
  } else if (IsLoopback(bind) && config.devices != interface) {
    return absl::InvalidArgumentError(absl::StrCat(
        "UCX_NET_DEVICES=", config.devices, " would listen beyond ",
        options.bind_address, "; unset it or bind to a device's address"));
  }
  ASSIGN_OR_RETURN(const std::string tls, TlsOf(options, bind));
  config.tls = ConfigValue(raw, "UCX_TLS");
  if (config.tls == "all") {
    config.tls = tls;
    RETURN_IF_ERROR(Modify(raw, "TLS", tls));
  }
  return config;
}

// The handlers are the process's, so is this flag.
void RemoveSignalHandlers() {
  static std::once_flag once;
  std::call_once(once, RemoveHandlersOnce);
}

}  // namespace telegrad::ucx
