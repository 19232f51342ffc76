#include "compression/sparse/value_codec.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/sparse/sparse_kernels.h"

namespace telegrad {

size_t NumSent(double density, size_t n) {
  const double wanted = std::ceil(density * static_cast<double>(n));
  return static_cast<size_t>(std::clamp(wanted, 1.0, static_cast<double>(n)));
}

absl::Status ValueCodec::Validate(ConstBytes payload) const {
  return ValidateValueList(payload, num_elems(), max_sent_);
}

absl::Status ValueCodec::Decode(ConstBytes payload, float, Bytes out,
                                Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, out));
  if (is_on_gpu()) return DecodeOnGpu(payload, out, stream);
  DecodeValueList(payload, num_elems(), AsFloats(out));
  return absl::OkStatus();
}

absl::Status ValueCodec::DecodeAdd(ConstBytes payload, float, Bytes sum,
                                   Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, sum));
  if (is_on_gpu()) return DecodeAddOnGpu(payload, sum, stream);
  AddValueList(payload, num_elems(), AsFloats(sum));
  return absl::OkStatus();
}

ValueCodec::Lists ValueCodec::MakeLists(CodecState& state) const {
  const size_t room = num_elems() + kernels::kSurvivorSlack;
  if (state.scratch.size() == 0) {
    state.scratch = Buffer(4 * (2 * room + MaxSample(num_elems())));
  }
  auto* floats = state.scratch.as<float>();
  return {.indices = state.scratch.as<uint32_t>(),
          .values = floats + room,
          .sample = floats + 2 * room};
}

absl::Status ValueCodec::EncodeLargest(ConstBytes grad, CodecState& state,
                                       const EncodeParams& params, size_t k,
                                       Bytes out, EncodeResult* result,
                                       Stream stream) const {
  if (is_on_gpu()) {
    return EncodeOnGpu(grad, {}, state, params, k, out, result, stream);
  }
  const float* g = AsFloats(grad);
  float* residual = AsFloats(state.residual);
  Lists lists = MakeLists(state);
  const float threshold = CandidateThreshold(
      k, [g, residual](size_t i) { return residual[i] + g[i]; }, {residual, g},
      lists);
  result->stats = {};
  kernels().sparse.large_values(g, residual, num_elems(), &threshold,
                                params.nonfinite, lists.indices, lists.values,
                                &lists.count, &result->stats, nullptr, stream);
  Send(k, lists, residual, out, result);
  return absl::OkStatus();
}

absl::StatusOr<ValueCodec::GpuScratch> ValueCodec::GpuScratchOf(
    CodecState& state, Stream stream) const {
  const size_t room = num_elems() + kernels::kSurvivorSlack;
  const size_t kept_at = 8 * room;
  const size_t counts_at = kept_at + 4 * (max_sent_ + max_sent_ % 2);
  const size_t factors_at = counts_at + 16;
  const size_t work_at = factors_at + 8;
  // Selecting takes the most.
  RETURN_IF_ERROR(MakeRoom(work_at + kernels::SelectScratchBytes(num_elems()),
                           kernels(), state.scratch, stream));
  std::byte* const first = state.scratch.data();
  const auto floats_at = [first](size_t at) {
    return reinterpret_cast<float*>(first + at);
  };
  auto* const counts = reinterpret_cast<uint64_t*>(first + counts_at);
  return GpuScratch{.indices = reinterpret_cast<uint32_t*>(first),
                    .values = floats_at(4 * room),
                    .kept = reinterpret_cast<uint32_t*>(first + kept_at),
                    .num_listed = counts,
                    .num_kept = counts + 1,
                    .threshold = floats_at(factors_at),
                    .scale = floats_at(factors_at + 4),
                    .work = first + work_at};
}

// All of it queued: thresholds and counts stay on the device.
absl::Status ValueCodec::EncodeOnGpu(ConstBytes grad,
                                     const GpuMomentum& momentum,
                                     CodecState& state,
                                     const EncodeParams& params, size_t k,
                                     Bytes out, EncodeResult* result,
                                     Stream stream) const {
  ASSIGN_OR_RETURN(const GpuScratch s, GpuScratchOf(state, stream));
  const kernels::KernelTable& table = kernels();
  const float* const g = AsFloats(grad);
  float* const residual = AsFloats(state.residual);
  float* const u = momentum.values;
  const size_t n = num_elems();
  const kernels::MomentumCorrection correction = {
      .rate = momentum.rate, .scale = momentum.clip != 0 ? s.scale : nullptr};
  if (momentum.clip != 0) {
    table.select.clip_scale(g, n, momentum.clip, s.scale, s.work, stream);
  }
  table.select.sample_threshold({g, residual, u, correction}, n, k,
                                !is_sampled_, s.threshold, s.work, stream);
  BeginResult({}, table, result, stream);
  if (u == nullptr) {
    table.sparse.large_values(g, residual, n, s.threshold, params.nonfinite,
                              s.indices, s.values, s.num_listed, &result->stats,
                              s.work, stream);
  } else {
    table.sparse.momentum_large_values(
        g, correction, u, residual, n, s.threshold, params.nonfinite, s.indices,
        s.values, s.num_listed, &result->stats, s.work, stream);
  }
  const size_t values_at = kernels::ListAt(kernels::SparseContent::kValues, 0);
  auto* const values = reinterpret_cast<float*>(out.data + values_at);
  table.select.take_largest(
      HowManyOf(k), {s.indices, s.values, s.num_listed, residual, u, n},
      {s.kept, values, s.num_kept, &result->stats}, s.work, stream);
  WriteOnGpu(s.kept, s.num_kept, 0, s.work, out, result, stream);
  return absl::OkStatus();
}

void ValueCodec::Send(size_t k, Lists& lists, float* residual, Bytes out,
                      EncodeResult* result) const {
  const kernels::HowMany how_many = HowManyOf(k);
  if (lists.count < how_many.fewest) {
    lists.count =
        FindLargest(residual, num_elems(), k, lists.indices, lists.values);
  } else if (lists.count > how_many.most) {
    lists.count =
        KeepLargest(k, lists.count, lists.indices, lists.values, residual);
  }
  ClearListed(lists.indices, lists.count, residual);
  result->stats.num_nonzero = lists.count;
  result->encoded_bytes = WriteValueList({lists.indices, lists.count},
                                         lists.values, num_elems(), out);
}

}  // namespace telegrad
