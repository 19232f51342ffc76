#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kvstore/job/flight/flight_recorder.h"
#include "kvstore/ps/wire/wire.h"
#include "kvstore/ps/wire/worker_times.h"
#include "transport/transport.h"

namespace telegrad {

// A frame ready to go; the payload lives at least as long as `keep_alive`.
struct OutgoingFrame {
  FrameHeaderBytes header{};
  ConstBytes payload;
  std::shared_ptr<const void> keep_alive;
  int priority = 0;
  // Called once the transport has let go of the payload. What it captures fits
  // into a std::function: two pointers.
  std::function<void()> on_sent = nullptr;
};

// Sends the frames of one endpoint, larger priority first, equal ones in order,
// with at most about `window_bytes` of them inside the transport, so that an
// urgent frame never waits behind more than a window. Owner's thread only.
class FrameSender {
 private:
  struct Core;  // completions may come after this object's end

 public:
  // What is known of frames inside a transport, for all its senders: nodes that
  // are used again, so that in the steady state no frame makes one. Outlives
  // the transport, which may drop completions when it ends.
  class Leaving {
   public:
    // Counts while a frame leaves; for what arrives, too.
    BusyClock& busy() { return busy_; }
    const BusyClock& busy() const { return busy_; }
    // Notes frames as they leave, to the peer that their header names.
    void Record(std::shared_ptr<FlightRecorder> recorder) {
      recorder_ = std::move(recorder);
    }

   private:
    friend struct Core;
    struct Node {
      std::shared_ptr<Core> core;  // while the frame is under way
      size_t num_bytes = 0;
      std::shared_ptr<const void> keep_alive;
      std::function<void()> on_sent;
    };
    std::deque<Node> nodes_;
    std::vector<Node*> free_;
    BusyClock busy_;
    std::shared_ptr<FlightRecorder> recorder_;
  };

  FrameSender(TransportContext* transport, EndpointId endpoint,
              size_t window_bytes, Leaving* leaving);
  ~FrameSender();
  void Enqueue(OutgoingFrame frame);

 private:
  std::shared_ptr<Core> core_;
};

// Null `recorder`: nobody asks.
void NoteFrame(const std::shared_ptr<FlightRecorder>& recorder, size_t peer,
               const FrameHeader& header, bool is_sent);

constexpr size_t kSendWindowBytes = size_t{4} << 20;

}  // namespace telegrad
