#pragma once

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/ps/wire/job_config.h"
#include "tests/kvstore/ps/raw_worker.h"

// A server and one honest worker, and somebody who sends frames by hand.
namespace telegrad::testing {

using ::testing::HasSubstr;

constexpr size_t kElems = 70;  // chunks of 64 and 6 elements
constexpr size_t kPushBytes = 16;

inline ClusterConfig TwoBitJob() {
  ClusterConfig config;
  config.servers = 2;
  config.tensors = {{"a", kElems}, {"b", 3}};
  config.chunk_elems = 64;
  config.compression.type = "2bit";
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
  config.has_values = false;
  config.secret = *Secret::Derive(std::string(32, 'k'), "local");
  return config;
}

// Worker 0 is honest, worker 1 is ours; key 0 lives on server 0.
class HostileWorker : public ::testing::Test {
 protected:
  void SetUp() override { Start(TwoBitJob()); }

  void Start(const ClusterConfig& config) {
    cluster_ = std::make_unique<Cluster>(config);
    cluster_->StartServers();
    auto honest = std::async(std::launch::async, [this] {
      store_.emplace(cluster_->MakeWorker(0));
      return cluster_->Init(*store_, cluster_->MakeValues(0));
    });
    Join(config);
    EXPECT_TRUE(raw_->Authenticate(config.secret, self_));
    EXPECT_THAT(control_->Gather("declared", "", Soon()), IsOk());
    if (config.has_values) TakeValues();
    EXPECT_THAT(control_->Gather("init", "", Soon()), IsOk());
    EXPECT_THAT(honest.get(), IsOk());
  }

  void Join(const ClusterConfig& config) {
    JobConfig job{.tensors = config.tensors,
                  .compression = config.compression,
                  .optimizer = config.optimizer,
                  .chunk_elems = config.chunk_elems,
                  .has_values = config.has_values,
                  .is_async = config.store == "dist_async",
                  .max_staleness = config.max_staleness};
    const DistOptions options = cluster_->Options();
    JoinRequest request = JoinRequestOf(options, Role::kWorker);
    request.wanted_rank = 1;
    request.on_fatal = nullptr;
    control_ = *telegrad::Job::Join(request);
    EXPECT_THAT(AgreeOnPath(*control_, options.path, options.secret, Soon()),
                IsOk());
    address_ = ReadAddresses(*control_, Soon())->at(0);
    EXPECT_THAT(control_->Gather("init 0", FactsText(MakeFacts(job)), Soon()),
                IsOk());
    self_ = {.node = {Role::kWorker, 1}, .epoch = control_->membership().epoch};
    while (silent_.size() < num_silent_) silent_.push_back(Connect());
    raw_ = Connect();
  }

  // What worker 0 gives of key 0.
  void TakeValues() {
    FrameHeader pull = Push();
    pull.type = FrameType::kPull;
    pull.flags = kFlagNextValue;
    for (pull.chunk = 0; pull.chunk < 2; ++pull.chunk) raw_->Send(pull, "");
    EXPECT_TRUE(raw_->Await(FrameType::kValue));
  }

  std::unique_ptr<RawConnection> Connect() {
    TransportOptions transport = cluster_->Options().path.transport;
    transport.key = cluster_->config().secret.ForConnections();
    return std::make_unique<RawConnection>(transport, address_);
  }

  // An honest push of worker 1 for key 0, chunk 0.
  FrameHeader Push() const {
    return {.type = FrameType::kPush,
            .epoch = self_.epoch,
            .source = 1,
            .contributors = 1,
            .codec = static_cast<uint8_t>(CodecId::kTwoBit),
            .codec_version = 1,
            .reply_format = 1};
  }

  Ticket HonestPush() {
    grad_ = Buffer(4 * kElems);
    out_ = Buffer(4 * kElems);
    std::fill_n(grad_.as<float>(), kElems, 1.0f);
    return (*store_)->PushPull(0, grad_.view(), out_.view(), 0);
  }

  // The job ends with this and says who did what.
  void ExpectFatal(ExitCode code, const std::string& word) {
    const auto events = cluster_->log().Await(1);
    ASSERT_TRUE(events.has_value());
    EXPECT_EQ(events->front().code, code) << events->front().message;
    EXPECT_THAT(events->front().message, HasSubstr("worker/1"));
    EXPECT_THAT(events->front().message, HasSubstr(word));
    EXPECT_EQ(ExitCodeOf(cluster_->ServerStatus(0)), code);
  }

  // The round ends as if nothing had happened.
  void ExpectUndisturbed(const Ticket& ticket) {
    FrameHeader push = Push();
    raw_->Send(push, std::string(kPushBytes, '\xff'));
    push.chunk = 1;
    raw_->Send(push, std::string("\xff\xf0\0\0", 4));
    EXPECT_THAT(ticket.Wait(Soon()), IsOk());
    for (size_t i = 0; i < kElems; ++i) EXPECT_EQ(out_.as<float>()[i], 1.0f);
    EXPECT_EQ(cluster_->log().size(), 0u);
  }

  size_t num_silent_ = 0;  // strangers that come before worker 1
  std::unique_ptr<Cluster> cluster_;
  std::optional<testing::Worker> store_;
  std::unique_ptr<telegrad::Job> control_;
  std::string address_;
  Identity self_;
  std::vector<std::unique_ptr<RawConnection>> silent_;
  std::unique_ptr<RawConnection> raw_;
  Buffer grad_;
  Buffer out_;
};

}  // namespace telegrad::testing
