#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad::perf {

// "4K,64K,1M": these; "8:8M:x2" (or "8:8M"): from 8 bytes on, doubling up to
// 8 MiB; "0:64:+8": steps of 8. K, M and G are powers of 1024, as in nccl-tests
// and the OSU benchmarks. At most 1000 sizes of at most 2^40 bytes.
absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view text);

// "64K", "1M", "1000".
std::string FormatSize(size_t bytes);

}  // namespace telegrad::perf
