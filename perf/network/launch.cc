#include "perf/network/launch.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "perf/network/commands.h"
#include "perf/network/processes.h"
#include "transport/placement.h"

namespace telegrad::perf {
namespace {

// To the `index`-th of the cores that this process may use, if there are
// enough.
void PinToCore(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
      CPU_COUNT(&allowed) <= index) {
    return;
  }
  int core = 0;
  for (int left = index; !CPU_ISSET(core, &allowed) || left-- > 0;) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)sched_setaffinity(0, sizeof(one), &one);
}

absl::Status RunThreads(const NetworkOptions& options, const RankBody& body) {
  auto meeting = LocalRendezvous(options.ranks);
  std::vector<absl::Status> results(meeting.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < meeting.size(); ++i) {
    threads.emplace_back([&, i] {
      const int rank = static_cast<int>(i);
      if (options.pins) PinToCore(rank);
      Rank self{.rank = rank,
                .world_size = options.ranks,
                .is_thread = true,
                .rendezvous = std::move(meeting[i])};
      results[i] = body(options, self);
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status worst;
  for (const absl::Status& result : results) {
    worst = MoreTelling(worst, result);
  }
  return worst;
}

absl::Status RunMember(const NetworkOptions& options, const RankBody& body) {
  Rank self{.rank = options.rank, .world_size = options.ranks};
  ASSIGN_OR_RETURN(
      self.rendezvous,
      JoinRendezvous(options.rendezvous, options.rank, options.ranks,
                     Clock::now() + TimeoutOf(options)));
  return body(options, self);
}

absl::Status RunRoot(const NetworkOptions& options, RendezvousRoot& root,
                     const RankBody& body) {
  Rank self{.rank = 0, .world_size = options.ranks};
  ASSIGN_OR_RETURN(
      self.rendezvous,
      root.Accept(options.ranks, Clock::now() + TimeoutOf(options)));
  return body(options, self);
}

absl::Status RunProcesses(const NetworkOptions& options,
                          const std::vector<std::string>& words,
                          const RankBody& body) {
  const std::string host = options.bind.empty() ? "127.0.0.1" : options.bind;
  ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousRoot> root,
                   RendezvousRoot::Listen(absl::StrCat(host, ":0")));
  Processes others;
  for (int rank = 1; rank < options.ranks; ++rank) {
    std::vector<std::string> theirs = words;
    theirs.push_back(absl::StrCat("--rank=", rank));
    theirs.push_back(absl::StrCat("--ranks=", options.ranks));
    theirs.push_back(absl::StrCat("--rendezvous=", root->address()));
    RETURN_IF_ERROR(others.Start(theirs));
  }
  if (options.pins) PinToCore(0);
  const absl::Status status = RunRoot(options, *root, body);
  // Where ours says as much it is the more precise; theirs is on standard
  // error.
  const absl::Status ended = others.AwaitAll(
      Clock::now() +
      (status.ok() ? TimeoutOf(options) : Duration(std::chrono::seconds(5))));
  return MoreTelling(status, ended);
}

// Under a launcher that gives no address: rank 0's is exchanged by PMIx.
absl::Status RunByPmix(NetworkOptions options, const RankBody& body) {
  const int timeout_s = std::max(1, static_cast<int>(options.timeout_s));
  const std::string host = options.bind.empty() ? "127.0.0.1" : options.bind;
  if (options.rank > 0) {
    ASSIGN_OR_RETURN(options.rendezvous,
                     ExchangeOverPmix(options.rank, "", timeout_s));
    return RunMember(options, body);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousRoot> root,
                   RendezvousRoot::Listen(absl::StrCat(host, ":0")));
  RETURN_IF_ERROR(ExchangeOverPmix(0, root->address(), timeout_s).status());
  return RunRoot(options, *root, body);
}

absl::Status RunPlaced(const NetworkOptions& options, const RankBody& body) {
  if (options.rank > 0) return RunMember(options, body);
  ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousRoot> root,
                   RendezvousRoot::Listen(options.rendezvous));
  return RunRoot(options, *root, body);
}

// The same command was given twice, here or on two hosts.
absl::Status RunOneOfTwo(NetworkOptions options, const RankBody& body) {
  if (options.ranks != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--rendezvous without --rank is for two ranks, not for ", options.ranks,
        ": give each process its --rank, or start them by mpirun or srun"));
  }
  const absl::StatusOr<std::unique_ptr<RendezvousRoot>> root =
      RendezvousRoot::ListenIfFirst(options.rendezvous);
  if (!root.ok()) {
    return WithExitCode(
        ExitCode::kUsage,
        absl::Status(root.status().code(),
                     absl::StrCat("--rendezvous ", options.rendezvous, ": ",
                                  root.status().message())));
  }
  options.rank = *root == nullptr ? 1 : 0;
  if (options.pins) PinToCore(options.rank);
  return *root == nullptr ? RunMember(options, body)
                          : RunRoot(options, **root, body);
}

}  // namespace

absl::Status RunRanks(NetworkOptions options,
                      const std::vector<std::string>& words,
                      const RankBody& body) {
  if (options.rank >= 0) {
    if (options.pins) PinToCore(options.rank);
    return RunPlaced(options, body);
  }
  if (options.transport == "inproc") return RunThreads(options, body);
  ASSIGN_OR_RETURN(const std::optional<Placement> placement,
                   PlacementOfLauncher());
  if (!placement.has_value() || placement->world_size < 1 ||
      placement->rank < 0) {
    return options.rendezvous.empty() || options.ranks < 2
               ? RunProcesses(options, words, body)
               : RunOneOfTwo(options, body);
  }
  options.rank = placement->rank;
  options.ranks = placement->world_size;
  if (options.pins) PinToCore(placement->local_rank);
  if (options.rendezvous.empty() && !placement->scheduler_host.empty()) {
    options.rendezvous =
        absl::StrCat(placement->scheduler_host, ":", placement->scheduler_port);
  }
  return options.rendezvous.empty() ? RunByPmix(options, body)
                                    : RunPlaced(options, body);
}

absl::Status Agree(const NetworkOptions& options, Rank& rank,
                   const std::string& mine) {
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      rank.rendezvous->Gather(mine, Clock::now() + TimeoutOf(options)));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == mine) continue;
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(absl::StrCat(
                            "rank ", rank.rank, " measures \"", mine,
                            "\", rank ", i, " \"", all[i], "\"")));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
