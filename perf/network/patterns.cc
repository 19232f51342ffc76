#include "perf/network/patterns.h"

#include "absl/strings/str_cat.h"

namespace telegrad::perf {
namespace {

std::byte ByteAt(uint32_t seed, size_t i) {
  return static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 9);
}

float GradientAt(int worker, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(worker) * 5 + i / 97) %
                            17) -
         8.0f;
}

}  // namespace

void FillBytes(uint32_t seed, Bytes memory) {
  for (size_t i = 0; i < memory.size; ++i) memory.data[i] = ByteAt(seed, i);
}

absl::Status VerifyBytes(int rank, uint32_t seed, ConstBytes memory) {
  for (size_t i = 0; i < memory.size; ++i) {
    if (memory.data[i] == ByteAt(seed, i)) continue;
    return absl::DataLossError(
        absl::StrCat("check: rank ", rank, ": byte ", i, " of ", memory.size,
                     " is ", static_cast<int>(memory.data[i]), ", not ",
                     static_cast<int>(ByteAt(seed, i))));
  }
  return absl::OkStatus();
}

void FillGradient(int worker, size_t n, float* gradient) {
  for (size_t i = 0; i < n; ++i) gradient[i] = GradientAt(worker, i);
}

absl::Status VerifySums(int worker, int num_workers, size_t n,
                        const float* sums) {
  for (size_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int each = 0; each < num_workers; ++each) sum += GradientAt(each, i);
    if (sums[i] == sum) continue;
    return absl::DataLossError(absl::StrCat("check: worker ", worker,
                                            ": element ", i, " of ", n, " is ",
                                            sums[i], ", not ", sum));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
