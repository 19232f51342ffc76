#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/stream.h"
#include "compression/threshold.h"
#include "kernels/encode_stats.h"
#include "kernels/two_bit.h"

// What encoded gradients mean. In order of use: FindCodec, Prepare for a shape
// on a device, then Encode, SumCodes, Decode and so on with that shape. A codec
// knows nothing of keys, ranks or networks. To add one: docs/codecs.md.
namespace telegrad {

using kernels::EncodeStats;
using kernels::NonFinite;

namespace kernels {
struct KernelTable;  // kernels/dispatch.h
}

// Numbers on the wire; none is ever used again for another codec.
enum class CodecId : uint8_t {
  kNone = 0,
  kTwoBit = 1,
  kFp16 = 2,
  kBf16 = 3,
  kOneBitMxnet = 4,
  kOneBit = 5,
  kThreshold = 6,
  kTopK = 7,
  kDgc = 8,
  kRandomK = 9,
  kInt8 = 10,
  kInt4 = 11,
  kInt8Shared = 12,
  kInt4Shared = 13,
  kQsgd = 14,
  kTernGrad = 15,
  kPowerSgd = 16,
  kSparseLoCo = 17,
  kInt3 = 18,
  kInt2 = 19,
  kInt3Shared = 20,
  kInt2Shared = 21,
};

// What a codec's text sets: "topk:0.01", "powersgd:rank=2". A codec looks at
// the options that its traits name.
struct CodecOptions {
  double density = 0;   // share of the elements that are sent
  double block = 0;     // elements per scale
  double levels = 0;    // quantisation levels, without sign and 0
  double rank = 0;      // rank of a low-rank approximation
  double momentum = 0;  // factor of momentum correction
  double clip = 0;      // largest L2 norm of a gradient; 0: no clipping
  double warmup = 0;    // steps until the full rate is reached
  double residual = 0;  // 1: with error feedback
  double natural = 0;   // 1: levels are powers of two
  // For 1bit: larger elements are sent as +1, all others as -1.
  double bit_threshold = 0;
  double sampled = 0;  // 1: a sample chooses what is sent
  double packing = 0;  // how codes lie in bytes: 0 plain, 1 radix
  double decay = 0;    // what a worker keeps of its residual each step
  double reply = 0;    // pushes that a server's reply has room for; 0: all

