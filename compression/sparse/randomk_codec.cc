#include "compression/sparse/randomk_codec.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"
#include "compression/shape_checks.h"
#include "compression/sparse/clear_ahead.h"
#include "compression/sparse/value_codec.h"

namespace telegrad {
namespace {

constexpr size_t kSeedBytes = 8;

uint64_t SeedOf(ConstBytes payload) {
  uint64_t seed;
  std::memcpy(&seed, payload.data, sizeof(seed));
  return seed;
}

uint64_t SeedFor(const EncodeParams& params) {
  const auto words = Philox(params.stream, params.step);
  return uint64_t{words[0]} << 32 | words[1];
}

// visit(j, index) for each stratum j.
template <typename Visit>
void ForEachDrawn(uint64_t seed, size_t n, size_t k, Visit visit) {
  std::array<uint32_t, 4> words{};
  size_t first = 0;
  size_t remainder = 0;
  for (size_t j = 0; j < k; ++j) {
    if (j % 4 == 0) words = Philox(seed, j / 4);
    // (j + 1) * n / k without a division.
    size_t next = first + n / k;
    remainder += n % k;
    if (remainder >= k) {
      remainder -= k;
      ++next;
    }
    visit(j, first + ((next - first) * words[j % 4] >> 32));
    first = next;
  }
}

float ValueAt(ConstBytes payload, size_t j) {
  float value;
  std::memcpy(&value, payload.data + kSeedBytes + 4 * j, sizeof(value));
  return value;
}
void PutValue(float value, size_t j, Bytes out) {
  std::memcpy(out.data + kSeedBytes + 4 * j, &value, sizeof(value));
}

class PreparedRandomK : public SelfContainedCodec {
 public:
  PreparedRandomK(const CodecTraits& codec_traits, size_t num_elems,
                  const kernels::KernelTable& table, size_t k)
      : SelfContainedCodec(codec_traits, num_elems, table), k_(k) {}

  size_t max_encoded_bytes() const override { return kSeedBytes + 4 * k_; }
  size_t sum_bytes(uint32_t) const override { return max_encoded_bytes(); }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    if (is_on_gpu()) {
      return EncodeOnGpu(grad, state, params, out, result, stream);
    }
    float* residual = AsFloats(state.residual);
    float* const momentum = AsFloats(state.momentum);
    EncodeStats stats;
    Accumulate(AsFloats(grad), residual, params, &stats, stream);
    const uint64_t seed = SeedFor(params);
    std::memcpy(out.data, &seed, sizeof(seed));
    ForEachDrawn(seed, num_elems(), k_, [&](size_t j, size_t index) {
      // NaN and infinities stay in the residual.
      const bool is_sent = std::isfinite(residual[index]);
      const float value = is_sent ? residual[index] : 0.0f;
      if (is_sent) residual[index] = 0;
      if (is_sent && momentum != nullptr) momentum[index] = 0;
      stats.num_nonzero += value != 0 ? 1 : 0;
      PutValue(value, j, out);
    });
    result->stats = stats;
    result->encoded_bytes = max_encoded_bytes();
    return absl::OkStatus();
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    for (size_t j = 0; j < k_; ++j) {
      if (!std::isfinite(ValueAt(payload, j))) {
        return absl::InvalidArgumentError(
            absl::StrCat("value ", j, " is ", ValueAt(payload, j)));
      }
    }
    return absl::OkStatus();
  }
  // The payloads were valid: only their sum can be beyond float32.
  absl::Status ValidateSum(ConstBytes sum, uint32_t) const override {
    RETURN_IF_ERROR(CheckSize("sums", sum.size, max_encoded_bytes()));
    const absl::Status status = Validate(sum);
    return status.ok() ? status : WithExitCode(ExitCode::kNumericFault, status);
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    float* to = AsFloats(out);
    if (is_on_gpu()) {
      kernels().drawn.decode(AsCodes(payload), num_elems(), k_, to, stream);
      return absl::OkStatus();
    }
    ClearAhead clear(to, num_elems());
    ForEachDrawn(SeedOf(payload), num_elems(), k_, [&](size_t j, size_t index) {
      clear.Until(index);
      to[index] = ValueAt(payload, j);
    });
    clear.All();
    return absl::OkStatus();
  }

