#include <array>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/network_device.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"
#include "base/vendor.h"
#include "kernels/device_copy.h"
#include "transport/check_transport.h"
#include "transport/decorators/bounce/bounce_transport.h"
#include "transport/decorators/bounce/reassembly_transport.h"
#include "transport/decorators/emulation/emulation_transport.h"
#include "transport/decorators/fault/fault_spec.h"
#include "transport/decorators/fault/fault_transport.h"
#include "transport/decorators/multirail/multirail_transport.h"
#include "transport/decorators/resend/resend_transport.h"
#include "transport/decorators/seal/seal_transport.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"
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
  bool takes_rails = false;
  // What CheckTransport asks it; null: nothing.
  absl::Status (*check)(const TransportOptions&) = nullptr;
  bool stays_in_process = false;
  absl::Status (*open)() = nullptr;  // its library; null: it needs none
  // Files that it opens, and says late that it could not.
  int files_per_peer = 0;
};

// Values of `tls` while the transport is yet to be chosen.
constexpr const char* kTls[] = {"", "tcp", "shm", "verbs", "efa"};

constexpr std::array kTransports = {
#if TELEGRAD_WITH_UCX
    Entry{"ucx", "TCP, shared memory and RDMA by UCX", &MakeUcxTransport,
          /*takes_rails=*/false, &CheckUcxTransport,
          /*stays_in_process=*/false, &vendor::OpenUcx, /*files_per_peer=*/4},
#else
    Entry{"ucx", "not in this build; it needs libucx-dev", nullptr},
#endif
#if TELEGRAD_WITH_OFI
    Entry{"ofi", "TCP, shared memory and RDMA by libfabric", &MakeOfiTransport,
          /*takes_rails=*/false, /*check=*/nullptr,
          /*stays_in_process=*/false, &vendor::OpenOfi},
#else
    Entry{"ofi", "not in this build; it needs libfabric-dev", nullptr},
#endif
    Entry{"tcp", "TCP by the kernel's sockets", &MakeTcpTransport,
          /*takes_rails=*/true, &CheckTcpTransport,
          /*stays_in_process=*/false, /*open=*/nullptr, /*files_per_peer=*/1},
    Entry{"inproc", "contexts of one process, for tests", &MakeInprocTransport,
          /*takes_rails=*/false, /*check=*/nullptr, /*stays_in_process=*/true},
};

using Decorator = absl::StatusOr<std::unique_ptr<TransportContext>> (*)(
    const TransportFactory&, const TransportOptions&, TransportHandler*);

TransportFactory Decorate(bool is_asked_for, Decorator decorate,
                          TransportFactory make) {
  if (!is_asked_for) return make;
  return [decorate, make = std::move(make)](const TransportOptions& options,
                                            TransportHandler* handler) {
    return decorate(make, options, handler);
  };
}

// Puts `make`'s transport behind what is asked for: keys of each connection,
// several connections to each peer, an emulated link, faults and their remedy.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeDecorated(
    Factory make, const TransportOptions& options, TransportHandler* handler) {
  TransportFactory decorated =
      Decorate(options.key != nullptr, &MakeSealTransport, make);
  decorated = Decorate(NumConnections(options) > 1, &MakeMultiRailTransport,
                       std::move(decorated));
  decorated =
      Decorate(options.link_bytes_per_s != 0 || options.link_latency_s != 0,
               &MakeEmulatedLink, std::move(decorated));
  decorated = Decorate(!options.fault.empty(), &MakeFaultTransport,
                       std::move(decorated));
  decorated =
      Decorate(options.resend, &MakeResendTransport, std::move(decorated));
  return decorated(options, handler);
}

absl::Status CheckMemory(absl::string_view memory) {
  for (const char* known : {"host", "staged", "direct", "auto"}) {
    if (memory == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "memory \"", memory, "\" is none of host, staged, direct, auto"));
}

// Memory of devices straight, as far as the transport's library takes it.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeDirect(
    const TransportFactory& make, TransportOptions options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler) {
  const bool may_stage = options.memory == "auto";
  options.memory = "direct";
  auto context = MakeReassemblyTransport(make, options, handler);
  // What it takes for device memory may be what it cannot have.
  if (!context.ok() && !may_stage) return context.status();
  if (context.ok() && (*context)->Takes(copier->device())) return context;
  const bool takes_some =
      context.ok() && (*context)->TakesSome(copier->device());
  if (!takes_some && !may_stage) {
    return absl::UnimplementedError(absl::StrCat(
        "transport ", options.name, " does not take memory of devices by ",
        "itself: ", (*context)->info().details, "; memory staged copies it"));
  }
  if (context.ok()) context->reset();
  if (!takes_some) options.memory = "host";
  return MakeBounceTransport(make, options, std::move(copier), handler);
}

