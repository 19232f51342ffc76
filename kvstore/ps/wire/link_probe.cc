#include "kvstore/ps/wire/link_probe.h"

#include <algorithm>

#include "base/median.h"

namespace telegrad {
namespace {

constexpr size_t kRoundTrips = 20;
constexpr size_t kLeastRoundTrips = 3;
constexpr size_t kDepth = 4;  // frames on their way to a server
constexpr uint32_t kFirstBytes = 4096;
constexpr int64_t kMaxPhaseBytes = int64_t{256} << 20;  // of a server
// Beyond the round trip, or in round trips if that is more: frames that are
// answered sooner are too short to fill a link, later ones longer than it
// takes.
constexpr double kShortTime = 2e-3;
constexpr double kLongTime = 10e-3;
constexpr double kLongRoundTrips = 3;
// Frames to a server that show what one costs.
constexpr int64_t kLeastFrames = 64;
// So many at once that what is polled for the next counts little.
constexpr size_t kFramesDepth = 32;
constexpr int64_t kMostFrames = 20000;
// Of the time, with one message on its way: more have no rest while they wait.
constexpr double kPolling = 0.9;

}  // namespace

uint32_t MaxProbeBytes(size_t num_workers, size_t num_servers) {
  const size_t peers = std::max({num_workers, num_servers, size_t{1}});
  return static_cast<uint32_t>(
      std::clamp(kProbeMemory / peers, kLeastProbeBytes, kMostProbeBytes));
}

Buffer ProbePayload(size_t size) {
  Buffer payload(size);
  std::fill_n(payload.data(), size, std::byte{0x55});
  return payload;
}

LinkProbe::LinkProbe(size_t num_servers, uint32_t most, Duration duration,
                     Send send, CpuClock cpu_clock)
    : most_(most),
      duration_(duration),
      send_(std::move(send)),
      cpu_clock_(std::move(cpu_clock)),
      links_(num_servers) {}

void LinkProbe::Start(TimePoint now) {
  started_ = now;
  cpu_started_s_ = cpu_clock_();
  for (size_t i = 0; i < links_.size(); ++i) Fill(i, now);
}

bool LinkProbe::wants_more(const Link& link, TimePoint now) const {
  const double passed = ToSeconds(now - started_) / ToSeconds(duration_);
  switch (phase_) {
    case Phase::kRoundTrips: {
      const size_t count = link.round_trips.size();
      return link.in_flight.empty() && (count < kLeastRoundTrips ||
                                        (count < kRoundTrips && passed < 0.15));
    }
    case Phase::kFrames:
      return link.in_flight.size() < kFramesDepth &&
             link.num_frames < kMostFrames &&
             (link.num_frames < kLeastFrames || passed < 0.05);
    case Phase::kBeginSend:
    case Phase::kBeginReceive:
      return link.in_flight.size() < kDepth && link.asked < kMaxPhaseBytes &&
             (link.asked == 0 || passed < (link.is_short ? 0.5 : 0.16));
    case Phase::kSend:
    case Phase::kReceive:
      return link.in_flight.size() < kDepth && link.asked < kMaxPhaseBytes &&
             (link.asked == 0 || passed < 0.26);
    case Phase::kDone:
      break;
  }
  return false;
}

void LinkProbe::Fill(size_t server, TimePoint now) {
  Link& link = links_[server];
  while (wants_more(link, now)) {
    ProbeFrame frame;
    if (phase_ == Phase::kBeginSend || phase_ == Phase::kSend) {
      frame.payload_bytes = link.size;
    } else if (phase_ == Phase::kBeginReceive || phase_ == Phase::kReceive) {
      frame.answer_bytes = link.size;
    }
    ++link.num_frames;
    link.asked += link.size;
    link.in_flight.push_back({frame, now});
    send_(server, frame);
  }
}

bool LinkProbe::BeginAnswer(size_t server, size_t payload_bytes) {
  if (server >= links_.size()) return false;
  Link& link = links_[server];
  if (link.begun >= link.in_flight.size() ||
      link.in_flight[link.begun].frame.answer_bytes != payload_bytes) {
    return false;
  }
  ++link.begun;
  return true;
}

// By frames of the present size only: shorter ones tell nothing of it.
void LinkProbe::Resize(Link& link, const Sent& sent, TimePoint now) const {
  if (std::max(sent.frame.payload_bytes, sent.frame.answer_bytes) !=
      link.size) {
    return;
  }
  const double round_trip_s = link.speeds.round_trip_s;
  const double waited = ToSeconds(now - sent.at) - round_trip_s;
  link.is_short =
      waited < std::max(kShortTime, round_trip_s) && link.size < most_;
  if (link.is_short) link.size = std::min(2 * link.size, most_);
  if (waited > std::max(kLongTime, kLongRoundTrips * round_trip_s)) {
    link.size = std::max(link.size / 2, std::min(kFirstBytes, most_));
  }
}

void LinkProbe::OnAnswer(size_t server, TimePoint now) {
  Link& link = links_[server];
  const Sent sent = link.in_flight.front();
  link.in_flight.pop_front();
  --link.begun;
  link.last = now;
  link.answered += sent.frame.payload_bytes + sent.frame.answer_bytes;
  if (phase_ == Phase::kRoundTrips) {
    link.round_trips.push_back(ToSeconds(now - sent.at));
  } else if (phase_ == Phase::kBeginSend || phase_ == Phase::kBeginReceive) {
    Resize(link, sent, now);
  }
  Fill(server, now);
  const bool is_over =
      std::all_of(links_.begin(), links_.end(),
                  [](const Link& each) { return each.in_flight.empty(); });
  if (is_over) EndPhase(now);
}

void LinkProbe::CountCosts(TimePoint now) {
  const double cpu_s = cpu_clock_() - cpu_started_s_;
  double frames = 0;
  double bytes = 0;
  for (const Link& link : links_) {
    frames += 2 * static_cast<double>(link.num_frames);  // and answers
    bytes += static_cast<double>(link.answered);
  }
  if (phase_ == Phase::kRoundTrips) {
    polls_ = cpu_s > kPolling * ToSeconds(now - started_);
  } else if (phase_ == Phase::kFrames) {
    frame_s_ = cpu_s / frames;
  } else if (phase_ == Phase::kSend || phase_ == Phase::kReceive) {
    bytes_cpu_s_ += cpu_s - frames * frame_s_;
    num_bytes_ += bytes;
  }
}

void LinkProbe::EndPhase(TimePoint now) {
  CountCosts(now);
  for (Link& link : links_) {
    // The first answer is a round trip late, in which nothing was answered.
    const double passed = ToSeconds(link.last - started_);
    const double late = std::min(link.speeds.round_trip_s, passed / 2);
    const double rate =
        static_cast<double>(link.answered) / std::max(passed - late, 1e-9);
    if (phase_ == Phase::kRoundTrips) {
      link.speeds.round_trip_s = Median(link.round_trips);
    } else if (phase_ == Phase::kSend) {
      link.speeds.send = rate;
    } else if (phase_ == Phase::kReceive) {
      link.speeds.receive = rate;
    }
    link.num_frames = 0;
    link.asked = 0;
    link.answered = 0;
  }
  phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
  for (Link& link : links_) {
    const bool begins =
        phase_ == Phase::kBeginSend || phase_ == Phase::kBeginReceive;
    if (!begins) continue;
    link.size = std::min(kFirstBytes, most_);
    link.is_short = true;
  }
  Start(now);
}

std::vector<LinkProbe::Speeds> LinkProbe::speeds() const {
  std::vector<Speeds> speeds;
  for (const Link& link : links_) speeds.push_back(link.speeds);
  return speeds;
}

LinkProbe::Costs LinkProbe::costs() const {
  if (polls_) return {};
  return {.frame_s = frame_s_,
          .byte_s = std::max(0.0, bytes_cpu_s_ / num_bytes_)};
}

}  // namespace telegrad
