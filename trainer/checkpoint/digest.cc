#include "trainer/checkpoint/digest.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/escaping.h"

namespace telegrad {

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{
      EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr);
}
Sha256::~Sha256() = default;

void Sha256::Add(const void* bytes, size_t size) {
  EVP_DigestUpdate(state_->context.get(), bytes, size);
}

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE] = {};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context.get(), digest, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

std::string Sha256OfFloats(
    const std::vector<std::pair<const float*, size_t>>& tensors) {
  Sha256 sum;
  for (const auto& [values, count] : tensors) sum.Add(values, 4 * count);
  return sum.Hex();
}

std::string Sha256OfBytes(absl::string_view bytes) {
  Sha256 sum;
  sum.Add(bytes.data(), bytes.size());
  return sum.Hex();
}

}  // namespace telegrad