// Makes a transport for memory of devices, as `options.memory` asks; any memory
// takes what a peer that stages sends in pieces. With a prefix it is the inner
// context of a decorator, which sees to that.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeForMemory(
    const TransportFactory& make, TransportOptions options,
    TransportHandler* handler) {
  RETURN_IF_ERROR(CheckMemory(options.memory));
  if (options.prefix_bytes > 0) return make(options, handler);
  std::string why_not;
  auto copier =
      options.memory == "host" ? nullptr : kernels::MakeCudaCopier(&why_not);
  if (copier == nullptr) {
    if (options.memory != "host" && options.memory != "auto") {
      return absl::UnavailableError(
          absl::StrCat("memory ", options.memory, ": ", why_not));
    }
    options.memory = "host";
    return MakeReassemblyTransport(make, options, handler);
  }
  if (options.memory != "staged") {
    return MakeDirect(make, options, std::move(copier), handler);
  }
  options.memory = "host";
  return MakeBounceTransport(make, options, std::move(copier), handler);
}

// OK, or why the library that it needs is not there.
absl::Status Open(const Entry& entry) {
  return entry.open == nullptr ? absl::OkStatus() : entry.open();
}

// Null: there is none, or not in this build.
const Entry* FindInBuild(absl::string_view name) {
  for (const Entry& entry : kTransports) {
    if (entry.name == name && entry.make != nullptr) return &entry;
  }
  return nullptr;
}

std::string NamesHere() {
  std::string names;
  for (const Entry& entry : kTransports) {
    if (entry.make == nullptr || !Open(entry).ok()) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.name);
  }
  return names;
}

}  // namespace

absl::Status CheckTransport(const TransportOptions& options) {
  const std::string& name = options.name;
  const Entry* const entry = FindInBuild(name);
  if (entry == nullptr) {
    const bool is_known = absl::c_any_of(
        kTransports, [&name](const Entry& each) { return each.name == name; });
    return absl::NotFoundError(absl::StrCat(
        "transport \"", name, "\" is ",
        is_known ? "not in this build, which has " : "none of ", NamesHere()));
  }
  if (const absl::Status opened = Open(*entry); !opened.ok()) {
    return absl::UnavailableError(absl::StrCat("transport ", name, ": ",
                                               opened.message(), "; there are ",
                                               NamesHere()));
  }
  if (options.prefix_bytes > kMaxPrefixBytes ||
      (options.prefix_bytes > 0 && options.memory != "host")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefix_bytes ", options.prefix_bytes, ", memory ", options.memory,
        ": at most ", kMaxPrefixBytes, ", and memory of the host"));
  }
  if (options.connections < 1 || NumConnections(options) > kMaxConnections) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connections ", options.connections, ", rails ", options.rails.size(),
        ": there are 1 to ", kMaxConnections, " connections to a peer"));
  }
  if (!options.rails.empty() && !entry->takes_rails) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport ", name,
                     " takes no rails; tcp does, and ucx has UCX_NET_DEVICES"));
  }
  for (const std::string& rail : options.rails) {
    RETURN_IF_ERROR(AddressOrDevice(rail).status());
  }
  if (!options.fault.empty()) {
    RETURN_IF_ERROR(fault::ParseSpec(options.fault).status());
  }
  return entry->check == nullptr ? absl::OkStatus() : entry->check(options);
}

absl::Status CheckEncryption(const TransportOptions& options, bool has_secret) {
  const bool is_demanded = options.encryption == Encryption::kAuth ||
                           options.encryption == Encryption::kOn;
  if (!is_demanded || has_secret) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("encryption ", Name(options.encryption),
                   ": its keys come from the job's secret, and there is none"));
}

absl::Status CheckOpenTransport(TransportOptions options) {
  const bool is_known = absl::c_any_of(
      kTls, [&](const char* each) { return options.tls == each; });
  if (!is_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls \"", options.tls,
                     "\": where auto chooses the transport it is one of ",
                     absl::StrJoin(kTls + 1, std::end(kTls), ", ")));
  }
  options.name = "tcp";
  options.tls.clear();
  return CheckTransport(options);
}

absl::Status CheckBetweenProcesses(absl::string_view name) {
  const Entry* const entry = FindInBuild(name);
  if (entry == nullptr || !entry->stays_in_process) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--transport ", name, " stays within one process, and members of a job ",
      "are processes of their own; tcp reaches them everywhere"));
}

absl::Status CheckFilesOfTransport(absl::string_view name, int num_members) {
  constexpr int kOwn = 20;
  const Entry* entry = FindInBuild(name);
  if (entry == nullptr) entry = FindInBuild("tcp");  // what is chosen has more
  if (entry->files_per_peer == 0) return absl::OkStatus();
  return CheckOpenFiles(
      static_cast<size_t>(kOwn + entry->files_per_peer * num_members),
      absl::StrCat("--transport ", entry->name, " with ", num_members,
                   " workers and servers"));
}

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTransport(
    const TransportOptions& options, TransportHandler* handler) {
  RETURN_IF_ERROR(CheckTransport(options));
  RETURN_IF_ERROR(CheckEncryption(options, options.key != nullptr));
  return MakeForMemory(
      [make = FindInBuild(options.name)->make](
          const TransportOptions& inner_options,
          TransportHandler* inner_handler) {
        return MakeDecorated(make, inner_options, inner_handler);
      },
      options, handler);
}

std::string DescribeTransports() {
  std::string text;
  for (const Entry& entry : kTransports) {
    const absl::Status opened = Open(entry);
    absl::StrAppend(&text, entry.name, ": ",
                    opened.ok() ? entry.description : opened.message(), "\n");
  }
  return text;
}

}  // namespace telegrad
