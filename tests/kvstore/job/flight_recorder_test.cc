#include "kvstore/job/flight/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/flight/pickle.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using Among = FlightRecorder::Among;

// Python's documentation of pickletools is the source. Other opcodes fail.
class Unpickler {
 public:
  explicit Unpickler(const std::string& text) : text_(text) {}
  Json Read() {
    EXPECT_EQ(text_.substr(0, 2), "\x80\x02");
    at_ = 2;
    while (at_ < text_.size() && text_[at_] != '.') Step(text_[at_++]);
    EXPECT_EQ(at_ + 1, text_.size());
    EXPECT_EQ(stack_.size(), 1u);
    return stack_.empty() ? Json() : stack_.back();
  }

 private:
  uint64_t Number(size_t num_bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < num_bytes; ++i) {
      value |= uint64_t{static_cast<uint8_t>(text_.at(at_++))} << (8 * i);
    }
    return value;
  }
  void Step(char opcode) {
    switch (opcode) {
      case 'N':
        return stack_.push_back(nullptr);
      case '\x88':
      case '\x89':
        return stack_.push_back(opcode == '\x88');
      case '\x8a': {
        const size_t num_bytes = Number(1);
        return stack_.push_back(static_cast<int64_t>(Number(num_bytes)));
      }
      case 'X': {
        const size_t size = Number(4);
        stack_.push_back(text_.substr(at_, size));
        at_ += size;
        return;
      }
      case 'r':
        memo_[Number(4)] = stack_.back();
        return;
      case 'j':
        return stack_.push_back(memo_.at(Number(4)));
      case ']':
        return stack_.push_back(Json::array());
      case '}':
        return stack_.push_back(Json::object());
      case '(':
        return marks_.push_back(stack_.size());
      case 'e':
      case 'u':
        return Fill(opcode == 'u');
      default:
        ADD_FAILURE() << "opcode " << static_cast<int>(opcode);
        at_ = text_.size();
    }
  }
  void Fill(bool is_dict) {
    const size_t mark = marks_.back();
    marks_.pop_back();
    Json& into = stack_.at(mark - 1);
    for (size_t i = mark; i < stack_.size(); i += is_dict ? 2 : 1) {
      if (is_dict) {
        into[stack_[i].get<std::string>()] = stack_.at(i + 1);
      } else {
        into.push_back(stack_[i]);
      }
    }
    stack_.resize(mark);
  }

  const std::string text_;
  size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, Json> memo_;
};

Json Read(const std::string& pickle) { return Unpickler(pickle).Read(); }

FlightRecorder::Setup Of(NodeId self, size_t servers = 2) {
  return {.self = self,
          .type = "dist_sync",
          .ranks = {0, 1, 2},
          .num_pushers = 3,
          .num_servers = servers,
          .timeout = std::chrono::seconds(300)};
}

FlightRecorder::Frame Push(uint64_t step, bool is_sent = true) {
  return {.what = "push", .step = step, .num_bytes = 8, .is_sent = is_sent};
}

void Round(FlightRecorder& recorder, uint64_t step, bool ends = true) {
  recorder.Begin({.what = "push-pull",
                  .among = Among::kRound,
                  .step = step,
                  .num_elems = 33});
  recorder.Note(1, Push(step));
  if (ends) recorder.Note(1, {.what = "reply", .step = step});
  if (ends) recorder.End(0);
}

TEST(Pickle, HasAllIntegersAndRefersToTextsThatComeAgain) {
  Pickle to;
  to.List([&] {
    to.Int(INT64_MIN).Int(-1).Int(0).Int(INT64_MAX).Bool(true).None();
    to.Text("a\xff").Text("b").Text("a\xff").Text("");
  });
  EXPECT_EQ(
      Read(std::move(to).Finish()),
      Json({INT64_MIN, -1, 0, INT64_MAX, true, nullptr, "a?", "b", "a?", ""}));
}

TEST(FlightRecorder, SaysWhatAnOperationWasAndHowFarItCame) {
  FlightRecorder recorder(Of({Role::kWorker, 2}));
  recorder.SetName(0, "fc1.weight");
  Round(recorder, 11);
  Round(recorder, 12, /*ends=*/false);
  const Json dump = Read(recorder.Dump());
  EXPECT_EQ(dump["version"], "2.10");
  EXPECT_EQ(dump["pg_config"]["rounds"], Json({{"name", "rounds"},
                                               {"desc", "dist_sync"},
                                               {"ranks", "[0, 1, 2]"}}));
  ASSERT_EQ(dump["entries"].size(), 2u);
  const Json& first = dump["entries"][0];
  const Json& last = dump["entries"][1];
  EXPECT_EQ(first["state"], "completed");
  EXPECT_LE(first["time_created_ns"], first["time_discovered_started_ns"]);
  EXPECT_LE(first["time_discovered_started_ns"],
            first["time_discovered_completed_ns"]);
  EXPECT_EQ(last["state"], "started");
  EXPECT_EQ(last["time_discovered_completed_ns"], nullptr);
  EXPECT_EQ(last["collective_seq_id"], 120000000);
  EXPECT_EQ(last["record_id"], 1);
  EXPECT_EQ(last["profiling_name"], "nccl:all_reduce");
  EXPECT_EQ(last["process_group"], Json({"rounds", "dist_sync"}));
  EXPECT_EQ(last["input_sizes"], Json({{33}}));
  EXPECT_EQ(last["frames"][0]["name"], "push-pull of fc1.weight");
  EXPECT_EQ(last["frames"][0]["line"], 12);
  ASSERT_EQ(dump["waiting"].size(), 1u);
  EXPECT_EQ(dump["waiting"][0]["tensor"], "fc1.weight");
  EXPECT_EQ(dump["waiting"][0]["waits_for"], Json({"server/1"}));
}

