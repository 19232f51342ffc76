#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace telegrad {

enum class Role : uint8_t { kScheduler = 0, kServer = 1, kWorker = 2 };

inline const char* RoleName(Role role) {
  switch (role) {
    case Role::kScheduler:
      return "scheduler";
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
  }
  return "unknown";
}

struct NodeId {
  Role role = Role::kWorker;
  int rank = 0;
  bool operator==(const NodeId&) const = default;
};

// "worker/1"; "scheduler".
inline std::string ToString(NodeId node) {
  if (node.role == Role::kScheduler) return "scheduler";
  return absl::StrCat(RoleName(node.role), "/", node.rank);
}

}  // namespace telegrad
