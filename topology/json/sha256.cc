#include "topology/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace telegrad {

std::string Sha256Hex(absl::string_view text) {
  std::array<unsigned char, 32> hash{};
  size_t size = 0;
  const int is_done = EVP_Q_digest(nullptr, "SHA256", nullptr, text.data(),
                                   text.size(), hash.data(), &size);
  TELEGRAD_CHECK(is_done == 1, "SHA-256 is always there");
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(hash.data()), hash.size()));
}

}  // namespace telegrad
