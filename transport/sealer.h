#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/crypto.h"
#include "transport/encryption.h"

namespace telegrad {

constexpr size_t kTagBytes = 16;

// One direction of a connection: AES-128-GCM, or GMAC alone, which changes no
// bytes. Each text has a number of its own, never used twice. One thread.
class Sealer {
 public:
  // `mode`: kAuth or kOn. It seals, or opens.
  static absl::StatusOr<Sealer> Create(std::span<const unsigned char, 16> key,
                                       Encryption mode, bool seals);

  // Writes the tag, and with kOn the sealed text, which may be at `text`.
  // `beside` is authenticated, too.
  absl::Status Seal(uint64_t number, ConstBytes beside, ConstBytes text,
                    std::byte* sealed, std::byte* tag);
  // In place. DataLoss: it is not what was sealed under that number.
  absl::Status Open(uint64_t number, ConstBytes beside, Bytes sealed,
                    const std::byte* tag);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const;
  };
  // Whether all but the tag has passed.
  bool Pass(uint64_t number, ConstBytes beside, ConstBytes text,
            std::byte* out);

  Encryption mode_ = Encryption::kOn;
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

// One end of a connection.
struct Sealers {
  static absl::StatusOr<Sealers> Create(const ConnectionKeys& keys,
                                        Encryption mode, bool is_client);

  Sealer seals;  // what it sends
  Sealer opens;  // what it hears
};

}  // namespace telegrad
