#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "compression/codec.h"
#include "compression/encode_many.h"
#include "kernels/dispatch.h"

namespace telegrad {

// What every codec's Prepare begins with: the kernels for `device`.
// InvalidArgument for a tensor without elements; Unimplemented with the probe's
// reason when there are no kernels.
absl::StatusOr<const kernels::KernelTable*> KernelsFor(size_t num_elems,
                                                       Device device);

// Makes `buffer` of `size` bytes of the table's device, zero-filled in the
// stream's order, unless it has that size. ResourceExhausted where the device
// has none left.
absl::Status MakeRoom(size_t size, const kernels::KernelTable& table,
                      Buffer& buffer, Stream stream);

// What every Encode begins with: sets a result in the stream's order. `result`
// may be memory that only the device can reach.
void BeginResult(const EncodeResult& begun, const kernels::KernelTable& table,
                 EncodeResult* result, Stream stream);

// The kernel's name of a gradient's format.
kernels::GradFormat FormatOf(const std::optional<HalfFormat>& half);
// The span of an item whose sizes have been checked.
kernels::EncodeSpan SpanOf(const EncodeItem& item, float* residual,
                           float threshold);
kernels::DecodeSpan SpanOf(const DecodeItem& item, float threshold);
// Room for as many elements of float32 as `item.out` has of its own.
Bytes FloatRoomOf(const DecodeItem& item);

// Internal, with the exit code of a GPU that failed.
absl::Status LaunchFault(const std::string& what);

// Elements of a tile of whole blocks.
size_t TileOf(size_t block);

}  // namespace telegrad
