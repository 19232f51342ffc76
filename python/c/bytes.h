#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "python/c/status.h"

// Bytes that a call made, until the caller frees them.
struct telegrad_bytes {
  std::string text;
};

namespace telegrad::c {

inline int32_t GiveBytes(absl::StatusOr<std::string> text,
                         const Verdict* verdict, telegrad_bytes** bytes,
                         telegrad_status* out) {
  if (text.ok()) *bytes = new telegrad_bytes{*std::move(text)};
  return Give(text.status(), verdict, out);
}

}  // namespace telegrad::c
