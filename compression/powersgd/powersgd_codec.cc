#include "compression/powersgd/powersgd_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/powersgd/basis.h"
#include "compression/self_contained_codec.h"
#include "kernels/low_rank.h"

namespace telegrad {
namespace {

using kernels::kMaxFactor;
using kernels::LowRankShape;

constexpr double kStandardRank = 2;
constexpr double kMaxRank = 64;

const CodecTraits& Traits() {
  static const CodecTraits* traits = new CodecTraits{
      .name = "powersgd",
      .id = CodecId::kPowerSgd,
      .wire_version = 1,
      .lossless = false,
      .summable = true,
      .constant_width = true,
      .needs_residual = true,
      .needs_threshold = false,
      .summary = "rank-r approximation with error feedback and a warm start",
      .options = {{"rank", &CodecOptions::rank, kStandardRank, 1, kMaxRank,
                   true, "columns of each factor"}},
  };
  return *traits;
}

// Which factor is the basis.
enum class Side : uint8_t { kRight = 0, kLeft = 1 };

struct Header {
  uint16_t rank = 0;
  Side side = Side::kRight;
  uint8_t zero = 0;
};
static_assert(sizeof(Header) == 4);

Header HeaderOf(ConstBytes payload) {
  Header header;
  std::memcpy(&header, payload.data, sizeof(header));
  return header;
}

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

// One of the two factors in a payload.
struct Factor {
  size_t offset;  // in bytes
  size_t count;
  size_t size() const { return count * sizeof(float); }
};

class PreparedPowerSgd : public SelfContainedCodec {
 public:
  PreparedPowerSgd(LowRankShape shape, const kernels::KernelTable& table)
      : SelfContainedCodec(Traits(), shape.n, table),
        shape_(shape),
        right_{sizeof(Header), shape.rank * shape.cols},
        left_{right_.offset + right_.size(), shape.rank * shape.rows()} {}

  size_t max_encoded_bytes() const override {
    return left_.offset + left_.size();
  }
  size_t sum_bytes(uint32_t) const override { return max_encoded_bytes(); }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    result->encoded_bytes = max_encoded_bytes();
    result->stats = {};
    const Side side = WriteBasis(params, state, out);
    float* left = At(out, left_);
    float* right = At(out, right_);
    if (side == Side::kRight) {
      kernels().low_rank.fit_left(AsFloats(grad), AsFloats(state.residual),
                                  shape_, right, params.nonfinite, left,
                                  &result->stats, stream);
    } else {
      kernels().low_rank.fit_right(AsFloats(grad), AsFloats(state.residual),
                                   shape_, left, params.nonfinite, right,
                                   &result->stats, stream);
    }
    const Factor& sent = FittedOf(side);
    const float* codes = At(out, sent);
    result->stats.num_nonzero =
        sent.count -
        static_cast<size_t>(std::count(codes, codes + sent.count, 0.0f));
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
    kernels().low_rank.expand(At(payload, left_), At(payload, right_), shape_,
                              AsFloats(out), stream);
    return absl::OkStatus();
  }
  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    kernels().low_rank.expand_add(At(payload, left_), At(payload, right_),
                                  shape_, AsFloats(sum), stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    RETURN_IF_ERROR(Validate(payloads[0]));
    RETURN_IF_ERROR(CheckSameBasis(payloads));
    const Factor& fitted = FittedOf(HeaderOf(payloads[0]).side);
    std::memcpy(out.data, payloads[0].data, max_encoded_bytes());
    for (const ConstBytes& payload : payloads.subspan(1)) {
      kernels().add_f32(At(payload, fitted), fitted.count, At(out, fitted),
                        stream);
    }
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(ValidateSum(sum, num_payloads));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    kernels().low_rank.expand(At(sum, left_), At(sum, right_), shape_,
                              AsFloats(out), stream);
    return absl::OkStatus();
  }
  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    const Buffer sum(max_encoded_bytes());
    RETURN_IF_ERROR(SumCodes(payloads, sum.view(), stream));
    return DecodeSum(sum.view(), static_cast<uint32_t>(payloads.size()),
                     threshold, out, stream);
  }

  // A function of the sum alone: to learn a sum twice changes nothing.
  absl::Status Learn(ConstBytes sum, uint32_t num_payloads,
                     CodecState& state) const override {
    RETURN_IF_ERROR(ValidateSum(sum, num_payloads));
    MakeRoom(state);
    if (state.memory.size() == 0) state.memory = Buffer(max_encoded_bytes());
    const Header header = HeaderOf(sum);
    Header next{
        .rank = header.rank,
        .side = header.side == Side::kRight ? Side::kLeft : Side::kRight};
    LoadVectors(sum, next.side, state.scratch.as<double>());
    Orthonormalize(SizeOf(next.side), shape_.rank, state.scratch.as<double>());
    std::memcpy(state.memory.data(), &next, sizeof(next));
    StoreVectors(state.scratch.as<double>(), next.side, state.memory.view());
    return absl::OkStatus();
  }

