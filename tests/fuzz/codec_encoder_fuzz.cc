// libFuzzer: every codec over each of this CPU's instruction sets against the
// plain reference, of any gradients. Byte 0 chooses the codec, 1 and 2 the
// number of elements, 4 what is done with what is not finite and in how many
// steps; the rest repeats as the gradients, as float32 or, with bit 7 of byte
// 4, as whole numbers of int8 times a power of two that byte 3 chooses.
// Payloads, residuals, sums, replies and what is decoded must be the same, bit
// for bit.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compression/codec.h"
#include "kernels/cpu/used_kernels.h"
#include "kernels/dispatch.h"
#include "tests/fuzz/variants.h"
#include "tests/testing/same_bits.h"

namespace telegrad {
namespace {

using testing::SameBits;

constexpr float kThreshold = 0.25f;
constexpr int16_t kScale = -2;
constexpr size_t kHeader = 5;

struct Case {
  const uint8_t* data;
  size_t size;
  size_t num_elems() const { return NumFuzzedElems(data[1], data[2]); }
  int num_steps() const { return 1 + data[4] % 3; }
  NonFinite nonfinite() const {
    return (data[4] & 0x40) != 0 ? NonFinite::kPropagate : NonFinite::kZero;
  }
  bool is_whole() const { return (data[4] & 0x80) != 0; }

