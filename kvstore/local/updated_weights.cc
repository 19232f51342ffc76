#include "kvstore/local/updated_weights.h"

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

// We throw nothing; a caller's function may.
absl::Status CallUpdater(const Updater& updater, Key key, ConstBytes sum,
                         Bytes weight) {
  const size_t n = sum.size / sizeof(float);
  try {
    return updater(key, {Floats(sum), n}, {Floats(weight), n});
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("it threw: ", error.what()));
  } catch (...) {
    return absl::InternalError("it threw what is no std::exception");
  }
}

}  // namespace

UpdatedWeights::UpdatedWeights(const Updater& updater, Key key,
                               const TensorSpec& spec)
    : updater_(updater), key_(key), name_(spec.name), sum_(4 * spec.num_elems) {
  for (Buffer& each : weights_) each = Buffer(4 * spec.num_elems);
}

void UpdatedWeights::Set(ConstBytes value, std::span<const ChunkSum> sums,
                         std::span<ChunkResult> results) {
  std::memcpy(weights_[in_force_].data(), value.data, value.size);
  Give(sums, results);
}

void UpdatedWeights::TakeSum(const Chunk& chunk, ConstBytes sum) {
  std::memcpy(sum_.as<float>() + chunk.begin, sum.data, sum.size);
}

absl::Status UpdatedWeights::Step(std::span<const ChunkSum> sums,
                                  std::span<ChunkResult> results) {
  const Buffer& now = weights_[in_force_];
  const Buffer& next = weights_[1 - in_force_];
  std::memcpy(next.data(), now.data(), now.size());
  const absl::Status status =
      CallUpdater(updater_, key_, sum_.view(), next.view());
  if (status.ok()) in_force_ = 1 - in_force_;
  Give(sums, results);
  if (status.ok()) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("updater of tensor ", name_,
                                                  ": ", status.message()));
}

void UpdatedWeights::Give(std::span<const ChunkSum> sums,
                          std::span<ChunkResult> results) const {
  for (size_t i = 0; i < sums.size(); ++i) {
    results[i] = {.payload = PartOf(ConstBytes(weights_[in_force_].view()),
                                    sums[i].chunk(), Dtype::kFloat32)};
  }
}

}  // namespace telegrad
