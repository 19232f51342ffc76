// What trainers of other languages share with telegrad-train.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvstore/options.h"
#include "kvstore/tuning/few_bits.h"
#include "kvstore/tuning/turns.h"
#include "python/c/status.h"
#include "topology/plan.h"

using telegrad::c::Give;
using telegrad::c::TextOf;

namespace {

int32_t Give(const absl::StatusOr<bool>& found, int32_t* out,
             telegrad_status* status) {
  if (found.ok()) *out = *found ? 1 : 0;
  return Give(found.status(), status);
}

}  // namespace

extern "C" {

int32_t telegrad_codec_few_bits(const char* spec, int32_t* harms_squares,
                                int32_t* wants_momentum,
                                telegrad_status* status) {
  if (harms_squares == nullptr || wants_momentum == nullptr) {
    return Give(
        absl::InvalidArgumentError("harms_squares or wants_momentum is null"),
        status);
  }
  const std::string type = TextOf(spec, "none");
  const absl::StatusOr<double> bits = telegrad::BitsOf(type);
  if (!bits.ok()) return Give(bits.status(), status);
  const absl::StatusOr<bool> wants =
      telegrad::WantsMomentumBefore({.type = type});
  if (!wants.ok()) return Give(wants.status(), status);
  *harms_squares = *bits < telegrad::kLeastBitsForSquares ? 1 : 0;
  *wants_momentum = *wants ? 1 : 0;
  return Give(absl::OkStatus(), status);
}

int32_t telegrad_codec_wants_normal(const char* spec, int32_t* wants,
                                    telegrad_status* status) {
  if (wants == nullptr) {
    return Give(absl::InvalidArgumentError("wants is null"), status);
  }
  return Give(telegrad::WantsNormal(absl::string_view(TextOf(spec, "none"))),
              wants, status);
}

int32_t telegrad_codec_comes_late(const char* spec, double momentum,
                                  int32_t* late, telegrad_status* status) {
  if (late == nullptr) {
    return Give(absl::InvalidArgumentError("late is null"), status);
  }
  return Give(telegrad::ComesLate(TextOf(spec, "none"), momentum), late,
              status);
}

const char* telegrad_codec_standard(int32_t few_bits) {
  return few_bits == 1   ? telegrad::kDefaultAllowed
         : few_bits == 2 ? telegrad::kBesideSquares
                         : telegrad::kCarefulCodec;
}

int32_t telegrad_fragment_turns(const uint64_t* sizes, uint64_t count,
                                int32_t steps, int32_t fragments,
                                int32_t* turns, telegrad_status* status) {
  if (sizes == nullptr || turns == nullptr) {
    return Give(absl::InvalidArgumentError("sizes or turns is null"), status);
  }
  if (fragments < 1 || fragments > steps) {
    return Give(absl::InvalidArgumentError(absl::StrCat(
                    "fragments ", fragments, ": 1 to the ", steps, " steps")),
                status);
  }
  std::ranges::copy(
      telegrad::TurnsOf(std::span(sizes, count), steps, fragments), turns);
  return Give(absl::OkStatus(), status);
}

}  // extern "C"
