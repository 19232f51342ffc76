#include "kvstore/collective/nccl/environment.h"

#include <stdlib.h>

#include <mutex>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "transport/gid_row.h"

namespace telegrad::collective {

std::string SetNcclEnvironment(const TransportOptions& options) {
  static std::mutex mutex;  // the environment is the process's
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::string> ours;
  const auto set_unless_users = [&](const char* name,
                                    const std::string& value) {
    if (getenv(name) != nullptr) return;
    setenv(name, value.c_str(), 1);
    ours.push_back(absl::StrCat(name, "=", value));
  };
  if (options.rdma_ports.empty()) return "";
  // = stands for whole names, not their starts.
  set_unless_users("NCCL_IB_HCA",
                   absl::StrCat("=", absl::StrJoin(options.rdma_ports, ",")));
  const std::optional<int> row =
      CommonGidRow(options.rdma_ports, options.gid_rows);
  if (row.has_value()) {
    set_unless_users("NCCL_IB_GID_INDEX", absl::StrCat(*row));
  }
  return absl::StrJoin(ours, " ");
}

}  // namespace telegrad::collective
