#include "kvstore/job/control/handshake.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

// Messages, little-endian, each followed by crc:u32, the CRC-32C of all before
// it, which tells bytes that were damaged from a wrong secret:
//   HELLO     = head(1) role:u8 mode:u8 rank:i32 epoch:u64 half:32 job:u8+bytes
//   CHALLENGE = head(2) 0:u8 0:u8 half:32 mac
//   PROOF     = head(3) 0:u8 0:u8 mac
//   head(k)   = "TGH3" k:u8 keyed:u8
//   mac       = 32 bytes when keyed, else none
//   MAC       = HMAC-SHA256(key, label 0x00 server 0x00 len(hello):u32 hello
//                                len(c):u32 c), c = CHALLENGE without its mac,
//               hello without its crc, server "scheduler", "server/3"
// The job id and the claimed identity are parts of `hello`. mode: Encryption of
// what follows; KeyExchange::Derive takes the transcript of PROOF's MAC.
namespace telegrad {
namespace {

constexpr char kMagic[] = "TGH3";
constexpr size_t kMagicBytes = 4;
constexpr size_t kHalfBytes = KeyExchange::kPublicBytes;
constexpr size_t kCrcBytes = 4;
constexpr size_t kPrefixBytes = 8;  // magic, kind, keyed, role, mode
constexpr size_t kHelloFixedBytes = kPrefixBytes + 4 + 8 + kHalfBytes + 1;
constexpr size_t kMaxJobIdBytes = 255;
constexpr int kMaxRank = 65535;  // ranks are u16 in frame headers
constexpr char kServerLabel[] = "telegrad handshake v3 server";
constexpr char kClientLabel[] = "telegrad handshake v3 client";

enum class Kind : uint8_t { kHello = 1, kChallenge = 2, kProof = 3 };

absl::Status Refused(absl::string_view why) {
  return WithExitCode(
      ExitCode::kAuthentication,
      absl::UnauthenticatedError(absl::StrCat("handshake: ", why)));
}

template <typename T>
T Load(absl::string_view from, size_t offset) {
  return LoadLittleEndian<T>(
      reinterpret_cast<const std::byte*>(from.data() + offset));
}

std::string Prefix(Kind kind, bool is_keyed, uint8_t role,
                   Encryption mode = Encryption::kOff) {
  std::string prefix(kMagic, kMagicBytes);
  AppendLittleEndian(&prefix, static_cast<uint8_t>(kind));
  AppendLittleEndian(&prefix, static_cast<uint8_t>(is_keyed));
  AppendLittleEndian(&prefix, role);
  AppendLittleEndian(&prefix, static_cast<uint8_t>(mode));
  return prefix;
}

struct Head {
  bool is_keyed = false;
  uint8_t role = 0;
  Encryption mode = Encryption::kOff;
};

// The check of a message, taken to begin as it should.
uint32_t CrcOf(absl::string_view message) {
  return Crc32c(message.data() + kMagicBytes, message.size() - kMagicBytes,
                Crc32c(kMagic, kMagicBytes));
}

std::string Seal(std::string message) {
  AppendLittleEndian(&message, CrcOf(message));
  return message;
}

// The message without its check.
absl::StatusOr<absl::string_view> Unseal(absl::string_view sealed) {
  if (sealed.size() > kMaxHandshakeBytes) return Refused("message too long");
  if (sealed.size() < kPrefixBytes + kCrcBytes) {
    return Refused("message cut short");
  }
  const absl::string_view message = sealed.substr(0, sealed.size() - kCrcBytes);
  const bool is_ours =
      message.substr(0, kMagicBytes) == absl::string_view(kMagic, kMagicBytes);
  const bool is_whole =
      Load<uint32_t>(sealed, message.size()) == CrcOf(message);
  if (is_ours && is_whole) return message;
  if (!is_ours && !is_whole) {
    return Refused("not a telegrad peer of this version");
  }
  return WithExitCode(ExitCode::kIntegrity,
                      absl::DataLossError("handshake: message was damaged"));
}

absl::StatusOr<Head> ReadHead(absl::string_view message, Kind kind) {
  if (Load<uint8_t>(message, 4) != static_cast<uint8_t>(kind)) {
    return Refused("message out of order");
  }
  const uint8_t keyed = Load<uint8_t>(message, 5);
  const auto mode = static_cast<Encryption>(Load<uint8_t>(message, 7));
  const bool may_seal = kind == Kind::kHello && keyed == 1;
  if (keyed > 1 || mode > (may_seal ? Encryption::kOn : Encryption::kOff)) {
    return Refused("malformed message");
  }
  return Head{
      .is_keyed = keyed == 1, .role = Load<uint8_t>(message, 6), .mode = mode};
}

absl::Status CheckKeyed(bool peer, bool self, absl::string_view who) {
  if (peer && !self) {
    return Refused(absl::StrCat(
        who, " has a secret, this side has none: give both the same file"));
  }
  if (!peer && self) {
    return Refused(absl::StrCat(
        who, " has no secret, this side has one: give both the same file"));
  }
  return absl::OkStatus();
}

// What one side signs. `challenge`: without its mac.
struct Transcript {
  absl::string_view key;  // empty: nothing is signed
  NodeId server;
  absl::string_view hello;
  absl::string_view challenge;

