#include "transport/sealer.h"

#include <openssl/evp.h>

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "base/endian.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kIvBytes = 12;

unsigned char* Raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* Raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

void Sealer::Free::operator()(EVP_CIPHER_CTX* context) const {
  EVP_CIPHER_CTX_free(context);
}

absl::StatusOr<Sealer> Sealer::Create(std::span<const unsigned char, 16> key,
                                      Encryption mode, bool seals) {
  Sealer sealer;
  sealer.mode_ = mode;
  sealer.context_.reset(EVP_CIPHER_CTX_new());
  if (sealer.context_ == nullptr ||
      EVP_CipherInit_ex(sealer.context_.get(), EVP_aes_128_gcm(), nullptr,
                        key.data(), nullptr, seals ? 1 : 0) != 1) {
    return absl::InternalError("openssl: AES-128-GCM failed");
  }
  return sealer;
}

bool Sealer::Pass(uint64_t number, ConstBytes beside, ConstBytes text,
                  std::byte* out) {
  EVP_CIPHER_CTX* const context = context_.get();
  std::array<std::byte, kIvBytes> nonce = {};
  StoreLittleEndian(nonce.data(), number);
  if (EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, Raw(nonce.data()),
                        -1) != 1) {
    return false;
  }
  const auto update = [context](std::byte* to, ConstBytes from) {
    int size = 0;  // a payload has 64 MiB at most
    return from.size == 0 ||
           EVP_CipherUpdate(context, to == nullptr ? nullptr : Raw(to), &size,
                            Raw(from.data), static_cast<int>(from.size)) == 1;
  };
  return update(nullptr, beside) &&
         update(mode_ == Encryption::kOn ? out : nullptr, text);
}

absl::Status Sealer::Seal(uint64_t number, ConstBytes beside, ConstBytes text,
                          std::byte* sealed, std::byte* tag) {
  std::array<unsigned char, kTagBytes> rest;
  int size = 0;
  if (!Pass(number, beside, text, sealed) ||
      EVP_CipherFinal_ex(context_.get(), rest.data(), &size) != 1 ||
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                          tag) != 1) {
    return absl::InternalError("openssl: sealing failed");
  }
  return absl::OkStatus();
}

absl::Status Sealer::Open(uint64_t number, ConstBytes beside, Bytes sealed,
                          const std::byte* tag) {
  std::array<unsigned char, kTagBytes> rest;
  int size = 0;
  if (!Pass(number, beside, sealed, sealed.data) ||
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes,
                          const_cast<std::byte*>(tag)) != 1 ||
      EVP_CipherFinal_ex(context_.get(), rest.data(), &size) != 1) {
    return absl::DataLossError("altered, repeated or out of order on its way");
  }
  return absl::OkStatus();
}

absl::StatusOr<Sealers> Sealers::Create(const ConnectionKeys& keys,
                                        Encryption mode, bool is_client) {
  const auto& own = is_client ? keys.of_client : keys.of_server;
  const auto& peers = is_client ? keys.of_server : keys.of_client;
  ASSIGN_OR_RETURN(Sealer seals, Sealer::Create(own, mode, /*seals=*/true));
  ASSIGN_OR_RETURN(Sealer opens, Sealer::Create(peers, mode, /*seals=*/false));
  return Sealers{std::move(seals), std::move(opens)};
}

}  // namespace telegrad
