#include "kvstore/collective/rank_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad::collective {

std::vector<int> RankTable::TakeUnreached() {
  std::vector<int> unreached;
  for (int rank = 0; rank < rank_; ++rank) {
    Peer& peer = peers_[rank];
    const bool is_tried = peer.endpoint != 0 && peer.gone.ok();
    if (peer.has_greeted || is_tried) continue;
    peer.gone = absl::OkStatus();
    unreached.push_back(rank);
  }
  return unreached;
}

void RankTable::Add(int rank, EndpointId endpoint) {
  peers_[rank].endpoint = endpoint;
  rank_of_[endpoint] = rank;
}

absl::Status RankTable::Greet(EndpointId from, uint32_t rank) {
  if (rank >= peers_.size() || static_cast<int>(rank) == rank_) {
    return absl::InvalidArgumentError("hello of another group");
  }
  const auto named = static_cast<int>(rank);
  Peer& peer = peers_[named];
  const bool is_answer = named < rank_;
  if (peer.has_greeted || (is_answer && peer.endpoint != from) ||
      (!is_answer && rank_of_.contains(from))) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello of rank ", named, ", which is here already"));
  }
  peer.has_greeted = true;
  if (!is_answer) Add(named, from);
  return absl::OkStatus();
}

std::string RankTable::Missing() const {
  std::vector<size_t> missing;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (static_cast<int>(peer) != rank_ && !peers_[peer].has_greeted) {
      missing.push_back(peer);
    }
  }
  return absl::StrJoin(missing, ", ");
}

int RankTable::Find(EndpointId endpoint) const {
  const auto found = rank_of_.find(endpoint);
  return found == rank_of_.end() ? -1 : found->second;
}

std::vector<EndpointId> RankTable::open() const {
  std::vector<EndpointId> open;
  for (const auto& [endpoint, rank] : rank_of_) open.push_back(endpoint);
  return open;
}

int RankTable::Remove(EndpointId endpoint, const absl::Status& why) {
  const int rank = Find(endpoint);
  if (rank < 0) return rank;
  rank_of_.erase(endpoint);
  SetGone(rank, why.ok() ? absl::UnavailableError("closed") : why);
  return rank;
}

}  // namespace telegrad::collective
