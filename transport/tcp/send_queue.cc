#include "transport/tcp/send_queue.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/endian.h"

namespace telegrad::tcp {

Outgoing MakeMessage(ConstBytes header, ConstBytes payload, bool is_exposed,
                     SendDone done) {
  Outgoing message;
  message.is_exposed = is_exposed;
  message.head_bytes = kRecordBytes;
  if (is_exposed) {
    StoreLittleEndian(message.head.data() + message.head_bytes,
                      reinterpret_cast<uint64_t>(payload.data));
    message.head_bytes += kPlaceBytes;
  } else {
    message.payload = payload;
  }
  std::copy_n(header.data, header.size,
              message.head.data() + message.head_bytes);
  message.head_bytes += header.size;
  PackRecord({.kind = is_exposed ? Kind::kExposed : Kind::kMessage,
              .header_bytes = message.head_bytes - kRecordBytes,
              .payload_bytes = payload.size},
             message.head.data());
  message.done = std::move(done);
  return message;
}

Outgoing MakeControl(const Record& record) {
  Outgoing message;
  PackRecord(record, message.head.data());
  message.head_bytes = kRecordBytes;
  return message;
}

Outgoing MakeOffer(const Mark& mark) {
  Outgoing message =
      MakeControl({.kind = Kind::kOffer, .header_bytes = kOfferBytes});
  PackOffer(&mark, message.head.data() + kRecordBytes);
  message.head_bytes += kOfferBytes;
  return message;
}

// What is unsent of the queue's beginning; how many pieces.
size_t SendQueue::Gather(size_t most_bytes, Pieces& out) const {
  size_t num_pieces = 0, num_bytes = 0, skip = num_written_;
  const auto add = [&](const std::byte* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    out[num_pieces++] = {const_cast<std::byte*>(data + skipped),
                         size - skipped};
    num_bytes += size - skipped;
  };
  for (const Outgoing& message : queue_) {
    if (num_pieces + 2 > kMaxPieces || num_bytes >= most_bytes) break;
    add(message.head.data(), message.head_bytes);
    add(message.payload.data, message.payload.size);
  }
  return num_pieces;
}

SendQueue::Written SendQueue::Write(int socket, size_t most_bytes,
                                    DueCompletions& done) {
  Written written;
  while (!queue_.empty() && written.bytes < most_bytes) {
    Pieces pieces;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = Gather(most_bytes, pieces);
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      written.is_full = true;
      written.is_broken = errno != EAGAIN && errno != EWOULDBLOCK;
      return written;
    }
    written.bytes += static_cast<size_t>(sent);
    HandleWritten(static_cast<size_t>(sent), done);
  }
  return written;
}

void SendQueue::HandleWritten(size_t bytes, DueCompletions& done) {
  num_written_ += bytes;
  while (!queue_.empty()) {
    Outgoing& first = queue_.front();
    const size_t size = first.head_bytes + first.payload.size;
    if (num_written_ < size) return;
    num_written_ -= size;
    if (first.is_exposed) {
      exposed_.push_back(std::move(first.done));
    } else {
      done.Add(std::move(first.done), absl::OkStatus());
    }
    queue_.pop_front();
  }
}

bool SendQueue::FinishExposed(DueCompletions& done) {
  if (exposed_.empty()) return false;
  done.Add(std::move(exposed_.front()), absl::OkStatus());
  exposed_.pop_front();
  return true;
}

void SendQueue::End(const absl::Status& exposed, const absl::Status& unwritten,
                    DueCompletions& done) {
  for (SendDone& one : exposed_) done.Add(std::move(one), exposed);
  for (Outgoing& message : queue_) {
    done.Add(std::move(message.done), unwritten);
  }
  exposed_.clear();
  queue_.clear();
}

}  // namespace telegrad::tcp