TEST(FlightRecorder, KeepsTheLastOperationsAndFrames) {
  FlightRecorder recorder(Of({Role::kWorker, 0}));
  recorder.SetName(0, "a");
  for (uint64_t step = 0; step < 5000; ++step) Round(recorder, step);
  const Json dump = Read(recorder.Dump());
  ASSERT_EQ(dump["entries"].size(), FlightRecorder::kMostOps);
  EXPECT_EQ(dump["entries"][0]["record_id"], 904);
  EXPECT_EQ(dump["entries"].back()["record_id"], 4999);
  const Json& frames = dump["frames"]["server/1"];
  ASSERT_EQ(frames.size(), FlightRecorder::kMostFrames);
  EXPECT_EQ(frames.back()[5], 4999);
  EXPECT_EQ(frames[0][5], 5000 - 2048);
  EXPECT_FALSE(dump["frames"].contains("server/0"));
}

TEST(FlightRecorder, KnowsOfAServerWhosePushIsMissing) {
  FlightRecorder recorder(Of({Role::kServer, 0}));
  recorder.SetName(0, "fc1.weight");
  for (const size_t worker : {0, 1, 2}) recorder.Note(worker, Push(4, false));
  recorder.Note(0, {.what = "reply", .step = 4, .is_sent = true});
  EXPECT_THAT(Read(recorder.Dump())["waiting"], IsEmpty());
  recorder.Note(0, Push(5, false));
  recorder.Note(2, Push(5, false));
  const Json dump = Read(recorder.Dump());
  ASSERT_EQ(dump["waiting"].size(), 1u);
  EXPECT_EQ(dump["waiting"][0]["tensor"], "fc1.weight");
  EXPECT_EQ(dump["waiting"][0]["step"], 5);
  EXPECT_EQ(dump["waiting"][0]["has"], Json({"worker/0", "worker/2"}));
  EXPECT_EQ(dump["waiting"][0]["waits_for"], Json({"worker/1"}));
  EXPECT_THAT(dump["entries"], IsEmpty());
}

TEST(FlightRecorder, TellsOfADeadWorkerTheRoundsThatHaveEnded) {
  FlightRecorder recorder(Of({Role::kWorker, 0}));
  recorder.SetName(0, "a");
  Round(recorder, 0);
  Round(recorder, 1, /*ends=*/false);
  const Json dump = Read(recorder.Dump(2));
  EXPECT_EQ(dump["self"], "worker/2");
  EXPECT_EQ(dump["written_by"], "worker/0");
  ASSERT_EQ(dump["entries"].size(), 1u);
  EXPECT_EQ(dump["entries"][0]["step"], 0);
  EXPECT_EQ(dump["pg_config"]["alone"]["ranks"], "[2]");
}

TEST(FlightRecorder, IsReadWhileManyWrite) {
  FlightRecorder recorder(Of({Role::kWorker, 0}));
  for (uint32_t key = 0; key < 3; ++key) recorder.SetName(key, "a");
  std::vector<std::thread> writers;
  for (uint32_t key = 0; key < 3; ++key) {
    writers.emplace_back([&recorder, key] {
      for (uint64_t step = 0; step < 1500; ++step) {
        recorder.Begin({.what = "push", .key = key, .step = step});
        recorder.Note(key % 2, {.what = "push", .step = step, .key = key});
        recorder.Note(99, Push(step));  // nobody
        recorder.End(key);
      }
    });
  }
  for (int i = 0; i < 3; ++i) recorder.Dump();
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Read(recorder.Dump())["entries"].size(), FlightRecorder::kMostOps);
}

TEST(FlightLog, HasAFileForEachMemberAndForTheDead) {
  const std::string folder = std::filesystem::path(::testing::TempDir()) /
                             absl::StrCat("flight-", ::getpid());
  const auto log = std::make_shared<FlightLog>(folder);
  EXPECT_EQ(log->WriteAtEnd({}), "");  // nobody is there yet
  log->Add(Of({Role::kWorker, 1}));
  log->Add(Of({Role::kServer, 0}));
  const auto written = log->Write(folder + "/asked");
  ASSERT_THAT(written, testing::IsOk());
  EXPECT_THAT(*written, ElementsAre(folder + "/asked/server_0",
                                    folder + "/asked/worker_1"));
  EXPECT_EQ(log->MentionIn(""), "");
  const std::vector<std::string> dead = {"worker/0@host:17", "server/1"};
  EXPECT_EQ(log->WriteAtEnd(dead), absl::StrCat("; flight records: ", folder));
  std::stringstream text;
  text << std::ifstream(folder + "/worker_0").rdbuf();
  EXPECT_EQ(Read(text.str())["written_by"], "worker/1");
  EXPECT_FALSE(std::filesystem::exists(folder + "/server_1"));
  EXPECT_EQ(log->MentionIn("it died"),
            absl::StrCat("; flight records: ", folder));
  EXPECT_EQ(log->MentionIn("it died; flight records: x"), "");
  log->Forget();
  EXPECT_FALSE(std::filesystem::exists(folder + "/worker_0"));
  std::filesystem::remove_all(folder);
}

TEST(FlightLog, GoesOnWhereNothingCanBeWritten) {
  const auto log = std::make_shared<FlightLog>("/proc/none");
  log->Add(Of({Role::kWorker, 0}));
  EXPECT_EQ(log->WriteAtEnd({}), "");
  const auto written = log->Write("/proc/none");
  EXPECT_THAT(written.status().message(), HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace telegrad
