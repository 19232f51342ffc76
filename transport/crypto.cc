#include "transport/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};
struct FreeContext {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};

const unsigned char* Unsigned(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("openssl: ", what, " failed"));
}

}  // namespace

absl::StatusOr<std::string> HmacSha256(absl::string_view key,
                                       absl::string_view text) {
  std::string mac(kMacBytes, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           Unsigned(text), text.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size) == nullptr ||
      size != kMacBytes) {
    return Failed("HMAC-SHA256");
  }
  return mac;
}

absl::Status HkdfSha256(absl::string_view material, absl::string_view salt,
                        absl::string_view info, std::span<unsigned char> out) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(
      EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr));
  if (kdf == nullptr) return Failed("HKDF");
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(
      EVP_KDF_CTX_new(kdf.get()));
  if (context == nullptr) return Failed("HKDF");
  char digest[] = "SHA256";
  const auto octets = [](const char* name, absl::string_view value) {
    return OSSL_PARAM_construct_octet_string(
        name, const_cast<char*>(value.data()), value.size());
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, material), octets(OSSL_KDF_PARAM_SALT, salt),
      octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  if (EVP_KDF_derive(context.get(), out.data(), out.size(), parameters) != 1) {
    return Failed("HKDF-SHA256");
  }
  return absl::OkStatus();
}

bool AreSame(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

ConnectionKeys::~ConnectionKeys() { OPENSSL_cleanse(this, sizeof(*this)); }

void KeyExchange::Free::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }

absl::StatusOr<KeyExchange> KeyExchange::Create() {
  KeyExchange exchange;
  exchange.key_.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
  exchange.public_half_.resize(kPublicBytes);
  size_t size = kPublicBytes;
  auto* const half =
      reinterpret_cast<unsigned char*>(exchange.public_half_.data());
  if (exchange.key_ == nullptr ||
      EVP_PKEY_get_raw_public_key(exchange.key_.get(), half, &size) != 1 ||
      size != kPublicBytes) {
    return Failed("X25519");
  }
  return exchange;
}

absl::StatusOr<ConnectionKeys> KeyExchange::Derive(
    absl::string_view peer_half, absl::string_view job_key,
    absl::string_view transcript) const {
  const std::unique_ptr<EVP_PKEY, Free> peer(EVP_PKEY_new_raw_public_key_ex(
      nullptr, "X25519", nullptr, Unsigned(peer_half), peer_half.size()));
  const std::unique_ptr<EVP_PKEY_CTX, FreeContext> context(
      EVP_PKEY_CTX_new_from_pkey(nullptr, key_.get(), nullptr));
  std::string material(kPublicBytes, '\0');
  size_t size = material.size();
  // It refuses halves of small order, whose product all know.
  if (peer == nullptr || context == nullptr ||
      EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(),
                      reinterpret_cast<unsigned char*>(material.data()),
                      &size) != 1 ||
      size != kPublicBytes) {
    return absl::UnauthenticatedError("the peer's half of the keys is none");
  }
  material.append(job_key.data(), job_key.size());
  ConnectionKeys keys;
  std::array<unsigned char, sizeof(keys)> all;
  static_assert(sizeof(keys) == 2 * ConnectionKeys::kKeyBytes + kMacBytes);
  const absl::Status derived =
      HkdfSha256(material, transcript, "telegrad connection keys v1", all);
  const auto* from = all.data();
  for (const std::span<unsigned char> part :
       {std::span<unsigned char>(keys.of_client),
        {keys.of_server},
        {keys.proof}}) {
    std::copy_n(from, part.size(), part.data());
    from += part.size();
  }
  OPENSSL_cleanse(all.data(), all.size());
  OPENSSL_cleanse(material.data(), material.size());
  RETURN_IF_ERROR(derived);
  return keys;
}

}  // namespace telegrad
