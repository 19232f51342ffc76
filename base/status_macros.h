#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` is an error status.
#define RETURN_IF_ERROR(expr)                                               \
  do {                                                                      \
    if (absl::Status status_macro_value = (expr); !status_macro_value.ok()) \
      return status_macro_value;                                            \
  } while (false)

#define TELEGRAD_CONCAT_INNER(a, b) a##b
#define TELEGRAD_CONCAT(a, b) TELEGRAD_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(auto x, MakeX()): returns the error or binds the value.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(TELEGRAD_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)    \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)
