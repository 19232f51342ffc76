#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kvstore/job/flight/flight_recorder.h"

namespace telegrad {

// The recorders of a process's members of a job, and where they are written.
// Thread-safe; held by a shared_ptr.
class FlightLog : public std::enable_shared_from_this<FlightLog> {
 public:
  // Empty `folder`: written only where somebody names one.
  explicit FlightLog(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Replaces the recorder of the same member, whose store has ended.
  std::shared_ptr<FlightRecorder> Add(FlightRecorder::Setup setup);

  // A file for each member, FOLDER/worker_0; a folder that is absent is made.
  // Who has no recorder yet writes nothing. DeadlineExceeded after a second: a
  // file system may not answer, and is not waited for.
  absl::StatusOr<std::vector<std::string>> Write(
      const std::string& folder) const;

  // Files in its own folder when a job fails or an operation is late, and of
  // the dead, "worker/2@host:pid", what is known of them. What a message says
  // of it: "; flight records: FOLDER"; "" where there is no folder.
  std::string WriteAtEnd(std::span<const std::string> dead) const;
  // The first time that an operation is late or cancelled: the job goes on,
  // and may end without that anybody learns of it.
  void WriteOnce();

  // For who starts a job on this machine: takes away the records of an earlier
  // one, and says as WriteAtEnd where those are that members have written,
  // unless `message` does.
  void Forget() const;
  std::string MentionIn(absl::string_view message) const;

 private:
  using Files = std::vector<std::pair<std::string, std::string>>;
  static absl::StatusOr<std::vector<std::string>> WriteFiles(
      const std::string& folder, const Files& files);
  absl::StatusOr<std::vector<std::string>> WriteWithin(
      const std::string& folder, std::span<const std::string> dead) const;
  Files FilesOf(std::span<const std::string> dead) const;

  const std::string folder_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<FlightRecorder>> recorders_
      ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_written_{false};
  mutable Mutex writing_;
};

}  // namespace telegrad
