// Jobs of many members on one machine, several of them in a process. `rounds`:
// workers push to servers and pull, and every sum must be exact. `scheduler`:
// this process is the scheduler alone, and another one holds all workers; its
// memory must stay below a limit. One JSON line; exits 1 when something failed.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/kvstore.h"
#include "kvstore/server.h"

namespace telegrad::testing {
namespace {

// Many threads share few cores: nobody is dead who is only slow.
constexpr ControlTiming kTiming = {.join = std::chrono::minutes(5),
                                   .heartbeat = std::chrono::seconds(1),
                                   .dead = std::chrono::minutes(1)};
constexpr int kGathers = 20;
constexpr size_t kGatherBytes = 64;

struct Settings {
  bool is_rounds = false;
  int workers = 0;
  int servers = 0;
  int processes = 1;
  int rounds = 20;
  double max_mib = 512;  // of the scheduler
  // Of a process with members.
  std::string scheduler = {};
  int part = -1;
};

DistOptions OptionsOf(const Settings& settings, int rank) {
  DistOptions options;
  options.scheduler_address = settings.scheduler;
  options.wanted_rank = rank;
  options.path.transport.name = "tcp";
  options.timing = kTiming;
  options.num_threads = 0;
  return options;
}

// Whole numbers, of which float32 has all sums.
float GradAt(int worker, int round, size_t i) {
  return static_cast<float>(worker + round) + static_cast<float>(i % 64);
}

absl::Status CheckSum(const Buffer& sum, size_t num_elems, int round,
                      int workers) {
  for (size_t i = 0; i < num_elems; ++i) {
    const float expected = static_cast<float>(workers) * GradAt(0, round, i) +
                           static_cast<float>(workers * (workers - 1) / 2);
    if (sum.as<float>()[i] == expected) continue;
    return absl::DataLossError(absl::StrCat("round ", round, ", element ", i,
                                            ": ", sum.as<float>()[i], "; ",
                                            expected, " is right"));
  }
  return absl::OkStatus();
}

absl::Status PushAndPull(const Settings& settings, int rank) {
  const DistOptions options = OptionsOf(settings, rank);
  ASSIGN_OR_RETURN(const auto group, JoinWorkers(options));
  ASSIGN_OR_RETURN(const auto store,
                   MakeKVStore("dist_sync", options, group.get()));
  // A part on each of 16 servers, and all on one.
  const std::vector<TensorSpec> tensors = {{"large", size_t{1} << 19},
                                           {"small", 1003}};
  RETURN_IF_ERROR(store->Init(tensors, {}).status());
  for (int round = 0; round < settings.rounds; ++round) {
    for (Key key = 0; key < tensors.size(); ++key) {
      const size_t n = tensors[key].num_elems;
      const Buffer grad(4 * n);
      for (size_t i = 0; i < n; ++i) {
        grad.as<float>()[i] = GradAt(rank, round, i);
      }
      RETURN_IF_ERROR(store->PushPull(key, grad.view(), grad.view(), 0)
                          .Wait(Clock::now() + std::chrono::minutes(5)));
      RETURN_IF_ERROR(CheckSum(grad, n, round, settings.workers));
    }
  }
  store->Close();
  return absl::OkStatus();
}

absl::Status Serve(const Settings& settings, int rank) {
  return RunServer({.job = OptionsOf(settings, rank), .num_threads = 0});
}

// What a worker asks of the scheduler, without a store.
absl::Status OnlyMeet(const Settings& settings, int rank) {
  JoinRequest request;
  request.scheduler_address = settings.scheduler;
  request.wanted_rank = rank;
  request.timing = kTiming;
  ASSIGN_OR_RETURN(const auto job, Job::Join(request));
  for (int i = 0; i < kGathers; ++i) {
    ASSIGN_OR_RETURN(
        const auto payloads,
        job->Gather(absl::StrCat("gather ", i),
                    std::string(kGatherBytes, static_cast<char>(rank)),
                    Clock::now() + std::chrono::minutes(5)));
    if (payloads.size() != static_cast<size_t>(settings.workers)) {
      return absl::InternalError("not everybody's payload");
    }
  }
  job->Leave();
  return absl::OkStatus();
}

// This process's members of `count`.
void StartMembers(const Settings& settings, int count,
                  absl::Status (*member)(const Settings&, int),
                  std::vector<absl::Status>& ends,
                  std::vector<std::thread>& threads) {
  for (int rank = settings.part; rank < count; rank += settings.processes) {
    threads.emplace_back([&settings, &end = ends[threads.size()], member,
                          rank] { end = member(settings, rank); });
  }
}

int RunMembers(const Settings& settings) {
  std::vector<absl::Status> ends(
      static_cast<size_t>(settings.workers + settings.servers));
  std::vector<std::thread> threads;
  StartMembers(settings, settings.servers, &Serve, ends, threads);
  StartMembers(settings, settings.workers,
               settings.is_rounds ? &PushAndPull : &OnlyMeet, ends, threads);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) {
    if (end.ok()) continue;
    std::fprintf(stderr, "%s\n", end.ToString().c_str());
    return 1;
  }
  return 0;
}

// Since this process began.
double PeakMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

pid_t StartPart(std::vector<std::string> words, const std::string& scheduler,
                int part) {
  words.insert(words.end(), {"--internal-scheduler", scheduler,
                             "--internal-part", absl::StrCat(part)});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  (void)posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(),
                    environ);
  return pid;
}

