#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"
#include "transport/crypto.h"
#include "transport/sealer.h"

namespace telegrad {

// A frame ready to be sent, its length included; many connections may share
// one.
using Frame = std::shared_ptr<const std::string>;

// u32 length (little-endian), then `body`.
Frame MakeFrame(absl::string_view body);

// Frames over a non-blocking socket. Memory grows with the bytes that have
// arrived, never with a length that a peer claims. One thread.
class FrameConnection {
 public:
  explicit FrameConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }

  // Takes what has arrived, at most kReadBytes. Unavailable when the peer has
  // closed; frames received before are still given by Next.
  absl::Status Read();

  // Seals what is queued from now on, and expects what is yet to be read to be
  // sealed: a tag of 16 bytes behind each body, beside which the length is
  // authenticated. Not with kOff.
  absl::Status Seal(const ConnectionKeys& keys, Encryption mode,
                    bool is_client);

  // The next whole frame's body, nullopt when it has not yet arrived.
  // InvalidArgument for a frame that is longer than `max_bytes`. DataLoss for
  // one that is not as it was sealed.
  absl::StatusOr<std::optional<std::string>> Next(size_t max_bytes);

  // Sends as much as the socket takes, keeps the rest for Flush. Errors are
  // Read's to tell: what the peer said before it went is read first.
  void Send(Frame frame);
  void Queue(Frame frame);  // sends nothing before Flush
  void Flush();
  bool has_unsent() const { return !unsent_.empty(); }

 private:
  static constexpr size_t kReadBytes = 64 * 1024;  // one turn of the loop

  Frame Sealed(const std::string& frame);
  // Leaves the body.
  absl::Status Open(ConstBytes beside, std::string& body);

  UniqueFd fd_;
  std::optional<Sealers> sealers_;
  uint64_t num_sealed_ = 0, num_opened_ = 0;
  std::string received_;
  size_t consumed_ = 0;  // bytes of received_ that were handed on
  std::deque<Frame> unsent_;
  size_t sent_of_first_ = 0;
  bool is_write_failed_ = false;
};

}  // namespace telegrad
