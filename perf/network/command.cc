#include "perf/network/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"

namespace telegrad::perf {
namespace {

// argv as the kernel has it, so that other ranks are started with the same.
std::vector<std::string> OwnWords() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return absl::StrSplit(text, '\0');
}

}  // namespace

void SetNetworkCallback(
    CLI::App& app, NetworkOptions& options, int& exit_code,
    std::function<absl::Status(const std::vector<std::string>& words)> run) {
  app.callback([&app, &options, &exit_code, run = std::move(run)] {
    const std::vector<std::string> words = OwnWords();
    options.command_line = absl::StrJoin(words, " ");
    absl::Status status = TakePathFlags(app, options);
    if (status.ok()) status = run(words);
    if (status.ok()) return;
    std::fprintf(stderr, "telegrad-perf: %s\n",
                 std::string(status.message()).c_str());
    exit_code = static_cast<int>(absl::IsNotFound(status) ? ExitCode::kUsage
                                                          : ExitCodeOf(status));
  });
}

}  // namespace telegrad::perf
