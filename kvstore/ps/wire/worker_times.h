#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

// What a worker's time goes into, for its statistics.
namespace telegrad {

// Seconds in which at least one thing was under way. Begin and End: one thread.
class BusyClock {
 public:
  void Begin() {
    if (num_under_way_++ == 0) since_ = Clock::now();
  }
  void End() {
    if (--num_under_way_ == 0) busy_ = busy_.load() + (Clock::now() - since_);
  }
  double seconds() const { return ToSeconds(busy_); }

 private:
  int64_t num_under_way_ = 0;
  TimePoint since_;
  std::atomic<Duration> busy_{Duration::zero()};
};

// Seconds that threads have spent on something, each of them.
class ThreadSeconds {
 public:
  // Counts while it lives.
  class Scope {
   public:
    explicit Scope(ThreadSeconds& seconds) : seconds_(seconds) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { seconds_.ticks_ += (Clock::now() - start_).count(); }

   private:
    ThreadSeconds& seconds_;
    const TimePoint start_ = Clock::now();
  };
  double seconds() const { return ToSeconds(Duration(ticks_)); }

 private:
  std::atomic<Duration::rep> ticks_{0};
};

// How long servers take to answer a push, from its leaving on. Thread-safe.
class AnswerTimes {
 public:
  // Before the others.
  void Resize(size_t num_servers) {
    MutexLock lock(&mutex_);
    servers_.resize(num_servers);
  }
  void Add(size_t server, size_t num_elems, Duration took) {
    MutexLock lock(&mutex_);
    servers_[server].weight += static_cast<double>(num_elems);
    servers_[server].sum += static_cast<double>(num_elems) * ToSeconds(took);
  }
  // By server, the mean over the elements; 0: none was asked.
  std::vector<double> means() const {
    std::vector<double> means;
    MutexLock lock(&mutex_);
    for (const Server& each : servers_) {
      means.push_back(each.weight > 0 ? each.sum / each.weight : 0);
    }
    return means;
  }

 private:
  struct Server {
    double weight = 0;
    double sum = 0;
  };
  mutable Mutex mutex_;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
