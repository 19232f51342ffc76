// Connections of which it is known after a while whether they are in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/multirail_parts.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/multirail/multirail_transport.h"
#include "transport/forwarding.h"
#include "transport/inproc/inproc_transport.h"

namespace telegrad::testing {
namespace {

using multirail::kPartBytes;

// As with ucx, what is sent waits until then.
class Settling : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler,
      Settling** made) {
    auto context = std::make_unique<Settling>(handler);
    RETURN_IF_ERROR(context->MakeInner(MakeInprocTransport, options));
    *made = context.get();
    return context;
  }
  explicit Settling(TransportHandler* handler) : ForwardingContext(handler) {}

  // In the order of connecting, or of being accepted.
  void Settle(size_t index, bool is_in_memory) {
    const EndpointId id = connections_.at(index);
    is_in_memory_[id] = is_in_memory;
    for (const auto& send : waiting_[id]) send();
    waiting_.erase(id);
  }
  size_t num_connections() const { return connections_.size(); }

  bool IsInMemory(EndpointId id) const override {
    const auto found = is_in_memory_.find(id);
    return found != is_in_memory_.end() && found->second;
  }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override {
    ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
    connections_.push_back(id);
    return id;
  }
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    if (is_in_memory_.count(to) > 0) {
      return inner().Send(to, header, payload, std::move(done));
    }
    const std::string text(reinterpret_cast<const char*>(header.data),
                           header.size);
    waiting_[to].push_back([this, to, text, payload, done] {
      Pass(to, {text.data(), text.size()}, payload, done);
    });
    return absl::OkStatus();
  }

 private:
  void OnAccept(EndpointId id) override {
    connections_.push_back(id);
    ForwardingContext::OnAccept(id);
  }

  std::vector<EndpointId> connections_;
  std::map<EndpointId, bool> is_in_memory_;
  std::map<EndpointId, std::vector<std::function<void()>>> waiting_;
};

// Two connections of a striped context to one that takes and sends each part
// by itself.
class MultiRailInMemory : public ::testing::Test {
 protected:
  MultiRailInMemory()
      : striped_(
            MultiRailOptions(2),
            [this](const TransportOptions& options, TransportHandler* handler) {
              return MakeMultiRailTransport(
                  [this](const TransportOptions& inner_options,
                         TransportHandler* inner_handler) {
                    return Settling::Make(inner_options, inner_handler,
                                          &settling_);
                  },
                  options, handler);
            }),
        bare_(BareOptions()) {}

  bool DriveBoth(const std::function<bool()>& condition) {
    return Drive({&striped_, &bare_}, condition);
  }
  bool IsInMemory(EndpointId to) const {
    return striped_.context->IsInMemory(to);
  }
  // Sends a large message; how many connections had parts of it.
  size_t NumUsed(EndpointId to) {
    const size_t before = bare_.heard.size();
    EXPECT_THAT(striped_.Send(to, "the first"), IsOk());
    EXPECT_TRUE(DriveBoth([&] { return bare_.heard.size() == before + 1; }));
    EXPECT_THAT(bare_.Send(bare_.heard.back().from, AckText({1, 512})), IsOk());
    EXPECT_TRUE(
        DriveBoth([&] { return bare_.num_completed == bare_.results.size(); }));
    EXPECT_THAT(striped_.Send(to, "large", Pattern(8 * kPartBytes)), IsOk());
    EXPECT_TRUE(DriveBoth([&] { return bare_.heard.size() == before + 9; }));
    std::set<EndpointId> used;
    for (size_t i = before + 1; i < bare_.heard.size(); ++i) {
      used.insert(bare_.heard[i].from);
    }
    return used.size();
  }

  Settling* settling_ = nullptr;
  Node striped_, bare_;
};

// Connects from the striped side.
class MultiRailInMemoryBySecond : public MultiRailInMemory,
                                  public ::testing::WithParamInterface<bool> {};

TEST_P(MultiRailInMemoryBySecond, StaysThereAndUsesNoneOverANetwork) {
  const auto to = telegrad::testing::Connect(striped_, bare_);
  ASSERT_THAT(to, IsOk());
  EXPECT_FALSE(IsInMemory(*to));
  settling_->Settle(0, true);
  ASSERT_TRUE(DriveBoth([&] { return bare_.heard.size() == 1; }));
  EXPECT_TRUE(IsInMemory(*to));
  settling_->Settle(1, GetParam());
  ASSERT_TRUE(DriveBoth([&] { return bare_.heard.size() == 2; }));
  EXPECT_TRUE(IsInMemory(*to));
  EXPECT_EQ(NumUsed(*to), GetParam() ? 2u : 1u);
  EXPECT_TRUE(IsInMemory(*to));
}

TEST_P(MultiRailInMemoryBySecond, UsesAllWhereTheFirstIsOverANetwork) {
  const auto to = telegrad::testing::Connect(striped_, bare_);
  ASSERT_THAT(to, IsOk());
  settling_->Settle(1, GetParam());
  ASSERT_TRUE(DriveBoth([&] { return bare_.heard.size() == 1; }));
  EXPECT_FALSE(IsInMemory(*to));  // the first may have taken messages
  settling_->Settle(0, false);
  ASSERT_TRUE(DriveBoth([&] { return bare_.heard.size() == 2; }));
  EXPECT_FALSE(IsInMemory(*to));
  EXPECT_EQ(NumUsed(*to), 2u);
  EXPECT_FALSE(IsInMemory(*to));
}

INSTANTIATE_TEST_SUITE_P(InMemory, MultiRailInMemoryBySecond,
                         ::testing::Bool());

TEST_F(MultiRailInMemory, AcceptedConnectionsStayThereToo) {
  const auto address = striped_.context->Listen();
  ASSERT_THAT(address, IsOk());
  for (const uint64_t group : {7, 8}) {
    const bool is_first_in_memory = group == 7;
    const size_t before = settling_->num_connections();
    std::vector<EndpointId> connections;
    for (size_t i = 0; i < 2; ++i) {
      connections.push_back(*bare_.context->Connect(*address));
      ASSERT_TRUE(DriveBoth(
          [&] { return settling_->num_connections() == before + i + 1; }));
      settling_->Settle(before + i, is_first_in_memory == (i == 0));
      ASSERT_THAT(bare_.Send(connections[i], HelloText({i, 2, group})), IsOk());
      ASSERT_TRUE(DriveBoth(
          [&] { return bare_.num_completed == bare_.results.size(); }));
      while (striped_.context->Progress(Clock::now())) {
      }
      EXPECT_EQ(IsInMemory(striped_.accepted.back()), is_first_in_memory);
    }
    EXPECT_EQ(NumUsed(striped_.accepted.back()), is_first_in_memory ? 1u : 2u);
  }
  EXPECT_EQ(striped_.accepted.size(), 2u);
}

}  // namespace
}  // namespace telegrad::testing