  float Element(size_t i) const {
    const uint8_t* const rest = data + kHeader;
    const size_t length = size - kHeader;
    if (length == 0) return 0;
    const float scale = std::ldexp(1.0f, data[3] % 32 - 16);
    if (is_whole()) return scale * static_cast<int8_t>(rest[i % length]);
    uint8_t bytes[4];
    for (size_t k = 0; k < 4; ++k) bytes[k] = rest[(4 * i + k) % length];
    return std::bit_cast<float>(bytes);
  }
  // Steps differ by where they begin.
  std::vector<float> Gradient(int step) const {
    std::vector<float> values(num_elems());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Element(i + 7 * static_cast<size_t>(step));
    }
    return values;
  }
};

// Everything that a codec gave.
struct Outcome {
  std::vector<Buffer> payloads;
  std::vector<EncodeStats> stats;
  std::vector<std::vector<float>> floats;  // residuals, what was decoded
  std::vector<Buffer> replies;             // packed sums, re-encoded
};

void Encode(const PreparedCodec& codec, const Case& of, Outcome* out) {
  std::vector<float> residual(codec.traits().needs_residual ? codec.num_elems()
                                                            : 0);
  CodecState state;
  state.residual = {residual.data(), 4 * residual.size()};
  for (int step = 0; step < of.num_steps(); ++step) {
    const std::vector<float> grad = of.Gradient(step);
    Buffer payload(codec.max_encoded_bytes());
    EncodeResult result;
    const EncodeParams params{.threshold = kThreshold,
                              .nonfinite = of.nonfinite(),
                              .stream = 7,
                              .step = static_cast<uint64_t>(step),
                              .source = 1};
    Require(codec
                .Encode({grad.data(), 4 * grad.size()}, state, params,
                        payload.view(), &result, {})
                .ok());
    out->payloads.push_back(CopyOf(payload.data(), result.encoded_bytes));
    out->stats.push_back(result.stats);
    out->floats.push_back(residual);
  }
}

using Payloads = std::vector<ConstBytes>;

void DecodePayloads(const PreparedCodec& codec, const Payloads& payloads,
                    Outcome* out) {
  const size_t n = codec.num_elems();
  std::vector<float> decoded(n), sum(n);
  for (const ConstBytes payload : payloads) {
    Require(
        codec.Decode(payload, kThreshold, {decoded.data(), 4 * n}, {}).ok());
    Require(codec.DecodeAdd(payload, kThreshold, {sum.data(), 4 * n}, {}).ok());
    out->floats.push_back(decoded);
    out->floats.push_back(sum);
  }
}

void Sum(const PreparedCodec& codec, const Payloads& payloads, Outcome* out) {
  const auto count = static_cast<uint32_t>(payloads.size());
  std::vector<float> sum(codec.num_elems());
  const Bytes view(sum.data(), 4 * sum.size());
  if (codec.SumDecode(payloads, kThreshold, view, {}).ok()) {
    out->floats.push_back(sum);
  }
  Buffer packed(codec.sum_bytes(count));
  if (!codec.SumCodes(payloads, packed.view(), {}).ok() ||
      !codec.ValidateSum(packed.view(), count).ok()) {
    return;
  }
  Require(codec.DecodeSum(packed.view(), count, kThreshold, view, {}).ok());
  out->floats.push_back(sum);
  out->replies.push_back(std::move(packed));
}

void Reencode(const PreparedCodec& codec, const Payloads& payloads,
              Outcome* out) {
  if (codec.traits().lossless || codec.traits().keeps_nonfinite) return;
  ReencodeState state;
  Buffer reply(
      codec.max_reencoded_bytes(static_cast<uint32_t>(payloads.size())));
  size_t num_bytes = 0;
  const EncodeParams params{.threshold = kThreshold, .source = UINT64_MAX};
  if (codec
          .Reencode(payloads, params, kScale, state, reply.view(), &num_bytes,
                    {})
          .ok()) {
    out->replies.push_back(CopyOf(reply.data(), num_bytes));
  }
}

void Decode(const PreparedCodec& codec, const Case& of, Outcome* out) {
  Payloads payloads;
  for (const Buffer& payload : out->payloads) {
    if (!codec.Validate(payload.view()).ok()) {
      // Only what is not finite, let through, makes what nobody takes.
      Require(of.nonfinite() == NonFinite::kPropagate);
      return;
    }
    payloads.push_back(payload.view());
  }
  DecodePayloads(codec, payloads, out);
  Sum(codec, payloads, out);
  Reencode(codec, payloads, out);
}

Outcome Run(const PreparedCodec& codec, const Case& of) {
  Outcome out;
  Encode(codec, of, &out);
  Decode(codec, of, &out);
  return out;
}

// With NaN in them bytes differ: so do instructions in which NaN they keep.
void RequireSameBytes(const std::vector<Buffer>& got,
                      const std::vector<Buffer>& want, bool has_nan) {
  Require(got.size() == want.size());
  for (size_t i = 0; i < got.size() && !has_nan; ++i) {
    Require(got[i].size() == want[i].size());
    Require(std::memcmp(got[i].data(), want[i].data(), got[i].size()) == 0);
  }
}

void RequireSame(const Outcome& got, const Outcome& want, bool has_nan) {
  RequireSameBytes(got.payloads, want.payloads, has_nan);
  RequireSameBytes(got.replies, want.replies, has_nan);
  Require(got.stats.size() == want.stats.size());
  for (size_t i = 0; i < got.stats.size(); ++i) {
    Require(got.stats[i].num_nonzero == want.stats[i].num_nonzero);
    Require(got.stats[i].num_nonfinite == want.stats[i].num_nonfinite);
    Require(got.stats[i].first_nonfinite == want.stats[i].first_nonfinite);
  }
  Require(got.floats.size() == want.floats.size());
  for (size_t i = 0; i < got.floats.size(); ++i) {
    for (size_t k = 0; k < got.floats[i].size(); ++k) {
      Require(SameBits(got.floats[i][k], want.floats[i][k]));
    }
  }
}

bool HasNan(const Outcome& of) {
  for (const auto& values : of.floats) {
    for (const float value : values) {
      if (std::isnan(value)) return true;
    }
  }
  return false;
}

// The codecs over each table, the reference first.
std::vector<PreparedCodecs>& AllPrepared() {
  static std::vector<PreparedCodecs> made(kernels::AllCpuKernels().size());
  return made;
}

void RunOne(const Case& of) {
  const std::vector<const kernels::KernelTable*> tables =
      kernels::AllCpuKernels();
  const auto run = [&](size_t i) {
    const kernels::UsedCpuKernels used(tables[i]);
    return Run(AllPrepared()[i].Get(of.data[0], of.num_elems()), of);
  };
  const Outcome want = run(0);
  const bool has_nan = HasNan(want);
  for (size_t i = 1; i < tables.size(); ++i) RequireSame(run(i), want, has_nan);
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= telegrad::kHeader) telegrad::RunOne({data, size});
  return 0;
}
