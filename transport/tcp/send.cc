#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "base/endian.h"
#include "base/process_memory.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/tcp/tcp_context.h"

namespace telegrad::tcp {
namespace {

constexpr size_t kMaxPieces = 64;  // of one call of the kernel
constexpr size_t kExposedBytes = size_t{16} << 10;
constexpr size_t kTurnBytes = size_t{1} << 20;  // then others have their turn

// What is unsent of the queue's beginning, up to about kTurnBytes.
size_t Gather(const Connection& connection,
              std::array<iovec, kMaxPieces>& out) {
  size_t num_pieces = 0, num_bytes = 0, skip = connection.num_written;
  const auto add = [&](const std::byte* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    out[num_pieces++] = {const_cast<std::byte*>(data + skipped),
                         size - skipped};
    num_bytes += size - skipped;
  };
  for (const Outgoing& message : connection.queue) {
    if (num_pieces + 2 > kMaxPieces || num_bytes >= kTurnBytes) break;
    add(message.head.data(), message.head_bytes);
    add(message.payload.data, message.payload.size);
  }
  return num_pieces;
}

// Less is copied through the kernel faster than it is asked for.
bool IsExposable(const Connection& connection, ConstBytes payload) {
  return connection.is_readable_by_peer && payload.size >= kExposedBytes &&
         IsReadableByProcesses(payload);
}

}  // namespace

absl::Status TcpContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Connection* const connection = connections_.Find(to);
  if (connection == nullptr || connection->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  RETURN_IF_ERROR(CheckOnHost("tcp", payload.device));
  Outgoing message;
  message.is_exposed = IsExposable(*connection, payload);
  message.head_bytes = kRecordBytes;
  if (message.is_exposed) {
    StoreLittleEndian(message.head.data() + message.head_bytes,
                      reinterpret_cast<uint64_t>(payload.data));
    message.head_bytes += kPlaceBytes;
  } else {
    message.payload = payload;
  }
  std::copy_n(header.data, header.size,
              message.head.data() + message.head_bytes);
  message.head_bytes += header.size;
  PackRecord({.kind = message.is_exposed ? Kind::kExposed : Kind::kMessage,
              .header_bytes = message.head_bytes - kRecordBytes,
              .payload_bytes = payload.size},
             message.head.data());
  message.done = std::move(done);
  Enqueue(*connection, std::move(message));
  return absl::OkStatus();
}

void TcpContext::SendHello(Connection& connection) {
  Outgoing hello;
  PackHello(hello.head.data());
  hello.head_bytes = kRecordBytes;
  Enqueue(connection, std::move(hello));
  if (connection.is_local) OfferMemory(connection);
}

// Written at once, unless Progress is known to be called next; from within it
// later, together with whatever else is sent until then.
void TcpContext::Enqueue(Connection& connection, Outgoing message) {
  connection.queue.push_back(std::move(message));
  if (!connection.is_writable) return;
  const bool waits = is_progressing_ || options_.sends_wait;
  if (!waits && connection.queue.size() == 1) Write(connection);
  Activate(connection);
}

void TcpContext::Write(Connection& connection) {
  size_t turn = 0;
  while (connection.is_writable && !connection.queue.empty() &&
         connection.state != State::kFailed && turn < kTurnBytes) {
    std::array<iovec, kMaxPieces> pieces;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = Gather(connection, pieces);
    const ssize_t sent =
        sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // Full; or broken, which reading says after what has arrived.
      connection.is_writable = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        connection.is_readable = connection.is_ending = true;
      }
      return;
    }
    turn += static_cast<size_t>(sent);
    HandleWritten(connection, static_cast<size_t>(sent));
  }
  if (connection.state == State::kClosing && connection.is_writable &&
      connection.queue.empty()) {
    (void)shutdown(connection.socket.get(), SHUT_WR);  // it may be gone
    connection.is_writable = false;
  }
}

void TcpContext::HandleWritten(Connection& connection, size_t bytes) {
  num_moved_ += bytes;
  connection.num_written += bytes;
  while (!connection.queue.empty()) {
    Outgoing& first = connection.queue.front();
    const size_t size = first.head_bytes + first.payload.size;
    if (connection.num_written < size) return;
    connection.num_written -= size;
    if (first.is_exposed) {
      connection.untaken.push_back(std::move(first.done));
    } else {
      done_.Add(std::move(first.done), absl::OkStatus());
    }
    connection.queue.pop_front();
  }
}

}  // namespace telegrad::tcp
