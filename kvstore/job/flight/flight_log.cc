#include "kvstore/job/flight/flight_log.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr char kMention[] = "; flight records: ";
constexpr auto kLongest = std::chrono::seconds(1);

// "worker_0": the rank at the end, as PyTorch's analysis wants it.
std::string FileOf(NodeId id) {
  return absl::StrCat(RoleName(id.role), "_", id.rank);
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end;
       !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename();
    if (name.starts_with("worker_") || name.starts_with("server_")) {
      files.push_back(file->path());
    }
  }
  return files;
}

// The rank in "worker/2@host:pid"; -1: it is no worker.
int WorkerIn(absl::string_view dead) {
  int rank = -1;
  if (!absl::ConsumePrefix(&dead, "worker/")) return -1;
  const absl::string_view digits =
      dead.substr(0, dead.find_first_not_of("0123456789"));
  return absl::SimpleAtoi(digits, &rank) ? rank : -1;
}

}  // namespace

void FlightLog::Forget() const {
  for (const std::string& file : FilesIn(folder_)) unlink(file.c_str());
}

std::string FlightLog::MentionIn(absl::string_view message) const {
  const bool is_said = absl::StrContains(message, kMention);
  return is_said || FilesIn(folder_).empty() ? ""
                                             : absl::StrCat(kMention, folder_);
}

std::shared_ptr<FlightRecorder> FlightLog::Add(FlightRecorder::Setup setup) {
  auto made = std::make_shared<FlightRecorder>(std::move(setup));
  MutexLock lock(&mutex_);
  recorders_[FileOf(made->setup().self)] = made;
  return made;
}

FlightLog::Files FlightLog::FilesOf(std::span<const std::string> dead) const {
  std::map<std::string, std::shared_ptr<FlightRecorder>> recorders;
  {
    MutexLock lock(&mutex_);
    recorders = recorders_;
  }
  Files files;
  for (const auto& [file, recorder] : recorders) {
    files.emplace_back(file, recorder->Dump());
  }
  for (const auto& [file, recorder] : recorders) {
    const FlightRecorder::Setup& setup = recorder->setup();
    std::vector<int> living = setup.ranks;
    std::vector<int> gone;
    for (const std::string& who : dead) {
      const int rank = WorkerIn(who);
      if (std::erase(living, rank) > 0) gone.push_back(rank);
    }
    // One of those that live tells of the dead.
    if (setup.self.role != Role::kWorker || living.empty() ||
        setup.self.rank != std::ranges::min(living)) {
      continue;
    }
    for (const int rank : gone) {
      files.emplace_back(FileOf({Role::kWorker, rank}), recorder->Dump(rank));
    }
  }
  return files;
}

absl::StatusOr<std::vector<std::string>> FlightLog::WriteFiles(
    const std::string& folder, const Files& files) {
  if (files.empty()) return std::vector<std::string>();
  RETURN_IF_ERROR(MakeFolder("flight recorder", folder));
  std::vector<std::string> paths;
  for (const auto& [name, content] : files) {
    paths.push_back(absl::StrCat(folder, "/", name));
    RETURN_IF_ERROR(WriteFileAtomically(paths.back(), content));
  }
  return paths;
}

// On a thread of its own, which nobody waits for when time is over.
absl::StatusOr<std::vector<std::string>> FlightLog::WriteWithin(
    const std::string& folder, std::span<const std::string> dead) const {
  using Result = absl::StatusOr<std::vector<std::string>>;
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> written = promise->get_future();
  try {
    std::thread([self = shared_from_this(), folder, promise,
                 files = FilesOf(dead)] {
      MutexLock lock(&self->writing_);
      promise->set_value(WriteFiles(folder, files));
    }).detach();
  } catch (const std::system_error& why) {
    return absl::ResourceExhaustedError(why.what());
  }
  if (written.wait_for(kLongest) == std::future_status::ready) {
    return written.get();
  }
  return absl::DeadlineExceededError(
      absl::StrCat(folder, " has not taken it within a second"));
}

absl::StatusOr<std::vector<std::string>> FlightLog::Write(
    const std::string& folder) const {
  return WriteWithin(folder, {});
}

void FlightLog::WriteOnce() {
  if (!has_written_.exchange(true)) WriteAtEnd({});
}

std::string FlightLog::WriteAtEnd(std::span<const std::string> dead) const {
  if (folder_.empty()) return "";
  const auto written = WriteWithin(folder_, dead);
  if (!written.ok()) {
    LogWarning("no flight record: ", written.status().message());
    return "";
  }
  return written->empty() ? "" : absl::StrCat(kMention, folder_);
}

}  // namespace telegrad
