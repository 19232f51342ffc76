#include "transport/ofi/registrar.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/ofi/provider.h"
#include "transport/ofi/registration.h"

namespace telegrad::ofi {
namespace {

// Once: what cannot be registered is copied by whoever is above.
void WarnOfDevice(const absl::Status& why) {
  static std::atomic<bool> has_warned{false};
  if (has_warned.exchange(true)) return;
  LogWarning("transport ofi: memory of a device is not registered: ",
             why.message());
}

}  // namespace

absl::StatusOr<Registration> Registrar::Register(ConstBytes memory) {
  if (!NeedsRegistration(mr_mode_, memory.device.kind)) return Registration();
  for (const auto& [device, why] : refused_) {
    if (device == memory.device) return why;
  }
  // libfabric does not write to it where it is only sent.
  const iovec part = {const_cast<std::byte*>(memory.data), memory.size};
  const fi_mr_attr attributes = AttributesOf(part, memory.device, next_key_++);
  fid_mr* registered = nullptr;
  const int error = -fi_mr_regattr(domain_.get(), &attributes, 0, &registered);
  if (error == 0) {
    return Registration{.descriptor = fi_mr_desc(registered),
                        .registered = FidPtr<fid_mr>(registered)};
  }
  const absl::Status why = FabricError("fi_mr_regattr", error);
  if (memory.device.kind == DeviceKind::kCpu) return why;
  WarnOfDevice(why);
  // Any other error may be this range's alone, or pass.
  if (absl::IsUnimplemented(why)) refused_.emplace_back(memory.device, why);
  return why;
}

std::string Registrar::DescribeRefused() const {
  std::string text;
  for (const auto& [device, why] : refused_) {
    absl::StrAppend(&text, ", not of cuda:", device.ordinal, " (",
                    why.message(), ")");
  }
  return text;
}

}  // namespace telegrad::ofi
