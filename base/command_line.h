#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_code.h"

namespace telegrad {

// Letters to add, drop or change, at least, that make `a` of `b`.
inline size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The flag of `app` that is spelt most like `flag` ("--batchsize"); empty where
// none is.
inline std::string FlagLike(const CLI::App& app, const std::string& flag) {
  constexpr size_t kMostChanges = 3;
  std::string best;
  size_t least = std::min(kMostChanges, flag.size() / 3) + 1;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const size_t distance = EditDistance(flag, "--" + name);
      if (distance >= least) continue;
      least = distance;
      best = "--" + name;
    }
  }
  return best;
}

// What a program ends with whose command line cannot be read: 0 after --help
// and --version, else kUsage after a sentence on standard error.
inline int ExitOfCommandLine(const CLI::App& app,
                             const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const auto chosen = app.get_subcommands();  // of those that were given
  const CLI::App& read = chosen.empty() ? app : *chosen.front();
  std::string what = error.what();
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto flag =
      std::find_if(unknown.begin(), unknown.end(), [](const std::string& each) {
        return each.size() > 2 && each.substr(0, 2) == "--";
      });
  if (flag != unknown.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    const std::string like = FlagLike(read, name);
    what = "no flag '" + name + "'" +
           (like.empty() ? "" : "; did you mean " + like + "?");
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  const std::string program =
      app.get_name() + (chosen.empty() ? "" : " " + read.get_name());
  std::fprintf(stderr, "%s: %s (%s --help lists all flags)\n",
               app.get_name().c_str(), what.c_str(), program.c_str());
  return static_cast<int>(ExitCode::kUsage);
}

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
    return ExitOfCommandLine(app, error);
  }
  return std::nullopt;
}

}  // namespace telegrad