 private:
  static float* At(Bytes payload, const Factor& factor) {
    return reinterpret_cast<float*>(payload.data + factor.offset);
  }
  static const float* At(ConstBytes payload, const Factor& factor) {
    return reinterpret_cast<const float*>(payload.data + factor.offset);
  }
  const Factor& BasisOf(Side side) const {
    return side == Side::kRight ? right_ : left_;
  }
  const Factor& FittedOf(Side side) const {
    return side == Side::kRight ? left_ : right_;
  }
  size_t SizeOf(Side side) const {
    return side == Side::kRight ? shape_.cols : shape_.rows();
  }
  // Where element i of vector k of a factor is.
  size_t Index(Side side, size_t k, size_t i) const {
    return side == Side::kRight ? k * shape_.cols + i : i * shape_.rank + k;
  }

  void MakeRoom(CodecState& state) const {
    if (state.scratch.size() != 0) return;
    state.scratch = Buffer(sizeof(double) * shape_.rank *
                           std::max(shape_.cols, shape_.rows()));
  }
  void LoadVectors(ConstBytes payload, Side side, double* vectors) const {
    const float* values = At(payload, BasisOf(side));
    for (size_t k = 0; k < shape_.rank; ++k) {
      for (size_t i = 0; i < SizeOf(side); ++i) {
        *vectors++ = values[Index(side, k, i)];
      }
    }
  }
  void StoreVectors(const double* vectors, Side side, Bytes payload) const {
    float* values = At(payload, BasisOf(side));
    for (size_t k = 0; k < shape_.rank; ++k) {
      for (size_t i = 0; i < SizeOf(side); ++i) {
        values[Index(side, k, i)] = static_cast<float>(*vectors++);
      }
    }
  }

  // The header and this step's basis.
  Side WriteBasis(const EncodeParams& params, CodecState& state,
                  Bytes out) const {
    Header header{.rank = static_cast<uint16_t>(shape_.rank)};
    if (state.memory.size() != 0) {
      header = HeaderOf(state.memory.view());
      const Factor& basis = BasisOf(header.side);
      std::memcpy(At(out, basis), At(state.memory.view(), basis), basis.size());
    } else {
      MakeRoom(state);
      auto* vectors = state.scratch.as<double>();
      RandomBasis(params.stream, params.step, shape_.cols, shape_.rank,
                  vectors);
      StoreVectors(vectors, Side::kRight, out);
    }
    std::memcpy(out.data, &header, sizeof(header));
    return header.side;
  }

  absl::Status ValidateFactors(absl::string_view what, ConstBytes payload,
                               float factor_limit) const {
    RETURN_IF_ERROR(CheckSize(what, payload.size, max_encoded_bytes()));
    const Header header = HeaderOf(payload);
    if (header.rank != shape_.rank || header.side > Side::kLeft ||
        header.zero != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " of rank ", header.rank, ", side ",
          static_cast<int>(header.side), ", reserved ", header.zero, "; rank ",
          shape_.rank, ", side 0 or 1 and 0 are expected"));
    }
    const Factor& basis = BasisOf(header.side);
    const Factor& fitted = FittedOf(header.side);
    if (AreWithin(At(payload, basis), basis.count, kMaxBasis) &&
        AreWithin(At(payload, fitted), fitted.count, factor_limit)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(what, " with a factor that is not finite or too large"));
  }

  absl::Status CheckSameBasis(std::span<const ConstBytes> payloads) const {
    const ConstBytes& first = payloads[0];
    const Factor& basis = BasisOf(HeaderOf(first).side);
    for (size_t i = 1; i < payloads.size(); ++i) {
      if (std::memcmp(payloads[i].data, first.data, sizeof(Header)) != 0 ||
          std::memcmp(payloads[i].data + basis.offset,
                      first.data + basis.offset, basis.size()) != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("payloads 0 and ", i, " of ", payloads.size(),
                         " have different bases"));
      }
    }
    return absl::OkStatus();
  }

  const LowRankShape shape_;
  const Factor right_;
  const Factor left_;
};

class PowerSgd : public Codec {
 public:
  using Codec::Prepare;
  const CodecTraits& traits() const override { return Traits(); }
  absl::StatusOr<std::unique_ptr<PreparedCodec>> Prepare(
      size_t num_elems, Device device,
      const CodecOptions& options) const override {
    ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                     KernelsFor(num_elems, device));
    if (device.kind != DeviceKind::kCpu) {
      return absl::UnimplementedError("powersgd on a GPU");
    }
    if (!(options.rank >= 1 && options.rank <= kMaxRank)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", options.rank, "; it is 1 to ", kMaxRank));
    }
    return std::make_unique<PreparedPowerSgd>(ShapeOf(num_elems, options.rank),
                                              *table);
  }
};

}  // namespace

const Codec& PowerSgdCodec() {
  static const PowerSgd* codec = new PowerSgd;
  return *codec;
}

}  // namespace telegrad
