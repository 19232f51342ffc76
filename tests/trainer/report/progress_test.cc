#include "trainer/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace telegrad {
namespace {

// What `use` makes a progress display write.
template <typename Use>
std::string WrittenBy(std::unique_ptr<Progress> (*make)(Output& to), Use use) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  {
    Output output(ends[1]);
    const auto progress = make(output);
    use(*progress);
    progress->Finish();
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got; (got = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  return text;
}

constexpr char kLabel[] = "2bit, seed 0";
const Progress::Part kPart = {.label = kLabel};
// With ten more behind it, and no silence before its first line.
const Progress::Part kFifth = {
    .label = "2bit", .number = 8, .count = 18, .silence_s = 0};

template <typename Use>
std::string Written(bool is_terminal, Use use) {
  return is_terminal
             ? WrittenBy(
                   [](Output& to) { return MakeProgress(to, true, kPart); },
                   use)
             : WrittenBy(
                   [](Output& to) { return MakeProgress(to, false, kPart); },
                   use);
}

TEST(Progress, JsonLinesAreObjects) {
  const std::string text = WrittenBy(
      [](Output& to) { return MakeJsonProgress(to, kPart); },
      [](Progress& progress) {
        progress.Update({.num_epochs = 2,
                         .batch = 50,
                         .num_batches = 100,
                         .samples_per_s = 1234.5,
                         .accuracy = 0.5});
        progress.Line("a \"quoted\" word\xff");
        progress.Update({.num_epochs = 2, .batch = 60, .num_batches = 100});
      });
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
    ASSERT_TRUE(lines.back().is_object()) << line;
    EXPECT_EQ(lines.back()["run"], kLabel);
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["event"], "progress");
  EXPECT_EQ(lines[0]["batches"], 100);
  EXPECT_EQ(lines[0]["samples_per_s"], 1234.5);
  EXPECT_TRUE(lines[0]["seconds_left"].is_null());
  EXPECT_EQ(lines[1]["event"], "message");
  EXPECT_EQ(lines[1]["text"], "a \"quoted\" word\uFFFD");
  EXPECT_TRUE(lines[2]["seconds_left"].is_number());
}

TEST(Progress, PlainLinesAreMxnets) {
  const std::string text = Written(false, [](Progress& progress) {
    progress.Update({.epoch = 0,
                     .num_epochs = 2,
                     .batch = 50,
                     .num_batches = 100,
                     .samples_per_s = 1234.56,
                     .accuracy = 0.912345});
    progress.Line("Epoch[0] Validation-accuracy=0.981200");
  });
  EXPECT_EQ(text,
            "2bit, seed 0  Epoch[0] Batch [50] Speed: 1234.56 samples/sec "
            "accuracy=0.912345\n"
            "2bit, seed 0  Epoch[0] Validation-accuracy=0.981200\n");
}

TEST(Progress, WhatIsBetweenTwoLinesIsForTheBarAlone) {
  const auto use = [](Progress& progress) {
    progress.Update({.num_epochs = 1,
                     .batch = 7,
                     .num_batches = 100,
                     .samples_per_s = 10,
                     .accuracy = -1,
                     .is_between = true,
                     .evaluated = 0.25});
  };
  EXPECT_EQ(Written(false, use), "");
  EXPECT_EQ(
      WrittenBy([](Output& to) { return MakeJsonProgress(to, kPart); }, use),
      "");
  const std::string bar = Written(true, use);
  EXPECT_NE(bar.find("batch 7/100 10 samples/s evaluating 25 %"),
            std::string::npos)
      << bar;
}

TEST(Progress, TheBarIsRedrawnAtMostTenTimesASecondAndEndsFull) {
  const std::string text = Written(true, [](Progress& progress) {
    for (int batch = 1; batch <= 500; ++batch) {
      progress.Update({.epoch = 0,
                       .num_epochs = 1,
                       .batch = batch,
                       .num_batches = 500,
                       .samples_per_s = 10,
                       .accuracy = 0.5});
    }
  });
  // 500 updates take far below 5 s; each redraw starts with a return.
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 50);
  // As wide as a terminal of 80 columns has room beside the rest.
  EXPECT_NE(text.find("2bit, seed 0  [=====] epoch 1/1 batch 500/500 10 "
                      "samples/s acc 0.5000 0:00 left"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.back(), '\n');
}

// Of a run of 1000 batches at its 500th.
Progress::State Halfway(bool is_between) {
  return {.num_epochs = 1,
          .batch = 500,
          .num_batches = 1000,
          .samples_per_s = 0.39,
          .accuracy = is_between ? -1 : 0.5,
          .is_between = is_between};
}

TEST(Progress, ALogHasAFirstLineSoonAndTheTimeThatAllRunsTake) {
  const std::string text =
      WrittenBy([](Output& to) { return MakeProgress(to, false, kFifth); },
                [](Progress& progress) {
                  progress.Update({.num_epochs = 1,
                                   .num_batches = 1000,
                                   .accuracy = -1,
                                   .is_between = true});
                  progress.Update(Halfway(true));
                  progress.Update(Halfway(true));
                  progress.Update(Halfway(false));
                });
  EXPECT_THAT(text, ::testing::MatchesRegex(
                        "2bit  Epoch.0. Batch .500. Speed: 0.39 samples/sec  "
                        "run 8 of 18, 0:0. left\n"
                        "2bit  Epoch.0. Batch .500. Speed: 0.39 samples/sec "
                        "accuracy=0.500000  run 8 of 18, 0:0. left\n"));
}

TEST(Progress, ABarHasTheNumberOfTheRunAndItsPlaceIsGivenUpFirst) {
  const auto use = [](Progress& progress) {
    progress.Update({.num_epochs = 1, .num_batches = 1000, .is_between = true});
    progress.Line("");  // so that the next is drawn at once
    progress.Update(Halfway(false));
  };
  const std::string bar =
      WrittenBy([](Output& to) { return MakeProgress(to, true, kFifth); }, use);
  EXPECT_NE(bar.find("8 of 18  2bit   epoch 1/1 batch 500/1000 0.39 samples/s "
                     "acc 0.5000 0:00 left"),
            std::string::npos)
      << bar;
}

TEST(Progress, JsonHasTheTimeOfThisRunAndOfAll) {
  const std::string text = WrittenBy(
      [](Output& to) { return MakeJsonProgress(to, kFifth); },
      [](Progress& progress) {
        progress.Update(
            {.num_epochs = 1, .num_batches = 1000, .is_between = true});
        progress.Update(Halfway(true));
      });
  const auto event = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(event.is_object()) << text;
  EXPECT_EQ(event["run_number"], 8);
  EXPECT_EQ(event["runs"], 18);
  EXPECT_TRUE(event["accuracy"].is_null());
  // Half a run, and then ten.
  const double left = event["seconds_left"];
  EXPECT_GT(double{event["seconds_left_all"]}, 20 * left);
}

}  // namespace
}  // namespace telegrad
