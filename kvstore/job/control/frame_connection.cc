#include "kvstore/job/control/frame_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kFramesAtOnce = 64;  // in one call of the kernel

}  // namespace

Frame MakeFrame(absl::string_view body) {
  std::string frame(kLengthBytes, '\0');
  StoreLittleEndian(reinterpret_cast<std::byte*>(frame.data()),
                    static_cast<uint32_t>(body.size()));
  frame.append(body.data(), body.size());
  return std::make_shared<const std::string>(std::move(frame));
}

absl::Status FrameConnection::Read() {
  std::array<char, kReadBytes> chunk;
  const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
  if (got > 0) {
    received_.append(chunk.data(), static_cast<size_t>(got));
    return absl::OkStatus();
  }
  if (got == 0) return absl::UnavailableError("connection closed");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("connection lost: ", std::strerror(errno)));
}

absl::Status FrameConnection::Seal(const ConnectionKeys& keys, Encryption mode,
                                   bool is_client) {
  if (mode == Encryption::kOff) return absl::OkStatus();
  ASSIGN_OR_RETURN(sealers_, Sealers::Create(keys, mode, is_client));
  return absl::OkStatus();
}

// Null: OpenSSL failed.
Frame FrameConnection::Sealed(const std::string& frame) {
  const size_t body_bytes = frame.size() - kLengthBytes;
  std::string sealed = frame;
  sealed.resize(frame.size() + kTagBytes);
  auto* const bytes = reinterpret_cast<std::byte*>(sealed.data());
  StoreLittleEndian(bytes, static_cast<uint32_t>(body_bytes + kTagBytes));
  const absl::Status done = sealers_->seals.Seal(
      num_sealed_++, {bytes, kLengthBytes}, {bytes + kLengthBytes, body_bytes},
      bytes + kLengthBytes, bytes + frame.size());
  if (!done.ok()) return nullptr;
  return std::make_shared<const std::string>(std::move(sealed));
}

absl::StatusOr<std::optional<std::string>> FrameConnection::Next(
    size_t max_bytes) {
  const size_t tag_bytes = sealers_.has_value() ? kTagBytes : 0;
  const size_t available = received_.size() - consumed_;
  if (available >= kLengthBytes) {
    const size_t length = LoadLittleEndian<uint32_t>(
        reinterpret_cast<const std::byte*>(received_.data() + consumed_));
    if (length > max_bytes + tag_bytes) {
      const std::string what = absl::StrCat(
          "frame of ", length, " bytes, at most ", max_bytes, " are taken");
      // Nobody who holds the key sends it.
      if (sealers_.has_value()) return absl::DataLossError(what);
      return absl::InvalidArgumentError(what);
    }
    if (available - kLengthBytes >= length) {
      std::string body = received_.substr(consumed_ + kLengthBytes, length);
      const ConstBytes beside(received_.data() + consumed_, kLengthBytes);
      consumed_ += kLengthBytes + length;
      if (!sealers_.has_value()) return body;
      RETURN_IF_ERROR(Open(beside, body));
      return body;
    }
  }
  received_.erase(0, consumed_);
  consumed_ = 0;
  return std::nullopt;
}

absl::Status FrameConnection::Open(ConstBytes beside, std::string& body) {
  const size_t bytes = std::max(body.size(), kTagBytes) - kTagBytes;
  auto* const text = reinterpret_cast<std::byte*>(body.data());
  absl::Status opened = absl::DataLossError("shorter than its tag");
  if (body.size() >= kTagBytes) {
    opened = sealers_->opens.Open(num_opened_++, beside, {text, bytes},
                                  text + bytes);
  }
  body.resize(bytes);
  if (opened.ok()) return opened;
  return WithExitCode(
      ExitCode::kIntegrity,
      absl::DataLossError(absl::StrCat("a frame was ", opened.message())));
}

void FrameConnection::Send(Frame frame) {
  Queue(std::move(frame));
  Flush();
}

void FrameConnection::Queue(Frame frame) {
  if (sealers_.has_value()) frame = Sealed(*frame);
  is_write_failed_ |= frame == nullptr;
  if (!is_write_failed_) unsent_.push_back(std::move(frame));
}

void FrameConnection::Flush() {
  while (!unsent_.empty()) {
    std::array<iovec, kFramesAtOnce> parts;
    size_t count = 0;
    for (; count < std::min(parts.size(), unsent_.size()); ++count) {
      const std::string& frame = *unsent_[count];
      const size_t begin = count == 0 ? sent_of_first_ : 0;
      parts[count] = {.iov_base = const_cast<char*>(frame.data() + begin),
                      .iov_len = frame.size() - begin};
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) is_write_failed_ = true;
      break;
    }
    sent_of_first_ += static_cast<size_t>(sent);
    while (!unsent_.empty() && sent_of_first_ >= unsent_.front()->size()) {
      sent_of_first_ -= unsent_.front()->size();
      unsent_.pop_front();
    }
  }
  if (is_write_failed_) unsent_.clear();
}

}  // namespace telegrad
