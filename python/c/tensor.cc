#include "python/c/tensor.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"

namespace telegrad::c {

absl::Status CheckTensor(const telegrad_tensor& tensor, bool has_data) {
  const size_t size = SizeOf(static_cast<Dtype>(tensor.dtype));
  if (tensor.dtype < 0 || tensor.dtype > UINT8_MAX || size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", tensor.dtype, " is no telegrad_dtype"));
  }
  if (tensor.num_elems < 0 || tensor.num_elems > (int64_t{1} << 48)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", tensor.num_elems, " elements"));
  }
  if (has_data && tensor.data == nullptr && tensor.num_elems > 0) {
    return absl::InvalidArgumentError("a tensor without data");
  }
  return absl::OkStatus();
}

absl::Status CheckHostTensor(const telegrad_tensor& tensor, const char* what) {
  RETURN_IF_ERROR(CheckTensor(tensor, /*has_data=*/true));
  if (tensor.device >= 0) {
    return absl::UnimplementedError(
        absl::StrCat("a tensor of GPU ", tensor.device, ": ", what,
                     " are of host memory; copy it first"));
  }
  const size_t size = SizeOf(static_cast<Dtype>(tensor.dtype));
  if (reinterpret_cast<uintptr_t>(tensor.data) % size == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor at an address that is no multiple of ", size));
}

}  // namespace telegrad::c
