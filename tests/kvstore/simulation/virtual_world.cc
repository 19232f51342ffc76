#include "tests/kvstore/simulation/virtual_world.h"

#include <algorithm>
#include <utility>

#include "tests/kvstore/simulation/real_calls.h"
#include "tests/kvstore/simulation/virtual_network.h"

namespace telegrad::testing {
namespace {

VirtualWorld* the_world = nullptr;

}  // namespace

thread_local VirtualWorld::Thread* VirtualWorld::own_ = nullptr;

void VirtualWorld::Begin(uint64_t seed) {
  the_world = new VirtualWorld(seed);
  own_ = &the_world->Add(kNobody);
}

VirtualWorld* VirtualWorld::The() { return the_world; }
bool VirtualWorld::is_inside() { return own_ != nullptr; }
int VirtualWorld::own_member() {
  return own_ == nullptr ? kNobody : own_->member;
}

VirtualWorld::Thread& VirtualWorld::Add(int member) {
  threads_.push_back(std::make_unique<Thread>());
  Thread& thread = *threads_.back();
  sem_init(&thread.turn, 0, 0);
  thread.number = num_threads_++;
  thread.member = member;
  living_.push_back(&thread);
  return thread;
}

int VirtualWorld::AddMember() {
  members_.emplace_back();
  return static_cast<int>(members_.size()) - 1;
}

void VirtualWorld::Spawn(int member, std::function<void()> body) {
  Thread& thread = Add(member);
  thread.argument = new std::function<void()>(std::move(body));
  thread.body = [](void* argument) -> void* {
    const std::unique_ptr<std::function<void()>> owned(
        static_cast<std::function<void()>*>(argument));
    (*owned)();
    return nullptr;
  };
  Real().create(&thread.handle, nullptr, &Run, &thread);
}

int VirtualWorld::StartThread(pthread_t* handle,
                              const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  Thread& thread = Add(own_->member);
  thread.body = body;
  thread.argument = argument;
  const int error = Real().create(&thread.handle, attributes, &Run, &thread);
  if (error != 0) {
    living_.pop_back();
    threads_.pop_back();
  }
  *handle = thread.handle;
  return error;
}

void* VirtualWorld::Run(void* argument) {
  auto* const thread = static_cast<Thread*>(argument);
  while (sem_wait(&thread->turn) != 0) {
  }
  own_ = thread;
  void* const result = thread->body(thread->argument);
  thread->is_ended = true;
  std::erase(the_world->living_, thread);
  the_world->Notify(thread, /*all=*/true);
  Thread& next = the_world->Next();
  own_ = nullptr;  // what ends with the thread is not the world's matter
  sem_post(&next.turn);
  return result;
}

void VirtualWorld::JoinThread(pthread_t handle) {
  const auto found = std::ranges::find_if(threads_, [&](const auto& each) {
    return pthread_equal(each->handle, handle) != 0;
  });
  if (found == threads_.end()) return;
  Thread& thread = **found;  // others may begin meanwhile
  while (!thread.is_ended) Wait(&thread, INT64_MAX, nullptr, 0);
  std::erase_if(threads_,
                [&](const auto& each) { return each.get() == &thread; });
}

bool VirtualWorld::Wait(const void* event, int64_t until_ns, pollfd* files,
                        nfds_t num_files) {
  Thread& own = *own_;
  own.is_waiting = true;
  own.is_notified = false;
  own.event = event;
  own.until_ns = until_ns;
  own.files = files;
  own.num_files = num_files;
  watched_.Add(own);
  Switch(own);
  watched_.Remove(own);
  own.is_waiting = false;
  own.event = nullptr;
  own.files = nullptr;
  own.num_files = 0;
  return own.is_notified || now_ns_ < until_ns;
}

void VirtualWorld::Notify(const void* event, bool all) {
  for (Thread* const thread : living_) {
    if (!thread->is_waiting || thread->is_notified || thread->event != event) {
      continue;
    }
    thread->is_notified = true;
    if (!all) return;
  }
}

void VirtualWorld::Switch(Thread& from) {
  Thread& next = Next();
  if (&next == &from) return;
  sem_post(&next.turn);
  while (sem_wait(&from.turn) != 0) {
  }
}

int64_t VirtualWorld::DueAt(const Thread& thread) const {
  const int64_t due =
      !thread.is_waiting || thread.is_notified ? now_ns_ : thread.until_ns;
  if (thread.member == kNobody) return due;
  return std::max(due,
                  members_[static_cast<size_t>(thread.member)].paused_until_ns);
}

void VirtualWorld::FindReady(std::vector<Thread*>& ready) {
  for (Thread* const thread : living_) {
    if (DueAt(*thread) <= now_ns_) ready.push_back(thread);
  }
  const auto num_due = static_cast<ptrdiff_t>(ready.size());
  watched_.FindReady([&](Watcher& watcher) {
    auto& thread = static_cast<Thread&>(watcher);
    if (!is_paused(thread) && DueAt(thread) > now_ns_) ready.push_back(&thread);
  });
  const auto first = ready.begin() + num_due;
  std::sort(first, ready.end(), [](const Thread* one, const Thread* other) {
    return one->number < other->number;
  });
  ready.erase(std::unique(first, ready.end()), ready.end());
}

void VirtualWorld::RunEvents() {
  while (!events_.empty() && events_.begin()->first <= now_ns_) {
    const auto event = events_.extract(events_.begin());
    event.mapped()();
  }
}

VirtualWorld::Thread& VirtualWorld::Next() {
  VirtualNetwork& network = VirtualNetwork::The();
  std::vector<Thread*> ready;
  for (;;) {
    RunEvents();
    network.Move(now_ns_);
    FindReady(ready);
    if (!ready.empty()) break;
    int64_t due = network.NextDue(now_ns_);
    if (!events_.empty()) due = std::min(due, events_.begin()->first);
    for (const Thread* thread : living_) due = std::min(due, DueAt(*thread));
    now_ns_ = std::max(now_ns_ + 1, due);
  }
  Thread& next = *ready[random_.NextBelow(ready.size())];
  trace_ = (trace_ ^ (next.number * 0x9E3779B97F4A7C15 +
                      static_cast<uint64_t>(now_ns_))) *
           0xD1342543DE82EF95;
  return next;
}

void VirtualWorld::At(Duration after_now, std::function<void()> event) {
  events_.emplace(now_ns_ + std::chrono::nanoseconds(after_now).count(),
                  std::move(event));
}

void VirtualWorld::Kill(int member, bool is_silent) {
  members_[static_cast<size_t>(member)].is_dead = true;
  for (Thread* const thread : living_) {
    if (thread->member == member) watched_.Remove(*thread);
  }
  std::erase_if(living_, [member](const Thread* thread) {
    return thread->member == member;
  });
  VirtualNetwork::The().Kill(member, now_ns_, is_silent);
}

void VirtualWorld::Pause(int member, Duration time) {
  members_[static_cast<size_t>(member)].paused_until_ns =
      now_ns_ + std::chrono::nanoseconds(time).count();
}

bool VirtualWorld::Await(const std::function<bool()>& done, Duration most) {
  const int64_t until = now_ns_ + std::chrono::nanoseconds(most).count();
  while (!done()) {
    if (now_ns_ >= until) return false;
    SleepUntil(now_ns_ + 10'000'000);
  }
  return true;
}

}  // namespace telegrad::testing
