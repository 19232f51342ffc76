#include "kvstore/tuning/few_bits.h"

#include "base/status_macros.h"
#include "kvstore/engine/codec/codec_policy.h"

namespace telegrad {
namespace {

constexpr double kMuchMomentum = 0.5;

absl::StatusOr<double> BitsOfSpec(const CodecSpec& spec) {
  constexpr size_t kElems = size_t{1} << 20;
  ASSIGN_OR_RETURN(const auto codec,
                   spec.codec->Prepare(kElems, Device{}, spec.options));
  return 8.0 * static_cast<double>(codec->max_encoded_bytes()) / kElems;
}

bool WantsNormal(const CodecSpec& spec) {
  const CodecId id = spec.codec->traits().id;
  return id == CodecId::kInt2 || id == CodecId::kInt3 ||
         id == CodecId::kInt2Shared || id == CodecId::kInt3Shared;
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

absl::StatusOr<bool> WantsNormal(absl::string_view codec) {
  ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(codec));
  return WantsNormal(spec);
}

absl::StatusOr<bool> WantsNormal(const CompressionConfig& config) {
  ASSIGN_OR_RETURN(const CodecPolicy policy, MakeCodecPolicy(config));
  for (const JobCodec* const spec : policy.specs()) {
    if (WantsNormal(*spec)) return true;
  }
  return false;
}

absl::StatusOr<bool> HarmsSquares(absl::string_view codec, bool is_normal) {
  ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(codec));
  ASSIGN_OR_RETURN(const double bits, BitsOfSpec(spec));
  return bits < kLeastBitsForSquares && !(is_normal && WantsNormal(spec));
}

absl::StatusOr<bool> ComesLate(absl::string_view codec, double momentum) {
  ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(codec));
  ASSIGN_OR_RETURN(const double bits, BitsOfSpec(spec));
  const CodecTraits& traits = spec.codec->traits();
  return momentum >= kMuchMomentum && bits < kLeastBitsForSquares &&
         traits.needs_residual && traits.id != CodecId::kDgc;
}

}  // namespace telegrad
