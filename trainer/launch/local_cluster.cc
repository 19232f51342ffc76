#include "trainer/launch/local_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

// After the first process ended badly the others end by themselves; who has not
// by then (it was stopped, say) is killed.
constexpr Duration kTeardownGrace = std::chrono::seconds(3);

// A member that is killed again and again will be.
constexpr size_t kMostReplacements = 100;

}  // namespace

LocalCluster::LocalCluster(const TrainOptions& options, const ComparedRun& run,
                           char** argv)
    : options_(options),
      run_(run),
      argv_(argv),
      job_id_(absl::StrCat("local-", getpid(), "-", run.setting_index, "-",
                           run.seed)) {}

void LocalCluster::Start(TrainObserver* observer) {
  observer_ = observer;
  meet_deadline_ = Clock::now() + FromSeconds(options_.join_timeout_s);
  // A store of one process has nobody to meet.
  if (options_.servers == 0 && !options_.hosts_parts) return SpawnMembers();
  if (!Spawn({Role::kScheduler, 0})) Stop();
}

void LocalCluster::SpawnMembers() {
  is_meeting_ = false;
  for (int rank = 0; rank < options_.servers; ++rank) {
    if (!Spawn({Role::kServer, rank})) return Stop();
  }
  for (int rank = 0; rank < options_.workers; ++rank) {
    if (!Spawn({Role::kWorker, rank})) return Stop();
  }
}

bool LocalCluster::Spawn(NodeId id) {
  start_ = children_.Start(
      id, [this, id](int report_fd) { return WordsOf(id, report_fd); });
  if (!start_.ok()) return false;
  // Rank 0 reports, whoever that is in time.
  const bool is_reporter =
      id.role == Role::kWorker && (id.rank == 0 || options_.elastic.min > 0);
  readers_.push_back(
      std::make_unique<ReportReader>(is_reporter ? observer_ : nullptr));
  return true;
}

// In the child: the same program with a title for ps and what it shall be.
std::vector<std::string> LocalCluster::WordsOf(NodeId id, int report_fd) const {
  signal(SIGINT, SIG_IGN);   // the launcher decides
  signal(SIGUSR1, SIG_IGN);  // until it is held
  fcntl(report_fd, F_SETFD, 0);
  // One thread per worker: workers share the cores.
  setenv("OMP_NUM_THREADS", "1", 0);
  std::string title = absl::StrCat("telegrad-train: ", RoleName(id.role));
  if (id.role != Role::kScheduler) absl::StrAppend(&title, " ", id.rank);
  std::vector<std::string> words = {title};
  for (char** word = argv_ + 1; *word != nullptr; ++word) {
    words.emplace_back(*word);
  }
  for (const std::string& word :
       {absl::StrCat("--internal-role=", RoleName(id.role)),
        absl::StrCat("--internal-rank=", id.rank),
        absl::StrCat("--internal-scheduler=",
                     scheduler_address_.empty() ? "none" : scheduler_address_),
        absl::StrCat("--internal-setting=", run_.setting_index),
        absl::StrCat("--internal-seed=", run_.seed),
        absl::StrCat("--internal-report-fd=", report_fd),
        absl::StrCat("--internal-job=", job_id_)}) {
    words.push_back(word);
  }
  return words;
}

// One worker asks the others.
void LocalCluster::AskForCheckpoint() const {
  for (const ChildProcesses::Child& child : children_.all()) {
    if (child.id.role != Role::kWorker || child.has_ended) continue;
    kill(child.pid, SIGUSR1);
    return;
  }
}

void LocalCluster::AskForFlightRecords() const {
  for (const ChildProcesses::Child& child : children_.all()) {
    if (!child.has_ended) kill(child.pid, SIGUSR2);
  }
}

void LocalCluster::AppendTo(std::vector<pollfd>& fds) const {
  for (const ChildProcesses::Child& child : children_.all()) {
    fds.push_back({child.reports.get(), POLLIN, 0});
  }
}

void LocalCluster::Handle(std::span<const pollfd> fds) {
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents != 0 && !ReadReport(i)) children_.CloseReports(i);
  }
  Reap();
  if (has_failed()) EndTheDead();
  if (is_meeting_) {
    scheduler_address_ = readers_[0]->address();
    if (!scheduler_address_.empty()) {
      SpawnMembers();
    } else if (has_failed() || Clock::now() > meet_deadline_) {
      Stop();
    }
  } else if (has_failed() && Clock::now() - failed_at_ > kTeardownGrace) {
    Stop();
  } else if (ended_at_ != TimePoint() &&
             Clock::now() - ended_at_ > kTeardownGrace) {
    children_.KillAll();  // stopped, and the others went on without them
  }
}

