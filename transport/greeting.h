#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>

#include "base/clock.h"

// What transports, and others that listen, grant to strangers.
namespace telegrad {

// From connect or accept to the peer's hello, and its proof where one is due.
constexpr Duration kGreetGrace = std::chrono::seconds(10);
// Who have connected and not greeted yet.
constexpr size_t kMaxGreeting = 1024;
// Then a newer one may take the place.
constexpr Duration kStrangerRight = std::chrono::seconds(1);

// Peers that have not yet said or proved who they are, the oldest first. One
// thread.
template <typename Id>
class Strangers {
 public:
  void Add(Id id) { all_.push_back({id, Clock::now()}); }
  void Remove(Id id) {
    std::erase_if(all_, [id](const Stranger& one) { return one.id == id; });
  }
  size_t size() const { return all_.size(); }

  // Whether there is room for one more among `most`; if need be the oldest goes
  // that has had its second: cut(id).
  template <typename Cut>
  bool MakeRoom(size_t most, const Cut& cut) {
    if (all_.size() < most) return true;
    return CutOldest(Clock::now() - kStrangerRight, cut);
  }
  // Cuts those that are here for longer than `grace`.
  template <typename Cut>
  void CutLate(Duration grace, const Cut& cut) {
    if (all_.empty()) return;
    const TimePoint since = Clock::now() - grace;
    while (CutOldest(since, cut)) {
    }
  }
  // When CutLate has something to do.
  TimePoint NextTimer(Duration grace) const {
    return all_.empty() ? TimePoint::max() : all_.front().since + grace;
  }

 private:
  struct Stranger {
    Id id;
    TimePoint since;
  };

  template <typename Cut>
  bool CutOldest(TimePoint since, const Cut& cut) {
    if (all_.empty() || all_.front().since > since) return false;
    const Id oldest = all_.front().id;
    all_.pop_front();
    cut(oldest);
    return true;
  }

  std::deque<Stranger> all_;
};

}  // namespace telegrad
