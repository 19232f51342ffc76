#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "topology/calibration.h"
#include "topology/machine.h"
#include "topology/system_root.h"

namespace telegrad {

// Speeds that were measured on a machine, in a folder of the user's. A file is
// of one measurement; processes may read and write it at once, each sees a
// whole one. Nothing here is an error: what cannot be read is measured, what
// cannot be written is measured again. One thread.
class CalibrationCache {
 public:
  struct Options {
    std::string folder = {};    // made when something is stored; empty: none
    std::string identity = {};  // what speeds depend on (CalibrationIdentity)
    bool recalibrate = false;   // stored files are not read, only replaced
    // Nor are files of this time and later: another process of the same run
    // has just measured what is to be measured here.
    std::filesystem::file_time_type before =
        std::filesystem::file_time_type::max();
  };

  explicit CalibrationCache(Options options) : options_(std::move(options)) {}

  // What was stored for `what` ("codec 2bit reply sum"), by this identity.
  std::optional<Calibration> Load(absl::string_view what);
  void Store(absl::string_view what, const Calibration& calibration);

  // Lines about what was read, ignored or could not be written since the last
  // call.
  std::vector<std::string> TakeNotes();

 private:
  std::string PathOf(absl::string_view what) const;
  std::string Heading(absl::string_view what) const;
  void Note(std::string line);

  const Options options_;
  std::vector<std::string> notes_ = {};
};

// The name of the first processor: "Intel(R) Xeon(R) ..."; empty where the
// kernel does not tell it (Arm).
std::string CpuModel(const SysRoot& root);

// One line: what speeds measured on `machine` with this library depend on.
std::string CalibrationIdentity(const Machine& machine,
                                absl::string_view cpu_model,
                                absl::string_view library_version);

// `telegrad` below $XDG_CACHE_HOME (if absolute) or $HOME/.cache; empty where
// neither is set. Arguments may be null.
std::string CalibrationFolder(const char* xdg_cache_home, const char* home);

}  // namespace telegrad
