#pragma once

#include <string>
#include <vector>

#include "kvstore/job/control/job.h"

namespace telegrad {

// The control plane of a job in which nobody hears of anything.
class QuietJob : public Job {
 public:
  explicit QuietJob(int workers) {
    for (int rank = 0; rank < workers; ++rank) {
      members_.workers.push_back({{Role::kWorker, rank}, "here", 7 + rank});
    }
    members_.servers.push_back({{Role::kServer, 0}, "here", 7});
    members_.self = {Role::kServer, 0};
  }
  void HasLeft(int rank) { left_.push_back(rank); }

  const Membership& membership() const override { return members_; }
  absl::StatusOr<std::vector<std::string>> Gather(absl::string_view,
                                                  absl::string_view,
                                                  TimePoint) override {
    return absl::UnimplementedError("a server gathers nothing");
  }
  absl::Status Post(absl::string_view, absl::string_view) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Read(absl::string_view, TimePoint) override {
    return absl::UnimplementedError("a server reads nothing");
  }
  void Fail(const FatalEvent&) override {}
  void SuspectPeer(NodeId, absl::string_view) override {}
  void SetStep(int64_t) override {}
  void SetNote(std::string) override {}
  std::vector<std::string> Notes() override { return {}; }
  void Leave() override {}
  std::vector<int> Left() override { return left_; }
  absl::Status WaitForEnd(TimePoint) override {
    return absl::DeadlineExceededError("");
  }

 private:
  Membership members_;
  std::vector<int> left_;
};

}  // namespace telegrad
