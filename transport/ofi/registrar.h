#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/ofi/slot.h"

namespace telegrad::ofi {

// Registers memory for operations of one domain. libfabric itself keeps
// registrations for the next time, at most as many as FI_MR_CACHE_MAX_COUNT
// says, and sees when memory is freed; we would not. One thread.
class Registrar {
 public:
  Registrar(int mr_mode, const FidPtr<fid_domain>& domain)
      : mr_mode_(mr_mode), domain_(domain) {}

  // None where the provider demands none.
  absl::StatusOr<Registration> Register(ConstBytes memory);
  // Devices whose memory is refused: ", not of cuda:0 (why)".
  std::string DescribeRefused() const;

 private:
  const int mr_mode_;
  const FidPtr<fid_domain>& domain_;
  uint64_t next_key_ = 0;
  // Devices whose memory fi_mr_regattr does not take, and why.
  std::vector<std::pair<Device, absl::Status>> refused_;
};

}  // namespace telegrad::ofi
