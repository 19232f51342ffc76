#include "perf/network/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/job/launch/child_processes.h"
#include "perf/network/commands.h"

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

// The processes that are started by no other.
int NumLeaders(const NetworkOptions& options) {
  return options.has_companions ? options.ranks / 2 : options.ranks;
}

// Before anything is measured; on rank 0, which writes it.
absl::Status CheckPage(const NetworkOptions& options) {
  if (options.html.empty()) return absl::OkStatus();
  const bool is_new = access(options.html.c_str(), F_OK) != 0;
  if (!std::ofstream(options.html, std::ios::app)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--html ", options.html, " cannot be written"));
  }
  if (is_new) (void)std::remove(options.html.c_str());
  return absl::OkStatus();
}

absl::Status RunThreads(const NetworkOptions& options, const RankBody& body) {
  RETURN_IF_ERROR(CheckPage(options));
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

// Of a rendezvous that cannot be: the flag is wrong, or a secret is missing.
ExitCode UsageUnless30(const absl::Status& status) {
  return ExitCodeOf(status) == ExitCode::kAuthentication
             ? ExitCode::kAuthentication
             : ExitCode::kUsage;
}

absl::StatusOr<Admission> AdmissionOf(const NetworkOptions& options) {
  Admission admission{.insecure = options.insecure};
  if (options.secret_file.empty()) return admission;
  ASSIGN_OR_RETURN(admission.secret,
                   Secret::FromFile(options.secret_file, "telegrad-perf"));
  return admission;
}

// Turns what --bind names into an address of this host.
absl::Status FindBind(NetworkOptions& options, const Placement* placement) {
  if (options.bind.empty()) return absl::OkStatus();
  Placement met = placement == nullptr ? Placement() : *placement;
  if (!options.rendezvous.empty()) {
    ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(options.rendezvous));
    met.scheduler_host = where.host;
  }
  const bool is_alone = placement == nullptr && options.rendezvous.empty();
  ASSIGN_OR_RETURN(options.bind,
                   BindAddress(options.bind, is_alone ? nullptr : &met));
  return absl::OkStatus();
}

// The ranks of one command that are processes.
class Launch {
 public:
  // `core`: the rank's among those of its host, for --pin.
  Launch(const NetworkOptions& options, const std::vector<std::string>& words,
         const RankBody& body, int core, Admission admission)
      : options_(options),
        words_(words),
        body_(body),
        core_(core),
        admission_(std::move(admission)) {}

  // All, as rank 0.
  absl::Status RunAll() {
    options_.rank = 0;
    ASSIGN_OR_RETURN(const auto root, Listen());
    for (int rank = 1; rank < NumLeaders(options_); ++rank) {
      RETURN_IF_ERROR(Start(rank, root->address()));
    }
    return RunRoot(*root);
  }

  // Under a launcher that gives no address: rank 0's is exchanged by PMIx.
  absl::Status RunByPmix() {
    const int timeout_s = std::max(1, static_cast<int>(options_.timeout_s));
    if (options_.rank > 0) {
      ASSIGN_OR_RETURN(options_.rendezvous,
                       ExchangeOverPmix(options_.rank, "", timeout_s));
      return RunMember();
    }
    ASSIGN_OR_RETURN(const auto root, Listen());
    RETURN_IF_ERROR(ExchangeOverPmix(0, root->address(), timeout_s).status());
    return RunRoot(*root);
  }

  // That of options.rank, which knows where to meet.
  absl::Status RunPlaced() {
    if (options_.rank > 0) return RunMember();
    ASSIGN_OR_RETURN(const auto root,
                     RendezvousRoot::Listen(options_.rendezvous, admission_));
    return RunRoot(*root);
  }

