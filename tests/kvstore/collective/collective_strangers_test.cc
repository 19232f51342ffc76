#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "kvstore/collective/message.h"
#include "tests/kvstore/collective/collective_ranks.h"

// Who is no rank of a group, at its listeners.
namespace telegrad::testing {
namespace {

// What stands at a group's listener and is no rank of it.
class Stranger : public TransportHandler {
 public:
  void OnAccept(EndpointId) override {}
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
    return Bytes();
  }
  void OnMessage(EndpointId, ConstBytes, Bytes) override {}
  void OnClosed(EndpointId, const absl::Status&) override { ++num_closed; }
  int num_closed = 0;
};

TEST(CollectiveStrangers, StrangersDisturbNobody) {
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = InprocOptions(2);
      options.rank = rank;
      Stranger stranger;
      const auto context = *MakeTransport(options.transport, &stranger);
      const auto made = Group::Make(options, [&](const std::string& mine,
                                                 TimePoint deadline) {
        auto texts = meeting.ExchangeOf(rank)(mine, deadline);
        const std::string& first = (*texts)[0];
        const auto to = context->Connect(first.substr(first.find('\n') + 1));
        EXPECT_THAT(context->Send(*to, {"hello", 5}, {}, nullptr), IsOk());
        return texts;
      });
      ASSERT_THAT(made, IsOk());
      ASSERT_THAT((*made)->Barrier(), IsOk());
      ASSERT_THAT((*made)->Barrier(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The hello has nothing secret but what the key proves: a stranger that knows
// all of it is no rank.
TEST(CollectiveStrangers, WhoHasNoKeyIsNoRank) {
  class Listener : public TransportHandler {
   public:
    void OnAccept(EndpointId) override {}
    absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
      has_heard = true;
      return Bytes();
    }
    void OnMessage(EndpointId, ConstBytes, Bytes) override {}
    void OnClosed(EndpointId, const absl::Status&) override { is_cut = true; }
    bool has_heard = false, is_cut = false;
  };
  GroupOptions options = InprocOptions(2);
  options.transport.name = "tcp";
  options.transport.key = MakeConnectionKey("the job's");
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions mine = options;
      mine.rank = rank;
      Listener stranger;
      TransportOptions bare = options.transport;
      bare.key = nullptr;
      const auto context = *MakeTransport(bare, &stranger);
      const auto made =
          Group::Make(mine, [&](const std::string& text, TimePoint deadline) {
            auto texts = meeting.ExchangeOf(rank)(text, deadline);
            if (rank == 0 || !texts.ok()) return texts;
            const std::string all = absl::StrJoin(*texts, "\n");
            const auto hello = collective::Encode(
                {.rank = 1,
                 .sequence = uint64_t{Crc32c(all.data(), all.size())} << 32 |
                             Crc32c(all.data(), all.size(), 1)});
            const std::string& first = (*texts)[0];
            const auto to =
                context->Connect(first.substr(first.find('\n') + 1));
            EXPECT_THAT(
                context->Send(*to, {hello.data(), hello.size()}, {}, nullptr),
                IsOk());
            while (!stranger.is_cut && !stranger.has_heard &&
                   Clock::now() < deadline) {
              context->Progress(Clock::now() + std::chrono::milliseconds(10));
            }
            return texts;
          });
      EXPECT_FALSE(stranger.has_heard);
      ASSERT_THAT(made, IsOk());
      EXPECT_THAT((*made)->Barrier(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank that had no place among strangers tries again.
TEST(CollectiveStrangers, IdleStrangersKeepNoRankOut) {
  Meeting meeting(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = InprocOptions(2);
      options.rank = rank;
      Stranger stranger;
      const auto idle = *MakeTransport(options.transport, &stranger);
      const auto made = Group::Make(
          options, [&](const std::string& mine, TimePoint deadline) {
            auto texts = meeting.ExchangeOf(rank)(mine, deadline);
            for (int i = 0; rank == 1 && i < 200; ++i) {
              const std::string& first = (*texts)[0];
              EXPECT_THAT(idle->Connect(first.substr(first.find('\n') + 1)),
                          IsOk());
            }
            return texts;
          });
      ASSERT_THAT(made, IsOk());
      EXPECT_THAT((*made)->Barrier(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace telegrad::testing
