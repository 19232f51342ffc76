#include "compression/none/none_codec.h"

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/payload_views.h"
#include "compression/shape_checks.h"

namespace telegrad {
namespace {

class PreparedNone : public PreparedCodec {
 public:
  PreparedNone(const CodecTraits& codec_traits, size_t num_elems,
               const kernels::KernelTable& table)
      : traits_(codec_traits), num_elems_(num_elems), kernels_(table) {}

  const CodecTraits& traits() const override { return traits_; }
  size_t num_elems() const override { return num_elems_; }
  size_t max_encoded_bytes() const override { return 4 * num_elems_; }
  size_t sum_bytes(uint32_t) const override { return 4 * num_elems_; }

  absl::Status Encode(ConstBytes grad, CodecState&, const EncodeParams& params,
                      Bytes out, EncodeResult* result,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckSize("gradient", grad.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    BeginResult(
        {.encoded_bytes = 4 * num_elems_, .stats = {.num_nonzero = num_elems_}},
        kernels_, result, stream);
    if (params.nonfinite != NonFinite::kPropagate) {
      kernels_.count_nonfinite(AsFloats(grad), num_elems_, &result->stats,
                               stream);
    }
    return Copy(grad, out, stream);
  }

  absl::Status Validate(ConstBytes payload) const override {
    return CheckSize("payload", payload.size, 4 * num_elems_);
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(Validate(payload));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    return Copy(payload, out, stream);
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(Validate(payload));
    RETURN_IF_ERROR(CheckCapacity("sum", sum.size, 4 * num_elems_));
    kernels_.add_f32(AsFloats(payload), num_elems_, AsFloats(sum), stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, 4 * num_elems_));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    RETURN_IF_ERROR(Copy(payloads[0], out, stream));
    for (const ConstBytes& payload : payloads.subspan(1)) {
      kernels_.add_f32(AsFloats(payload), num_elems_, AsFloats(out), stream);
    }
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t, float threshold, Bytes out,
                         Stream stream) const override {
    return Decode(sum, threshold, out, stream);
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float, Bytes out,
                         Stream stream) const override {
    return SumCodes(payloads, out, stream);
  }

  absl::Status Reencode(std::span<const ConstBytes>, const EncodeParams&,
                        int16_t, ReencodeState&, Bytes, size_t*,
                        Stream) const override {
    return absl::UnimplementedError(
        "codec none has nothing to encode again; use reply mode dense");
  }
  float ReencodeThreshold(float threshold, uint32_t) const override {
    return threshold;
  }

 private:
  absl::Status Copy(ConstBytes from, Bytes to, Stream stream) const {
    kernels_.copy(from.data, 4 * num_elems_, to.data, stream);
    return absl::OkStatus();
  }

  const CodecTraits& traits_;
  const size_t num_elems_;
  const kernels::KernelTable& kernels_;
};

MadeCodec MakeNone(const CodecTraits& traits, size_t num_elems,
                   const kernels::KernelTable& table, const CodecOptions&) {
  return std::make_unique<PreparedNone>(traits, num_elems, table);
}

}  // namespace

const Codec& NoneCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "none",
          .id = CodecId::kNone,
          .lossless = true,
          .needs_residual = false,
          .summary = "float32 as it is",
          .keeps_nonfinite = true,
      },
      MakeNone);
  return *codec;
}

}  // namespace telegrad
