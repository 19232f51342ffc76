#include "compression/sign/block_sign_codec.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/self_contained_codec.h"
#include "compression/shape_checks.h"
#include "compression/sign/sign_payload.h"

namespace telegrad {
namespace {

using kernels::BlockSignBytes;
using kernels::NumSignBlocks;

class PreparedBlockSign : public SelfContainedCodec {
 public:
  PreparedBlockSign(const CodecTraits& codec_traits, size_t num_elems,
                    const kernels::KernelTable& table, size_t block)
      : SelfContainedCodec(codec_traits, num_elems, table), block_(block) {}

  size_t max_encoded_bytes() const override {
    return BlockSignBytes(num_elems(), block_);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    kernels().sign.block_encode(AsFloats(grad), AsFloats(state.residual),
                                num_elems(), block_, params.nonfinite,
                                AsCodes(out), &result->stats, stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    auto* const encode = kernels().batch.block_sign;
    if (encode == nullptr || item.half.has_value()) return std::nullopt;
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
    return BatchPart{.encode = encode,
                     .format = {.block = block_},
                     .tile_elems = TileOf(block_),
                     .span = SpanOf(item, AsFloats(item.state->residual), 0)};
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    const auto* bytes = AsCodes(payload);
    const size_t num_blocks = NumSignBlocks(num_elems(), block_);
    for (size_t b = 0; b < num_blocks; ++b) {
      float scale;
      std::memcpy(&scale, bytes + 4 * b, sizeof(scale));
      if (!std::isfinite(scale) || std::signbit(scale)) {
        return absl::InvalidArgumentError(
            absl::StrCat("block ", b, " has scale ", scale));
      }
    }
    if (AreUnusedBitsZero(bytes + 4 * num_blocks, num_elems())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("payload holds bits behind its end");
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    kernels().sign.block_decode(AsCodes(payload), num_elems(), block_,
                                AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    auto* const decode = kernels().batch.block_sign_decode;
    if (decode == nullptr || item.num_payloads != 0) return std::nullopt;
    RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
    return DecodePart{
        .decode = decode, .format = {.block = block_}, .span = SpanOf(item, 0)};
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    kernels().sign.block_decode_add(AsCodes(payload), num_elems(), block_,
                                    AsFloats(sum), stream);
    return absl::OkStatus();
  }

 private:
  const size_t block_;
};

MadeCodec MakeBlockSign(const CodecTraits& traits, size_t num_elems,
                        const kernels::KernelTable& table,
                        const CodecOptions& options) {
  if (!(options.block >= kernels::kSignBlockStep &&
        options.block <= kernels::kMaxSignBlock) ||
      std::fmod(options.block, kernels::kSignBlockStep) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec onebit: block=", options.block,
                     " is not a multiple of 128 from 128 to 8192"));
  }
  return std::make_unique<PreparedBlockSign>(
      traits, num_elems, table, static_cast<size_t>(options.block));
}

}  // namespace

const Codec& BlockSignCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "onebit",
          .id = CodecId::kOneBit,
          .summary = "signs times the mean magnitude per block, error feedback",
          .decodes_any_bits = true,
          .options = {{"block", &CodecOptions::block, 2048,
                       kernels::kSignBlockStep, kernels::kMaxSignBlock, true,
                       "elements per scale, a multiple of 128"}},
      },
      MakeBlockSign);
  return *codec;
}

}  // namespace telegrad
