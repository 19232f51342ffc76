#pragma once

#include <openssl/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// What proofs and sealed connections take from OpenSSL.
namespace telegrad {

constexpr size_t kMacBytes = 32;

// HMAC-SHA256.
absl::StatusOr<std::string> HmacSha256(absl::string_view key,
                                       absl::string_view text);
// HKDF-SHA256 (RFC 5869) into `out`.
absl::Status HkdfSha256(absl::string_view material, absl::string_view salt,
                        absl::string_view info, std::span<unsigned char> out);
// In a time that says nothing of where they differ.
bool AreSame(absl::string_view a, absl::string_view b);

// The keys of one connection, wiped on destruction.
struct ConnectionKeys {
  static constexpr size_t kKeyBytes = 16;

  ~ConnectionKeys();

  std::array<unsigned char, kKeyBytes> of_client = {};  // what it sends
  std::array<unsigned char, kKeyBytes> of_server = {};
  std::array<unsigned char, kMacBytes> proof = {};
};

// One side of an X25519 exchange (RFC 7748). Its public half is new for each
// connection: the connection's nonce, too. Who learns the job's secret later
// cannot read what was recorded before.
class KeyExchange {
 public:
  static constexpr size_t kPublicBytes = 32;

  static absl::StatusOr<KeyExchange> Create();
  const std::string& public_half() const { return public_half_; }
  // Both sides come to the same keys, from the two halves, the job's key, and
  // all that was said: Unauthenticated for a half that is none.
  absl::StatusOr<ConnectionKeys> Derive(absl::string_view peer_half,
                                        absl::string_view job_key,
                                        absl::string_view transcript) const;

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const;
  };
  std::unique_ptr<EVP_PKEY, Free> key_;
  std::string public_half_;
};

}  // namespace telegrad
