#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "kernels/encode_stats.h"
#include "kernels/stream.h"
#include "kernels/two_bit.h"

// What encoded gradients mean. In order of use: FindCodec, Prepare for a shape
// on a device, then Encode, SumCodes, Decode and so on with that shape. A codec
// knows nothing of keys, ranks or networks. To add one: docs/codecs.md.
namespace telegrad {

using kernels::EncodeStats;
using kernels::NonFinite;
using kernels::Stream;

enum class CodecId : uint8_t { kNone = 0, kTwoBit = 1 };

struct CodecTraits {
  std::string name;  // what --gc-type says
  CodecId id;
  uint8_t wire_version;  // changes whenever the bytes' meaning does
  bool lossless;
  bool summable;        // codes of several encoders can be added exactly
  bool constant_width;  // the encoded size depends on the shape alone
  bool needs_residual;  // one float32 per element in CodecState
  bool needs_threshold;
  std::string summary;  // one line for --help
};

// What a worker keeps per chunk between steps; views of its own memory.
struct CodecState {
  Bytes residual;  // [n] f32 when needs_residual, else empty
};

// What a server keeps per chunk for reply mode reencode: the part of the sums
// that was not yet sent, as integers in units of 2^unit_scale (or of the fixed
// threshold).
struct ReencodeState {
  Buffer residual;  // [n] i32
  int16_t unit_scale = 0;
  bool is_set = false;
};

struct EncodeParams {
  float threshold = 0;
  NonFinite nonfinite = NonFinite::kZero;
};

struct EncodeResult {
  size_t encoded_bytes = 0;
  EncodeStats stats;
};

// A codec for n elements on one device. Const methods are thread-safe; state is
// passed in. Every size is checked: InvalidArgument names both.
class PreparedCodec {
 public:
  virtual ~PreparedCodec() = default;

  virtual const CodecTraits& traits() const = 0;
  virtual size_t num_elems() const = 0;
  virtual size_t max_encoded_bytes() const = 0;

  // grad [n] f32 -> out; the residual takes what was not sent (error feedback,
  // fused). On a GPU `result` is valid when the stream has passed.
  virtual absl::Status Encode(ConstBytes grad, CodecState& state,
                              const EncodeParams& params, Bytes out,
                              EncodeResult* result, Stream stream) const = 0;

  // OK when `payload` is something that Encode can have written: for bytes
  // from a network, before anything else is done with them.
  virtual absl::Status Validate(ConstBytes payload) const = 0;

  // payload -> out [n] f32; sum [n] += payload.
  virtual absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                              Stream stream) const = 0;
  virtual absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                                 Stream stream) const = 0;

  // The sum over payloads in a packed form, or as float32. Summable codecs give
  // the same bits for every order of payloads; `none` adds in the given order,
  // and its `out` may be the first payload's memory.
  virtual size_t sum_bytes(uint32_t num_payloads) const = 0;
  virtual absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                                Stream stream) const = 0;
  virtual absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads,
                                 float threshold, Bytes out,
                                 Stream stream) const = 0;
  virtual absl::Status SumDecode(std::span<const ConstBytes> payloads,
                                 float threshold, Bytes out,
                                 Stream stream) const = 0;

  // Sum plus the server's residual, encoded again with a coarser quantum:
  // decode the result with ReencodeThreshold. `scale` is the exponent of the
  // threshold in force (any constant when it is fixed).
  virtual absl::Status Reencode(std::span<const ConstBytes> payloads,
                                int16_t scale, ReencodeState& state, Bytes out,
                                Stream stream) const = 0;
  virtual float ReencodeThreshold(float threshold,
                                  uint32_t num_payloads) const = 0;
};

// Immutable, thread-safe, lives for ever.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual const CodecTraits& traits() const = 0;
  // InvalidArgument for n = 0; Unimplemented, with the reason, for a device
  // that this build or machine does not have.
  virtual absl::StatusOr<std::unique_ptr<PreparedCodec>> Prepare(
      size_t num_elems, Device device) const = 0;
};

// NotFound lists the codecs that exist.
absl::StatusOr<const Codec*> FindCodec(absl::string_view name);
const std::vector<const Codec*>& AllCodecs();
// The lines of --help: one per codec.
std::string DescribeCodecs();

}  // namespace telegrad
