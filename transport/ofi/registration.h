#pragma once

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include <cstdint>

#include "base/bytes.h"

namespace telegrad::ofi {

// Whether a provider with these bits of fi_domain_attr::mr_mode demands that
// such memory is registered before it is sent or received into.
inline bool NeedsRegistration(int mr_mode, DeviceKind device) {
  const int demands =
      device == DeviceKind::kCpu ? FI_MR_LOCAL : FI_MR_LOCAL | FI_MR_HMEM;
  return (mr_mode & demands) != 0;
}

// Attributes of memory to send and to receive into; points to `part`. `key`: no
// other registration's; providers without FI_MR_PROV_KEY take it.
inline fi_mr_attr AttributesOf(const iovec& part, Device device, uint64_t key) {
  fi_mr_attr attributes{};
  attributes.mr_iov = &part;
  attributes.iov_count = 1;
  attributes.access = FI_SEND | FI_RECV;
  attributes.requested_key = key;
  if (device.kind == DeviceKind::kCuda) {
    attributes.iface = FI_HMEM_CUDA;
    attributes.device.cuda = device.ordinal;
  } else {
    attributes.iface = FI_HMEM_SYSTEM;
  }
  return attributes;
}

}  // namespace telegrad::ofi
