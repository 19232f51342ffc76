#include "compression/powersgd/powersgd_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"
#include "compression/self_contained_codec.h"
#include "compression/stream_buffers.h"
#include "kernels/low_rank.h"
#include "kernels/low_rank_payload.h"

namespace telegrad {
namespace {

using kernels::kMaxFactor;
using kernels::LowRankHeader;
using kernels::LowRankShape;
using kernels::LowRankSide;

constexpr double kStandardRank = 2;
constexpr double kMaxRank = 64;

LowRankShape ShapeOf(size_t num_elems, double rank) {
  constexpr size_t kLanes = kernels::kLowRankLanes;
  auto root = static_cast<size_t>(std::sqrt(static_cast<double>(num_elems)));
  while (root * root < num_elems) ++root;
  LowRankShape shape;
  shape.n = num_elems;
  shape.cols = (root + kLanes - 1) / kLanes * kLanes;
  shape.rank =
      static_cast<uint32_t>(std::min(rank, static_cast<double>(shape.rows())));
  return shape;
}

bool AreWithin(const float* values, size_t count, float limit) {
  bool is_good = true;
  for (size_t i = 0; i < count; ++i) is_good &= std::abs(values[i]) <= limit;
  return is_good;  // NaN is not within anything
}

class PreparedPowerSgd : public SelfContainedCodec {
 public:
  PreparedPowerSgd(const CodecTraits& codec_traits, LowRankShape shape,
                   const kernels::KernelTable& table)
      : SelfContainedCodec(codec_traits, shape.n, table), shape_(shape) {}

  size_t max_encoded_bytes() const override {
    return kernels::LowRankBytes(shape_);
  }
  size_t sum_bytes(uint32_t) const override { return max_encoded_bytes(); }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    if (state.memory.size() != 0) {
      kernels().copy(state.memory.data(), max_encoded_bytes(), out.data,
                     stream);
    } else {
      RETURN_IF_ERROR(
          MakeRoom(scratch_bytes(), kernels(), state.scratch, stream));
      kernels().low_rank.random({.key = params.stream, .step = params.step},
                                shape_, state.scratch.as<double>(),
                                AsCodes(out), stream);
    }
    kernels().low_rank.fit(AsFloats(grad), AsFloats(state.residual), shape_,
                           params.nonfinite, AsCodes(out), &result->stats,
                           stream);
    return absl::OkStatus();
  }