  bool operator==(const CodecOptions&) const = default;
};

struct CodecOption {
  std::string name;
  double CodecOptions::*field;
  double standard;  // what is used without the option
  double low;
  double high;
  bool is_integer;
  std::string help;
};

struct CodecTraits {
  std::string name;  // what --gc-type says
  CodecId id;
  uint8_t wire_version = 1;  // changes whenever the bytes' meaning does
  bool lossless = false;
  bool summable = false;       // codes of several encoders can be added exactly
  bool constant_width = true;  // the encoded size depends on the shape alone
  bool needs_residual = true;  // one float32 per element in CodecState
  bool needs_threshold = false;
  std::string summary;    // one line for --help
  bool unbiased = false;  // decoded values are right on average over seeds
  // Decoded values plus residual are the sum of gradients, up to rounding.
  bool conserves = true;
  // What is sent is all that an element held back, so that its momentum ends
  // there, too: momentum factor masking of Deep Gradient Compression (arXiv
  // 1712.01887, section 3.1).
  bool masks_momentum = false;
  bool keeps_nonfinite = false;  // payloads can hold NaN and infinities
  // Payloads and packed sums of the right size are decoded within bounds
  // whatever bits they hold: Validate finds damage, and guards no memory.
  bool decodes_any_bits = false;
  // `auto` takes the power of two nearest to this many root mean squares of
  // the gradient (plus residual, if `auto_of_residual`).
  double auto_threshold_per_rms = kThresholdPerRms;
  bool auto_of_residual = true;
  std::vector<CodecOption> options = {};  // the first may be given bare
};

// The options that a codec has where the text says nothing.
CodecOptions StandardOptions(const CodecTraits& traits);

// What an encoder keeps per chunk between steps, on the codec's device. The
// codec makes `memory` and `scratch` in its first Encode.
struct CodecState {
  Bytes residual = {};  // [n] f32 when needs_residual, else empty
  // [n] f32, or empty: momentum that grad holds, of a codec that
  // masks_momentum. Encode clears it where it sends.
  Bytes momentum = {};
  // What lives from step to step, beside the residual. On a GPU this memory
  // belongs to the stream of the first Encode: make_buffer of
  // kernels/dispatch.h.
  Buffer memory = {};
  Buffer scratch = {};  // reused from step to step
};

// What a server keeps per chunk for reply mode reencode, on the codec's device:
// the part of the sums that was not yet sent.
struct ReencodeState {
  // [n] f32, or for 2bit i32 in units of threshold * 2^(unit_scale - scale).
  Buffer residual;
  int16_t unit_scale = 0;
  bool is_set = false;
  // For codec threshold on a CPU: no residual is larger than this.
  float residual_bound = 0;
  Buffer sum;        // [n] f32, reused
  CodecState codec;  // the server's own encoder
  Buffer result;     // its EncodeResult, reused
};

// EncodeParams::source where a server encodes its sums.
constexpr uint64_t kServerSource = ~uint64_t{0};

struct EncodeParams {
  float threshold = 0;  // when needs_threshold
  NonFinite nonfinite = NonFinite::kZero;
  uint64_t stream = 0;      // the chunk: the same on all workers, no two alike
  uint64_t step = 0;        // equal on all workers
  uint64_t source = 0;      // the encoder: no two alike, or kServerSource
  uint32_t num_summed = 1;  // payloads in what a server encodes
};

// Formats of gradients of 16-bit floats (kernels/cast.h).
enum class HalfFormat : uint8_t { kFp16 = 0, kBf16 = 1 };

struct EncodeResult {
  size_t encoded_bytes = 0;
  EncodeStats stats = {};
};

struct BatchPart;  // encode_many.h, as the others
struct EncodeItem;
struct DecodeItem;
struct DecodePart;

// A codec for n elements on one device. Const methods are thread-safe; state is
// passed in. Every size is checked: InvalidArgument names both. A payload that
// Validate refuses is never decoded: from what passes it, no method reads or
// writes out of bounds or makes NaN where the gradient was finite. Those for a
// GPU are called within a kernels::DeviceScope; what goes wrong with a launch
// is the error of the thread, for kernels::TakeLaunchError.
class PreparedCodec {
 public:
  virtual ~PreparedCodec() = default;

  virtual const CodecTraits& traits() const = 0;
  virtual size_t num_elems() const = 0;
  // How codes are laid out, where there is a choice; a field of frame headers.
  virtual uint8_t packing() const { return 0; }
  // The size of `out` that Encode demands, and Reencode of so many payloads.
  virtual size_t max_encoded_bytes() const = 0;
  virtual size_t max_reencoded_bytes(uint32_t /*num_payloads*/) const {
    return max_encoded_bytes();
  }

  // Encodes grad [n] f32 into `out`; the residual takes what was not sent
  // (error feedback, fused). On a GPU `result` is memory that the device can
  // write, and is valid when the work on `stream` has finished.
  virtual absl::Status Encode(ConstBytes grad, CodecState& state,
                              const EncodeParams& params, Bytes out,
                              EncodeResult* result, Stream stream) const = 0;

  // Encodes a gradient of 16-bit floats, [n] u16 aligned to 2, with a residual
  // of float32. The result is what Encode gives for the gradient converted to
  // float32, which is exact. Unimplemented, with nothing touched, where a codec
  // takes only float32.
  virtual absl::Status EncodeHalf(HalfFormat format, ConstBytes grad,
                                  CodecState& state, const EncodeParams& params,
                                  Bytes out, EncodeResult* result,
                                  Stream stream) const;

  // Makes of Encode, or EncodeHalf, of one item a part of a launch that it
  // shares with others on `stream`. Nullopt where the device or the codec has
  // no such kernel. The first call for a state may make its memory.
  virtual absl::StatusOr<std::optional<BatchPart>> BatchPartOf(
      const EncodeItem& item, Stream stream) const;

