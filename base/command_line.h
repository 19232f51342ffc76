#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
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

// The flag of `app` that is spelt most like `flag` ("--batchsize"), else the
// shortest that has its words ("--epochs"); empty where none is.
inline std::string FlagLike(const CLI::App& app, const std::string& flag) {
  constexpr size_t kMostChanges = 3;
  std::string best, longer;
  size_t least = std::min(kMostChanges, flag.size() / 3) + 1;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string full = "--" + name;
      const bool has_words =
          flag.substr(0, 2) == "--" &&
          (full + "-").find(flag.substr(1) + "-") != std::string::npos;
      if (has_words && (longer.empty() || full.size() < longer.size())) {
        longer = full;
      }
      const size_t distance = EditDistance(flag, full);
      if (distance >= least) continue;
      least = distance;
      best = full;
    }
  }
  return best.empty() ? longer : best;
}

// Names the first word that looks like a flag among those that belong to no
// flag of `app`, else the first word.
inline std::string ExplainUnknown(const CLI::App& app,
                                  const std::vector<std::string>& unknown) {
  const auto flag =
      std::find_if(unknown.begin(), unknown.end(), [](const std::string& each) {
        return each.size() > 1 && each[0] == '-' && each != "--";
      });
  if (flag == unknown.end()) {
    return "'" + unknown.front() +
           "' belongs to no flag; flags begin with --, and a list has commas "
           "and no spaces";
  }
  const std::string name = flag->substr(0, flag->find('='));
  const std::string like = FlagLike(app, name);
  return "no flag '" + name + "'" +
         (like.empty() ? "" : "; did you mean " + like + "?");
}

// What CLI11 says of a value of `app`'s, where that is not a sentence by
// itself.
inline std::string Explain(const CLI::App& app, const std::string& said) {
  const std::string flag = said.substr(0, said.find(':'));
  const CLI::Option* const named = app.get_option_no_throw(flag);
  const size_t value = said.find("Value "), range = said.find(" not in range ");
  if (named != nullptr && range != std::string::npos && value < range) {
    double low = 0, high = 0;
    std::sscanf(said.c_str() + range, " not in range %lf to %lf", &low, &high);
    char bounds[64];
    std::snprintf(bounds, sizeof(bounds), "%.10g to %.10g", low, high);
    return flag + " " + said.substr(value + 6, range - value - 6) +
           ": it takes " + bounds + " (" + named->get_description() + ")";
  }
  if (said.find(" missing") != std::string::npos) {
    return flag + " needs a value";
  }
  if (said.find("At Most 1 ") != std::string::npos) {
    return flag + " takes one value; it was given several";
  }
  const std::string kind = "Could not convert: ";
  const size_t end = said.find(" = ");
  if (said.find(kind) != 0 || end == std::string::npos) return said;
  const std::string name = said.substr(kind.size(), end - kind.size());
  const CLI::Option* const option = app.get_option_no_throw(name);
  if (option != nullptr && option->get_expected_max() == 0) {
    return name + " takes no value";
  }
  const bool is_whole = option != nullptr && option->get_type_name().find(
                                                 "INT") != std::string::npos;
  return name + ": '" + said.substr(end + 3) + "' is not a " +
         (is_whole ? "whole number" : "number");
}

// What is wrong with the first of `names` that was given an empty value, as by
// a shell's variable that is not set; empty: nothing.
inline std::string ExplainEmpty(const CLI::App& app,
                                std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const CLI::Option* const option = app.get_option_no_throw(name);
    if (option == nullptr) continue;
    const std::vector<std::string>& given = option->results();
    if (std::find(given.begin(), given.end(), "") != given.end()) {
      return std::string(name) +
             " '' names nothing: give it a value, or leave it out";
    }
  }
  return "";
}

// Makes every number of `app`, of its subcommands too, refuse NaN, which no
// range does. Once all flags are declared.
inline void RefuseNan(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().find("FLOAT") == std::string::npos) continue;
    option->check(CLI::Validator(
        [](std::string& text) {
          return std::isnan(std::strtod(text.c_str(), nullptr))
                     ? "'" + text + "' is not a number"
                     : std::string();
        },
        ""));
  }
  for (CLI::App* each : app.get_subcommands(nullptr)) RefuseNan(*each);
}

// What a program ends with whose command line cannot be read: 0 after --help
// and --version, else kUsage after a sentence on standard error.
inline int ExitOfCommandLine(const CLI::App& app,
                             const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const auto chosen = app.get_subcommands();  // the command that was given
  const CLI::App& read = chosen.empty() ? app : *chosen.front();
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  std::string what = unknown.empty() ? Explain(read, error.what())
                                     : ExplainUnknown(read, unknown);
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
  RefuseNan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitOfCommandLine(app, error);
  }
  return std::nullopt;
}

}  // namespace telegrad
