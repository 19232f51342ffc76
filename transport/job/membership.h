#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/node.h"

namespace telegrad {

struct Member {
  NodeId id;
  std::string host;
  int pid = 0;
  std::string data_address;  // of its TransportContext; servers only
};

// What a member can use for its data, by the transports' names, best first.
struct TransportOffers {
  std::vector<std::string> names = {};      // none: it takes what others do
  std::vector<std::string> addresses = {};  // servers: of each, as data_address
  std::string why = {};  // of the first: "no card here does RDMA"
  // To each peer. Where they are open, the job takes what others were given,
  // else the most that one finds for itself, and why.
  size_t connections = 1;
  bool is_open = false;
  std::string connections_why = {};  // "bond0: a bond spreads by connection"
  // Open ones of servers: `addresses` take one connection, these several.
  std::vector<std::string> striped_addresses = {};
};

struct Membership {
  uint64_t epoch = 1;
  NodeId self;
  std::vector<Member> workers;  // by rank
  std::vector<Member> servers;
  std::string shared;  // what worker 0 gave as JoinRequest::shared
  // The first of worker 0's offers that all members have which offer any, and
  // who lacks a better one, if somebody does: "worker/1 on b cannot use ucx:
  // no card here does RDMA".
  std::string transport;
  std::string transport_reason;
  // To each peer, of all members that offer transports (0: nobody does), and
  // whose they are: "of worker/1 on b: bond0: ..."; empty: as was asked for.
  size_t connections = 0;
  std::string connections_reason;
};

}  // namespace telegrad
