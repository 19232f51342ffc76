#include "kvstore/tuning/few_bits.h"

#include "base/status_macros.h"
#include "kvstore/engine/codec/codec_policy.h"

namespace telegrad {
namespace {

absl::StatusOr<double> BitsOfSpec(const CodecSpec& spec) {
  constexpr size_t kElems = size_t{1} << 20;
  ASSIGN_OR_RETURN(const auto codec,
                   spec.codec->Prepare(kElems, Device{}, spec.options));
  return 8.0 * static_cast<double>(codec->max_encoded_bytes()) / kElems;
}

}  // namespace

absl::StatusOr<double> BitsOf(absl::string_view codec) {
  ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(codec));
  return BitsOfSpec(spec);
}

absl::StatusOr<bool> WantsMomentumBefore(const CompressionConfig& config) {
  ASSIGN_OR_RETURN(const CodecPolicy policy, MakeCodecPolicy(config));
  for (const JobCodec* const spec : policy.specs()) {
    const CodecId id = spec->codec->traits().id;
    if (id == CodecId::kDgc || id == CodecId::kPowerSgd) continue;
    ASSIGN_OR_RETURN(const double bits, BitsOfSpec(*spec));
    if (bits < kLeastBitsForMomentum) return true;
  }
  return false;
}

}  // namespace telegrad
