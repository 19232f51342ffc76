#include "kvstore/job/control/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

// Messages, little-endian, each followed by crc:u32, the CRC-32C of all before
// it, which tells bytes that were damaged from a wrong secret:
//   HELLO     = head(1) role:u8 0:u8 rank:i32 epoch:u64 nonce:32 job:u8+bytes
//   CHALLENGE = head(2) 0:u8 0:u8 nonce:32 mac
//   PROOF     = head(3) 0:u8 0:u8 mac
//   head(k)   = "TGH2" k:u8 keyed:u8
//   mac       = 32 bytes when keyed, else none
//   MAC       = HMAC-SHA256(key, label 0x00 len(hello):u32 hello
//                                len(c):u32 c), c = CHALLENGE without its mac,
//               and hello without its crc
// The job id and the claimed identity are parts of `hello`.
namespace telegrad {
namespace {

constexpr char kMagic[] = "TGH2";
constexpr size_t kMagicBytes = 4;
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;
constexpr size_t kCrcBytes = 4;
constexpr size_t kPrefixBytes = 8;  // magic, kind, keyed, role, zero
constexpr size_t kHelloFixedBytes = kPrefixBytes + 4 + 8 + kNonceBytes + 1;
constexpr size_t kMaxJobIdBytes = 255;
constexpr int kMaxRank = 65535;  // ranks are u16 in frame headers
constexpr char kServerLabel[] = "telegrad handshake v2 server";
constexpr char kClientLabel[] = "telegrad handshake v2 client";

enum class Kind : uint8_t { kHello = 1, kChallenge = 2, kProof = 3 };

absl::Status Refused(absl::string_view why) {
  return WithExitCode(
      ExitCode::kAuthentication,
      absl::UnauthenticatedError(absl::StrCat("handshake: ", why)));
}

template <typename T>
void Append(std::string* to, T value) {
  char bytes[sizeof(T)];
  StoreLittleEndian(reinterpret_cast<std::byte*>(bytes), value);
  to->append(bytes, sizeof(T));
}

template <typename T>
T Load(absl::string_view from, size_t offset) {
  return LoadLittleEndian<T>(
      reinterpret_cast<const std::byte*>(from.data() + offset));
}

std::string Prefix(Kind kind, bool is_keyed, uint8_t role) {
  std::string prefix(kMagic, kMagicBytes);
  Append(&prefix, static_cast<uint8_t>(kind));
  Append(&prefix, static_cast<uint8_t>(is_keyed));
  Append(&prefix, role);
  Append(&prefix, uint8_t{0});
  return prefix;
}

struct Head {
  bool is_keyed = false;
  uint8_t role = 0;
};

// The check of a message, taken to begin as it should.
uint32_t CrcOf(absl::string_view message) {
  return Crc32c(message.data() + kMagicBytes, message.size() - kMagicBytes,
                Crc32c(kMagic, kMagicBytes));
}

std::string Seal(std::string message) {
  Append(&message, CrcOf(message));
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
  if (keyed > 1 || Load<uint8_t>(message, 7) != 0) {
    return Refused("malformed message");
  }
  return Head{.is_keyed = keyed == 1, .role = Load<uint8_t>(message, 6)};
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

absl::StatusOr<std::string> Nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                 static_cast<int>(nonce.size())) != 1) {
    return absl::InternalError("openssl: RAND_bytes failed");
  }
  return nonce;
}

// `challenge`: without its mac. Empty without a key.
absl::StatusOr<std::string> Mac(const Secret& secret, absl::string_view label,
                                absl::string_view hello,
                                absl::string_view challenge) {
  if (!secret.has_key()) return std::string();
  std::string transcript(label.data(), label.size());
  transcript.push_back('\0');
  Append(&transcript, static_cast<uint32_t>(hello.size()));
  transcript.append(hello.data(), hello.size());
  Append(&transcript, static_cast<uint32_t>(challenge.size()));
  transcript.append(challenge.data(), challenge.size());
  std::string mac(kMacBytes, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.key().data(),
           static_cast<int>(secret.key().size()),
           reinterpret_cast<const unsigned char*>(transcript.data()),
           transcript.size(), reinterpret_cast<unsigned char*>(mac.data()),
           &size) == nullptr ||
      size != kMacBytes) {
    return absl::InternalError("openssl: HMAC-SHA256 failed");
  }
  return mac;
}

