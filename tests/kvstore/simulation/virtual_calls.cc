// The C library's functions for clocks, threads, locks, waits and sockets, in
// front of its own: within a VirtualWorld they are the world's, elsewhere they
// hand on. A program's own definitions come before those of its libraries.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>

#include <cerrno>
#include <chrono>

#include "tests/kvstore/simulation/real_calls.h"
#include "tests/kvstore/simulation/virtual_network.h"
#include "tests/kvstore/simulation/virtual_world.h"

namespace telegrad::testing {
namespace {

constexpr int kFirstProcess = 100'000;

template <typename Function>
void Find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

RealCalls FindAll() {
  RealCalls real{};
  Find("pthread_create", real.create);
  Find("pthread_join", real.join);
  Find("pthread_mutex_lock", real.lock);
  Find("pthread_cond_wait", real.wait);
  Find("pthread_cond_timedwait", real.timedwait);
  Find("pthread_cond_clockwait", real.clockwait);
  Find("pthread_cond_signal", real.signal);
  Find("pthread_cond_broadcast", real.broadcast);
  Find("nanosleep", real.nanosleep);
  Find("poll", real.poll);
  Find("ppoll", real.ppoll);
  Find("socket", real.socket);
  Find("bind", real.bind);
  Find("listen", real.listen);
  Find("accept4", real.accept4);
  Find("connect", real.connect);
  Find("getsockname", real.getsockname);
  Find("getsockopt", real.getsockopt);
  Find("setsockopt", real.setsockopt);
  Find("send", real.send);
  Find("sendmsg", real.sendmsg);
  Find("shutdown", real.shutdown);
  Find("close", real.close);
  Find("getpid", real.getpid);
  return real;
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t RealNow(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

bool IsInside() { return VirtualWorld::is_inside(); }

// Locks are free in a world, unless their holder waits for something.
int Lock(pthread_mutex_t* mutex) {
  int error = pthread_mutex_trylock(mutex);
  while (error == EBUSY) {
    VirtualWorld::The()->Yield();
    error = pthread_mutex_trylock(mutex);
  }
  return error;
}

int WaitFor(pthread_cond_t* condition, pthread_mutex_t* mutex,
            int64_t until_ns) {
  pthread_mutex_unlock(mutex);
  const bool is_notified =
      VirtualWorld::The()->Wait(condition, until_ns, nullptr, 0);
  const int error = Lock(mutex);
  if (error != 0) return error;
  return is_notified ? 0 : ETIMEDOUT;
}

// Others have a turn even where a file is always ready.
int Poll(pollfd* files, nfds_t num_files, int64_t until_ns) {
  VirtualWorld& world = *VirtualWorld::The();
  world.Yield();
  for (;;) {
    const int ready = Real().poll(files, num_files, 0);
    if (ready != 0 || world.Now() >= until_ns) return ready;
    world.Wait(nullptr, until_ns, files, num_files);
  }
}

bool IsOurs(int fd) { return IsInside() && VirtualNetwork::The().Has(fd); }

void Touch(int fd) {
  if (IsInside()) VirtualNetwork::The().Touch(fd);
}

}  // namespace

const RealCalls& Real() {
  static const RealCalls real = FindAll();
  return real;
}

}  // namespace telegrad::testing

using telegrad::testing::IsInside;
using telegrad::testing::IsOurs;
using telegrad::testing::Real;
using telegrad::testing::VirtualNetwork;
using telegrad::testing::VirtualWorld;

std::chrono::steady_clock::time_point
std::chrono::steady_clock::now() noexcept {
  const int64_t now = IsInside() ? VirtualWorld::The()->Now()
                                 : telegrad::testing::RealNow(CLOCK_MONOTONIC);
  return time_point(std::chrono::nanoseconds(now));
}

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                   void* (*body)(void*), void* argument) noexcept {
  if (!IsInside()) return Real().create(thread, attributes, body, argument);
  return VirtualWorld::The()->StartThread(thread, attributes, body, argument);
}

int pthread_join(pthread_t thread, void** result) {
  if (IsInside()) VirtualWorld::The()->JoinThread(thread);
  return Real().join(thread, result);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return IsInside() ? telegrad::testing::Lock(mutex) : Real().lock(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!IsInside()) return Real().wait(condition, mutex);
  return telegrad::testing::WaitFor(condition, mutex, INT64_MAX);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  if (!IsInside()) return Real().timedwait(condition, mutex, until);
  const int64_t left = telegrad::testing::Nanoseconds(*until) -
                       telegrad::testing::RealNow(CLOCK_REALTIME);
  return telegrad::testing::WaitFor(condition, mutex,
                                    VirtualWorld::The()->Now() + left);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           clockid_t clock, const timespec* until) {
  if (!IsInside()) return Real().clockwait(condition, mutex, clock, until);
  return telegrad::testing::WaitFor(condition, mutex,
                                    telegrad::testing::Nanoseconds(*until));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (!IsInside()) return Real().signal(condition);
  VirtualWorld::The()->Notify(condition, /*all=*/false);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (!IsInside()) return Real().broadcast(condition);
  VirtualWorld::The()->Notify(condition, /*all=*/true);
  return 0;
}

int nanosleep(const timespec* time, timespec* left) {
  if (!IsInside()) return Real().nanosleep(time, left);
  VirtualWorld& world = *VirtualWorld::The();
  world.SleepUntil(world.Now() + telegrad::testing::Nanoseconds(*time));
  return 0;
}

int sched_yield() noexcept {
  if (IsInside()) VirtualWorld::The()->Yield();
  return 0;
}

int poll(pollfd* files, nfds_t num_files, int timeout_ms) {
  if (!IsInside()) return Real().poll(files, num_files, timeout_ms);
  const int64_t until =
      timeout_ms < 0 ? INT64_MAX
                     : VirtualWorld::The()->Now() + timeout_ms * 1'000'000LL;
  return telegrad::testing::Poll(files, num_files, until);
}

int ppoll(pollfd* files, nfds_t num_files, const timespec* timeout,
          const sigset_t* signals) {
  if (!IsInside()) return Real().ppoll(files, num_files, timeout, signals);
  const int64_t until = timeout == nullptr
                            ? INT64_MAX
                            : VirtualWorld::The()->Now() +
                                  telegrad::testing::Nanoseconds(*timeout);
  return telegrad::testing::Poll(files, num_files, until);
}

int socket(int domain, int type, int protocol) noexcept {
  const bool is_tcp = (domain == AF_INET || domain == AF_INET6) &&
                      (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;
  if (!IsInside() || !is_tcp) return Real().socket(domain, type, protocol);
  return VirtualNetwork::The().Socket(type, VirtualWorld::own_member());
}

int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  if (!IsOurs(fd)) return Real().bind(fd, address, length);
  return VirtualNetwork::The().Bind(fd, address);
}

int listen(int fd, int backlog) noexcept {
  if (!IsOurs(fd)) return Real().listen(fd, backlog);
  return VirtualNetwork::The().Listen(fd);
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (!IsOurs(fd)) return Real().accept4(fd, address, length, flags);
  const int accepted =
      VirtualNetwork::The().Accept(fd, flags, VirtualWorld::own_member());
  if (accepted >= 0 && address != nullptr) {
    VirtualNetwork::The().Name(accepted, address, length);
  }
  return accepted;
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  if (!IsOurs(fd)) return Real().connect(fd, address, length);
  return VirtualNetwork::The().Connect(fd, address);
}

int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (!IsOurs(fd)) return Real().getsockname(fd, address, length);
  return VirtualNetwork::The().Name(fd, address, length);
}

int getsockopt(int fd, int level, int option, void* value,
               socklen_t* length) noexcept {
  if (!IsOurs(fd) || level != IPPROTO_TCP || option != TCP_INFO) {
    return Real().getsockopt(fd, level, option, value, length);
  }
  return VirtualNetwork::The().Info(fd, value, *length,
                                    VirtualWorld::The()->Now());
}

int setsockopt(int fd, int level, int option, const void* value,
               socklen_t length) noexcept {
  if (IsOurs(fd)) return 0;
  return Real().setsockopt(fd, level, option, value, length);
}

ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  telegrad::testing::Touch(fd);
  return Real().send(fd, bytes, count, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  telegrad::testing::Touch(fd);
  return Real().sendmsg(fd, message, flags);
}

int shutdown(int fd, int how) noexcept {
  telegrad::testing::Touch(fd);
  return Real().shutdown(fd, how);
}

int close(int fd) {
  if (IsOurs(fd)) VirtualNetwork::The().Close(fd);
  return Real().close(fd);
}

// Each member is a process of its own.
pid_t getpid() noexcept {
  const int member = VirtualWorld::own_member();
  return member < 0 ? Real().getpid()
                    : telegrad::testing::kFirstProcess + member;
}

}  // extern "C"
