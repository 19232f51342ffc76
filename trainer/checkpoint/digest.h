#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace telegrad {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Add(const void* bytes, size_t size);
  std::string Hex();  // the last call

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// SHA-256 in hexadecimal digits.
std::string Sha256OfFloats(
    const std::vector<std::pair<const float*, size_t>>& tensors);
std::string Sha256OfBytes(absl::string_view bytes);

}  // namespace telegrad
