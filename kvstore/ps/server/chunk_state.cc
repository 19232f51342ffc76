#include "kvstore/ps/server/chunk_state.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kHeadBytes = 16;

absl::StatusOr<ChunkSum*> SumOf(Aggregator& aggregator) {
  if (ChunkSum* const sum = aggregator.sum(); sum != nullptr) return sum;
  return absl::InvalidArgumentError(
      "a codec's state was asked for, but workers have no rounds together");
}

}  // namespace

std::string ChunkStateText(uint64_t num_steps, size_t num_arrays,
                           ConstBytes values) {
  std::byte head[kHeadBytes];
  StoreLittleEndian(head, num_steps);
  StoreLittleEndian(head + 8, uint64_t{num_arrays});
  std::string text(reinterpret_cast<const char*>(head), kHeadBytes);
  if (values.size > 0) {
    text.append(reinterpret_cast<const char*>(values.data), values.size);
  }
  return text;
}

absl::StatusOr<ChunkState> ReadChunkState(ConstBytes payload,
                                          size_t num_elems) {
  ChunkState state;
  uint64_t num_arrays = 0;
  if (payload.size >= kHeadBytes) {
    state.num_steps = LoadLittleEndian<uint64_t>(payload.data);
    num_arrays = LoadLittleEndian<uint64_t>(payload.data + 8);
  }
  const size_t expected = kHeadBytes + (num_arrays > 0 ? 4 * num_elems : 0);
  if (payload.size != expected || num_arrays > kMaxStateArrays ||
      (num_arrays == 0) != (state.num_steps == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state of ", payload.size, " bytes, ", num_arrays, " arrays after ",
        state.num_steps, " steps, of a chunk of ", num_elems, " elements"));
  }
  state.num_arrays = static_cast<size_t>(num_arrays);
  state.values = {payload.data + kHeadBytes, expected - kHeadBytes};
  return state;
}

absl::StatusOr<std::string> DescribeState(Aggregator& aggregator,
                                          uint64_t index) {
  if (aggregator.sum() != nullptr && aggregator.sum()->has_held()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "late pushes of key ", aggregator.chunk().key,
        " are in no step yet: a state is saved behind a step that takes all"));
  }
  if (index == kCodecState) {
    ASSIGN_OR_RETURN(const ChunkSum* const sum, SumOf(aggregator));
    return sum->Save();
  }
  const ChunkWeights& weights = aggregator.weights();
  const auto arrays = weights.state.arrays();
  if (index >= std::max<size_t>(1, arrays.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("state ", index, " of ", arrays.size(), " was asked for"));
  }
  return ChunkStateText(
      weights.state.num_steps(), arrays.size(),
      arrays.empty() ? ConstBytes() : ConstBytes(arrays[index]));
}

absl::Status SetState(Aggregator& aggregator, OptimizerKind kind,
                      uint64_t index, ConstBytes payload) {
  if (index == kCodecState) {
    ASSIGN_OR_RETURN(ChunkSum* const sum, SumOf(aggregator));
    return sum->Load(
        {reinterpret_cast<const char*>(payload.data), payload.size});
  }
  ASSIGN_OR_RETURN(const ChunkState state,
                   ReadChunkState(payload, aggregator.chunk().num_elems));
  const bool fits = state.num_arrays == 0
                        ? index == 0
                        : state.num_arrays == NumStateArrays(kind) &&
                              index < state.num_arrays;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state ", index, " of ", state.num_arrays, " for ", ToString(kind)));
  }
  OptimizerState& own = aggregator.weights().state;
  if (state.num_arrays == 0) {
    own = {};
    return absl::OkStatus();
  }
  Buffer array(state.values.size);
  std::memcpy(array.data(), state.values.data, array.size());
  own.Restore(state.num_steps, static_cast<size_t>(index), std::move(array));
  return absl::OkStatus();
}

}  // namespace telegrad
