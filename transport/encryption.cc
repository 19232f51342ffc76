#include "transport/encryption.h"

#include "absl/strings/str_cat.h"
#include "base/socket.h"

namespace telegrad {

const char* Name(Encryption encryption) {
  switch (encryption) {
    case Encryption::kOff:
      return "off";
    case Encryption::kAuth:
      return "auth";
    case Encryption::kOn:
      return "on";
    case Encryption::kAuto:
      return "auto";
  }
  return "unknown";
}

absl::StatusOr<Encryption> ParseEncryption(absl::string_view text) {
  for (const Encryption each : {Encryption::kAuto, Encryption::kAuth,
                                Encryption::kOn, Encryption::kOff}) {
    if (text == Name(each)) return each;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("encryption \"", text, "\" is none of auto, auth, on, off"));
}

Encryption EncryptionTo(absl::string_view address, Encryption setting) {
  if (setting != Encryption::kAuto) return setting;
  const absl::StatusOr<SocketAddress> parsed = ParseIpPort(address);
  return parsed.ok() && IsLoopback(*parsed) ? Encryption::kOff
                                            : Encryption::kAuth;
}

}  // namespace telegrad
