#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// As many open files as this process may ask for: the soft limit becomes the
// hard one. For programs; a library leaves its process's limit alone.
void RaiseOpenFileLimit();

// ResourceExhausted where this process may not have `count` files open, with
// the limit and the way out.
absl::Status CheckOpenFiles(size_t count, absl::string_view what);

// ResourceExhausted where not so many more can be opened now.
absl::Status CheckFreeFiles(size_t count, absl::string_view what);

// ResourceExhausted where the limit of address space (ulimit -v) leaves less
// than `num_bytes`.
absl::Status CheckAddressSpace(size_t num_bytes, absl::string_view what);

// The error of fork or of a thread that did not start.
absl::Status TooManyTasks(absl::string_view what, int error);

// The error of a system call that failed: ResourceExhausted with the limit that
// was reached (files, memory), else `otherwise`.
absl::Status SystemError(
    absl::string_view what, int error,
    absl::StatusCode otherwise = absl::StatusCode::kUnavailable);

}  // namespace telegrad
