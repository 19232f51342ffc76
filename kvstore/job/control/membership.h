#pragma once

#include <cstdint>
#include <string>
#include <utility>
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

// Facts on which all members must agree ("threshold" -> "0.5"), in order.
using Facts = std::vector<std::pair<std::string, std::string>>;

}  // namespace telegrad
