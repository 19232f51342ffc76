#include "compression/sparse/threshold_codec.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/self_contained_codec.h"
#include "compression/sparse/clear_ahead.h"
#include "compression/sparse/index_list.h"
#include "compression/sparse/sparse_kernels.h"
#include "kernels/sparse.h"

namespace telegrad {
namespace {

const CodecTraits& Traits() {
  static const CodecTraits* traits = new CodecTraits{
      .name = "threshold",
      .id = CodecId::kThreshold,
      .wire_version = 1,
      .lossless = false,
      .summable = false,
      .constant_width = false,
      .needs_residual = true,
      .needs_threshold = true,
      .summary = "places of -t and +t with error feedback (Strom 2015)",
      // The density settles near (RMS / t)^2. The residual would pull its own
      // threshold up with it.
      .auto_threshold_per_rms = 8,
      .auto_of_residual = false,
  };
  return *traits;
}

struct Header {
  uint8_t format = 0;
  uint8_t zero[3] = {};
  uint32_t count = 0;
  float threshold = 0;
};
static_assert(sizeof(Header) == 12);

Header HeaderOf(ConstBytes payload) {
  Header header;
  std::memcpy(&header, payload.data, sizeof(header));
  return header;
}

std::span<const uint8_t> ListOf(ConstBytes payload) {
  return {reinterpret_cast<const uint8_t*>(payload.data) + sizeof(Header),
          payload.size - sizeof(Header)};
}

absl::Status CheckThreshold(float threshold) {
  if (threshold > 0 && std::isfinite(threshold)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold ", threshold, "; it must be positive"));
}

size_t WritePayload(std::span<const uint32_t> survivors, float threshold,
                    size_t n, Bytes out) {
  const IndexListSize list = SmallestIndexList<1>(survivors, n);
  const Header header = {.format = static_cast<uint8_t>(list.format),
                         .count = static_cast<uint32_t>(survivors.size()),
                         .threshold = threshold};
  std::memcpy(out.data, &header, sizeof(header));
  WriteIndexList<1>(list.format, survivors, n,
                    reinterpret_cast<uint8_t*>(out.data) + sizeof(header));
  return sizeof(header) + list.num_bytes;
}

class PreparedThreshold : public SelfContainedCodec {
 public:
  PreparedThreshold(size_t num_elems, const kernels::KernelTable& table)
      : SelfContainedCodec(Traits(), num_elems, table) {}

  size_t max_encoded_bytes() const override {
    return sizeof(Header) + MaxIndexListBytes<1>(num_elems(), num_elems());
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    RETURN_IF_ERROR(CheckThreshold(params.threshold));
    if (state.scratch.size() == 0) {
      state.scratch = Buffer(4 * (num_elems() + kernels::kSurvivorSlack));
    }
    auto* survivors = state.scratch.as<uint32_t>();
    uint64_t count = 0;
    result->stats = {};
    kernels().sparse.threshold_encode(
        AsFloats(grad), AsFloats(state.residual), num_elems(), params.threshold,
        params.nonfinite, survivors, &count, &result->stats, nullptr, stream);
    result->encoded_bytes =
        WritePayload({survivors, count}, params.threshold, num_elems(), out);
    return absl::OkStatus();
  }

  absl::Status Validate(ConstBytes payload) const override {
    if (payload.size < sizeof(Header)) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload of ", payload.size, " bytes"));
    }
    const Header header = HeaderOf(payload);
    if ((header.zero[0] | header.zero[1] | header.zero[2]) != 0) {
      return absl::InvalidArgumentError("reserved bytes are not 0");
    }
    RETURN_IF_ERROR(CheckThreshold(header.threshold));
    return ValidateIndexList<1>(header.format, ListOf(payload), header.count,
                                num_elems());
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    float* to = AsFloats(out);
    ClearAhead clear(to, num_elems());
    ForEachSent(payload, [&](size_t index, float value) {
      clear.Until(index);
      to[index] = value;
    });
    clear.All();
    return absl::OkStatus();
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    float* to = AsFloats(sum);
    ForEachSent(payload,
                [to](size_t index, float value) { to[index] += value; });
    return absl::OkStatus();
  }

 private:
  // visit(index, value); the payload's own threshold counts.
  template <typename Visit>
  void ForEachSent(ConstBytes payload, Visit visit) const {
    const Header header = HeaderOf(payload);
    const float values[] = {header.threshold, -header.threshold};
    ForEachIndex<1>(static_cast<IndexFormat>(header.format), ListOf(payload),
                    num_elems(), [&](size_t index, bool is_negative) {
                      visit(index, values[is_negative ? 1 : 0]);
                    });
  }
};

class Threshold : public Codec {
 public:
  using Codec::Prepare;
  const CodecTraits& traits() const override { return Traits(); }
  absl::StatusOr<std::unique_ptr<PreparedCodec>> Prepare(
      size_t num_elems, Device device, const CodecOptions&) const override {
    ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                     SparseKernelsFor(Traits(), num_elems, device));
    return std::make_unique<PreparedThreshold>(num_elems, *table);
  }
};

}  // namespace

const Codec& ThresholdCodec() {
  static const Threshold* codec = new Threshold;
  return *codec;
}

}  // namespace telegrad
