#include "transport/choose/choose.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/socket.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

// Names in a folder, sorted; none where it cannot be read.
std::set<std::string> NamesIn(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    names.insert(it->path().filename());
  }
  return names;
}

bool IsActive(const fs::path& card) {
  for (const std::string& port : NamesIn(card / "ports")) {
    std::ifstream file(card / "ports" / port / "state");
    std::string state;  // "4: ACTIVE"
    if (std::getline(file, state) && absl::StartsWith(state, "4:")) return true;
  }
  return false;
}

bool IsEfa(const fs::path& card) {
  std::error_code error;
  return fs::read_symlink(card / "device" / "driver", error).filename() ==
         "efa";
}

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

TransportChoice ChooseFor(const TransportOptions& options,
                          const std::string& sysfs) {
  if (!options.tls.empty()) return ChooseForTls(options.tls);
  if (!options.rails.empty()) return {"tcp", "rails were asked for"};
  if (IsOneHost(options.bind_address)) {
    return {"ucx", absl::StrCat(options.bind_address,
                                " is this host alone: shared memory")};
  }
  const fs::path cards = fs::path(sysfs) / "class" / "infiniband";
  for (const std::string& name : NamesIn(cards)) {
    if (!IsActive(cards / name)) continue;
    if (IsEfa(cards / name)) return {"ofi", absl::StrCat(name, " is EFA")};
    return {"ucx", absl::StrCat(name, " does RDMA")};
  }
  return {"tcp", "no card here does RDMA"};
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
