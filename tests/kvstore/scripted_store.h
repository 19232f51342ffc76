#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"

namespace telegrad::testing {

// Worker 0 of two. Answers Gather with what the test wants worker/1 to say, and
// MeasureLink with these figures in their order.
class ScriptedStore : public KVStore {
 public:
  explicit ScriptedStore(std::map<std::string, std::string> script,
                         std::deque<LinkFigures> links = {})
      : script_(std::move(script)), links_(std::move(links)) {}
  int rank() const override { return 0; }
  int num_workers() const override { return 2; }
  int num_servers() const override { return 2; }
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) override {
    const auto found = script_.find(std::string(name));
    const std::string mine(payload);
    return std::vector<std::string>{
        mine, found == script_.end() ? mine : found->second};
  }

  absl::Status SetCompression(const CompressionConfig&) override { return {}; }
  absl::Status SetOptimizer(const OptimizerConfig&) override { return {}; }
  absl::Status Init(std::span<const TensorSpec>,
                    std::span<const Bytes>) override {
    return {};
  }
  Ticket PushPull(Key, ConstBytes, Bytes, int) override { return {}; }
  Ticket Push(Key, ConstBytes, int) override { return {}; }
  Ticket Pull(Key, Bytes, int) override { return {}; }
  absl::Status SetCodec(Key, int) override { return {}; }
  absl::StatusOr<LinkFigures> MeasureLink(Duration) override {
    if (links_.empty()) return absl::UnimplementedError("no link");
    const LinkFigures next = links_.front();
    links_.pop_front();
    return next;
  }
  std::string link_identity() const override { return ""; }
  double link_load() const override { return 1; }
  PackingMode packing() const override { return PackingMode::kPlain; }
  absl::Status SetPacking(PackingMode) override { return {}; }
  Traffic traffic() const override { return {}; }
  std::vector<TensorReport> Report() const override { return {}; }
  ServerMachines server_machines() const override { return server_machines_; }
  void set_server_machines(ServerMachines machines) {
    server_machines_ = machines;
  }
  absl::StatusOr<std::vector<ServerAbout>> AskServers() override {
    return servers_;
  }
  void set_servers(std::vector<ServerAbout> servers) {
    servers_ = std::move(servers);
  }
  ConnectionChoice connection_choice() const override { return {}; }
  TransportChoice transport_choice() const override { return {"tcp", ""}; }
  std::string transport_details() const override { return ""; }
  void SetStep(int64_t) override {}
  void Fail(const absl::Status&) override {}
  void Close() override {}

 private:
  const std::map<std::string, std::string> script_;
  std::deque<LinkFigures> links_;
  ServerMachines server_machines_ = {.all = 1};
  std::vector<ServerAbout> servers_ = {};
};

}  // namespace telegrad::testing
