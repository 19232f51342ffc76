#pragma once

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "tests/kvstore/simulation/watched_files.h"

// One process in which time and turns are decided by a seed. Threads that are
// started in it run one at a time; each runs until it waits, and who is next is
// drawn. Time stands still while anybody can run, but for a moment at each look
// at a clock, and then passes to the next thing that is due. What the product
// calls for all this (virtual_calls.cc) are the C library's own functions, so
// that it runs as it is: its clocks, locks, threads, waits and sockets.
namespace telegrad::testing {

// A process of the job, as the others see it.
constexpr int kNobody = -1;

class VirtualWorld {
 public:
  // Begins with the thread that calls it, which is no member's. One in a
  // process, until the process ends.
  static void Begin(uint64_t seed);
  static VirtualWorld* The();

  int AddMember();
  // Its threads, and those that they start, are the member's.
  void Spawn(int member, std::function<void()> body);
  void At(Duration after_now, std::function<void()> event);
  // As kill -9, or, where nobody hears of it, as a machine without power; and
  // as SIGSTOP until SIGCONT.
  void Kill(int member, bool is_silent = false);
  void Pause(int member, Duration time);
  // For the first thread: until `done`, or false once `most` has passed.
  bool Await(const std::function<bool()>& done, Duration most);

  Random& random() { return random_; }
  int num_members() const { return static_cast<int>(members_.size()); }
  bool is_dead(int member) const {
    return member >= 0 && members_[static_cast<size_t>(member)].is_dead;
  }
  Duration passed() const { return std::chrono::nanoseconds(now_ns_ - kBegin); }
  // Equal for runs in which the same threads had the same turns.
  uint64_t trace() const { return trace_; }

  // For virtual_calls.cc. The thread that calls them is one of the world.
  static bool is_inside();
  static int own_member();
  int64_t Now() { return now_ns_ += kLookNs; }
  void Yield() { SleepUntil(now_ns_ + 1000); }
  void SleepUntil(int64_t until_ns) { Wait(nullptr, until_ns, nullptr, 0); }
  // False: `until_ns` came before Notify of `event`, and before a file was
  // ready.
  bool Wait(const void* event, int64_t until_ns, pollfd* files,
            nfds_t num_files);
  void Notify(const void* event, bool all);
  int StartThread(pthread_t* thread, const pthread_attr_t* attributes,
                  void* (*body)(void*), void* argument);
  void JoinThread(pthread_t thread);

 private:
  static constexpr int64_t kBegin = int64_t{1'000'000'000'000};
  static constexpr int64_t kLookNs = 100;  // what a look at the clock takes

  struct Thread : Watcher {
    sem_t turn;
    uint64_t number = 0;
    int member = kNobody;
    pthread_t handle = {};
    void* (*body)(void*) = nullptr;
    void* argument = nullptr;
    bool is_ended = false;
    bool is_waiting = false;
    bool is_notified = false;
    const void* event = nullptr;
    int64_t until_ns = 0;
  };
  struct Member {
    bool is_dead = false;
    int64_t paused_until_ns = 0;
  };

  explicit VirtualWorld(uint64_t seed) : random_(seed) {}
  static void* Run(void* thread);
  Thread& Add(int member);
  // Gives the turn to whoever is next, and comes back with it.
  void Switch(Thread& from);
  Thread& Next();
  // When it may run again by itself.
  int64_t DueAt(const Thread& thread) const;
  bool is_paused(const Thread& thread) const {
    return thread.member != kNobody &&
           members_[static_cast<size_t>(thread.member)].paused_until_ns >
               now_ns_;
  }
  void FindReady(std::vector<Thread*>& ready);
  void RunEvents();

  static thread_local Thread* own_;
  Random random_;
  WatchedFiles watched_;
  int64_t now_ns_ = kBegin;
  uint64_t trace_ = 0;
  std::vector<std::unique_ptr<Thread>> threads_;  // until they are joined
  std::vector<Thread*> living_;                   // may have a turn
  uint64_t num_threads_ = 0;                      // of all that began
  std::vector<Member> members_;
  std::multimap<int64_t, std::function<void()>> events_;
};

}  // namespace telegrad::testing
