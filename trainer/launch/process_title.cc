#include "trainer/launch/process_title.h"

#include <bsd/unistd.h>
#include <unistd.h>

namespace telegrad {

void InitProcessTitle(int argc, char** argv) {
  setproctitle_init(argc, argv, environ);
}

void SetProcessTitle(const std::string& title) {
  setproctitle("-telegrad-train: %s", title.c_str());
}

}  // namespace telegrad
