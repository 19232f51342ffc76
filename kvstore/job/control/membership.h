#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/node.h"

namespace telegrad {

struct Member {
  NodeId id;
  std::string host;
  int pid = 0;
};

struct Membership {
  uint64_t epoch = 1;
  NodeId self;
  std::vector<Member> workers;  // by rank
  std::vector<Member> servers;
};

}  // namespace telegrad
