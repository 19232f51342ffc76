#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace telegrad {

// Makes the folder that `flag` names, and those above it, where they are
// absent. InvalidArgument: it cannot be made, or nothing can be written there.
absl::Status MakeFolder(absl::string_view flag, const std::string& directory);

// MakeFolder for what a power cut must not take: new names are on the disk
// afterwards. Where that cannot be had, it is logged.
absl::Status MakeLastingFolder(absl::string_view flag,
                               const std::string& directory);

// Which names a folder has is on the disk afterwards. Unavailable: it is not.
absl::Status SyncFolder(const std::string& path);

// Keeps a folder for this process and those that it starts, until the last of
// them has ended, however that was: a locked file in it, .FLAG.lock, that says
// who they are. It locks over NFS, too; where a file system has no locks, that
// is logged, and nothing is kept.
class HeldFolder {
 public:
  // InvalidArgument: others have it, who are named by process and host. What a
  // killed process had started gets two seconds to end. Null without locks.
  static absl::StatusOr<std::unique_ptr<HeldFolder>> Take(
      absl::string_view flag, const std::string& folder);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

 private:
  HeldFolder(UniqueFd file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  const UniqueFd file_;
  const std::string path_;
};

}  // namespace telegrad
