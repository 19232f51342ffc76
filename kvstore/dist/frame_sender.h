#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "compression/frame.h"
#include "transport/transport.h"

namespace telegrad {

// A frame ready to go; the payload lives at least as long as `keep_alive`.
struct OutgoingFrame {
  FrameHeaderBytes header{};
  ConstBytes payload;
  std::shared_ptr<const void> keep_alive;
  int priority = 0;
  // Called once the transport has let go of the payload.
  std::function<void()> on_sent = nullptr;
};

// Sends the frames of one endpoint, larger priority first, equal ones in order,
// with at most about `window_bytes` of them inside the transport, so that an
// urgent frame never waits behind more than a window. Owner's thread only.
class FrameSender {
 public:
  FrameSender(TransportContext* transport, EndpointId endpoint,
              size_t window_bytes);
  ~FrameSender();
  void Enqueue(OutgoingFrame frame);

 private:
  struct Core;  // completions may come after this object's end
  std::shared_ptr<Core> core_;
};

constexpr size_t kSendWindowBytes = size_t{4} << 20;

}  // namespace telegrad
