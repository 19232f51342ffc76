#include "transport/inproc/inbox.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace telegrad::inproc {
namespace {

struct Directory {
  Mutex mutex;
  uint64_t last ABSL_GUARDED_BY(mutex) = 0;
  std::map<std::string, std::weak_ptr<Inbox>> inboxes ABSL_GUARDED_BY(mutex);
};

Directory& TheDirectory() {
  static Directory* const directory = new Directory;
  return *directory;
}

}  // namespace

bool Inbox::Post(Event event) {
  MutexLock lock(&mutex_);
  if (is_shut_) return false;
  events_.push_back(std::move(event));
  changed_.NotifyOne();
  return true;
}

void Inbox::Wake() {
  MutexLock lock(&mutex_);
  is_woken_ = true;
  changed_.NotifyOne();
}

bool Inbox::Take(TimePoint deadline, std::vector<Event>* events) {
  MutexLock lock(&mutex_);
  while (events_.empty() && !is_woken_) {
    if (Clock::now() >= deadline) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  if (!events_.empty()) {
    events->swap(events_);
    return false;
  }
  is_woken_ = false;
  return true;
}

void Inbox::Shut() {
  std::vector<Event> dropped;  // destroyed outside the lock
  MutexLock lock(&mutex_);
  is_shut_ = true;
  dropped.swap(events_);
}

std::string Publish(const std::shared_ptr<Inbox>& inbox) {
  Directory& directory = TheDirectory();
  MutexLock lock(&directory.mutex);
  std::string address = absl::StrCat("inproc:", ++directory.last);
  directory.inboxes[address] = inbox;
  return address;
}

std::shared_ptr<Inbox> LookUp(const std::string& address) {
  Directory& directory = TheDirectory();
  MutexLock lock(&directory.mutex);
  const auto found = directory.inboxes.find(address);
  return found == directory.inboxes.end() ? nullptr : found->second.lock();
}

void Withdraw(const std::string& address) {
  Directory& directory = TheDirectory();
  MutexLock lock(&directory.mutex);
  directory.inboxes.erase(address);
}

}  // namespace telegrad::inproc
