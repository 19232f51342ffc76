#include "kvstore/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/endian.h"
#include "kvstore/trace_ring.h"
#include "tests/kvstore/cluster.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;
using testing::IsOk;
using testing::Soon;

TEST(Timeline, NotesNothingUntilItIsOn) {
  Timeline timeline;
  uint64_t left_out = 7;
  NoteSpan(&timeline, 0, 0, "encode", Clock::now());
  NoteSpan(nullptr, 0, 0, "encode", Clock::now());
  EXPECT_TRUE(timeline.Take(&left_out).empty());
  EXPECT_EQ(left_out, 0u);
  timeline.Switch(true);
  NoteSpan(&timeline, 3, 1, "encode", Clock::now());
  const auto spans = timeline.Take(&left_out);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].key, 3u);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_TRUE(timeline.Take(&left_out).empty());
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TraceRing, HoldsTheLastSpansWhileTheyAreNoted) {
  const std::string base = ::testing::TempDir() + "ring-worker3";
  const std::string path = base + ".last";
  auto ring = TraceRing::Make(path, 3, "worker3", {"a", "b\xff"}, 2);
  ASSERT_THAT(ring, IsOk());
  Timeline timeline;
  timeline.KeepLast(*std::move(ring));
  for (uint32_t chunk = 0; chunk < 3; ++chunk) {
    NoteSpan(&timeline, 1, chunk, "network and server and more of it",
             Clock::now());
  }
  uint64_t left_out = 0;
  EXPECT_TRUE(timeline.Take(&left_out).empty());  // it is not switched on
  const std::string text = ReadAll(path);         // as after kill -9
  EXPECT_EQ(text.substr(0, 16), "telegrad trace 1");
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  const auto begin = LoadLittleEndian<uint64_t>(bytes + 16);
  EXPECT_EQ(LoadLittleEndian<uint64_t>(bytes + 24), 2U);
  EXPECT_EQ(LoadLittleEndian<uint64_t>(bytes + 32), 3U);
  ASSERT_EQ(text.size(), begin + 2 * 48);
  const Json head = Json::parse(text.substr(40, begin - 40));
  EXPECT_EQ(head["process"], "worker3");
  EXPECT_EQ(head["names"].size(), 2U);
  for (const uint32_t chunk : {1U, 2U}) {
    const std::byte* at = bytes + begin + 48 * (chunk % 2);
    EXPECT_EQ(text.substr(begin + 48 * (chunk % 2), 24),
              "network and server and m");
    EXPECT_EQ(LoadLittleEndian<uint32_t>(at + 24), 1U);
    EXPECT_EQ(LoadLittleEndian<uint32_t>(at + 28), chunk);
    EXPECT_LE(LoadLittleEndian<int64_t>(at + 32),
              LoadLittleEndian<int64_t>(at + 40));
  }
  timeline.ForgetLast();
  EXPECT_FALSE(timeline.is_on());
  EXPECT_FALSE(std::ifstream(path).good());
}

TEST(TraceRing, ARunGoesOnWithoutWhereThereIsNoPlace) {
  EXPECT_THAT(TraceRing::Make("/none/such.last", 0, "worker0", {}),
              testing::StatusIs(absl::StatusCode::kNotFound, "/none/such"));
  Timeline timeline;
  KeepLastIn(timeline, "/none/such", 0, "worker0", {});
  EXPECT_FALSE(timeline.is_on());
}

TEST(Timeline, IsAChromeTraceWithARowForEachKeyAndChunk) {
  const TimePoint now = Clock::now();
  const std::vector<Timeline::Span> spans = {
      {.key = 1,
       .what = "push_pull",
       .begin = now,
       .end = now + FromSeconds(2)},
      {.key = 1, .chunk = 4, .what = "encode", .begin = now, .end = now},
      {.what = "wait", .begin = now, .end = now},
      {.key = 9, .chunk = 0, .what = "decode", .begin = now, .end = now}};
  const Json events =
      Json::parse(ChromeTrace(spans, 5, "worker5", {"a", "b\"\xff"}, 3));
  std::map<int, std::string> rows;
  std::vector<std::pair<std::string, int>> drawn;
  for (const Json& event : events) {
    EXPECT_EQ(event["pid"], 5);
    if (event["name"] == "thread_name") {
      rows[event["tid"]] = event["args"]["name"];
    } else if (event["ph"] == "X") {
      drawn.emplace_back(event["name"], event["tid"]);
    } else if (event["name"] == "process_name") {
      EXPECT_EQ(event["args"]["name"], "worker5");
    } else {
      EXPECT_EQ(event["args"]["labels"], "3 spans are left out");
    }
  }
  EXPECT_EQ(rows[0], "a");
  EXPECT_EQ(rows[2], "b\"\uFFFD, chunk 4");
  EXPECT_EQ(rows[3], "step");
  EXPECT_EQ(rows[4], "?, chunk 0");
  EXPECT_EQ(drawn,
            (std::vector<std::pair<std::string, int>>{
                {"push_pull", 1}, {"encode", 2}, {"wait", 3}, {"decode", 4}}));
}

TEST(Timeline, HasTheSameTimesInEachTrace) {
  const std::vector<Timeline::Span> spans = {{.what = "wait"}};
  const std::string first = ChromeTrace(spans, 0, "a", {}, 0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ChromeTrace(spans, 0, "a", {}, 0), first);
  }
}

// Every stage of every chunk of a store with servers, in its order.
TEST(Timeline, HasTheStagesOfAWorkersChunks) {
  Timeline timeline;
  testing::Cluster cluster({.workers = 1});
  cluster.StartServers();
  DistOptions options = cluster.Options();
  options.timeline = &timeline;
  CompressionConfig config;
  config.type = "2bit";
  testing::Worker worker(options, config);
  const std::vector<TensorSpec> tensors = {{"a", 64}};
  ASSERT_THAT(worker.Init(tensors, {}), IsOk());
  timeline.Switch(true);
  const Buffer memory(4 * 64);
  ASSERT_THAT(worker->PushPull(0, memory.view(), memory.view(), 0).Wait(Soon()),
              IsOk());
  worker->Close();
  uint64_t left_out = 0;
  std::map<uint32_t, std::map<std::string, Timeline::Span>> stages;
  for (const Timeline::Span& span : timeline.Take(&left_out)) {
    EXPECT_EQ(span.key, 0u);
    stages[span.chunk][span.what] = span;
  }
  ASSERT_EQ(stages.size(), 2u);
  for (auto& [chunk, spans] : stages) {
    for (const char* stage : {"agree on a scale", "queued", "encode", "send",
                              "network and server", "decode"}) {
      ASSERT_TRUE(spans.contains(stage)) << stage << " of chunk " << chunk;
    }
    EXPECT_LE(spans["queued"].end, spans["encode"].end);
    EXPECT_LE(spans["encode"].end, spans["network and server"].begin);
    EXPECT_LE(spans["network and server"].end, spans["decode"].begin);
  }
}

}  // namespace
}  // namespace telegrad
