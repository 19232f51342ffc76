#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kvstore/tuning/auto_compression.h"
#include "trainer/flags/options.h"

namespace CLI {
class App;
}

namespace telegrad {

// Texts of --compare and --gc-... that need a second look.
struct RawCompressionFlags {
  std::string gc_type = "none";
  std::string gc_allow = kDefaultAllowed;
  std::string compare;
  std::string threshold = "auto";
  std::string rules;
  std::string min_bytes = "64KiB";
  std::string reply = "auto";
  std::string guard = "on";
  int64_t warmup_steps = 0;
  std::string packing = "plain";
  std::string nonfinite = "error";
  std::string update_on = "worker";
  std::string momentum = "auto";
  std::string normalize = "auto";
};

void AddCompressionFlags(CLI::App& app, TrainOptions& options,
                         RawCompressionFlags& raw);
// What they say, as options.settings.
absl::Status FillSettings(const RawCompressionFlags& raw,
                          TrainOptions& options);

}  // namespace telegrad
