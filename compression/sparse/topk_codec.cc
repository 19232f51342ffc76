#include "compression/sparse/topk_codec.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compression/encode_many.h"
#include "compression/shape_checks.h"
#include "compression/sparse/value_codec.h"

namespace telegrad {
namespace {

class PreparedTopK : public ValueCodec {
 public:
  PreparedTopK(const CodecTraits& codec_traits, size_t num_elems,
               const kernels::KernelTable& table, size_t k,
               const CodecOptions& options)
      : ValueCodec(codec_traits, num_elems, table, options,
                   options.sampled != 0 ? std::min(num_elems, 2 * k) : k),
        k_(k) {}

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    return EncodeLargest(grad, state, params, k_, out, result, stream);
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(
      const EncodeItem& item, Stream stream) const override {
    return LargestPartOf(item, k_, stream);
  }

 private:
  const size_t k_;
};

MadeCodec MakeTopK(const CodecTraits& traits, size_t num_elems,
                   const kernels::KernelTable& table,
                   const CodecOptions& options) {
  RETURN_IF_ERROR(CheckIndices(num_elems));
  return std::make_unique<PreparedTopK>(
      traits, num_elems, table, NumSent(options.density, num_elems), options);
}

}  // namespace

const Codec& TopKCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "topk",
          .id = CodecId::kTopK,
          .constant_width = false,
          .summary = "the largest elements as float32 with error feedback",
          .masks_momentum = true,
          .options = {{"density", &CodecOptions::density, 0.01, 1e-6, 1, false,
                       "share of the elements that is sent"},
                      {"sampled", &CodecOptions::sampled, 0, 0, 1, true,
                       "1: about as many, by a sample's threshold"},
                      ReplyOption()},
      },
      MakeTopK);
  return *codec;
}

}  // namespace telegrad
