#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/device_copy.h"
#include "transport/choose/choose.h"
#include "transport/fault/fault_transport.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/link/link_transport.h"
#include "transport/staged/staged_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"
#include "transport/transport_name.h"
#if TELEGRAD_WITH_OFI
#include "transport/ofi/ofi_transport.h"
#endif
#if TELEGRAD_WITH_UCX
#include "transport/ucx/ucx_transport.h"
#endif

namespace telegrad {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<TransportContext>> (*)(
    const TransportOptions&, TransportHandler*);

struct Entry {
  const char* name;
  const char* description;  // or why it is not there
  Factory make;             // null: not in this build
};

constexpr std::array kTransports = {
#if TELEGRAD_WITH_UCX
    Entry{"ucx", "TCP, shared memory and RDMA by UCX", &MakeUcxTransport},
#else
    Entry{"ucx", "not in this build; it needs libucx-dev", nullptr},
#endif
#if TELEGRAD_WITH_OFI
    Entry{"ofi", "TCP, shared memory and RDMA by libfabric", &MakeOfiTransport},
#else
    Entry{"ofi", "not in this build; it needs libfabric-dev", nullptr},
#endif
    Entry{"tcp", "TCP by the kernel's sockets", &MakeTcpTransport},
    Entry{"inproc", "contexts of one process, for tests", &MakeInprocTransport},
};

// The transport, behind an emulated link and faults where they are asked for.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeDecorated(
    Factory make, const TransportOptions& options, TransportHandler* handler) {
  const auto make_link = [make](const TransportOptions& inner_options,
                                TransportHandler* inner_handler)
      -> absl::StatusOr<std::unique_ptr<TransportContext>> {
    if (inner_options.link_bytes_per_s == 0) {
      return make(inner_options, inner_handler);
    }
    return MakeLinkTransport(make, inner_options, inner_handler);
  };
  if (options.fault.empty()) return make_link(options, handler);
  return MakeFaultTransport(make_link, options, handler);
}

absl::Status CheckMemory(absl::string_view memory) {
  for (const char* known : {"host", "staged", "direct", "auto"}) {
    if (memory == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "memory \"", memory, "\" is none of host, staged, direct, auto"));
}

// The same for memory of devices, as `options.memory` asks.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeForMemory(
    const TransportFactory& make, TransportOptions options,
    TransportHandler* handler) {
  RETURN_IF_ERROR(CheckMemory(options.memory));
  const std::string memory = std::exchange(options.memory, "host");
  if (memory == "host") return make(options, handler);
  std::string why_not;
  auto copier = kernels::MakeCudaCopier(&why_not);
  if (copier == nullptr) {
    if (memory == "auto") return make(options, handler);
    return absl::UnavailableError(
        absl::StrCat("memory ", memory, ": ", why_not));
  }
  if (memory != "staged") {
    options.memory = "direct";
    ASSIGN_OR_RETURN(auto context, make(options, handler));
    if (context->Takes(copier->device())) return context;
    if (memory == "direct") {
      return absl::UnimplementedError(absl::StrCat(
          "transport ", options.name, " does not take memory of devices by ",
          "itself: ", context->info().details, "; memory staged copies it"));
    }
    options.memory = "host";
  }
  return MakeStagedTransport(make, options, std::move(copier), handler);
}

// Null: not in this build.
Factory FindInBuild(absl::string_view name) {
  for (const Entry& entry : kTransports) {
    if (entry.name == name) return entry.make;
  }
  return nullptr;
}

}  // namespace

TransportChoice ChooseTransport(const TransportOptions& options,
                                const std::string& sysfs) {
  if (options.name != "auto") return {options.name, ""};
  TransportChoice choice = ChooseFor(options, sysfs);
  if (FindInBuild(choice.name) != nullptr) return choice;
  return {"tcp", absl::StrCat(choice.reason, ", but ", choice.name,
                              " is not in this build")};
}

absl::Status CheckTransportName(absl::string_view name) {
  if (name == "auto" || FindInBuild(name) != nullptr) return absl::OkStatus();
  std::string available;
  for (const Entry& entry : kTransports) {
    if (entry.make == nullptr) continue;
    absl::StrAppend(&available, available.empty() ? "" : ", ", entry.name);
  }
  return absl::NotFoundError(absl::StrCat(
      "transport \"", name, "\" is not in this build, which has ", available));
}

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTransport(
    const TransportOptions& asked, TransportHandler* handler) {
  TransportOptions options = asked;
  options.name = ChooseTransport(asked).name;
  RETURN_IF_ERROR(CheckTransportName(options.name));
  return MakeForMemory(
      [make = FindInBuild(options.name)](const TransportOptions& inner_options,
                                         TransportHandler* inner_handler) {
        return MakeDecorated(make, inner_options, inner_handler);
      },
      options, handler);
}

std::string DescribeTransports() {
  std::string text;
  for (const Entry& entry : kTransports) {
    absl::StrAppend(&text, entry.name, ": ", entry.description, "\n");
  }
  return text;
}

}  // namespace telegrad
