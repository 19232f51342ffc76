#pragma once

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/socket.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/record.h"

namespace telegrad {

// joining -> joined -> closed. Closed for one of three reasons: it left
// (Leave), the job ended (END), or it failed (`failure_`).
class JobClient : public Job {
 public:
  explicit JobClient(const JoinRequest& request);
  ~JobClient() override;

  absl::Status AwaitJoin();

  const Membership& membership() const override { return membership_; }
  absl::StatusOr<std::vector<std::string>> Gather(absl::string_view name,
                                                  absl::string_view payload,
                                                  TimePoint deadline) override;
  absl::Status Post(absl::string_view name, absl::string_view payload) override;
  absl::StatusOr<std::string> Read(absl::string_view name,
                                   TimePoint deadline) override;
  void Fail(const FatalEvent& event) override;
  void SuspectPeer(NodeId peer, absl::string_view why) override;
  void SetStep(int64_t step) override { step_ = step; }
  void SetNote(std::string note) override;
  std::vector<std::string> Notes() override;
  void Leave() override;
  std::vector<int> Left() override;
  int Newcomers() override { return newcomers_; }
  absl::Status WaitForEnd(TimePoint deadline) override;

 private:
  // A Gather or Read under way.
  struct Exchange {
    std::string name;
    std::vector<std::string> payloads;
    std::vector<bool> has_come;  // by rank
    size_t num_received = 0;     // payloads that came, each counted once
    bool is_withdrawn = false;
    std::optional<std::vector<std::string>> missing;  // answers that
  };

  void Queue(const Record& record);
  // Gathers `size` payloads, which `question` brings; one call at a time.
  absl::StatusOr<std::vector<std::string>> GatherBy(const Record& question,
                                                    const std::string& name,
                                                    size_t size,
                                                    TimePoint deadline);
  absl::Status BeginGather(const std::string& name, size_t size);
  Exchange EndGather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ClosedStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // On thread_.
  void Run();
  void Serve(FrameConnection& connection);
  void SendPosted(FrameConnection& connection);
  void PollOnce(FrameConnection& connection);
  absl::Status ReadRecords(FrameConnection& connection);
  absl::Status OnRecord(const Record& record);
  absl::Status OnStart(const StartRecord& record);
  absl::Status OnGathered(const GatheredRecord& record);
  void JudgeScheduler(TimePoint now);
  void LoseScheduler(absl::string_view why,
                     ExitCode code = ExitCode::kSchedulerLost);
  void Close(absl::Status join_status, const FatalEvent* failure);

  const JoinRequest request_;
  Membership membership_;  // constant once joined
  std::vector<std::string>
      beside_scheduler_;  // members in its process; as well
  std::atomic<int64_t> step_{0};
  std::atomic<int> newcomers_{0};
  std::atomic<bool> is_stopping_{false};
  WakeEvent wake_;

  // Only thread_ uses these.
  int rank_ = -1;
  TimePoint last_heard_;
  TimePoint last_turn_;
  TimePoint next_beat_;
  TimePoint start_by_;
  bool has_word_ = false;  // on_wait was told why this one is not in

  Mutex mutex_;
  CondVar changed_;
  bool is_joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status join_status_ ABSL_GUARDED_BY(mutex_);
  std::optional<FatalEvent> failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<Exchange> gather_ ABSL_GUARDED_BY(mutex_);
  // Names of those before it whose MISSING is still to come.
  std::multiset<std::string> owed_ ABSL_GUARDED_BY(mutex_);
  std::optional<FatalEvent> own_failure_ ABSL_GUARDED_BY(mutex_);
  TimePoint own_failure_at_ ABSL_GUARDED_BY(mutex_);
  std::vector<Frame> posted_ ABSL_GUARDED_BY(mutex_);
  std::string note_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> left_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  int64_t cancel_id_ = 0;
};

}  // namespace telegrad
