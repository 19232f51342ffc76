#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu_time.h"

namespace telegrad {

// Bytes that measure a link: what is sent, and what is asked for in return.
struct ProbeFrame {
  uint32_t payload_bytes = 0;
  uint32_t answer_bytes = 0;
  bool operator==(const ProbeFrame&) const = default;
};

// The longest payload of a probe and of its answer, so that the buffers of a
// member for up to 2048 others together stay within kProbeMemory. They are kept
// while it measures.
constexpr size_t kProbeMemory = size_t{32} << 20;
constexpr size_t kLeastProbeBytes = size_t{16} << 10;
constexpr size_t kMostProbeBytes = size_t{1} << 20;
uint32_t MaxProbeBytes(size_t num_workers, size_t num_servers);

// What goes through the link. It was written: pages that never were would all
// be the same one.
Buffer ProbePayload(size_t size);

// One worker's measurement of its links to the servers, all at once: what to
// send and what the answers say. First messages without payload, one at a time;
// then as many bytes as go through in a given time, out and in. Of each
// direction the first part counts for nothing: there TCP starts slowly, and a
// shaped link has a burst to give. The rest begins and ends with nothing on its
// way, so that no rate is above the link's. After the first messages, and
// before the bytes, as many messages without payload as go through: what they,
// and then bytes, take of the thread's core. One thread.
class LinkProbe {
 public:
  using Send = std::function<void(size_t server, const ProbeFrame&)>;
  struct Speeds {
    double round_trip_s = 0;  // median
    double send = 0;          // bytes/s, to this server
    double receive = 0;
  };
  // Seconds of a core. 0: not known, as where the thread polls, and the time
  // that it has a core says nothing of what it does. One that polls now and
  // then costs less than this says.
  struct Costs {
    double frame_s = 0;  // of a frame sent or received
    double byte_s = 0;   // of a byte sent or received, beside its frame
    bool operator==(const Costs&) const = default;
  };
  using CpuClock = std::function<double()>;  // of the thread that calls

  // `most` as MaxProbeBytes; at least one server. Takes about `duration`.
  LinkProbe(size_t num_servers, uint32_t most, Duration duration, Send send,
            CpuClock cpu_clock = ThreadCpuSeconds);

  void Start(TimePoint now);
  // Whether `server` owes an answer of so many bytes next, behind those that
  // have begun to arrive; it has then begun.
  bool BeginAnswer(size_t server, size_t payload_bytes);
  // An answer that has begun is there.
  void OnAnswer(size_t server, TimePoint now);
  bool is_done() const { return phase_ == Phase::kDone; }
  // By server; once done.
  std::vector<Speeds> speeds() const;
  // Once done.
  Costs costs() const;

 private:
  enum class Phase : uint8_t {
    kRoundTrips,
    kFrames,
    kBeginSend,
    kSend,
    kBeginReceive,
    kReceive,
    kDone,
  };
  struct Sent {
    ProbeFrame frame = {};
    TimePoint at = {};
  };
  struct Link {
    std::deque<Sent> in_flight = {};
    size_t begun = 0;        // answers that arrive
    uint32_t size = 0;       // bytes of a frame
    bool is_short = true;    // it does not fill the link yet
    int64_t num_frames = 0;  // asked in this phase
    int64_t asked = 0;       // bytes of them
    int64_t answered = 0;    // of these
    TimePoint last = {};     // answer
    std::vector<double> round_trips = {};
    Speeds speeds = {};
  };

  bool wants_more(const Link& link, TimePoint now) const;
  void Fill(size_t server, TimePoint now);
  void Resize(Link& link, const Sent& sent, TimePoint now) const;
  void EndPhase(TimePoint now);
  void CountCosts(TimePoint now);

  const uint32_t most_;
  const Duration duration_;
  const Send send_;
  const CpuClock cpu_clock_;
  Phase phase_ = Phase::kRoundTrips;
  TimePoint started_ = {};  // the phase
  double cpu_started_s_ = 0;
  std::vector<Link> links_;
  bool polls_ = false;
  double frame_s_ = 0;
  double bytes_cpu_s_ = 0;  // without frames'
  double num_bytes_ = 0;
};

}  // namespace telegrad
