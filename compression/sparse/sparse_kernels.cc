#include "compression/sparse/sparse_kernels.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"

namespace telegrad {

absl::StatusOr<const kernels::KernelTable*> SparseKernelsFor(size_t num_elems,
                                                             Device device) {
  ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                   KernelsFor(num_elems, device));
  if (num_elems >= size_t{1} << 31) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_elems, " elements; indices have 31 bits"));
  }
  return table;
}

}  // namespace telegrad
