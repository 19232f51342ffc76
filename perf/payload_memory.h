#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/device.h"
#include "kvstore/engine/device/device_lane.h"

namespace telegrad::perf {

// Where --memory says that payloads lie: "host"; "cuda:1"; "cuda": of each rank
// the next GPU of its machine. InvalidArgument names what else was said, or why
// there is no such device.
absl::StatusOr<Device> PayloadDevice(absl::string_view memory, int rank);
inline constexpr char kMemoryHelp[] =
    "where payloads lie: host; cuda:1, a GPU; cuda, for each rank the next GPU";

// Memory that transports and stores take, on a device or on the host. One
// thread.
class PayloadMemory {
 public:
  // Zero-filled. ResourceExhausted, Internal: what the device says.
  static absl::StatusOr<std::unique_ptr<PayloadMemory>> Make(Device device,
                                                             size_t size);

  Bytes view() const { return memory_.view(); }
  // Its first bytes.
  Bytes view(size_t size) const;
  size_t size() const { return memory_.size(); }

  // From and to the host's memory, of the first bytes; return when it is done.
  absl::Status Write(ConstBytes from);
  absl::Status Read(Bytes to);

 private:
  PayloadMemory() = default;

  std::unique_ptr<DeviceLane> lane_;  // null: on the host
  Buffer memory_, pinned_;            // go first
};

}  // namespace telegrad::perf