bool RunJob(const Settings& settings, const std::vector<std::string>& words) {
  SchedulerOptions options;
  options.num_workers = settings.workers;
  options.num_servers = settings.servers;
  options.timing = kTiming;
  auto scheduler = Scheduler::Start(options);
  if (!scheduler.ok()) {
    std::fprintf(stderr, "%s\n", scheduler.status().ToString().c_str());
    return false;
  }
  const TimePoint start = Clock::now();
  std::vector<pid_t> parts;
  for (int part = 0; part < settings.processes; ++part) {
    parts.push_back(StartPart(words, (*scheduler)->address(), part));
  }
  FatalEvent event;
  absl::Status end = (*scheduler)->Wait(&event);
  for (const pid_t pid : parts) {
    int code = -1;
    if (waitpid(pid, &code, 0) != pid || code != 0) {
      end.Update(absl::InternalError("a process with members failed"));
    }
  }
  if (end.ok() && PeakMib() > settings.max_mib) {
    end = absl::ResourceExhaustedError("too much memory");
  }
  std::printf(
      "{\"workers\":%d,\"servers\":%d,\"processes\":%d,\"rounds\":%d,"
      "\"seconds\":%.1f,\"scheduler_peak_mib\":%.1f,\"result\":\"%s\"}\n",
      settings.workers, settings.servers, settings.processes,
      settings.is_rounds ? settings.rounds : kGathers, SecondsSince(start),
      PeakMib(), end.ok() ? "good" : end.ToString().c_str());
  return end.ok();
}

// As many connections as the system allows.
void LiftDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Jobs of many members on one machine: see docs/benchmarks.md");
  app.require_subcommand(1);
  app.add_option("--internal-scheduler", settings.scheduler)->group("");
  app.add_option("--internal-part", settings.part)->group("");
  app.fallthrough();
  Settings rounds = {.is_rounds = true, .workers = 64, .servers = 16};
  rounds.processes = 8;
  CLI::App* const with_store =
      app.add_subcommand("rounds", "push, pull and compare every sum");
  const auto number = [](CLI::App* to, const char* name, int& value) {
    to->add_option(name, value)
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
  };
  number(with_store, "--workers", rounds.workers);
  number(with_store, "--servers", rounds.servers);
  number(with_store, "--processes", rounds.processes);
  number(with_store, "--rounds", rounds.rounds);
  Settings alone = {.workers = 1000};
  CLI::App* const without_store =
      app.add_subcommand("scheduler", "workers only join, gather and leave");
  number(without_store, "--workers", alone.workers);
  without_store
      ->add_option("--max-mib", alone.max_mib, "of the scheduler's process")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  LiftDescriptorLimit();
  Settings& chosen = with_store->parsed() ? rounds : alone;
  chosen.scheduler = settings.scheduler;
  chosen.part = settings.part;
  if (chosen.part >= 0) return RunMembers(chosen);
  return RunJob(chosen, {argv, argv + argc}) ? 0 : 1;
}

}  // namespace
}  // namespace telegrad::testing

int main(int argc, char** argv) { return telegrad::testing::Main(argc, argv); }
