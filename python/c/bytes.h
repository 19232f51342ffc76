#pragma once

#include <string>

#include "python/telegrad.h"

// Bytes that a call made, until the caller frees them.
struct telegrad_bytes {
  std::string text;
};
