#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad::collective {

// Which endpoint each other rank has, and whether it is gone. This rank
// connects to those below it; those above connect to it. One thread.
class RankTable {
 public:
  RankTable(int rank, int world_size)
      : rank_(rank), peers_(static_cast<size_t>(world_size)) {}

  // Ranks below to connect to: not yet tried, or gone before their hello, which
  // is forgotten.
  std::vector<int> TakeUnreached();
  // To a rank below.
  void Add(int rank, EndpointId endpoint);
  // A hello has come. InvalidArgument if none of that rank is due there.
  absl::Status Greet(EndpointId from, uint32_t rank);
  std::string Missing() const;  // no hello from them: "2, 3"

  bool has_greeted(int rank) const { return peers_[rank].has_greeted; }
  // -1: it belongs to none.
  int Find(EndpointId endpoint) const;
  EndpointId endpoint(int rank) const { return peers_[rank].endpoint; }
  std::vector<EndpointId> open() const;  // endpoints that were not removed

  // It has closed. The rank that it belonged to, or -1.
  int Remove(EndpointId endpoint, const absl::Status& why);
  void SetGone(int rank, const absl::Status& why) { peers_[rank].gone = why; }
  // Why nothing is sent there any more, else OK.
  const absl::Status& gone(int rank) const { return peers_[rank].gone; }

 private:
  struct Peer {
    EndpointId endpoint = 0;  // 0: not yet
    bool has_greeted = false;
    absl::Status gone = {};
  };

  const int rank_;
  std::vector<Peer> peers_;  // by rank
  std::unordered_map<EndpointId, int> rank_of_;
};

}  // namespace telegrad::collective