  absl::Status Validate(ConstBytes payload) const override {
    return ValidateFactors("payload", payload, kMaxFactor);
  }
  absl::Status ValidateSum(ConstBytes sum,
                           uint32_t num_payloads) const override {
    RETURN_IF_ERROR(CheckNumPayloads(num_payloads));
    return ValidateFactors("sums", sum,
                           static_cast<float>(num_payloads) * kMaxFactor);
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    kernels().low_rank.expand(At(payload, LowRankSide::kLeft),
                              At(payload, LowRankSide::kRight), shape_,
                              AsFloats(out), stream);
    return absl::OkStatus();
  }
  // A sum is a payload.
  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    auto* const decode = kernels().batch.low_rank_decode;
    if (decode == nullptr) return std::nullopt;
    RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
    DecodePart part = {.decode = decode, .span = SpanOf(item, 0)};
    part.span.k = shape_.rank;
    part.span.cols = shape_.cols;
    return part;
  }
  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    kernels().low_rank.expand_add(At(payload, LowRankSide::kLeft),
                                  At(payload, LowRankSide::kRight), shape_,
                                  AsFloats(sum), stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    if (!is_on_gpu()) {
      RETURN_IF_ERROR(Validate(payloads[0]));
      RETURN_IF_ERROR(CheckSameBasis(payloads));
    }
    kernels().copy(payloads[0].data, max_encoded_bytes(), out.data, stream);
    for (const ConstBytes& payload : payloads.subspan(1)) {
      kernels().low_rank.add_fitted(AsCodes(payload), shape_, AsCodes(out),
                                    stream);
    }
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckSum(sum, num_payloads));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    kernels().low_rank.expand(At(sum, LowRankSide::kLeft),
                              At(sum, LowRankSide::kRight), shape_,
                              AsFloats(out), stream);
    return absl::OkStatus();
  }
  absl::Status SumDecode(std::span<const ConstBytes> payloads, float, Bytes out,
                         Stream stream) const override {
    const auto decode = [&](Bytes sum) {
      return SumDecodeBy(sum, payloads, out, stream);
    };
    if (is_on_gpu()) {
      return sums_.With(stream, max_encoded_bytes(), kernels(), decode);
    }
    return decode(Buffer(max_encoded_bytes()).view());
  }

  // A function of the sum alone: to learn a sum twice changes nothing.
  absl::Status Learn(ConstBytes sum, uint32_t num_payloads, CodecState& state,
                     Stream stream) const override {
    RETURN_IF_ERROR(CheckSum(sum, num_payloads));
    RETURN_IF_ERROR(
        MakeRoom(scratch_bytes(), kernels(), state.scratch, stream));
    RETURN_IF_ERROR(
        MakeRoom(max_encoded_bytes(), kernels(), state.memory, stream));
    kernels().low_rank.learn(AsCodes(sum), shape_, state.scratch.as<double>(),
                             AsCodes(state.memory.view()), stream);
    return absl::OkStatus();
  }

 protected:
  absl::Status SumForReencode(std::span<const ConstBytes> payloads, float,
                              ReencodeState& state,
                              Stream stream) const override {
    Buffer& scratch = state.codec.scratch;
    RETURN_IF_ERROR(MakeRoom(scratch_bytes(), kernels(), scratch, stream));
    const Bytes sum(scratch.data() + vectors_bytes(), max_encoded_bytes());
    return SumDecodeBy(sum, payloads, state.sum.view(), stream);
  }

 private:
  const float* At(ConstBytes payload, LowRankSide side) const {
    return FactorIn(AsCodes(payload), FactorAt(shape_, side));
  }
  // Scratch: vectors in double, then room for a packed sum.
  size_t vectors_bytes() const {
    return sizeof(double) * shape_.rank * std::max(shape_.cols, shape_.rows());
  }
  size_t scratch_bytes() const { return vectors_bytes() + max_encoded_bytes(); }

  absl::Status SumDecodeBy(Bytes sum, std::span<const ConstBytes> payloads,
                           Bytes out, Stream stream) const {
    RETURN_IF_ERROR(SumCodes(payloads, sum, stream));
    return DecodeSum(sum, static_cast<uint32_t>(payloads.size()), 0, out,
                     stream);
  }

  absl::Status CheckSum(ConstBytes sum, uint32_t num_payloads) const {
    return is_on_gpu() ? CheckSize("sums", sum.size, max_encoded_bytes())
                       : ValidateSum(sum, num_payloads);
  }

  absl::Status ValidateFactors(absl::string_view what, ConstBytes payload,
                               float factor_limit) const {
    RETURN_IF_ERROR(CheckSize(what, payload.size, max_encoded_bytes()));
    const LowRankHeader header = kernels::HeaderOf(AsCodes(payload));
    if (header.rank != shape_.rank || header.side > LowRankSide::kLeft ||
        header.zero != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " of rank ", header.rank, ", side ",
          static_cast<int>(header.side), ", reserved ", header.zero, "; rank ",
          shape_.rank, ", side 0 or 1 and 0 are expected"));
    }
    const LowRankSide other = OtherSide(header.side);
    if (AreWithin(At(payload, header.side), FactorAt(shape_, header.side).count,
                  kMaxBasis) &&
        AreWithin(At(payload, other), FactorAt(shape_, other).count,
                  factor_limit)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(what, " with a factor that is not finite or too large"));
  }

  absl::Status CheckSameBasis(std::span<const ConstBytes> payloads) const {
    const ConstBytes& first = payloads[0];
    const LowRankSide side = kernels::HeaderOf(AsCodes(first)).side;
    const size_t basis_bytes = 4 * FactorAt(shape_, side).count;
    for (size_t i = 1; i < payloads.size(); ++i) {
      if (std::memcmp(payloads[i].data, first.data, sizeof(LowRankHeader)) !=
              0 ||
          std::memcmp(At(payloads[i], side), At(first, side), basis_bytes) !=
              0) {
        return absl::InvalidArgumentError(
            absl::StrCat("payloads 0 and ", i, " of ", payloads.size(),
                         " have different bases"));
      }
    }
    return absl::OkStatus();
  }

  const LowRankShape shape_;
  mutable StreamBuffers sums_;  // packed, of SumDecode on a GPU
};

MadeCodec MakePowerSgd(const CodecTraits& traits, size_t num_elems,
                       const kernels::KernelTable& table,
                       const CodecOptions& options) {
  if (!(options.rank >= 1 && options.rank <= kMaxRank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, "; it is 1 to ", kMaxRank));
  }
  return std::make_unique<PreparedPowerSgd>(
      traits, ShapeOf(num_elems, options.rank), table);
}

}  // namespace

const Codec& PowerSgdCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "powersgd",
          .id = CodecId::kPowerSgd,
          .summable = true,
          .summary =
              "rank-r approximation with error feedback and a warm start",
          .options = {{"rank", &CodecOptions::rank, kStandardRank, 1, kMaxRank,
                       true, "columns of each factor"}},
      },
      MakePowerSgd);
  return *codec;
}

}  // namespace telegrad
