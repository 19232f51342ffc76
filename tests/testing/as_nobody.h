#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace telegrad::testing {

constexpr uid_t kNobody = 65534;

// While it lives this thread alone, of root's, acts as nobody: sockets that it
// makes or accepts are nobody's.
class AsNobody {
 public:
  AsNobody() { Act(kNobody); }
  ~AsNobody() { Act(0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  static void Act(uid_t user) { syscall(SYS_setresuid, -1, user, -1); }
};

}  // namespace telegrad::testing
