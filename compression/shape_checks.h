#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"

// Size checks that codecs share. InvalidArgument names the operand and both
// sizes.
namespace telegrad {

absl::Status CheckSize(absl::string_view what, size_t actual, size_t expected);
absl::Status CheckCapacity(absl::string_view what, size_t actual,
                           size_t needed);
// 1 to kernels::kMaxSumContributors.
absl::Status CheckNumPayloads(size_t num_payloads);
absl::Status CheckPayloads(std::span<const ConstBytes> payloads,
                           size_t expected_bytes);
// For sparse codecs, whose indices have 31 bits.
absl::Status CheckIndices(size_t num_elems);

}  // namespace telegrad
