#include "base/folder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/of_flag.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr Duration kUntilTheKilledAreGone = std::chrono::seconds(2);

// The file that is open is the one of that name: its last holder may have
// removed it in between.
bool IsThere(const UniqueFd& file, const std::string& path) {
  struct stat open_one {};
  struct stat named {};
  return fstat(file.get(), &open_one) == 0 &&
         lstat(path.c_str(), &named) == 0 && open_one.st_dev == named.st_dev &&
         open_one.st_ino == named.st_ino && S_ISREG(named.st_mode);
}

std::string HolderOf(const UniqueFd& file) {
  char name[300];
  const ssize_t size = pread(file.get(), name, sizeof(name), 0);
  const absl::string_view text(name, size > 0 ? static_cast<size_t>(size) : 0);
  return absl::Utf8SafeCEscape(absl::StripSuffix(text, "\n"));
}

void NameHolder(const UniqueFd& file) {
  const std::string name =
      absl::StrCat("process ", getpid(), " on ", OwnHostName(), "\n");
  const bool is_named = ftruncate(file.get(), 0) == 0 &&
                        pwrite(file.get(), name.data(), name.size(), 0) ==
                            static_cast<ssize_t>(name.size());
  // A full disk: the lock counts, not the name.
  if (!is_named) (void)!ftruncate(file.get(), 0);
}

}  // namespace

absl::Status MakeFolder(absl::string_view flag, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && access(directory.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return absl::OkStatus();
  return OfFlag(flag, directory, absl::InvalidArgumentError(error.message()));
}

absl::Status MakeLastingFolder(absl::string_view flag,
                               const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<fs::path> holders;  // get a new name each
  std::error_code error;
  for (fs::path at = fs::absolute(directory, error);
       !error && at.has_relative_path() && !fs::exists(at, error);
       at = at.parent_path()) {
    holders.push_back(at.parent_path());
  }
  RETURN_IF_ERROR(MakeFolder(flag, directory));
  for (const fs::path& holder : holders) {
    const absl::Status status = SyncFolder(holder.string());
    if (!status.ok()) LogWarning(flag, " ", directory, ": ", status.message());
  }
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open() && fsync(folder.get()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("fsync ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<HeldFolder>> HeldFolder::Take(
    absl::string_view flag, const std::string& folder) {
  const std::string path =
      absl::StrCat(folder, "/.", absl::StripPrefix(flag, "--"), ".lock");
  const TimePoint deadline = Clock::now() + kUntilTheKilledAreGone;
  for (;;) {
    // To be written, or NFS would not lock it; kept by processes that are
    // started from here.
    UniqueFd file(
        open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file.is_open()) {
      return OfFlag(
          flag, folder,
          SystemError(path, errno, absl::StatusCode::kInvalidArgument));
    }
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      if (IsThere(file, path)) {
        NameHolder(file);
        return std::unique_ptr<HeldFolder>(
            new HeldFolder(std::move(file), path));
      }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      LogWarning(flag, " ", folder, ": this file system keeps no locks (",
                 std::strerror(errno),
                 "): see to it that nobody else writes there");
      return nullptr;
    }
    if (Clock::now() < deadline) {
      poll(nullptr, 0, 20);
      continue;
    }
    const std::string holder = HolderOf(file);
    return OfFlag(flag, folder,
                  absl::InvalidArgumentError(absl::StrCat(
                      "another telegrad-train",
                      holder.empty() ? "" : absl::StrCat(", ", holder, ","),
                      " is writing there; wait for its end, or take another "
                      "folder")));
  }
}

HeldFolder::~HeldFolder() { unlink(path_.c_str()); }

}  // namespace telegrad