bool Equal(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

struct HelloFields {
  Identity identity;
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
  fields.job_id = hello.substr(kHelloFixedBytes);
  return fields;
}

std::string Name(NodeId node) {
  return node.rank < 0 ? RoleName(node.role) : ToString(node);
}

}  // namespace

HandshakeClient::HandshakeClient(Secret secret, std::string job_id,
                                 Identity self)
    : secret_(secret), job_id_(std::move(job_id)), self_(self) {}

std::string HandshakeClient::Hello() {
  absl::StatusOr<std::string> nonce = Nonce();
  // An empty HELLO is refused by every server, and OnChallenge says so, too.
  if (!nonce.ok() || job_id_.size() > kMaxJobIdBytes) return "";
  hello_ = Prefix(Kind::kHello, secret_.has_key(),
                  static_cast<uint8_t>(self_.node.role));
  Append(&hello_, static_cast<int32_t>(self_.node.rank));
  Append(&hello_, self_.epoch);
  hello_ += *nonce;
  Append(&hello_, static_cast<uint8_t>(job_id_.size()));
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
  constexpr size_t kSignedBytes = kPrefixBytes + kNonceBytes;
  if (head.role != 0 ||
      challenge.size() != kSignedBytes + (head.is_keyed ? kMacBytes : 0)) {
    return Refused("malformed message");
  }
  const absl::string_view body = challenge.substr(0, kSignedBytes);
  ASSIGN_OR_RETURN(const std::string expected,
                   Mac(secret_, kServerLabel, hello, body));
  if (!Equal(challenge.substr(kSignedBytes), expected)) {
    return Refused("the server does not hold this job's secret");
  }
  ASSIGN_OR_RETURN(const std::string mac,
                   Mac(secret_, kClientLabel, hello, body));
  return Seal(absl::StrCat(Prefix(Kind::kProof, secret_.has_key(), 0), mac));
}

std::string HandshakeClient::FalseProof() const {
  return Seal(
      absl::StrCat(Prefix(Kind::kProof, secret_.has_key(), 0),
                   std::string(secret_.has_key() ? kMacBytes : 0, '\0')));
}

HandshakeServer::HandshakeServer(Secret secret, std::string job_id)
    : secret_(secret), job_id_(std::move(job_id)) {}

absl::StatusOr<std::string> HandshakeServer::OnHello(absl::string_view sealed) {
  if (!hello_.empty()) return Refused("message out of order");
  ASSIGN_OR_RETURN(const absl::string_view hello, Unseal(sealed));
  ASSIGN_OR_RETURN(const Head head, ReadHead(hello, Kind::kHello));
  ASSIGN_OR_RETURN(const HelloFields fields, ParseHello(hello, head));
  const std::string who = Name(fields.identity.node);
  if (!Equal(fields.job_id, job_id_)) {
    return Refused(absl::StrCat(who, " belongs to another job"));
  }
  RETURN_IF_ERROR(CheckKeyed(head.is_keyed, secret_.has_key(), who));
  ASSIGN_OR_RETURN(const std::string nonce, Nonce());
  const std::string body =
      absl::StrCat(Prefix(Kind::kChallenge, secret_.has_key(), 0), nonce);
  ASSIGN_OR_RETURN(const std::string mac,
                   Mac(secret_, kServerLabel, hello, body));
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
  ASSIGN_OR_RETURN(const std::string expected,
                   Mac(secret_, kClientLabel, hello_, challenge));
  if (!Equal(proof.substr(kPrefixBytes), expected)) {
    return Refused(absl::StrCat(who, " does not hold this job's secret"));
  }
  return fields.identity;
}

}  // namespace telegrad