  // Makes such a part of Decode, or DecodeSum.
  virtual absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const;

  // OK when `payload` is something that Encode or Reencode can have written. It
  // is called for bytes from a network, before anything else is done with them.
  virtual absl::Status Validate(ConstBytes payload) const = 0;

  // Decode writes the decoded payload to out [n] f32; DecodeAdd adds it to sum
  // [n] f32.
  virtual absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                              Stream stream) const = 0;
  virtual absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                                 Stream stream) const = 0;

  // SumCodes sums payloads in a packed form, which has sum_bytes, or as
  // float32. Summable codecs give the same bits for every order of payloads;
  // others add in the given order. For codec none `out` may be the first
  // payload's memory.
  virtual size_t sum_bytes(uint32_t num_payloads) const = 0;
  virtual absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                                Stream stream) const = 0;
  // ValidateSum checks a packed sum from a network, DecodeSum then decodes it.
  virtual absl::Status ValidateSum(ConstBytes sum, uint32_t num_payloads) const;
  virtual absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads,
                                 float threshold, Bytes out,
                                 Stream stream) const = 0;
  virtual absl::Status SumDecode(std::span<const ConstBytes> payloads,
                                 float threshold, Bytes out,
                                 Stream stream) const = 0;
  // Every encoder calls it with each packed sum, from which encoders learn of
  // each other (PowerSGD's basis). By default it does nothing.
  virtual absl::Status Learn(ConstBytes sum, uint32_t num_payloads,
                             CodecState& state, Stream stream) const;

  // Encodes the sum of payloads plus the server's residual; the result is
  // decoded with ReencodeThreshold. `params.threshold` is the one that payloads
  // were encoded with, `scale` its exponent (any constant when it is fixed). On
  // a GPU `encoded_bytes` is memory like Encode's `result`.
  virtual absl::Status Reencode(std::span<const ConstBytes> payloads,
                                const EncodeParams& params, int16_t scale,
                                ReencodeState& state, Bytes out,
                                size_t* encoded_bytes, Stream stream) const = 0;
  virtual float ReencodeThreshold(float threshold,
                                  uint32_t num_payloads) const = 0;
  // Adds to sum [n] f32 what Reencode has kept, and forgets it. It is called
  // before the chunk goes on without the codec. By default nothing is kept.
  virtual absl::Status ReleaseResidual(float threshold, int16_t scale,
                                       ReencodeState& state, Bytes sum,
                                       Stream stream) const;
};

using MadeCodec = absl::StatusOr<std::unique_ptr<PreparedCodec>>;

// What a codec is, and how it is made of the kernels of a device. Immutable,
// thread-safe, lives for ever.
class Codec {
 public:
  // `num_elems` is 1 at least, and the traits are the codec's own.
  using MakeFn = std::function<MadeCodec(
      const CodecTraits& traits, size_t num_elems,
      const kernels::KernelTable& table, const CodecOptions& options)>;

  Codec(CodecTraits traits, MakeFn make)
      : traits_(std::move(traits)), make_(std::move(make)) {}

  const CodecTraits& traits() const { return traits_; }
  // InvalidArgument for n = 0; Unimplemented, with the reason, for a device
  // that this build or machine does not have; Internal with an error of the
  // GPU. The first call for a GPU runs each of the codec's kernels once. The
  // result may be used on any thread.
  MadeCodec Prepare(size_t num_elems, Device device,
                    const CodecOptions& options) const;
  MadeCodec Prepare(size_t num_elems, Device device) const {
    return Prepare(num_elems, device, StandardOptions(traits()));
  }

  // Prepare without running the kernels.
  MadeCodec PrepareCold(size_t num_elems, Device device,
                        const CodecOptions& options) const;

 private:
  const CodecTraits traits_;
  const MakeFn make_;
};

// NotFound lists the codecs that exist.
absl::StatusOr<const Codec*> FindCodec(absl::string_view name);
const std::vector<const Codec*>& AllCodecs();
// Lines for --help, one per codec.
std::string DescribeCodecs();

}  // namespace telegrad
