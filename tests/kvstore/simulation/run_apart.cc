#include "tests/kvstore/simulation/run_apart.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad::testing {
namespace {

void RunHere(const Scenario& scenario, const Mutation& mutation,
             std::FILE* out) {
  const Outcome outcome = RunScenario(scenario, mutation);
  const std::string text = absl::StrCat(
      outcome.wrong.empty() ? 1 : 0, " ", outcome.trace, " ",
      outcome.passed.count(), " ", outcome.trained.count(), " ",
      outcome.num_steps, " ", outcome.num_epochs, " ", outcome.num_kills, " ",
      outcome.num_made, " ", outcome.num_summed, "\n",
      absl::StrJoin(outcome.wrong, "\n"), "\n", outcome.story);
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char bytes[4096];
  for (size_t count = 0;
       (count = std::fread(bytes, 1, sizeof(bytes), file)) > 0;) {
    text.append(bytes, count);
  }
  return text;
}

// False: it did not come to its end.
bool Read(const std::string& text, Report& report) {
  std::istringstream in(text);
  Outcome& outcome = report.outcome;
  int64_t passed = 0;
  int64_t trained = 0;
  in >> report.is_well >> outcome.trace >> passed >> trained >>
      outcome.num_steps >> outcome.num_epochs >> outcome.num_kills >>
      outcome.num_made >> outcome.num_summed;
  outcome.passed = Duration(passed);
  outcome.trained = Duration(trained);
  report.text = text.substr(text.find('\n') + 1);
  return !in.fail();
}

void AllowFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Report RunApart(const Scenario& scenario, const Mutation& mutation,
                bool is_told, unsigned real_seconds) {
  std::FILE* const out = std::tmpfile();
  std::FILE* const log = std::tmpfile();
  const pid_t child = fork();
  if (child == 0) {
    alarm(real_seconds);
    AllowFiles();
    if (!is_told) dup2(fileno(log), STDERR_FILENO);
    RunHere(scenario, mutation, out);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Report report;
  const std::string text = ReadAll(out);
  const bool has_ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!has_ended || !Read(text, report)) {
    report = {};
    report.text = absl::StrCat("its process ended with status ", status, "\n",
                               text, ReadAll(log));
  }
  std::fclose(out);
  std::fclose(log);
  return report;
}

}  // namespace telegrad::testing
