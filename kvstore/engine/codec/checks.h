#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/tensor_view.h"
#include "kvstore/engine/codec/chunk_codec.h"
#include "kvstore/options.h"

// What every store refuses, in the same words.
namespace telegrad {

constexpr size_t kMaxTensors = size_t{1} << 20;  // tensors of a store
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxTensorElems = size_t{1} << 40;
constexpr size_t kMaxChunkElems = size_t{16} << 20;  // kMaxPayloadBytes

// Whether it is one of TensorSpec's.
bool IsTensorName(absl::string_view name);

// InvalidArgument for an empty list, a bad name, a name that is there twice, a
// size beyond kMaxTensorElems, rates that cannot be, or chunks beyond
// kMaxChunkElems.
absl::Status CheckTensors(std::span<const TensorSpec> tensors);

// InvalidArgument when settings contradict each other (reply mode sum with
// codec none is no contradiction: it is dense), those of `tensors` included.
absl::Status CheckConfig(const CompressionConfig& compression,
                         const OptimizerConfig& optimizer,
                         std::span<const TensorSpec> tensors = {});

// InvalidArgument for what an asynchronous store cannot have: an optimizer on
// the workers, sums as answers, a staleness that is none.
absl::Status CheckAsync(const CompressionConfig& compression,
                        const OptimizerConfig& optimizer,
                        int64_t max_staleness);

// InvalidArgument for what a store that drops the slowest cannot have: an
// optimizer on the workers, sums as answers.
absl::Status CheckDropSlowest(const CompressionConfig& compression,
                              const OptimizerConfig& optimizer);

// InvalidArgument for other than 1 to kMaxChunkElems.
absl::Status CheckChunkElems(size_t chunk_elems);

// Types of floats, and a place for each device of the process or none.
absl::Status CheckPlaces(std::span<const TensorSpec> tensors, int num_devices);
Device PlaceOf(const TensorSpec& tensor, size_t device);

// One view for each device, where it lies, of the tensor's elements.
absl::Status CheckViews(const TensorSpec& tensor,
                        std::span<const TensorView> views, int num_devices);

// What an operation must find: a tensor that is there (InvalidArgument), to
// itself and, for a pull, with a value (FailedPrecondition).
absl::Status CheckKey(Key key, size_t num_tensors);
absl::Status CheckTurn(const TensorSpec& tensor, bool lacks_value,
                       bool is_taken);
// And a broadcast: a worker whose value it is.
absl::Status CheckRoot(int root, int num_workers);

// Init's values: none, or one view for each tensor and device; an optimizer in
// the store needs them.
absl::Status CheckValues(std::span<const TensorSpec> tensors,
                         std::span<const TensorView> values, int num_devices,
                         const OptimizerConfig& optimizer);

// What a gradient that the policy refuses ends the job with (exit code 42).
// `who` is "worker/1", `number` its number, `whole` of the tensor; or grad is
// the whole tensor's, on the lane's device if there is one.
absl::Status NonFiniteError(absl::string_view who, int number,
                            const TensorSpec& tensor, uint64_t step,
                            const EncodeStats& whole);
absl::Status NonFiniteError(absl::string_view who, int number,
                            const TensorSpec& tensor, uint64_t step,
                            ConstBytes grad, DeviceLane* lane,
                            const Chunk& chunk, const EncodedChunk& encoded);

}  // namespace telegrad