  // A sum is a payload.
  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    auto* const decode = kernels().batch.drawn_decode;
    if (decode == nullptr) return std::nullopt;
    RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
    DecodePart part = {.decode = decode, .span = SpanOf(item, 0)};
    part.span.k = static_cast<uint32_t>(k_);
    return part;
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    float* to = AsFloats(sum);
    if (is_on_gpu()) {
      kernels().drawn.decode_add(AsCodes(payload), num_elems(), k_, to, stream);
      return absl::OkStatus();
    }
    ForEachDrawn(SeedOf(payload), num_elems(), k_, [&](size_t j, size_t index) {
      to[index] += ValueAt(payload, j);
    });
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    if (is_on_gpu()) {
      kernels().drawn.sum(Pointers(payloads).data(),
                          static_cast<uint32_t>(payloads.size()), k_,
                          AsCodes(out), stream);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckSeeds(payloads));
    std::memcpy(out.data, payloads[0].data, max_encoded_bytes());
    for (const ConstBytes& payload : payloads.subspan(1)) {
      for (size_t j = 0; j < k_; ++j) {
        PutValue(ValueAt(out, j) + ValueAt(payload, j), j, out);
      }
    }
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t, float threshold, Bytes out,
                         Stream stream) const override {
    return Decode(sum, threshold, out, stream);
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckSeeds(payloads));
    return SelfContainedCodec::SumDecode(payloads, threshold, out, stream);
  }

 private:
  // The pass of top-k, with nothing large enough for its list.
  void Accumulate(const float* grad, float* residual,
                  const EncodeParams& params, EncodeStats* stats,
                  Stream stream) const {
    uint32_t indices[kernels::kSurvivorSlack];
    float values[kernels::kSurvivorSlack];
    uint64_t count = 0;
    kernels().sparse.large_values(grad, residual, num_elems(), nullptr,
                                  params.nonfinite, indices, values, &count,
                                  stats, nullptr, stream);
  }

  // All of it queued, as Accumulate and the draw.
  absl::Status EncodeOnGpu(ConstBytes grad, CodecState& state,
                           const EncodeParams& params, Bytes out,
                           EncodeResult* result, Stream stream) const {
    constexpr size_t kListBytes = 4 * kernels::kSurvivorSlack;
    RETURN_IF_ERROR(
        MakeRoom(8 + 2 * kListBytes + kernels::SparseScratchBytes(num_elems()),
                 kernels(), state.scratch, stream));
    std::byte* const lists = state.scratch.data() + 8;
    float* const residual = AsFloats(state.residual);
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    kernels().sparse.large_values(AsFloats(grad), residual, num_elems(),
                                  nullptr, params.nonfinite,
                                  reinterpret_cast<uint32_t*>(lists),
                                  reinterpret_cast<float*>(lists + kListBytes),
                                  state.scratch.as<uint64_t>(), &result->stats,
                                  lists + 2 * kListBytes, stream);
    kernels().drawn.take(residual, AsFloats(state.momentum), num_elems(), k_,
                         SeedFor(params), AsCodes(out), &result->stats, stream);
    return absl::OkStatus();
  }

  // Where they can be looked at: not on a GPU.
  absl::Status CheckSeeds(std::span<const ConstBytes> payloads) const {
    if (is_on_gpu()) return absl::OkStatus();
    for (const ConstBytes& payload : payloads) {
      if (SeedOf(payload) != SeedOf(payloads[0])) {
        return absl::InvalidArgumentError(
            absl::StrCat("payloads of seeds ", SeedOf(payloads[0]), " and ",
                         SeedOf(payload)));
      }
    }
    return absl::OkStatus();
  }

  const size_t k_;
};

MadeCodec MakeRandomK(const CodecTraits& traits, size_t num_elems,
                      const kernels::KernelTable& table,
                      const CodecOptions& options) {
  RETURN_IF_ERROR(CheckIndices(num_elems));
  return std::make_unique<PreparedRandomK>(traits, num_elems, table,
                                           NumSent(options.density, num_elems));
}

}  // namespace

const Codec& RandomKCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "randomk",
          .id = CodecId::kRandomK,
          .summable = true,
          .summary =
              "elements that all workers draw alike, with error feedback",
          .masks_momentum = true,
          .options = {{"density", &CodecOptions::density, 0.01, 1e-6, 1, false,
                       "share of the elements that is sent"}},
      },
      MakeRandomK);
  return *codec;
}

}  // namespace telegrad
