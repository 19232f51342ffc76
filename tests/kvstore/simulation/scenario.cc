#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Duration Between(Random& random, int64_t least_ms, int64_t most_ms) {
  return milliseconds(least_ms +
                      static_cast<int64_t>(random.NextBelow(
                          static_cast<uint64_t>(most_ms - least_ms + 1))));
}

// One that ends in a death, or does not.
Blow DrawBlow(Random& random, const Scenario& scenario) {
  const auto members =
      static_cast<uint64_t>(1 + scenario.workers + scenario.servers);
  Blow blow;
  blow.at = Between(random, 20, 400);
  // Workers more often than others.
  blow.member = random.NextBelow(2) == 0
                    ? 1 + static_cast<int>(random.NextBelow(
                              static_cast<uint64_t>(scenario.workers)))
                    : static_cast<int>(random.NextBelow(members));
  switch (random.NextBelow(4)) {
    case 0:
    case 1:
      blow.kind = Blow::Kind::kKill;
      break;
    case 2:
      blow.kind = Blow::Kind::kPause;
      blow.time = random.NextBelow(2) == 0 ? Between(random, 100, 700)
                                           : Between(random, 4000, 9000);
      break;
    default:
      blow.kind = Blow::Kind::kCut;
      blow.other = static_cast<int>(random.NextBelow(members));
      if (blow.other == blow.member) blow.other = blow.member == 0 ? 1 : 0;
      blow.time = random.NextBelow(2) == 0 ? Between(random, 100, 700)
                                           : Between(random, 4000, 20000);
  }
  return blow;
}

const char* Name(Blow::Kind kind) {
  switch (kind) {
    case Blow::Kind::kKill:
      return "kill";
    case Blow::Kind::kPause:
      return "pause";
    case Blow::Kind::kCut:
      return "cut";
    case Blow::Kind::kTamper:
      return "tamper";
    case Blow::Kind::kReplace:
      return "replace";
  }
  return "";
}

// Kinds of jobs that others were drawn before: of a stream of their own.
void DrawMore(uint64_t seed, Scenario& scenario) {
  Random random(seed, /*stream=*/9);
  const uint64_t kind = random.NextBelow(4);
  scenario.is_async = !scenario.has_parts && kind == 0;
  if (random.NextBelow(2) == 0) scenario.max_staleness = 2;
  // No checkpoint is made of what such workers' codecs hold back.
  const bool may_sum_first = !scenario.has_parts && !scenario.is_async &&
                             !scenario.is_elastic && scenario.workers > 2;
  if (may_sum_first && kind < 3) scenario.hosts = 2;
  const uint64_t sealed = random.NextBelow(6);
  if (sealed > 1) return;
  scenario.encryption = sealed == 0 ? Encryption::kAuth : Encryption::kOn;
  scenario.flips = 0;  // before they are sealed nobody looks
  if (random.NextBelow(2) == 0) {
    Blow blow = DrawBlow(random, scenario);
    blow.kind = Blow::Kind::kTamper;
    blow.time = {};
    blow.other = blow.member == 0 ? 1 : 0;
    if (random.NextBelow(2) == 0 && scenario.servers > 0) {
      blow.member = 1;
      blow.other = 1 + scenario.workers;
    }
    scenario.blows.push_back(blow);
  }
}

}  // namespace

Scenario DrawScenario(uint64_t seed) {
  Random random(seed, /*stream=*/7);
  const auto happens = [&](uint64_t one_in) {
    return random.NextBelow(one_in) == 0;
  };
  Scenario scenario{.seed = seed};
  scenario.workers = 2 + static_cast<int>(random.NextBelow(3));
  scenario.servers = 1 + static_cast<int>(random.NextBelow(2));
  // Of another stream, so that seeds of jobs with servers are as they were.
  scenario.has_parts = Random(seed, /*stream=*/8).NextBelow(4) == 0;
  if (scenario.has_parts) scenario.servers = 0;
  scenario.is_elastic = !happens(4);
  scenario.codec = happens(3) ? "none" : "2bit";
  scenario.steps = 8 + static_cast<int64_t>(random.NextBelow(25));
  scenario.latency = microseconds(100 + random.NextBelow(10'000));
  if (happens(3)) {
    scenario.resends = true;
    scenario.fault = absl::StrFormat(
        "drop=%.3f,duplicate=%.3f,reorder=%.3f,flip=%.3f,seed=%d",
        0.05 * random.NextUniform(), 0.05 * random.NextUniform(),
        0.1 * random.NextUniform(), 0.02 * random.NextUniform(), seed);
  }
  if (happens(3)) scenario.duplicates = 0.2;
  if (happens(12)) scenario.flips = 0.05;
  const uint64_t num_blows = random.NextBelow(3);
  for (uint64_t i = 0; i < num_blows; ++i) {
    scenario.blows.push_back(DrawBlow(random, scenario));
  }
  if (scenario.is_elastic && happens(2)) {
    scenario.blows.push_back(
        {.kind = Blow::Kind::kReplace, .at = Between(random, 100, 900)});
  }
  if (scenario.is_elastic && happens(10)) scenario.stale = 0.5;
  DrawMore(seed, scenario);
  return scenario;
}

std::string Describe(const Scenario& scenario) {
  std::string text =
      absl::StrCat("seed ", scenario.seed, ": ", scenario.workers, " workers, ",
                   scenario.servers, " servers, ",
                   scenario.has_parts  ? "allreduce of "
                   : scenario.is_async ? "dist_async of "
                                       : "",
                   scenario.codec, scenario.is_elastic ? ", elastic" : "", ", ",
                   scenario.steps, " steps");
  if (scenario.hosts > 0) absl::StrAppend(&text, ", hosts sum first");
  if (scenario.encryption != Encryption::kOff) {
    absl::StrAppend(&text, ", encryption ", Name(scenario.encryption));
  }
  if (scenario.resends) absl::StrAppend(&text, ", resend of ", scenario.fault);
  if (scenario.duplicates > 0) absl::StrAppend(&text, ", duplicates");
  if (scenario.flips > 0) absl::StrAppend(&text, ", flips");
  if (scenario.stale > 0) absl::StrAppend(&text, ", stale frames");
  for (const Blow& blow : scenario.blows) {
    absl::StrAppendFormat(&text, "; %s", Name(blow.kind));
    if (blow.kind != Blow::Kind::kReplace) {
      absl::StrAppend(&text, " of ", blow.member);
    }
    if (blow.kind == Blow::Kind::kCut) absl::StrAppend(&text, "-", blow.other);
    absl::StrAppendFormat(&text, " at %.3f s", ToSeconds(blow.at));
    if (blow.time > Duration()) {
      absl::StrAppendFormat(&text, " for %.3f s", ToSeconds(blow.time));
    }
  }
  return text;
}

}  // namespace telegrad::testing
