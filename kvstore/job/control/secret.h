#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/proof.h"

namespace telegrad {

// A job's 32-byte key, derived by HKDF-SHA256 from a secret file's content and
// the job id. Wiped on destruction. An empty secret (`has_key()` false) means
// that peers are not authenticated: allowed on loopback only.
class Secret {
 public:
  static constexpr size_t kKeyBytes = 32;
  static constexpr size_t kMinFileBytes = 32;

  Secret() = default;
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  // The file must be regular (no symbolic link), owned by this user, closed to
  // group and others, and hold at least kMinFileBytes.
  static absl::StatusOr<Secret> FromFile(const std::string& path,
                                         absl::string_view job_id);
  // `material`: at least kMinFileBytes.
  static absl::StatusOr<Secret> Derive(absl::string_view material,
                                       absl::string_view job_id);

  bool has_key() const { return has_key_; }
  const std::array<unsigned char, kKeyBytes>& key() const { return key_; }
  // What ends of data connections prove to have; null without a key.
  ConnectionKey ForConnections() const;

 private:
  bool has_key_ = false;
  std::array<unsigned char, kKeyBytes> key_{};
};

}  // namespace telegrad
