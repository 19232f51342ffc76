#pragma once

#include <cstddef>
#include <optional>

#include "compression/block/block_payload.h"
#include "compression/self_contained_codec.h"
#include "kernels/block.h"

namespace telegrad {

// InvalidArgument where the option is not a multiple of 64, Unimplemented where
// the device has no such kernels.
absl::Status CheckBlockOption(double block);
absl::Status CheckHasBlockKernels(const kernels::KernelTable& table,
                                  const CodecTraits& traits);

// Payloads with a scale per block: all but Encode.
class ScaledCodec : public SelfContainedCodec {
 public:
  ScaledCodec(const CodecTraits& codec_traits, size_t num_elems,
              const kernels::KernelTable& table,
              const kernels::BlockFormat& format)
      : SelfContainedCodec(codec_traits, num_elems, table), format_(format) {}

  size_t max_encoded_bytes() const override {
    return kernels::BlockPayloadBytes(num_elems(), format_);
  }
  absl::Status Validate(ConstBytes payload) const override;
  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override;
  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override;
  absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                         Stream stream) const override;

 protected:
  const kernels::BlockFormat& format() const { return format_; }

 private:
  const kernels::BlockFormat format_;
};

}  // namespace telegrad
