#pragma once

#include <map>
#include <string>
#include <vector>

#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/kvstore.h"

namespace telegrad::testing {

// Worker 0 of two, with two servers; worker/1 says what the test wants.
class ScriptedGroup : public WorkerGroup {
 public:
  explicit ScriptedGroup(std::map<std::string, std::string> script)
      : script_(std::move(script)) {
    membership_.workers.resize(2);
    membership_.servers.resize(2);
  }
  const Membership& membership() const override { return membership_; }
  const JobOptions& options() const override { return options_; }
  const DataPath& data_path() const override { return path_; }
  void set_rank(int rank) { membership_.self.rank = rank; }
  void set_membership(const Membership& membership) {
    membership_ = membership;
  }
  void set_data_path(const DataPath& path) { path_ = path; }
  // What the script has is said by all but this worker.
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) override {
    said_.append(payload.data(), payload.size());
    const auto found = script_.find(std::string(name));
    const std::string mine(payload);
    std::vector<std::string> all(membership_.workers.size(),
                                 found == script_.end() ? mine : found->second);
    all[static_cast<size_t>(rank())] = mine;
    return all;
  }
  void SuspectPeer(NodeId, absl::string_view) override {}
  void SetStep(int64_t) override {}
  void Fail(const absl::Status&) override {}
  void OnFailure(std::function<void(const absl::Status&)>) override {}
  void Leave() override {}
  const std::string& said() const { return said_; }

 private:
  std::string said_;
  const std::map<std::string, std::string> script_;
  const JobOptions options_ = {};
  Membership membership_ = {};
  DataPath path_ = {};
};

// Its store.
class ScriptedStore : public KVStore, private CodecControl {
 public:
  explicit ScriptedStore(std::map<std::string, std::string> script)
      : group_(std::move(script)) {}
  ScriptedGroup& scripted_group() { return group_; }

  const StoreTraits& traits() const override { return traits_; }
  WorkerGroup& group() override { return group_; }
  absl::Status SetCompression(const CompressionConfig&) override { return {}; }
  absl::Status SetOptimizer(const OptimizerConfig&) override { return {}; }
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec>,
                                        TensorViews) override {
    return std::vector<Key>();
  }
  Ticket PushPull(Key, TensorViews, TensorViews, int) override { return {}; }
  Ticket Push(Key, TensorViews, int) override { return {}; }
  Ticket Pull(Key, TensorViews, int) override { return {}; }
  Ticket Broadcast(Key, int, TensorViews, int) override { return {}; }
  CodecControl& codecs() override { return *this; }
  StoreStats stats() const override { return {}; }
  void Close() override {}

  absl::Status SetCodec(Key, int) override { return {}; }
  std::vector<TensorReport> Report() const override { return {}; }

 private:
  const StoreTraits traits_ = {"dist_sync", "scripted", true};
  ScriptedGroup group_;
};

}  // namespace telegrad::testing
