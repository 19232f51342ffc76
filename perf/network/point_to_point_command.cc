#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "perf/network/command.h"
#include "perf/network/commands.h"
#include "perf/network/launch.h"
#include "perf/network/measurement.h"
#include "perf/network/patterns.h"
#include "perf/network/point_to_point.h"
#include "perf/network/report.h"

// latency, bandwidth, bibw and msgrate, as the OSU benchmarks define them.
namespace telegrad::perf {
namespace {

enum class Pattern { kPingPong, kWindow, kWindowBothWays };

struct Test {
  const char* name;
  const char* heading;
  const char* default_sizes;
  Pattern pattern;
  bool shows_rate;
};

constexpr Test kLatency = {"latency", "latency: half a round trip", "1:4M:x4",
                           Pattern::kPingPong, false};
constexpr Test kBandwidth = {"bandwidth",
                             "bandwidth: a window of messages, then an answer",
                             "1K:8M:x2", Pattern::kWindow, false};
constexpr Test kBothWays = {"bibw", "bibw: windows both ways at once",
                            "1K:8M:x2", Pattern::kWindowBothWays, false};
constexpr Test kRate = {"msgrate", "msgrate: small messages in a second", "8",
                        Pattern::kWindow, true};

struct Options {
  NetworkOptions network;
  int window = 64;
};

// One test on one rank.
class Player {
 public:
  Player(const Options& options, const Test& test, const Rank& rank,
         Endpoint& endpoint)
      : options_(options), test_(test), rank_(rank), endpoint_(endpoint) {}

  absl::StatusOr<NetworkRow> Measure(size_t bytes) {
    if (options_.network.checks) RETURN_IF_ERROR(Check(bytes));
    ASSIGN_OR_RETURN(Series series,
                     RunIterations(options_.network, rank_,
                                   [this, bytes] { return Play(bytes); }));
    const int sent = test_.pattern == Pattern::kPingPong ? 1 : options_.window;
    const bool sends = rank_.rank == 0 || test_.pattern != Pattern::kWindow;
    series.payload_bytes = static_cast<int64_t>(
        sends ? series.us.size() * static_cast<size_t>(sent) * bytes : 0);
    ASSIGN_OR_RETURN(const Result result, Combine(rank_, series));
    const int ways = test_.pattern == Pattern::kWindowBothWays ? 2 : 1;
    NetworkRow row{.what = test_.name,
                   .ranks = 2,
                   .size_bytes = bytes,
                   .bytes_moved = static_cast<double>(bytes) * sent * ways,
                   .messages = test_.shows_rate ? sent : 0,
                   .raw_bytes = result.payload_bytes,
                   .wire_bytes = result.payload_bytes + result.header_bytes,
                   .checked = options_.network.checks ? "values" : "no",
                   .result = result};
    if (sent > 1) row.settings = {{"window", int64_t{sent}}};
    if (options_.network.memory != "host") {
      row.settings.emplace_back("memory", options_.network.memory);
    }
    return row;
  }

 private:
  // Messages of other bytes each, to and fro.
  absl::Status Check(size_t bytes) {
    constexpr uint32_t kMessages = 16;
    const Buffer heard(bytes);
    for (uint32_t seed = 0; seed < kMessages; ++seed) {
      if (rank_.rank == 0) RETURN_IF_ERROR(SendAndWait(seed, bytes));
      RETURN_IF_ERROR(Hear(1));
      const uint32_t theirs = seed + (rank_.rank == 0 ? kMessages : 0);
      RETURN_IF_ERROR(endpoint_.in().Read(heard.view()));
      RETURN_IF_ERROR(VerifyBytes(rank_.rank, theirs, heard.view()));
      if (rank_.rank == 0) continue;
      RETURN_IF_ERROR(SendAndWait(seed + kMessages, bytes));
    }
    return absl::OkStatus();
  }

  // `out` may be written again.
  absl::Status SendAndWait(uint32_t seed, size_t bytes) {
    const Buffer message(bytes);
    FillBytes(seed, message.view());
    RETURN_IF_ERROR(endpoint_.out().Write(message.view()));
    RETURN_IF_ERROR(endpoint_.Send(bytes));
    return endpoint_.AwaitSends();
  }

  absl::Status Hear(int64_t messages) {
    num_due_ += messages;
    return endpoint_.DriveUntil(
        [&] { return endpoint_.num_heard() - heard_before_ >= num_due_; });
  }

