#include "compression/device_kernels.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "compression/payload_views.h"

namespace telegrad {

absl::StatusOr<const kernels::KernelTable*> KernelsFor(size_t num_elems,
                                                       Device device) {
  if (num_elems == 0) {
    return absl::InvalidArgumentError("a tensor without elements");
  }
  if (device.kind == DeviceKind::kCpu) return &kernels::CpuKernels();
  std::string why_not;
  const kernels::KernelTable* table =
      kernels::CudaKernels(device.ordinal, &why_not);
  if (table != nullptr) return table;
  return absl::UnimplementedError(
      absl::StrCat("no GPU kernels on this machine: ", why_not));
}

absl::Status MakeRoom(size_t size, const kernels::KernelTable& table,
                      Buffer& buffer, Stream stream) {
  if (buffer.size() == size) return absl::OkStatus();
  buffer = table.make_buffer(size, table.ordinal, stream);
  if (buffer.size() == size) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(table.name, " has no ", size, " bytes left"));
}

void BeginResult(const EncodeResult& begun, const kernels::KernelTable& table,
                 EncodeResult* result, Stream stream) {
  static_assert(sizeof(begun) <= kernels::kMaxPutBytes);
  table.put(&begun, sizeof(begun), result, stream);
}

absl::Status LaunchFault(const std::string& what) {
  return WithExitCode(ExitCode::kDeviceFault, absl::InternalError(what));
}

size_t TileOf(size_t block) {
  return std::max(kernels::kBatchTile / block, size_t{1}) * block;
}

kernels::GradFormat FormatOf(const std::optional<HalfFormat>& half) {
  if (!half.has_value()) return kernels::GradFormat::kFloat32;
  return *half == HalfFormat::kFp16 ? kernels::GradFormat::kFp16
                                    : kernels::GradFormat::kBf16;
}

kernels::EncodeSpan SpanOf(const EncodeItem& item, float* residual,
                           float threshold) {
  static_assert(sizeof(EncodeResult) == sizeof(kernels::SpanResult) &&
                offsetof(EncodeResult, stats) ==
                    offsetof(kernels::SpanResult, stats));
  return {.grad = item.grad.data,
          .residual = residual,
          .momentum = AsFloats(item.state->momentum),
          .codes = AsCodes(item.out),
          .result = reinterpret_cast<kernels::SpanResult*>(item.result),
          .num_elems = item.codec->num_elems(),
          .encoded_bytes = item.codec->max_encoded_bytes(),
          .threshold = threshold,
          .format = FormatOf(item.half),
          .samples = item.samples,
          .sample_stride = item.sample_stride};
}

kernels::DecodeSpan SpanOf(const DecodeItem& item, float threshold) {
  return {.codes = AsCodes(item.payload),
          .out = item.out.data,
          .num_elems = item.codec->num_elems(),
          .threshold = threshold,
          .scale = item.scale,
          .num_bytes = item.payload.size};
}

Bytes FloatRoomOf(const DecodeItem& item) {
  Bytes room = item.out;
  if (item.half.has_value()) room.size *= 2;
  return room;
}

}  // namespace telegrad