  std::string Text(absl::string_view label) const {
    std::string text =
        absl::StrCat(label, absl::string_view("\0", 1), ToString(server),
                     absl::string_view("\0", 1));
    AppendLittleEndian(&text, static_cast<uint32_t>(hello.size()));
    absl::StrAppend(&text, hello);
    AppendLittleEndian(&text, static_cast<uint32_t>(challenge.size()));
    absl::StrAppend(&text, challenge);
    return text;
  }
  // Empty without a key.
  absl::StatusOr<std::string> Mac(absl::string_view label) const {
    if (key.empty()) return std::string();
    return HmacSha256(key, Text(label));
  }
};

absl::string_view KeyOf(const Secret& secret) {
  if (!secret.has_key()) return {};
  return {reinterpret_cast<const char*>(secret.key().data()),
          secret.key().size()};
}

// The keys of this connection, from the other side's half.
absl::StatusOr<std::optional<ConnectionKeys>> KeysOf(
    const KeyExchange& exchange, absl::string_view half,
    const Transcript& transcript) {
  if (transcript.key.empty()) return std::nullopt;
  absl::StatusOr<ConnectionKeys> keys =
      exchange.Derive(half, transcript.key, transcript.Text(kClientLabel));
  if (!keys.ok()) return Refused(keys.status().message());
  return *keys;
}

struct HelloFields {
  Identity identity;
  absl::string_view half;
  absl::string_view job_id;
};

absl::StatusOr<HelloFields> ParseHello(absl::string_view hello,
                                       const Head& head) {
  if (hello.size() < kHelloFixedBytes) return Refused("message cut short");
  const size_t job_bytes = Load<uint8_t>(hello, kHelloFixedBytes - 1);
  if (hello.size() != kHelloFixedBytes + job_bytes) {
    return Refused("malformed message");
  }
  const int32_t rank = Load<int32_t>(hello, kPrefixBytes);
  if (head.role > static_cast<uint8_t>(Role::kWorker) || rank < -1 ||
      rank > kMaxRank) {
    return Refused("identity out of range");
  }
  HelloFields fields;
  fields.identity.node = {static_cast<Role>(head.role), rank};
  fields.identity.epoch = Load<uint64_t>(hello, kPrefixBytes + 4);
  fields.half = hello.substr(kPrefixBytes + 4 + 8, kHalfBytes);
  fields.job_id = hello.substr(kHelloFixedBytes);
  return fields;
}

std::string Name(NodeId node) {
  return node.rank < 0 ? RoleName(node.role) : ToString(node);
}

}  // namespace

HandshakeClient::HandshakeClient(Secret secret, std::string job_id,
                                 Identity self, NodeId server, Encryption mode)
    : secret_(secret),
      job_id_(std::move(job_id)),
      self_(self),
      server_(server),
      mode_(secret.has_key() ? mode : Encryption::kOff) {}

std::string HandshakeClient::Hello() {
  absl::StatusOr<KeyExchange> exchange = KeyExchange::Create();
  // An empty HELLO is refused by every server, and OnChallenge says so, too.
  if (!exchange.ok() || job_id_.size() > kMaxJobIdBytes) return "";
  exchange_ = *std::move(exchange);
  hello_ = Prefix(Kind::kHello, secret_.has_key(),
                  static_cast<uint8_t>(self_.node.role), mode_);
  AppendLittleEndian(&hello_, static_cast<int32_t>(self_.node.rank));
  AppendLittleEndian(&hello_, self_.epoch);
  hello_ += exchange_->public_half();
  AppendLittleEndian(&hello_, static_cast<uint8_t>(job_id_.size()));
  hello_ += job_id_;
  return Seal(hello_);
}

absl::StatusOr<std::string> HandshakeClient::OnChallenge(
    absl::string_view sealed) {
  if (hello_.empty()) return Refused("CHALLENGE before a valid HELLO");
  const std::string hello = std::move(hello_);
  hello_.clear();
  ASSIGN_OR_RETURN(const absl::string_view challenge, Unseal(sealed));
  ASSIGN_OR_RETURN(const Head head, ReadHead(challenge, Kind::kChallenge));
  RETURN_IF_ERROR(CheckKeyed(head.is_keyed, secret_.has_key(), "the server"));
  constexpr size_t kSignedBytes = kPrefixBytes + kHalfBytes;
  if (head.role != 0 ||
      challenge.size() != kSignedBytes + (head.is_keyed ? kMacBytes : 0)) {
    return Refused("malformed message");
  }
  const absl::string_view body = challenge.substr(0, kSignedBytes);
  const Transcript transcript{KeyOf(secret_), server_, hello, body};
  ASSIGN_OR_RETURN(const std::string expected, transcript.Mac(kServerLabel));
  if (!AreSame(challenge.substr(kSignedBytes), expected)) {
    return Refused("the server does not hold this job's secret");
  }
  ASSIGN_OR_RETURN(keys_,
                   KeysOf(*exchange_, body.substr(kPrefixBytes), transcript));
  ASSIGN_OR_RETURN(const std::string mac, transcript.Mac(kClientLabel));
  return Seal(absl::StrCat(Prefix(Kind::kProof, secret_.has_key(), 0), mac));
}

std::string HandshakeClient::FalseProof() const {
  return Seal(
      absl::StrCat(Prefix(Kind::kProof, secret_.has_key(), 0),
                   std::string(secret_.has_key() ? kMacBytes : 0, '\0')));
}

HandshakeServer::HandshakeServer(Secret secret, std::string job_id, NodeId self)
    : secret_(secret), job_id_(std::move(job_id)), self_(self) {}

absl::StatusOr<std::string> HandshakeServer::OnHello(absl::string_view sealed) {
  if (!hello_.empty()) return Refused("message out of order");
  ASSIGN_OR_RETURN(const absl::string_view hello, Unseal(sealed));
  ASSIGN_OR_RETURN(const Head head, ReadHead(hello, Kind::kHello));
  ASSIGN_OR_RETURN(const HelloFields fields, ParseHello(hello, head));
  const std::string who = Name(fields.identity.node);
  if (!AreSame(fields.job_id, job_id_)) {
    return Refused(absl::StrCat(who, " belongs to another job"));
  }
  RETURN_IF_ERROR(CheckKeyed(head.is_keyed, secret_.has_key(), who));
  ASSIGN_OR_RETURN(const KeyExchange exchange, KeyExchange::Create());
  const std::string body = absl::StrCat(
      Prefix(Kind::kChallenge, secret_.has_key(), 0), exchange.public_half());
  const Transcript transcript{KeyOf(secret_), self_, hello, body};
  ASSIGN_OR_RETURN(const std::string mac, transcript.Mac(kServerLabel));
  ASSIGN_OR_RETURN(keys_, KeysOf(exchange, fields.half, transcript));
  mode_ = head.mode;
  hello_ = std::string(hello);
  challenge_ = body;
  return Seal(absl::StrCat(body, mac));
}

absl::StatusOr<Identity> HandshakeServer::OnProof(absl::string_view sealed) {
  if (challenge_.empty()) return Refused("message out of order");
  const std::string challenge = std::move(challenge_);
  challenge_.clear();  // one attempt for each challenge
  ASSIGN_OR_RETURN(const absl::string_view proof, Unseal(sealed));
  ASSIGN_OR_RETURN(const Head hello_head, ReadHead(hello_, Kind::kHello));
  ASSIGN_OR_RETURN(const HelloFields fields, ParseHello(hello_, hello_head));
  const std::string who = Name(fields.identity.node);
  ASSIGN_OR_RETURN(const Head head, ReadHead(proof, Kind::kProof));
  RETURN_IF_ERROR(CheckKeyed(head.is_keyed, secret_.has_key(), who));
  if (head.role != 0 ||
      proof.size() != kPrefixBytes + (head.is_keyed ? kMacBytes : 0)) {
    return Refused("malformed message");
  }
  const Transcript transcript{KeyOf(secret_), self_, hello_, challenge};
  ASSIGN_OR_RETURN(const std::string expected, transcript.Mac(kClientLabel));
  if (!AreSame(proof.substr(kPrefixBytes), expected)) {
    return Refused(absl::StrCat(who, " does not hold this job's secret"));
  }
  return fields.identity;
}

}  // namespace telegrad
