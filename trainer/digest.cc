#include "trainer/digest.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/escaping.h"

namespace telegrad {
namespace {

class Sha256 {
 public:
  Sha256() { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(const void* bytes, size_t size) {
    EVP_DigestUpdate(context_.get(), bytes, size);
  }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE] = {};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<char*>(digest), size));
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{
      EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

}  // namespace

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
