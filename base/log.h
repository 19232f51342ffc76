#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace telegrad {

enum class Severity { kInfo, kWarning, kError };

// One line on stderr: "I 12.345678 worker/1] text". Thread-safe; the line is
// written by one system call so that processes do not mix theirs.
void Log(Severity severity, absl::string_view text);

// "worker/1": shown in each line of this process from now on. Call it before
// threads start.
void SetLogName(absl::string_view name);
std::string LogName();

// Lines below this are dropped. Initially kInfo.
void SetLogThreshold(Severity severity);

template <typename... Args>
void LogInfo(const Args&... args) {
  Log(Severity::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  Log(Severity::kWarning, absl::StrCat(args...));
}

}  // namespace telegrad
