#include "kvstore/collective/split.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad::collective {
namespace {

absl::Status CheckRanks(std::span<const int> ranks, int world_size) {
  std::vector<bool> is_there(static_cast<size_t>(world_size));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size || is_there[rank]) {
      return absl::InvalidArgumentError(
          absl::StrCat("split: ranks ", absl::StrJoin(ranks, ", "), " of ",
                       world_size, ": each from 0 on, once"));
    }
    is_there[rank] = true;
  }
  if (!ranks.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("split: no ranks");
}

absl::Status SendAndTake(Mesh& mesh, const std::string& mine,
                         std::vector<std::string>* all) {
  const int n = mesh.world_size();
  all->resize(static_cast<size_t>(n));
  (*all)[mesh.rank()] = mine;
  for (int distance = 1; distance < n; ++distance) {
    RETURN_IF_ERROR(mesh.SendEager((mesh.rank() + distance) % n, 0,
                                   {mine.data(), mine.size()}));
  }
  for (int distance = 1; distance < n; ++distance) {
    const int from = (mesh.rank() - distance + n) % n;
    ASSIGN_OR_RETURN(Piece came, mesh.TakeNext(from));
    (*all)[from].assign(reinterpret_cast<const char*>(came.payload.data()),
                        came.bytes);
    mesh.pool().Put(std::move(came.payload));
  }
  return mesh.End();
}

// What each rank says, by rank; all have the same list.
absl::StatusOr<std::vector<std::string>> Exchange(Mesh& mesh,
                                                  std::span<const int> ranks,
                                                  const std::string& mine) {
  const Mesh::Turn turn(mesh);
  std::vector<std::string> all;
  absl::Status status =
      mesh.Begin({.operation = Operation::kSplit,
                  .count = ranks.size(),
                  .layout = Crc32c(ranks.data(), ranks.size_bytes()) | 1});
  if (status.ok()) status = SendAndTake(mesh, mine, &all);
  if (status.ok()) return all;
  return mesh.Fail(status);
}

}  // namespace

// A rank that cannot make the group says nothing instead of an address.
absl::StatusOr<std::unique_ptr<Group>> Split(Mesh& mesh,
                                             std::span<const int> ranks) {
  RETURN_IF_ERROR(CheckRanks(ranks, mesh.world_size()));
  const auto self = std::find(ranks.begin(), ranks.end(), mesh.rank());
  if (self == ranks.end()) {
    RETURN_IF_ERROR(Exchange(mesh, ranks, "").status());
    return nullptr;
  }
  GroupOptions options = mesh.options();
  options.rank = static_cast<int>(self - ranks.begin());
  options.world_size = static_cast<int>(ranks.size());
  options.hosts.clear();
  options.sums.clear();  // which are those of all ranks
  for (const int rank : ranks) {
    if (mesh.options().hosts.empty()) break;
    options.hosts.push_back(mesh.options().hosts[rank]);
  }
  bool has_said = false;
  absl::StatusOr<std::unique_ptr<Group>> group =
      Group::Make(options,
                  [&](const std::string& mine,
                      TimePoint) -> absl::StatusOr<std::vector<std::string>> {
                    has_said = true;
                    ASSIGN_OR_RETURN(std::vector<std::string> all,
                                     Exchange(mesh, ranks, mine));
                    std::vector<std::string> theirs;
                    for (const int rank : ranks) {
                      if (all[rank].empty()) {
                        return absl::UnavailableError(absl::StrCat(
                            "split: rank ", rank, " has no group"));
                      }
                      theirs.push_back(std::move(all[rank]));
                    }
                    return theirs;
                  });
  if (!has_said) RETURN_IF_ERROR(Exchange(mesh, ranks, "").status());
  // Who is connected may do something else, and others would wait for it.
  if (group.ok()) RETURN_IF_ERROR((*group)->Barrier());
  return group;
}

}  // namespace telegrad::collective
