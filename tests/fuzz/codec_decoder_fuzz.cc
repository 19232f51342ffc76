// libFuzzer: bytes of a network against every codec's decoders. Byte 0 chooses
// the codec, 1 and 2 the number of elements, 3 the number of payloads. Without
// bit 7 of byte 3 the rest are the payloads, cut in equal parts; with it, the
// payloads are a gradient's, changed by what the rest says (place u16, value
// u8), so that whole payloads are met often. What Validate lets through must be
// decoded in bounds, to finite values.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "compression/codec.h"
#include "tests/fuzz/variants.h"

namespace telegrad {
namespace {

constexpr float kThreshold = 0.25f;

void RequireFinite(const PreparedCodec& codec,
                   const std::vector<float>& values) {
  if (codec.traits().keeps_nonfinite) return;
  for (const float value : values) Require(std::isfinite(value));
}

void TryReplies(const PreparedCodec& codec,
                const std::vector<ConstBytes>& payloads) {
  const auto count = static_cast<uint32_t>(payloads.size());
  std::vector<float> out(codec.num_elems());
  const Bytes view(out.data(), 4 * out.size());
  Buffer sum(codec.sum_bytes(count));
  if (codec.SumCodes(payloads, sum.view(), {}).ok() &&
      codec.ValidateSum(sum.view(), count).ok()) {
    Require(codec.DecodeSum(sum.view(), count, kThreshold, view, {}).ok());
  }
  if (codec.traits().lossless || codec.traits().keeps_nonfinite) return;
  ReencodeState state;
  Buffer reply(codec.max_reencoded_bytes(count));
  size_t num_bytes = 0;
  const EncodeParams params{.threshold = kThreshold, .source = UINT64_MAX};
  if (codec.Reencode(payloads, params, -2, state, reply.view(), &num_bytes, {})
          .ok()) {
    Require(codec.Validate({reply.data(), num_bytes}).ok());
  }
}

void TrySum(const PreparedCodec& codec, ConstBytes sum, uint32_t count) {
  if (!codec.ValidateSum(sum, count).ok()) return;
  std::vector<float> out(codec.num_elems());
  Require(
      codec.DecodeSum(sum, count, kThreshold, {out.data(), 4 * out.size()}, {})
          .ok());
}

// A gradient for each of the payloads, made once: they cost more than decoding.
const float* Gradient(uint64_t source) {
  static const std::vector<float> made = [] {
    std::vector<float> values(4 * kMaxFuzzedElems);
    Random random(1, 0);
    for (float& value : values) value = random.NextNormal();
    return values;
  }();
  return made.data() + source * kMaxFuzzedElems;
}

Buffer ChangedPayload(const PreparedCodec& codec, uint64_t source,
                      const uint8_t* changes, size_t size) {
  const size_t n = codec.num_elems();
  std::vector<float> residual(codec.traits().needs_residual ? n : 0);
  CodecState state;
  state.residual = {residual.data(), 4 * residual.size()};
  Buffer out(codec.max_encoded_bytes());
  EncodeResult result;
  Require(codec
              .Encode({Gradient(source), 4 * n}, state,
                      {.threshold = kThreshold, .source = source}, out.view(),
                      &result, {})
              .ok());
  Buffer payload = CopyOf(out.data(), result.encoded_bytes);
  for (size_t i = 0; i + 3 <= size; i += 3) {
    const size_t place = changes[i] | size_t{changes[i + 1]} << 8;
    payload.as<uint8_t>()[place % payload.size()] = changes[i + 2];
  }
  return payload;
}

void RunOne(const uint8_t* data, size_t size) {
  static PreparedCodecs prepared;
  const size_t num_elems = NumFuzzedElems(data[1], data[2]);
  const PreparedCodec& codec = prepared.Get(data[0], num_elems);
  const size_t num_payloads = 1 + data[3] % 4;
  const bool is_changed = (data[3] & 0x80) != 0;
  const size_t part = (size - 4) / num_payloads;
  std::vector<Buffer> buffers;
  std::vector<ConstBytes> valid;
  for (size_t i = 0; i < num_payloads; ++i) {
    const uint8_t* const bytes = data + 4 + i * part;
    buffers.push_back(is_changed ? ChangedPayload(codec, i, bytes, part)
                                 : CopyOf(bytes, part));
    const ConstBytes payload = buffers.back().view();
    if (!codec.Validate(payload).ok()) continue;
    std::vector<float> out(num_elems);
    const Bytes view(out.data(), 4 * out.size());
    Require(codec.Decode(payload, kThreshold, view, {}).ok());
    RequireFinite(codec, out);
    Require(codec.DecodeAdd(payload, kThreshold, view, {}).ok());
    valid.push_back(payload);
  }
  if (!valid.empty()) TryReplies(codec, valid);
  TrySum(codec, buffers[0].view(), static_cast<uint32_t>(num_payloads));
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 4) telegrad::RunOne(data, size);
  return 0;
}
