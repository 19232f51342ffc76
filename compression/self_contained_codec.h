#pragma once

#include <cstddef>
#include <span>

#include "compression/codec.h"
#include "compression/payload_views.h"
#include "compression/shape_checks.h"
#include "kernels/dispatch.h"

namespace telegrad {

// The base of codecs whose codes cannot be added: what is not sums of codes is
// made of Encode, DecodeAdd and Validate. Packed sums are float32, added in the
// given order. Reencode adds the server's residual in float32 and encodes with
// the codec itself. Codecs whose codes can be added override what they do
// better. On a GPU: Decode only where it is overridden.
class SelfContainedCodec : public PreparedCodec {
 public:
  // `codec_traits` lives for ever.
  SelfContainedCodec(const CodecTraits& codec_traits, size_t num_elems,
                     const kernels::KernelTable& table)
      : traits_(codec_traits), num_elems_(num_elems), kernels_(table) {}

  const CodecTraits& traits() const override { return traits_; }
  size_t num_elems() const override { return num_elems_; }

  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override;
  size_t sum_bytes(uint32_t num_payloads) const override;
  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override;
  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float threshold,
                         Bytes out, Stream stream) const override;
  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override;
  absl::Status Reencode(std::span<const ConstBytes> payloads,
                        const EncodeParams& params, int16_t scale,
                        ReencodeState& state, Bytes out, size_t* encoded_bytes,
                        Stream stream) const override;
  absl::Status ReleaseResidual(float threshold, int16_t scale,
                               ReencodeState& state, Bytes sum,
                               Stream stream) const override;
  // Threshold codecs: times the least power of two that is at least W.
  float ReencodeThreshold(float threshold,
                          uint32_t num_payloads) const override;

 protected:
  // What every Encode and every decode begins with. Of a payload on a GPU only
  // the size is looked at.
  absl::Status CheckEncode(ConstBytes grad, const CodecState& state, Bytes out,
                           size_t element_bytes = 4) const;
  absl::Status CheckPayload(ConstBytes payload) const;
  absl::Status CheckDecode(ConstBytes payload, Bytes out) const;
  // Makes the server's residual the first time.
  absl::Status PrepareReencode(ReencodeState& state, Stream stream) const;
  // The steps of Reencode: payloads -> state.sum, which is all 0 at first and
  // nobody else's, and that -> out.
  virtual absl::Status SumForReencode(std::span<const ConstBytes> payloads,
                                      float threshold, ReencodeState& state,
                                      Stream stream) const;
  virtual absl::Status EncodeSum(uint32_t num_payloads,
                                 const EncodeParams& params,
                                 ReencodeState& state, Bytes out,
                                 Stream stream) const;
  const kernels::KernelTable& kernels() const { return kernels_; }
  // Where the host cannot look at payloads.
  bool is_on_gpu() const { return kernels_.device != DeviceKind::kCpu; }

 private:
  const CodecTraits& traits_;
  const size_t num_elems_;
  const kernels::KernelTable& kernels_;
};

}  // namespace telegrad
