#include "compression/two_bit/two_bit_codec.h"

#include <cmath>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/self_contained_codec.h"
#include "compression/shape_checks.h"
#include "compression/two_bit/reencode_units.h"
#include "kernels/code_sum.h"

namespace telegrad {
namespace {

using kernels::PackedSumBytes;
using kernels::TwoBitBytes;

const CodecTraits& Traits() {
  static const CodecTraits* traits = new CodecTraits{
      .name = "2bit",
      .id = CodecId::kTwoBit,
      .wire_version = 1,
      .lossless = false,
      .summable = true,
      .constant_width = true,
      .needs_residual = true,
      .needs_threshold = true,
      .summary = "-t, 0 or +t per element with error feedback, as MXNet's 2bit",
  };
  return *traits;
}

const uint8_t* AsCodes(ConstBytes bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data);
}
uint8_t* AsCodes(Bytes bytes) { return reinterpret_cast<uint8_t*>(bytes.data); }

using FramePointers = absl::InlinedVector<const uint8_t*, 64>;

FramePointers Pointers(std::span<const ConstBytes> payloads) {
  FramePointers pointers;
  for (const ConstBytes& payload : payloads) {
    pointers.push_back(AsCodes(payload));
  }
  return pointers;
}

absl::Status CheckThreshold(float threshold) {
  if (threshold > 0 && std::isfinite(threshold)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold ", threshold, "; it must be positive"));
}

// Whether no code is 01 and the unused bits of the last word are 0.
bool AreCodes(const uint8_t* codes, size_t n) {
  const size_t num_bytes = TwoBitBytes(n);
  uint8_t wrong = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    // The low bit of a pair without its high bit.
    wrong |= static_cast<uint8_t>(codes[i] & ~(codes[i] >> 1) & 0x55);
  }
  const size_t used = n % kernels::kCodesPerWord;
  if (used == 0) return wrong == 0;
  const uint8_t* word = codes + num_bytes - 4;
  for (size_t i = used; i < kernels::kCodesPerWord; ++i) {
    wrong |= static_cast<uint8_t>(word[i / 4] >> (6 - 2 * (i % 4)) & 3);
  }
  return wrong == 0;
}

class PreparedTwoBit : public PreparedCodec {
 public:
  PreparedTwoBit(size_t num_elems, const kernels::KernelTable* table)
      : num_elems_(num_elems), kernels_(*table) {}

  const CodecTraits& traits() const override { return Traits(); }
  size_t num_elems() const override { return num_elems_; }
  size_t max_encoded_bytes() const override { return TwoBitBytes(num_elems_); }
  size_t sum_bytes(uint32_t num_payloads) const override {
    return PackedSumBytes(num_elems_, num_payloads);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckSize("gradient", grad.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckSize("residual", state.residual.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckThreshold(params.threshold));
    result->encoded_bytes = max_encoded_bytes();
    result->stats = {};
    kernels_.two_bit_encode(reinterpret_cast<const float*>(grad.data),
                            AsFloats(state.residual), num_elems_,
                            params.threshold, params.nonfinite, AsCodes(out),
                            &result->stats, stream);
    return absl::OkStatus();
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    if (AreCodes(AsCodes(payload), num_elems_)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "payload holds a code 01 or codes behind its end");
  }

  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, threshold, out));
    kernels_.two_bit_decode(AsCodes(payload), num_elems_, threshold,
                            AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, threshold, sum));
    kernels_.two_bit_decode_add(AsCodes(payload), num_elems_, threshold,
                                AsFloats(sum), stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    const auto count = static_cast<uint32_t>(payloads.size());
    RETURN_IF_ERROR(CheckCapacity("output", out.size, sum_bytes(count)));
    kernels_.two_bit_sum_pack(Pointers(payloads).data(), count, num_elems_,
                              AsCodes(out), stream);
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckThreshold(threshold));
    kernels_.packed_sum_decode(AsCodes(sum), num_payloads, num_elems_,
                               threshold, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckThreshold(threshold));
    kernels_.two_bit_sum_decode(Pointers(payloads).data(),
                                static_cast<uint32_t>(payloads.size()),
                                num_elems_, threshold, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status Reencode(std::span<const ConstBytes> payloads,
                        const EncodeParams&, int16_t scale,
                        ReencodeState& state, Bytes out, size_t* encoded_bytes,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    if (kernels_.device != DeviceKind::kCpu) {
      return absl::UnimplementedError("re-encoding on a GPU's server");
    }
    const auto count = static_cast<uint32_t>(payloads.size());
    const uint32_t shift = AdoptScale(scale, num_elems_, state);
    kernels_.two_bit_reencode(
        Pointers(payloads).data(), count, num_elems_,
        state.residual.as<int32_t>(), shift,
        static_cast<int32_t>(ReencodeQuantum(count) << shift), AsCodes(out),
        stream);
    *encoded_bytes = max_encoded_bytes();
    return absl::OkStatus();
  }

  absl::Status ReleaseResidual(float threshold, int16_t scale,
                               ReencodeState& state, Bytes sum) const override {
    RETURN_IF_ERROR(CheckSize("sum", sum.size, 4 * num_elems_));
    if (state.is_set) {
      const float unit = std::ldexp(threshold, state.unit_scale - scale);
      const int32_t* from = state.residual.as<int32_t>();
      for (size_t i = 0; i < num_elems_; ++i) {
        AsFloats(sum)[i] += static_cast<float>(from[i]) * unit;
      }
    }
    state = {};
    return absl::OkStatus();
  }

  float ReencodeThreshold(float threshold,
                          uint32_t num_payloads) const override {
    return threshold * static_cast<float>(ReencodeQuantum(num_payloads));
  }

 private:
  absl::Status CheckDecode(ConstBytes payload, float threshold,
                           Bytes out) const {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    return CheckThreshold(threshold);
  }

  const size_t num_elems_;
  const kernels::KernelTable& kernels_;
};

class TwoBit : public Codec {
 public:
  using Codec::Prepare;
  const CodecTraits& traits() const override { return Traits(); }
  absl::StatusOr<std::unique_ptr<PreparedCodec>> Prepare(
      size_t num_elems, Device device, const CodecOptions&) const override {
    ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                     KernelsFor(num_elems, device));
    return std::make_unique<PreparedTwoBit>(num_elems, table);
  }
};

}  // namespace

const Codec& TwoBitCodec() {
  static const TwoBit* codec = new TwoBit;
  return *codec;
}

}  // namespace telegrad
