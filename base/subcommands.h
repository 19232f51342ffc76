#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

#include "base/exit_code.h"

namespace telegrad {

// Reads the command line of a program whose first argument is one of its
// subcommands, and runs that. The exit code where there is nothing to run: 0
// after --help, kUsage after a sentence on standard error.
inline std::optional<int> RunSubcommand(CLI::App& app, int argc, char** argv) {
  app.require_subcommand(1);
  const std::string word = argc > 1 ? argv[1] : "";
  bool is_known = word.substr(0, 1) == "-";
  std::string names;
  for (const CLI::App* each : app.get_subcommands(nullptr)) {
    is_known |= each->get_name() == word;
    names += (names.empty() ? "" : ", ") + each->get_name();
  }
  if (!is_known) {
    const std::string what = word.empty()
                                 ? "give a command: "
                                 : "no command '" + word + "'; there are ";
    std::fprintf(stderr, "%s: %s%s; --help says what each does\n",
                 app.get_name().c_str(), what.c_str(), names.c_str());
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(app.exit(error) == 0 ? ExitCode::kOk
                                                 : ExitCode::kUsage);
  }
  return std::nullopt;
}

}  // namespace telegrad