  // Half of the way there and back. Whoever answers does not look at the clock,
  // which takes a fifth of a message through memory.
  absl::StatusOr<double> PingPong(size_t bytes) {
    if (rank_.rank == 1) {
      RETURN_IF_ERROR(Hear(1));
      RETURN_IF_ERROR(endpoint_.Send(bytes));
      return 0.0;
    }
    const TimePoint start = Clock::now();
    RETURN_IF_ERROR(endpoint_.Send(bytes));
    RETURN_IF_ERROR(Hear(1));
    return SecondsSince(start) * 1e6 / 2;
  }

  absl::StatusOr<double> Play(size_t bytes) {
    if (test_.pattern == Pattern::kPingPong) return PingPong(bytes);
    const TimePoint start = Clock::now();
    const bool both = test_.pattern == Pattern::kWindowBothWays;
    if (both || rank_.rank == 0) {
      for (int i = 0; i < options_.window; ++i) {
        RETURN_IF_ERROR(endpoint_.Send(bytes));
      }
    }
    if (both || rank_.rank == 1) {
      RETURN_IF_ERROR(Hear(options_.window));
      RETURN_IF_ERROR(endpoint_.Send(0));
    }
    if (both || rank_.rank == 0) RETURN_IF_ERROR(Hear(1));
    return both || rank_.rank == 0 ? SecondsSince(start) * 1e6 : 0.0;
  }

  const Options& options_;
  const Test& test_;
  const Rank& rank_;
  Endpoint& endpoint_;
  // What making the endpoint took does not count.
  const int64_t heard_before_ = endpoint_.num_heard();
  int64_t num_due_ = 0;
};

absl::Status RunTest(const Options& options, const Test& test,
                     WorkerGroup& group) {
  const NetworkOptions& network = options.network;
  size_t largest = 0;
  for (const size_t bytes : network.sizes) largest = std::max(largest, bytes);
  ASSIGN_OR_RETURN(const std::unique_ptr<Endpoint> endpoint,
                   Endpoint::Make(network, group, largest));
  // What was sent last goes on while the ranks meet: a large message needs its
  // sender until the other rank has it.
  Rank rank(group);
  rank.gather = [&endpoint, meet = rank.gather](const std::string& mine) {
    absl::StatusOr<std::vector<std::string>> all;
    endpoint->DriveDuring([&] { all = meet(mine); });
    return all;
  };
  Player player(options, test, rank, *endpoint);
  Report report(network, test.heading);
  for (const size_t bytes : network.sizes) {
    ASSIGN_OR_RETURN(const NetworkRow row, player.Measure(bytes));
    if (rank.rank == 0) report.Add(row, endpoint->info());
  }
  return rank.rank == 0 ? report.Finish() : absl::OkStatus();
}

absl::Status CheckOptions(const Options& options) {
  if (options.network.ranks != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks ", options.network.ranks, ": this test has 2 ranks"));
  }
  for (const size_t bytes : options.network.sizes) {
    if (bytes <= kMaxPayloadBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("--size ", bytes,
                                                   ": a message has at most ",
                                                   kMaxPayloadBytes, " bytes"));
  }
  return absl::OkStatus();
}

void Add(CLI::App& app, int& exit_code, const Test& test) {
  const auto options = std::make_shared<Options>();
  AddNetworkFlags(app, test.default_sizes, options->network);
  AddMemoryFlag(app, options->network);
  if (test.pattern != Pattern::kPingPong) {
    app.add_option("--window", options->window, "messages of one iteration")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
  }
  SetNetworkCallback(
      app, options->network, exit_code,
      [options, &test](const std::vector<std::string>& words) -> absl::Status {
        RETURN_IF_ERROR(FinishOptions(options->network));
        RETURN_IF_ERROR(CheckOptions(*options));
        return RunRanks(
            options->network, words,
            {.facts = {{"command", test.name},
                       {"--window", absl::StrCat(options->window)},
                       {"--memory", options->network.memory}},
             .work = [&](const NetworkOptions& network, WorkerGroup& group) {
               Options mine = *options;
               mine.network = network;
               return RunTest(mine, test, group);
             }});
      });
}

}  // namespace

void AddLatencyCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kLatency);
}
void AddBandwidthCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kBandwidth);
}
void AddBibwCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kBothWays);
}
void AddMsgrateCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kRate);
}

}  // namespace telegrad::perf
