#include "compression/sparse/value_codec.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/shape_checks.h"

namespace telegrad {

size_t NumSent(double density, size_t n) {
  const double wanted = std::ceil(density * static_cast<double>(n));
  return static_cast<size_t>(std::clamp(wanted, 1.0, static_cast<double>(n)));
}

CodecOption ReplyOption() {
  return {"reply",
          &CodecOptions::reply,
          0,
          0,
          65535,
          true,
          "how many pushes' elements a server replies; 0: all, exact sums"};
}

absl::Status ValueCodec::Validate(ConstBytes payload) const {
  return ValidateValueList(payload, num_elems(), num_elems());
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
  const Wanted wanted = WantedOf(k, params);
  if (is_on_gpu()) {
    return EncodeOnGpu(grad, {}, state, params, wanted, out, result, stream);
  }
  const float* g = AsFloats(grad);
  float* residual = AsFloats(state.residual);
  Lists lists = MakeLists(state);
  const float threshold = CandidateThreshold(
      wanted, [g, residual](size_t i) { return residual[i] + g[i]; },
      {residual, g}, lists);
  result->stats = {};
  kernels().sparse.large_values(g, residual, num_elems(), &threshold,
                                params.nonfinite, lists.indices, lists.values,
                                &lists.count, &result->stats, nullptr, stream);
  Send(wanted, threshold, lists, residual, out, result);
  if (float* const momentum = AsFloats(state.momentum)) {
    ClearListed(lists.indices, lists.count, momentum);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BatchPart>> ValueCodec::LargestPartOf(
    const EncodeItem& item, size_t k, Stream stream) const {
  auto* const encode = kernels().batch.top_k;
  if (encode == nullptr || item.half.has_value()) return std::nullopt;
  RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
  RETURN_IF_ERROR(GpuScratchOf(*item.state, item.params, stream).status());
  BatchPart part = {.encode = encode,
                    .tile_elems = kernels::kSparseTile,
                    .span = SpanOf(item, AsFloats(item.state->residual), 0)};
  const size_t n = num_elems();
  part.span.scratch = item.state->scratch.data();
  part.span.k = static_cast<uint32_t>(k);
  part.span.is_sampled = is_sampled_;
  part.span.sample_rank = static_cast<uint32_t>(
      kernels::SampleRank(kernels::SampleSize(n), n, k, !is_sampled_));
  return part;
}

absl::StatusOr<kernels::TopKScratch> ValueCodec::GpuScratchOf(
    CodecState& state, const EncodeParams& params, Stream stream) const {
  const size_t most = params.source == kServerSource
                          ? Replied(max_sent_, params.num_summed)
                          : max_sent_;
  RETURN_IF_ERROR(MakeRoom(kernels::TopKScratch::Bytes(num_elems(), most),
                           kernels(), state.scratch, stream));
  return kernels::TopKScratch(state.scratch.data(), num_elems());
}

// All of it queued: thresholds and counts stay on the device.
absl::Status ValueCodec::EncodeOnGpu(
    ConstBytes grad, const GpuMomentum& momentum, CodecState& state,
    const EncodeParams& params, const Wanted& wanted, Bytes out,
    EncodeResult* result, Stream stream) const {
  ASSIGN_OR_RETURN(const kernels::TopKScratch s,
                   GpuScratchOf(state, params, stream));
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
  table.select.sample_threshold({g, residual, u, correction}, n, wanted.k,
                                !wanted.is_sampled, s.threshold, s.work,
                                stream);
  BeginResult({}, table, result, stream);
  if (u == nullptr) {
    table.sparse.large_values(g, residual, n, s.threshold, params.nonfinite,
                              s.indices, s.values, s.num_listed, &result->stats,
                              s.tiles, stream);
  } else {
    table.sparse.momentum_large_values(
        g, correction, u, residual, n, s.threshold, params.nonfinite, s.indices,
        s.values, s.num_listed, &result->stats, s.tiles, stream);
  }
  const size_t values_at = kernels::ListAt(kernels::SparseContent::kValues, 0);
  auto* const values = reinterpret_cast<float*>(out.data + values_at);
  float* const masked = u != nullptr ? u : AsFloats(state.momentum);
  table.select.take_largest(
      kernels::HowManyOf(wanted.k, wanted.is_sampled),
      {s.indices, s.values, s.num_listed, residual, masked, n},
      {s.kept, values, s.num_kept, &result->stats}, s.work, stream);
  WriteOnGpu(s.kept, s.num_kept, 0, s.work, out, result, stream);
  return absl::OkStatus();
}

void ValueCodec::Send(const Wanted& wanted, float threshold, Lists& lists,
                      float* residual, Bytes out, EncodeResult* result) const {
  const kernels::HowMany how_many =
      kernels::HowManyOf(wanted.k, wanted.is_sampled);
  const bool lists_all = MagnitudeBits(threshold) <= 1;
  if (lists.count < how_many.fewest && !lists_all) {
    lists.count = FindLargest(residual, num_elems(), wanted.k, lists.indices,
                              lists.values);
  } else if (lists.count > how_many.most) {
    lists.count = KeepLargest(wanted.k, lists.count, lists.indices,
                              lists.values, residual);
  }
  ClearListed(lists.indices, lists.count, residual);
  result->stats.num_nonzero = lists.count;
  result->encoded_bytes = WriteValueList({lists.indices, lists.count},
                                         lists.values, num_elems(), out);
}

}  // namespace telegrad
