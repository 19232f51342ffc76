#include "base/folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/of_flag.h"

namespace telegrad {

absl::Status MakeFolder(absl::string_view flag, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && access(directory.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return absl::OkStatus();
  return OfFlag(flag, directory, absl::InvalidArgumentError(error.message()));
}

}  // namespace telegrad
