#include "compression/sparse/threshold_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/shape_checks.h"
#include "compression/sparse/clear_ahead.h"
#include "compression/sparse/index_list.h"
#include "compression/sparse/list_codec.h"
#include "kernels/prefetch.h"
#include "kernels/sparse.h"
#include "kernels/sparse_scratch.h"

namespace telegrad {
namespace {

struct Header {
  uint8_t format = 0;
  uint8_t zero[3] = {};
  uint32_t count = 0;
  float threshold = 0;
};
static_assert(sizeof(Header) == 12);

Header HeaderOf(ConstBytes payload) {
  Header header;
  std::memcpy(&header, payload.data, sizeof(header));
  return header;
}

std::span<const uint8_t> ListOf(ConstBytes payload) {
  return {reinterpret_cast<const uint8_t*>(payload.data) + sizeof(Header),
          payload.size - sizeof(Header)};
}

absl::Status CheckThreshold(float threshold) {
  if (threshold > 0 && std::isfinite(threshold)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold ", threshold, "; it must be positive"));
}

float LargestMagnitude(const Buffer& values) {
  uint32_t most = 0;  // the largest bits, whose order is that of magnitudes
  const auto* const bits = values.as<uint32_t>();
  for (size_t i = 0; i < values.size() / 4; ++i) {
    most = std::max(most, bits[i] & 0x7fffffff);
  }
  return std::bit_cast<float>(most);
}

size_t WritePayload(std::span<const uint32_t> survivors, float threshold,
                    size_t n, Bytes out) {
  const IndexListSize list = SmallestIndexList<1>(survivors, n);
  const Header header = {.format = static_cast<uint8_t>(list.format),
                         .count = static_cast<uint32_t>(survivors.size()),
                         .threshold = threshold};
  std::memcpy(out.data, &header, sizeof(header));
  WriteIndexList<1>(list.format, survivors, n,
                    reinterpret_cast<uint8_t*>(out.data) + sizeof(header));
  return sizeof(header) + list.num_bytes;
}

class PreparedThreshold : public ListCodec {
 public:
  PreparedThreshold(const CodecTraits& codec_traits, size_t num_elems,
                    const kernels::KernelTable& table)
      : ListCodec(codec_traits, num_elems, table,
                  kernels::SparseContent::kSigns) {}

  size_t max_encoded_bytes() const override {
    return sizeof(Header) + MaxIndexListBytes<1>(num_elems(), num_elems());
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    return EncodeBy(kernels().sparse.threshold_encode, AsFloats(grad), state,
                    params, out, result, stream);
  }

  absl::Status EncodeHalf(HalfFormat format, ConstBytes grad, CodecState& state,
                          const EncodeParams& params, Bytes out,
                          EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out, 2));
    const kernels::SparseKernels& sparse = kernels().sparse;
    return EncodeBy(format == HalfFormat::kFp16 ? sparse.threshold_encode_fp16
                                                : sparse.threshold_encode_bf16,
                    AsHalves(grad), state, params, out, result, stream);
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(
      const EncodeItem& item, Stream stream) const override {
    const kernels::BatchKernels& batch = kernels().batch;
    auto* const encode = !item.half.has_value() ? batch.threshold
                         : *item.half == HalfFormat::kFp16
                             ? batch.threshold_fp16
                             : batch.threshold_bf16;
    if (encode == nullptr) return std::nullopt;
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out,
                                item.half.has_value() ? 2 : 4));
    RETURN_IF_ERROR(CheckThreshold(item.params.threshold));
    RETURN_IF_ERROR(ScratchOf(*item.state, stream).status());
    BatchPart part = {.encode = encode,
                      .tile_elems = kernels::kSparseTile,
                      .span = SpanOf(item, AsFloats(item.state->residual),
                                     item.params.threshold)};
    part.span.scratch = item.state->scratch.data();
    return part;
  }

