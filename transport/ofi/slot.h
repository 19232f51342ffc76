#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "transport/transport.h"

namespace telegrad::ofi {

template <typename Fid>
struct FidDeleter {
  void operator()(Fid* fid) const { fi_close(&fid->fid); }
};
template <typename Fid>
using FidPtr = std::unique_ptr<Fid, FidDeleter<Fid>>;

// None where none is needed.
struct Registration {
  void* descriptor = nullptr;
  FidPtr<fid_mr> registered;
};

// What libfabric does with a slot: a record in the slot's own memory, or a
// large payload in the user's.
enum class Role : uint8_t { kReceive, kSend, kLaneReceive, kLaneSend };

struct Slot {
  fi_context2 context = {};  // first: libfabric's, while it has the slot
  std::byte* bytes = nullptr;
  void* descriptor = nullptr;
  FidPtr<fid_mr> registered;  // the user's memory, for this operation
  Role role = Role::kSend;
  EndpointId endpoint = 0;  // 0: nobody waits for it
  void* message = nullptr;  // the message of that endpoint
};

struct Completion {
  Slot* slot = nullptr;
  size_t num_bytes = 0;  // received
  int error = 0;         // libfabric's code, positive
};

}  // namespace telegrad::ofi
