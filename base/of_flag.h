#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// What is wrong with the value that a flag was given, behind both:
// "--link fast: ...".
inline absl::Status OfFlag(absl::string_view flag, absl::string_view value,
                           const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status told(status.code(), absl::StrCat(flag, value.empty() ? "" : " ",
                                                value, ": ", status.message()));
  status.ForEachPayload([&told](absl::string_view url, const absl::Cord& code) {
    told.SetPayload(url, code);
  });
  return told;
}
// Where the message says the value itself: "--gc-reply: reply mode 'x': ...".
inline absl::Status OfFlag(absl::string_view flag, const absl::Status& status) {
  return OfFlag(flag, "", status);
}
template <typename T>
absl::StatusOr<T> OfFlag(absl::string_view flag, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return OfFlag(flag, "", result.status());
}
template <typename T>
absl::StatusOr<T> OfFlag(absl::string_view flag, absl::string_view value,
                         absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return OfFlag(flag, value, result.status());
}

}  // namespace telegrad
