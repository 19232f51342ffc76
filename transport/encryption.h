#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// What is done to that which connections carry; all members of a job have the
// same.
enum class Encryption : uint8_t {
  kOff = 0,
  kAuth = 1,  // nobody can alter it
  kOn = 2,    // nor read it
  kAuto = 3,  // kAuth beyond loopback, where there is a key
};
const char* Name(Encryption encryption);  // "off", "auth", "on", "auto"
// InvalidArgument names them.
absl::StatusOr<Encryption> ParseEncryption(absl::string_view text);

// What kAuto is on a connection to "127.0.0.1:4000", "[fe80::1]:4000".
Encryption EncryptionTo(absl::string_view address, Encryption setting);

}  // namespace telegrad
