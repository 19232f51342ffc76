#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace telegrad::inproc {

class Inbox;

// What both ends of a connection share. A receiver copies from the sender's
// payload under `mutex`; once `is_cut`, nobody touches the other's memory.
struct Link {
  Mutex mutex;
  bool is_cut ABSL_GUARDED_BY(mutex) = false;
};

enum class EventKind : uint8_t {
  kConnect,     // from a new peer: `reply_to`, `from`
  kAccepted,    // `from`: what the listener calls us; `reply_to`
  kMessage,     // header, payload, token
  kSent,        // token, status
  kGoodbye,     // nothing follows
  kGoodbyeAck,  // all was heard
  kGone,        // the peer was cut
};

struct Event {
  EventKind kind = EventKind::kMessage;
  EndpointId to = 0;
  EndpointId from = 0;
  std::shared_ptr<Inbox> reply_to = nullptr;
  std::shared_ptr<Link> link = nullptr;
  std::array<std::byte, kMaxCarriedBytes> header = {};
  size_t header_bytes = 0;
  ConstBytes payload = {};
  uint64_t token = 0;
  absl::Status status = {};
};

// A context's mailbox. Thread-safe.
class Inbox {
 public:
  // False when the owner has gone.
  bool Post(Event event);
  void Wake();
  // Waits for an event, Wake or `deadline`; `events`, which is empty, gets all,
  // and its memory is for later ones. Returns whether Wake ended it.
  bool Take(TimePoint deadline, std::vector<Event>* events);
  void Shut();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_shut_ ABSL_GUARDED_BY(mutex_) = false;
};

// The addresses listened on in this process: what the kernel's table of ports
// is to TCP, and the one process-wide variable of this folder. Thread-safe.
std::string Publish(const std::shared_ptr<Inbox>& inbox);
std::shared_ptr<Inbox> LookUp(const std::string& address);
void Withdraw(const std::string& address);

}  // namespace telegrad::inproc
