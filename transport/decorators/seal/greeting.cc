#include "transport/decorators/seal/greeting.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::seal {
namespace {

constexpr absl::string_view kMagic = "TGSL";
constexpr size_t kHeadBytes = 8;
constexpr size_t kHelloBytes = kHeadBytes + KeyExchange::kPublicBytes;

enum class Kind : uint8_t { kHello = 1, kAnswer = 2, kFinish = 3, kRefuse = 4 };

std::string Head(Kind kind, Encryption setting, Encryption mode) {
  std::string head(kMagic);
  for (const auto byte :
       {static_cast<uint8_t>(kind), kVersion, static_cast<uint8_t>(setting),
        static_cast<uint8_t>(mode)}) {
    head.push_back(static_cast<char>(byte));
  }
  return head;
}

std::string Finish(absl::string_view mac) {
  return absl::StrCat(Head(Kind::kFinish, Encryption::kOff, Encryption::kOff),
                      mac);
}

absl::Status Refused(absl::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("exchange of keys: ", why));
}

uint8_t ByteAt(absl::string_view text, size_t place) {
  return static_cast<uint8_t>(text[place]);
}

// Where it is one, what it says of the peer's setting and mode.
struct HeadFields {
  Kind kind = Kind::kHello;
  Encryption setting = Encryption::kOff;
  Encryption mode = Encryption::kOff;
};

absl::StatusOr<HeadFields> ParseHead(absl::string_view message) {
  if (message.size() < kHeadBytes || message.substr(0, 4) != kMagic) {
    return Refused("the peer does not seal its messages");
  }
  const uint8_t version = ByteAt(message, 5);
  if (version != kVersion) {
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(absl::StrCat(
                            "sealed messages: the peer has version ", version,
                            ", this side ", kVersion)));
  }
  const HeadFields fields{
      .kind = static_cast<Kind>(ByteAt(message, 4)),
      .setting = static_cast<Encryption>(ByteAt(message, 6)),
      .mode = static_cast<Encryption>(ByteAt(message, 7))};
  if (fields.setting > Encryption::kAuto || fields.mode > Encryption::kOn) {
    return Refused("malformed message");
  }
  return fields;
}

}  // namespace

absl::StatusOr<Greeting> Greeting::Create(ConnectionKey key, Encryption setting,
                                          bool is_client, Encryption wanted) {
  Greeting greeting;
  greeting.key_ = std::move(key);
  greeting.setting_ = setting;
  greeting.is_client_ = is_client;
  greeting.mode_ = wanted;
  ASSIGN_OR_RETURN(greeting.exchange_, KeyExchange::Create());
  return greeting;
}

std::string Greeting::Begin() {
  said_ = Head(Kind::kHello, setting_, mode_) + exchange_->public_half();
  return said_;
}

std::string Greeting::Refusal() const {
  return Head(Kind::kRefuse, setting_, Encryption::kOff);
}

absl::Status Greeting::Differs(Encryption peer) const {
  return WithExitCode(
      ExitCode::kMismatch,
      absl::FailedPreconditionError(absl::StrCat(
          "encryption: the peer has ", Name(peer), ", this side has ",
          Name(setting_), "; all members of a job have the same")));
}

absl::Status Greeting::Derive(absl::string_view peer_half) {
  ASSIGN_OR_RETURN(keys_, exchange_->Derive(peer_half, *key_, said_));
  exchange_.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::string> Greeting::Mac(absl::string_view label) const {
  return HmacSha256(
      {reinterpret_cast<const char*>(keys_->proof.data()), keys_->proof.size()},
      absl::StrCat(label, said_));
}

absl::StatusOr<std::string> Greeting::Take(ConstBytes bytes, const Ends& ends) {
  const absl::string_view message(reinterpret_cast<const char*>(bytes.data),
                                  bytes.size);
  ASSIGN_OR_RETURN(const HeadFields head, ParseHead(message));
  const bool is_due = is_client_           ? head.kind == Kind::kAnswer
                      : !keys_.has_value() ? head.kind == Kind::kHello
                                           : head.kind == Kind::kFinish;
  if (is_client_ && head.kind == Kind::kRefuse) return Differs(head.setting);
  if (!is_due) return Refused("message out of order");
  if (head.kind == Kind::kHello) {
    if (message.size() != kHelloBytes) return Refused("malformed message");
    if (head.setting != setting_) return Differs(head.setting);
    return TakeHello(message, head.mode, ends);
  }
  if (head.kind == Kind::kAnswer) return TakeAnswer(message, head.mode, ends);
  ASSIGN_OR_RETURN(const std::string expected, Mac("client"));
  if (!AreSame(message, Finish(expected))) {
    return Refused("the peer does not hold this job's secret");
  }
  is_done_ = true;
  return std::string();
}

absl::StatusOr<std::string> Greeting::TakeHello(absl::string_view hello,
                                                Encryption wanted,
                                                const Ends& ends) {
  const bool may_be_open = setting_ == Encryption::kAuto && ends.takes_devices;
  mode_ = ends.is_in_memory || may_be_open ? Encryption::kOff : wanted;
  const std::string answer =
      Head(Kind::kAnswer, setting_, mode_) + exchange_->public_half();
  said_ = absl::StrCat(hello, answer);
  RETURN_IF_ERROR(Derive(hello.substr(kHeadBytes)));
  ASSIGN_OR_RETURN(const std::string mac, Mac("server"));
  return answer + mac;
}

absl::StatusOr<std::string> Greeting::TakeAnswer(absl::string_view answer,
                                                 Encryption taken,
                                                 const Ends& ends) {
  if (answer.size() != kHelloBytes + kMacBytes) {
    return Refused("malformed message");
  }
  const absl::string_view mac = answer.substr(kHelloBytes);
  answer.remove_suffix(kMacBytes);
  absl::StrAppend(&said_, answer);
  RETURN_IF_ERROR(Derive(answer.substr(kHeadBytes)));
  ASSIGN_OR_RETURN(const std::string expected, Mac("server"));
  if (!AreSame(mac, expected)) {
    return Refused(
        "the peer does not hold this job's secret, or what was said was "
        "altered on its way");
  }
  const bool may_be_open = ends.is_in_memory || setting_ == Encryption::kAuto;
  if (taken != mode_ && !(taken == Encryption::kOff && may_be_open)) {
    return Refused(absl::StrCat("the peer would have ", Name(taken), " where ",
                                Name(mode_), " is due"));
  }
  mode_ = taken;
  is_done_ = true;
  ASSIGN_OR_RETURN(const std::string own, Mac("client"));
  return Finish(own);
}

}  // namespace telegrad::seal