  // The same command was given twice, here or on two hosts.
  absl::Status RunOneOfTwo() {
    if (NumLeaders(options_) != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--rendezvous without --rank is for two processes, not for ",
          NumLeaders(options_),
          ": give each its --rank, or start them by mpirun or srun"));
    }
    const absl::StatusOr<std::unique_ptr<RendezvousRoot>> root =
        RendezvousRoot::ListenIfFirst(options_.rendezvous, admission_);
    if (!root.ok()) {
      return WithExitCode(
          UsageUnless30(root.status()),
          absl::Status(root.status().code(),
                       absl::StrCat("--rendezvous ", options_.rendezvous, ": ",
                                    root.status().message())));
    }
    options_.rank = *root == nullptr ? 1 : 0;
    core_ = options_.rank;
    return *root == nullptr ? RunMember() : RunRoot(**root);
  }

 private:
  absl::StatusOr<std::unique_ptr<RendezvousRoot>> Listen() const {
    const std::string host =
        options_.bind.empty() ? "127.0.0.1" : options_.bind;
    absl::StatusOr<std::unique_ptr<RendezvousRoot>> root =
        RendezvousRoot::Listen(FormatHostPort(host, 0), admission_);
    if (root.ok() || options_.bind.empty()) return root;
    return WithExitCode(
        UsageUnless30(root.status()),
        absl::Status(root.status().code(),
                     absl::StrCat("--bind ", options_.bind, ": ",
                                  root.status().message())));
  }

  absl::Status Start(int rank, const std::string& rendezvous) {
    std::vector<std::string> theirs = words_;
    theirs.push_back(absl::StrCat("--rank=", rank));
    theirs.push_back(absl::StrCat("--ranks=", options_.ranks));
    theirs.push_back(absl::StrCat("--rendezvous=", rendezvous));
    return others_.Start({Role::kWorker, rank},
                         [&theirs](int) { return theirs; });
  }
  absl::Status StartCompanion(const std::string& rendezvous) {
    const int num_leaders = NumLeaders(options_);
    if (num_leaders == options_.ranks || options_.rank >= num_leaders) {
      return absl::OkStatus();
    }
    return Start(options_.rank + num_leaders, rendezvous);
  }

  absl::Status RunMember() {
    RETURN_IF_ERROR(StartCompanion(options_.rendezvous));
    if (options_.pins) PinToCore(core_);
    Rank self{.rank = options_.rank, .world_size = options_.ranks};
    return Run(
        self, JoinRendezvous(options_.rendezvous, options_.rank, options_.ranks,
                             Clock::now() + TimeoutOf(options_), admission_));
  }

  absl::Status RunRoot(RendezvousRoot& root) {
    RETURN_IF_ERROR(CheckPage(options_));
    RETURN_IF_ERROR(StartCompanion(root.address()));
    if (options_.pins) PinToCore(core_);
    Rank self{.rank = 0, .world_size = options_.ranks};
    return Run(self,
               root.Accept(options_.ranks, Clock::now() + TimeoutOf(options_)));
  }

  absl::Status Run(Rank& self,
                   absl::StatusOr<std::unique_ptr<Rendezvous>> meeting) {
    absl::Status status = meeting.status();
    if (status.ok()) {
      self.rendezvous = *std::move(meeting);
      status = body_(options_, self);
    }
    // Where ours says as much it is the more precise; theirs is on standard
    // error.
    const absl::Status ended = others_.AwaitAll(
        Clock::now() + (status.ok() ? TimeoutOf(options_)
                                    : Duration(std::chrono::seconds(5))));
    return MoreTelling(status, ended);
  }

  NetworkOptions options_;
  const std::vector<std::string>& words_;
  const RankBody& body_;
  int core_;
  const Admission admission_;
  ChildProcesses others_;
};

}  // namespace

absl::Status RunRanks(NetworkOptions options,
                      const std::vector<std::string>& words,
                      const RankBody& body) {
  ASSIGN_OR_RETURN(const Admission admission, AdmissionOf(options));
  if (options.rank >= 0) {
    RETURN_IF_ERROR(FindBind(options, nullptr));
    return Launch(options, words, body, options.rank, admission).RunPlaced();
  }
  if (options.transport == "inproc") return RunThreads(options, body);
  ASSIGN_OR_RETURN(const std::optional<Placement> placement, LaunchedAs());
  if (!placement.has_value()) {
    RETURN_IF_ERROR(FindBind(options, nullptr));
    Launch launch(options, words, body, 0, admission);
    return options.rendezvous.empty() || options.ranks < 2
               ? launch.RunAll()
               : launch.RunOneOfTwo();
  }
  options.rank = placement->rank;
  options.ranks = placement->world_size * (options.has_companions ? 2 : 1);
  if (options.rendezvous.empty() && !placement->scheduler_host.empty()) {
    options.rendezvous =
        FormatHostPort(placement->scheduler_host, placement->scheduler_port);
  }
  RETURN_IF_ERROR(FindBind(options, &*placement));
  Launch launch(options, words, body, placement->local_rank, admission);
  return options.rendezvous.empty() ? launch.RunByPmix() : launch.RunPlaced();
}

absl::StatusOr<std::optional<Placement>> LaunchedAs() {
  absl::StatusOr<std::optional<Placement>> placement = PlacementOfLauncher();
  if (!placement.ok() || !placement->has_value()) return placement;
  const Placement& found = **placement;
  if (found.world_size < 1 || found.rank < 0) return std::nullopt;
  return placement;
}

absl::StatusOr<bool> StartsAll(const NetworkOptions& options) {
  if (options.transport == "inproc") return true;
  if (options.rank >= 0 || !options.rendezvous.empty()) return false;
  ASSIGN_OR_RETURN(const std::optional<Placement> placement, LaunchedAs());
  return !placement.has_value();
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
