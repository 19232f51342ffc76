#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "transport/crypto.h"
#include "transport/encryption.h"
#include "transport/proof.h"
#include "transport/transport.h"

namespace telegrad::seal {

// How two ends come to keys, by messages without payload, little-endian:
//   client: hello  = head(1) setting:u8 mode:u8 half:32
//   server: answer = head(2) setting:u8 mode:u8 half:32 MAC("server")
//   client: finish = head(3) 0:u8 0:u8 MAC("client")
//   server, instead of an answer: refusal = head(4) setting:u8 0:u8
//   head(kind) = "TGSL" kind:u8 version:u8
// setting: Encryption of --encryption, the same for both. mode: what the client
// wants of this connection, what the server takes: the same, or 0 where no
// network is between, or one end has payloads on devices and the setting leaves
// it open. half: KeyExchange. MAC(label): HMAC-SHA256 over label, hello, and
// answer without its MAC, by a key that comes with those of the connection from
// these and the job's key: so whoever alters a setting or a mode is found.
constexpr uint8_t kVersion = 1;
constexpr size_t kMaxGreetingBytes = 8 + KeyExchange::kPublicBytes + kMacBytes;
static_assert(kMaxGreetingBytes <= kMaxHeaderBytes);

// What one end knows of a connection.
struct Ends {
  bool is_in_memory = false;   // TransportContext::IsInMemory
  bool takes_devices = false;  // payloads in memory of devices
};

// One end of it. One thread.
class Greeting {
 public:
  // `wanted`: the client's mode; a server takes what it is asked for.
  static absl::StatusOr<Greeting> Create(ConnectionKey key, Encryption setting,
                                         bool is_client, Encryption wanted);

  std::string Begin();  // a client's first message
  // What to answer, perhaps nothing. Unauthenticated: it is not a member, or
  // somebody altered what it said. FailedPrecondition: its setting differs.
  absl::StatusOr<std::string> Take(ConstBytes message, const Ends& ends);
  // A server's last words where that fails.
  std::string Refusal() const;

  bool is_done() const { return is_done_; }
  // Then: kOff, kAuth or kOn.
  Encryption mode() const { return mode_; }
  const ConnectionKeys& keys() const { return *keys_; }

 private:
  absl::StatusOr<std::string> TakeHello(absl::string_view hello,
                                        Encryption wanted, const Ends& ends);
  absl::StatusOr<std::string> TakeAnswer(absl::string_view answer,
                                         Encryption taken, const Ends& ends);
  absl::Status Derive(absl::string_view peer_half);
  absl::StatusOr<std::string> Mac(absl::string_view label) const;
  absl::Status Differs(Encryption peer) const;

  ConnectionKey key_;
  Encryption setting_ = Encryption::kAuto;
  bool is_client_ = false;
  bool is_done_ = false;
  Encryption mode_ = Encryption::kOff;
  std::optional<KeyExchange> exchange_;
  std::optional<ConnectionKeys> keys_;
  std::string said_;  // hello, then answer without its MAC
};

}  // namespace telegrad::seal
