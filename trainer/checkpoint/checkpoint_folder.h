#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

using Facts = std::vector<std::pair<std::string, std::string>>;

// The fact in --show-checkpoint's first line that says where the run was: not
// compared.
constexpr char kPlaceFact[] = "place";

// What a checkpoint is of: it is whole when this is there, under its name.
struct Manifest {
  int64_t step = 0;
  Facts facts = {};  // the run's facts; a resumed one must have the same
  struct Part {
    std::string file;
    std::string sha256;
  };
  std::vector<Part> parts = {};  // by worker
};

// Checkpoints in a folder: one of step 120 is the folder step-000000000120, and
// step-000000000120.writing until it is whole. All methods name the path in
// their errors. Thread-safe.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  // One worker alone calls it, before the parts: an empty folder to write them
  // to.
  absl::StatusOr<std::string> Begin(int64_t step) const;
  // Removes all that was begun and is not whole, as Begin does.
  void Discard() const;
  static std::string PartPath(const std::string& folder, int rank);
  // All parts are on the disk: from now on the checkpoint is whole, whatever
  // happens. Then lets go of all but the `keep` newest.
  absl::Status Commit(const std::string& folder, const Manifest& manifest,
                      int keep) const;

  // Whole ones, newest first.
  std::vector<int64_t> Steps() const;
  // DataLoss where it is none, or a part's hash is another.
  absl::StatusOr<Manifest> ReadManifest(int64_t step) const;
  absl::Status CheckPart(int64_t step, const Manifest::Part& part) const;
  std::string PartPath(int64_t step, int rank) const;

  const std::string& path() const { return path_; }

 private:
  // Steps whose folders' names end with `end`, newest first.
  std::vector<int64_t> StepsWith(const std::string& end) const;
  const std::string path_;
};

// The text of --show-checkpoint: what each checkpoint has, and whether it is
// good. NotFound when there is none.
absl::StatusOr<std::string> DescribeCheckpoints(const std::string& path);

// For tests and fuzzing: MANIFEST's text.
std::string ManifestText(const Manifest& manifest);
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace telegrad
