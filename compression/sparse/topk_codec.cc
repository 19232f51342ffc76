#include "compression/sparse/topk_codec.h"

#include <algorithm>

#include "base/status_macros.h"
#include "compression/encode_many.h"
#include "compression/sparse/sparse_kernels.h"
#include "compression/sparse/value_codec.h"

namespace telegrad {
namespace {

const CodecTraits& Traits() {
  static const CodecTraits* traits = new CodecTraits{
      .name = "topk",
      .id = CodecId::kTopK,
      .wire_version = 1,
      .lossless = false,
      .summable = false,
      .constant_width = false,
      .needs_residual = true,
      .needs_threshold = false,
      .summary = "the largest elements as float32 with error feedback",
      .masks_momentum = true,
      .options = {{"density", &CodecOptions::density, 0.01, 1e-6, 1, false,
                   "share of the elements that is sent"},
                  {"sampled", &CodecOptions::sampled, 0, 0, 1, true,
                   "1: about as many, by a sample's threshold"},
                  ReplyOption()},
  };
  return *traits;
}

class PreparedTopK : public ValueCodec {
 public:
  PreparedTopK(size_t num_elems, const kernels::KernelTable& table, size_t k,
               const CodecOptions& options)
      : ValueCodec(Traits(), num_elems, table, options,
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

class TopK : public Codec {
 public:
  const CodecTraits& traits() const override { return Traits(); }
  absl::StatusOr<std::unique_ptr<PreparedCodec>> Make(
      size_t num_elems, Device device,
      const CodecOptions& options) const override {
    ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                     SparseKernelsFor(num_elems, device));
    return std::make_unique<PreparedTopK>(
        num_elems, *table, NumSent(options.density, num_elems), options);
  }
};

}  // namespace

const Codec& TopKCodec() {
  static const TopK* codec = new TopK;
  return *codec;
}

}  // namespace telegrad
