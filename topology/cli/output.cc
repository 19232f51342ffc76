#include "topology/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace telegrad::topo {

absl::Status Print(const std::string& text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  if (is_written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "standard output cannot be written: ", std::strerror(errno)));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

int Finish(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return static_cast<int>(ExitCode::kOk);
  const std::string line =
      absl::StrCat("telegrad-topo: ", name, ": ", status.message(), "\n");
  std::fputs(line.c_str(), stderr);
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace telegrad::topo
