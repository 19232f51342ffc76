#include "transport/choose/choose.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/socket.h"
#include "transport/choose/rdma.h"

namespace telegrad {
namespace {

bool IsOneHost(const std::string& bind_address) {
  const absl::StatusOr<SocketAddress> address = ParseIp(bind_address, 0);
  return address.ok() && IsLoopback(*address);
}

// tcp takes "tcp" and ucx "shm" as well; all else names a provider of
// libfabric.
TransportChoice ChooseForTls(const std::string& tls) {
  const std::string reason = absl::StrCat("tls ", tls, " was asked for");
  if (tls == "tcp") return {"tcp", reason};
  if (tls == "shm") return {"ucx", reason};
  return {"ofi", absl::StrCat(reason, ", which only ofi has")};
}

}  // namespace

TransportChoice ChooseFor(const TransportOptions& options) {
  if (!options.tls.empty()) return ChooseForTls(options.tls);
  if (!options.rails.empty()) return {"tcp", "rails were asked for"};
  if (IsOneHost(options.bind_address)) {
    return {"ucx", absl::StrCat(options.bind_address,
                                " is this host alone: shared memory")};
  }
  const FoundRdma found = FindRdma(options);
  if (found.kind == FoundRdma::Kind::kNone) return {"tcp", found.why};
  return {.name = found.kind == FoundRdma::Kind::kEfa ? "ofi" : "ucx",
          .reason = found.why,
          .may_be_tcp = true};
}

TransportOptions ForNetwork(TransportOptions options) {
  const auto is = [name = options.name](absl::string_view network) {
    return absl::EqualsIgnoreCase(name, network);
  };
  if (is("tcp")) options.name = "tcp";
  if (is("ib") || is("rocev2")) options.name = "ucx";
  if (is("efa")) {
    options.name = "ofi";
    if (options.tls.empty()) options.tls = "efa";
  }
  return options;
}

}  // namespace telegrad
