#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>

// The C library's own functions, behind those of virtual_calls.cc.
namespace telegrad::testing {

struct RealCalls {
  decltype(&::pthread_create) create;
  decltype(&::pthread_join) join;
  decltype(&::pthread_mutex_lock) lock;
  decltype(&::pthread_cond_wait) wait;
  decltype(&::pthread_cond_timedwait) timedwait;
  decltype(&::pthread_cond_clockwait) clockwait;
  decltype(&::pthread_cond_signal) signal;
  decltype(&::pthread_cond_broadcast) broadcast;
  decltype(&::nanosleep) nanosleep;
  decltype(&::poll) poll;
  decltype(&::ppoll) ppoll;
  decltype(&::socket) socket;
  decltype(&::bind) bind;
  decltype(&::listen) listen;
  decltype(&::accept4) accept4;
  decltype(&::connect) connect;
  decltype(&::getsockname) getsockname;
  decltype(&::getsockopt) getsockopt;
  decltype(&::setsockopt) setsockopt;
  decltype(&::send) send;
  decltype(&::sendmsg) sendmsg;
  decltype(&::shutdown) shutdown;
  decltype(&::close) close;
  decltype(&::getpid) getpid;
};

const RealCalls& Real();

}  // namespace telegrad::testing