bool LocalCluster::ReadReport(size_t index) {
  char bytes[65536];
  const ssize_t count =
      read(children_.all()[index].reports.get(), bytes, sizeof(bytes));
  if (count > 0) readers_[index]->Feed({bytes, static_cast<size_t>(count)});
  return count > 0 || (count < 0 && errno == EINTR);
}

void LocalCluster::Reap() {
  children_.Reap();
  const size_t count = readers_.size();  // Replace starts others
  for (size_t i = 0; i < count; ++i) {
    const ChildProcesses::Child& child = children_.all()[i];
    if (!child.has_ended) continue;
    while (child.reports.is_open() && ReadReport(i)) {
    }
    children_.CloseReports(i);
    const bool is_scheduler = child.id.role == Role::kScheduler;
    const bool is_elastic = options_.elastic.min > 0;
    if (child.Result().ok()) {
      if (is_scheduler && is_elastic && ended_at_ == TimePoint()) {
        ended_at_ = Clock::now();
      }
    } else if (!has_failed() && (is_scheduler || !is_elastic)) {
      failed_at_ = Clock::now();
    } else if (options_.elastic.max > 0) {
      Replace(i);
    }
  }
}

void LocalCluster::Replace(size_t index) {
  const ChildProcesses::Child& child = children_.all()[index];
  const bool may_come =
      child.was_killed() || ExitCodeOf(child.Result()) == ExitCode::kFenced;
  if (!may_come || has_failed() || ended_at_ != TimePoint() ||
      replaced_.size() == kMostReplacements ||
      !replaced_.insert(index).second) {
    return;
  }
  const NodeId id = child.id;
  if (!Spawn(id)) start_ = absl::OkStatus();  // the others go on
}

// Who was declared dead and only stands still does not end by itself.
void LocalCluster::EndTheDead() const {
  for (const auto& reader : readers_) {
    if (!reader->fatal().has_value()) continue;
    for (const ChildProcesses::Child& child : children_.all()) {
      const std::string pid = absl::StrCat(":", child.pid);
      const bool is_dead = std::ranges::any_of(
          reader->fatal()->dead, [&](const std::string& name) {
            return name.ends_with(pid) || name == ToString(child.id);
          });
      if (is_dead && !child.has_ended) kill(child.pid, SIGKILL);
    }
  }
}

void LocalCluster::Stop() {
  is_meeting_ = false;
  children_.KillAll();
  if (!has_failed()) failed_at_ = Clock::now();
}

// What survivors said, the scheduler first; else how the first one ended. Who
// has no memory for a word of its own is a dead peer to them.
FatalEvent LocalCluster::Verdict() const {
  FatalEvent event{.code = ExitCodeOf(start_)};
  event.message = std::string(start_.message());
  if (!start_.ok()) return event;
  event.code = ExitCode::kInternal;
  event.message = absl::StrCat("run '", run_.label, "' ended early");
  absl::Status worst;
  for (const ChildProcesses::Child& child : children_.all()) {
    const absl::Status result = child.Result();
    if (ExitCodeOf(result) == ExitCode::kResourceLimit) {
      event.code = ExitCode::kResourceLimit;
      event.message = std::string(result.message());
    }
    worst = MoreTelling(worst, result);
    if (!child.was_killed()) continue;
    event.dead.push_back(absl::StrCat(ToString(child.id), ":", child.pid));
  }
  const bool lacks_memory = event.code == ExitCode::kResourceLimit;
  for (const auto& reader : readers_) {
    const std::optional<FatalEvent>& fatal = reader->fatal();
    if (!fatal.has_value() || fatal->code == ExitCode::kFenced) continue;
    if (!lacks_memory || fatal->code == event.code) return *fatal;
  }
  if (lacks_memory) return event;
  if (!worst.ok()) event.code = ExitCodeOf(worst);
  return event;
}

int64_t LocalCluster::PeakMemory(Role role) const {
  int64_t peak = 0;
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (children_.all()[i].id.role == role) {
      peak = std::max(peak, readers_[i]->peak_memory_bytes());
    }
  }
  return peak;
}

}  // namespace telegrad