  absl::Status Validate(ConstBytes payload) const override {
    if (payload.size < sizeof(Header)) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload of ", payload.size, " bytes"));
    }
    const Header header = HeaderOf(payload);
    if ((header.zero[0] | header.zero[1] | header.zero[2]) != 0) {
      return absl::InvalidArgumentError("reserved bytes are not 0");
    }
    RETURN_IF_ERROR(CheckThreshold(header.threshold));
    return ValidateIndexList<1>(header.format, ListOf(payload), header.count,
                                num_elems());
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    if (is_on_gpu()) return DecodeOnGpu(payload, out, stream);
    float* to = AsFloats(out);
    ClearAhead clear(to, num_elems());
    const Values values = ValuesOf(payload);
    ForEachSentBlock(payload, [&](std::span<const uint32_t> sent) {
      if (!sent.empty()) clear.Until(sent.back() >> 1);
      for (const uint32_t word : sent) to[word >> 1] = values[word & 1];
    });
    clear.All();
    return absl::OkStatus();
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    if (is_on_gpu()) return DecodeAddOnGpu(payload, sum, stream);
    AddSent(payload, AsFloats(sum), [](size_t) {});
    return absl::OkStatus();
  }

  // Payloads are added to the residual one after the other. Only elements that
  // one names can reach the threshold, as long as no residual has reached it
  // before: the others are not even looked at. On a GPU, where payloads cannot
  // be looked at, all are; the bits are the same.
  absl::Status Reencode(std::span<const ConstBytes> payloads,
                        const EncodeParams& params, int16_t scale,
                        ReencodeState& state, Bytes out, size_t* encoded_bytes,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckNumPayloads(payloads.size()));
    const float threshold = ReencodeThreshold(
        params.threshold, static_cast<uint32_t>(payloads.size()));
    RETURN_IF_ERROR(CheckThreshold(threshold));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    for (const ConstBytes& payload : payloads) {
      RETURN_IF_ERROR(CheckPayload(payload));
    }
    if (is_on_gpu()) {
      return SelfContainedCodec::Reencode(payloads, params, scale, state, out,
                                          encoded_bytes, stream);
    }
    if (state.residual_bound >= threshold) {
      RETURN_IF_ERROR(SelfContainedCodec::Reencode(
          payloads, params, scale, state, out, encoded_bytes, stream));
      state.residual_bound = LargestMagnitude(state.residual);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(PrepareReencode(state, stream));
    ASSIGN_OR_RETURN(const Scratch scratch, ScratchOf(state.codec, stream));
    *encoded_bytes =
        WritePayload(AddAndTake(payloads, threshold, scratch.survivors, state),
                     threshold, num_elems(), out);
    return absl::OkStatus();
  }

 protected:
  // Straight onto the residual: the sum that is encoded then stays 0.
  absl::Status SumForReencode(std::span<const ConstBytes> payloads,
                              float threshold, ReencodeState& state,
                              Stream stream) const override {
    for (const ConstBytes& payload : payloads) {
      RETURN_IF_ERROR(
          DecodeAdd(payload, threshold, state.residual.view(), stream));
    }
    return absl::OkStatus();
  }

 private:
  // By a ThresholdEncodeFn or ThresholdEncodeHalfFn.
  template <typename EncodeFn, typename T>
  absl::Status EncodeBy(EncodeFn* encode, const T* grad, CodecState& state,
                        const EncodeParams& params, Bytes out,
                        EncodeResult* result, Stream stream) const {
    RETURN_IF_ERROR(CheckThreshold(params.threshold));
    ASSIGN_OR_RETURN(const Scratch scratch, ScratchOf(state, stream));
    BeginResult({}, kernels(), result, stream);
    encode(grad, AsFloats(state.residual), AsFloats(state.momentum),
           num_elems(), params.threshold, params.nonfinite, scratch.survivors,
           scratch.count, &result->stats, scratch.tiles, stream);
    if (is_on_gpu()) {
      WriteOnGpu(scratch.survivors, scratch.count, params.threshold,
                 scratch.parts, out, result, stream);
    } else {
      result->encoded_bytes = WritePayload({scratch.survivors, *scratch.count},
                                           params.threshold, num_elems(), out);
    }
    return absl::OkStatus();
  }

  // An encoder's scratch, where its kernels are.
  using Scratch = kernels::ThresholdScratch;
  absl::StatusOr<Scratch> ScratchOf(CodecState& state, Stream stream) const {
    RETURN_IF_ERROR(MakeRoom(Scratch::Bytes(num_elems()), kernels(),
                             state.scratch, stream));
    return Scratch(state.scratch.data(), num_elems());
  }

  // Adds payloads to the residual, takes `threshold` off where it is reached
  // and returns these places, with signs. residual_bound is below it before.
  std::span<const uint32_t> AddAndTake(std::span<const ConstBytes> payloads,
                                       float threshold, uint32_t* survivors,
                                       ReencodeState& state) const {
    Buffer& map = state.codec.memory;  // a bit per element, 0 between calls
    const size_t num_words = (num_elems() + 63) / 64;
    if (map.size() == 0) map = Buffer(8 * num_words);
    auto* const named = map.as<uint64_t>();
    for (const ConstBytes& payload : payloads) {
      AddSent(payload, state.residual.as<float>(), [named](size_t index) {
        named[index / 64] |= uint64_t{1} << index % 64;
      });
    }
    return {survivors,
            TakeNamed({named, num_words}, threshold, survivors, state)};
  }

  // Takes `threshold` off the elements whose bits are set, where it is reached,
  // and clears the bits.
  static size_t TakeNamed(std::span<uint64_t> named, float threshold,
                          uint32_t* survivors, ReencodeState& state) {
    float* const residual = state.residual.as<float>();
    float most_left = state.residual_bound;
    size_t count = 0;
    for (size_t word = 0; word < named.size(); ++word) {
      for (uint64_t bits = std::exchange(named[word], 0); bits != 0;
           bits &= bits - 1) {
        const size_t index =
            64 * word + static_cast<size_t>(std::countr_zero(bits));
        // No branch depends on a value: that could not be foretold.
        const float value = residual[index];
        const bool is_negative = value < 0;
        const bool is_reached = std::abs(value) >= threshold;
        const float taken[] = {0, std::copysign(threshold, value)};
        const float left = value - taken[is_reached ? 1 : 0];
        residual[index] = left;
        most_left = std::max(most_left, std::abs(left));
        survivors[count] =
            static_cast<uint32_t>(index << 1 | (is_negative ? 1 : 0));
        count += is_reached ? 1 : 0;
      }
    }
    state.residual_bound = most_left;
    return count;
  }

  // Values of a code without and with its sign; the payload's own threshold
  // counts.
  using Values = std::array<float, 2>;
  static Values ValuesOf(ConstBytes payload) {
    const float threshold = HeaderOf(payload).threshold;
    return {threshold, -threshold};
  }

  // visit(words), some hundred at a time.
  template <typename Visit>
  void ForEachSentBlock(ConstBytes payload, Visit visit) const {
    ForEachIndexBlock<1>(static_cast<IndexFormat>(HeaderOf(payload).format),
                         ListOf(payload), num_elems(), visit);
  }

  // Adds what a payload sends; calls also(index) for each element that
  // something is added to.
  template <typename Also>
  void AddSent(ConstBytes payload, float* to, Also also) const {
    const Values values = ValuesOf(payload);
    ForEachSentBlock(payload, [&](std::span<const uint32_t> sent) {
      for (const uint32_t word : sent) {
        kernels::PrefetchForWrite(to + (word >> 1));
      }
      for (const uint32_t word : sent) {
        to[word >> 1] += values[word & 1];
        also(word >> 1);
      }
    });
  }
};

MadeCodec MakeThreshold(const CodecTraits& traits, size_t num_elems,
                        const kernels::KernelTable& table,
                        const CodecOptions&) {
  RETURN_IF_ERROR(CheckIndices(num_elems));
  return std::make_unique<PreparedThreshold>(traits, num_elems, table);
}

}  // namespace

const Codec& ThresholdCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "threshold",
          .id = CodecId::kThreshold,
          .constant_width = false,
          .needs_threshold = true,
          .summary = "places of -t and +t with error feedback (Strom 2015)",
          .masks_momentum = true,
          // The density settles near (RMS / t)^2. The residual would pull its
          // own threshold up with it.
          .auto_threshold_per_rms = 8,
          .auto_of_residual = false,
      },
      MakeThreshold);
  return *codec;
}

}  // namespace telegrad
