#include "compression/shape_checks.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/code_sum.h"

namespace telegrad {

absl::Status CheckSize(absl::string_view what, size_t actual, size_t expected) {
  if (actual == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", actual, " bytes, not ", expected));
}

absl::Status CheckCapacity(absl::string_view what, size_t actual,
                           size_t needed) {
  if (actual >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", actual, " bytes, needs ", needed));
}

absl::Status CheckNumPayloads(size_t num_payloads) {
  if (num_payloads >= 1 && num_payloads <= kernels::kMaxSumContributors) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a sum of ", num_payloads, " payloads; 1 to ",
                   kernels::kMaxSumContributors, " are possible"));
}

absl::Status CheckPayloads(std::span<const ConstBytes> payloads,
                           size_t expected_bytes) {
  RETURN_IF_ERROR(CheckNumPayloads(payloads.size()));
  for (const ConstBytes& payload : payloads) {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, expected_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckIndices(size_t num_elems) {
  if (num_elems < size_t{1} << 31) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(num_elems, " elements; indices have 31 bits"));
}

}  // namespace telegrad
