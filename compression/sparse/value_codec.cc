#include "compression/sparse/value_codec.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace telegrad {

size_t NumSent(double density, size_t n) {
  const double wanted = std::ceil(density * static_cast<double>(n));
  return static_cast<size_t>(std::clamp(wanted, 1.0, static_cast<double>(n)));
}

absl::Status ValueCodec::Validate(ConstBytes payload) const {
  return ValidateValueList(payload, num_elems(), max_sent_);
}

absl::Status ValueCodec::Decode(ConstBytes payload, float, Bytes out,
                                Stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, out));
  DecodeValueList(payload, num_elems(), AsFloats(out));
  return absl::OkStatus();
}

absl::Status ValueCodec::DecodeAdd(ConstBytes payload, float, Bytes sum,
                                   Stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, sum));
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

void ValueCodec::EncodeLargest(ConstBytes grad, CodecState& state,
                               const EncodeParams& params, size_t k, Bytes out,
                               EncodeResult* result, Stream stream) const {
  const float* g = AsFloats(grad);
  float* residual = AsFloats(state.residual);
  Lists lists = MakeLists(state);
  const float threshold = CandidateThreshold(
      k, [g, residual](size_t i) { return residual[i] + g[i]; }, {residual, g},
      lists);
  result->stats = {};
  kernels().sparse.large_values(g, residual, num_elems(), threshold,
                                params.nonfinite, lists.indices, lists.values,
                                &lists.count, &result->stats, nullptr, stream);
  Send(k, lists, residual, out, result);
}

void ValueCodec::Send(size_t k, Lists& lists, float* residual, Bytes out,
                      EncodeResult* result) const {
  const size_t fewest = is_sampled_ ? 1 : k;
  const size_t most = is_sampled_ ? 2 * k : k;
  if (lists.count < fewest) {
    lists.count =
        FindLargest(residual, num_elems(), k, lists.indices, lists.values);
  } else if (lists.count > most) {
    lists.count =
        KeepLargest(k, lists.count, lists.indices, lists.values, residual);
  }
  ClearListed(lists.indices, lists.count, residual);
  result->stats.num_nonzero = lists.count;
  result->encoded_bytes = WriteValueList({lists.indices, lists.count},
                                         lists.values, num_elems(), out);
}

}  // namespace telegrad
