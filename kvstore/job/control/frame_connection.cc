#include "kvstore/job/control/frame_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/endian.h"

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

absl::StatusOr<std::optional<std::string>> FrameConnection::Next(
    size_t max_bytes) {
  const size_t available = received_.size() - consumed_;
  if (available >= kLengthBytes) {
    const size_t length = LoadLittleEndian<uint32_t>(
        reinterpret_cast<const std::byte*>(received_.data() + consumed_));
    if (length > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "frame of ", length, " bytes, at most ", max_bytes, " are taken"));
    }
    if (available - kLengthBytes >= length) {
      std::string body = received_.substr(consumed_ + kLengthBytes, length);
      consumed_ += kLengthBytes + length;
      return body;
    }
  }
  received_.erase(0, consumed_);
  consumed_ = 0;
  return std::nullopt;
}

void FrameConnection::Send(Frame frame) {
  Queue(std::move(frame));
  Flush();
}

void FrameConnection::Queue(Frame frame) {
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
