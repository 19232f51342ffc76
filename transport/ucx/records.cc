#include "transport/ucx/records.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "transport/ucx/config.h"

namespace telegrad::ucx {

void Pack(Prefix prefix, std::byte* out) {
  std::memset(out, 0, kPrefixBytes);
  StoreLittleEndian(out, prefix.sequence);
  out[4] = static_cast<std::byte>(prefix.kind);
  out[5] = static_cast<std::byte>(kPrefixVersion);
}

bool Unpack(const std::byte* in, Prefix* prefix) {
  prefix->sequence = LoadLittleEndian<uint32_t>(in);
  prefix->kind = static_cast<Kind>(in[4]);
  return in[4] <= static_cast<std::byte>(Kind::kProof) &&
         in[5] == static_cast<std::byte>(kPrefixVersion) &&
         in[6] == std::byte{0} && in[7] == std::byte{0};
}

absl::Status PeerError(absl::string_view what, ucs_status_t status) {
  const absl::Status error = UcxError(what, status);
  if (!absl::IsCancelled(error) && !absl::IsInternal(error)) return error;
  return absl::UnavailableError(
      absl::StrCat("the peer is gone: ", error.message()));
}

ucs_memory_type_t MemoryTypeOf(Device device) {
  return device.kind == DeviceKind::kCuda ? UCS_MEMORY_TYPE_CUDA
                                          : UCS_MEMORY_TYPE_HOST;
}

}  // namespace telegrad::ucx
