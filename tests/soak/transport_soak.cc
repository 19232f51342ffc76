// Hours of a transport's life in minutes: connections that come and go, peers
// that are killed, mixed sizes under faults. Afterwards this process must have
// the descriptors, threads and memory that it had after warming up, and every
// message and sum must have been as it should. One JSON line per phase; exits 1
// when something grew, was wrong or did not happen.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "tests/soak/side.h"
#include "tests/soak/sums.h"

namespace telegrad::testing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{256} << 10;
constexpr char kFaults[] =
    "drop=0.02,duplicate=0.02,reorder=0.02,flip=0.02,delay=0.005,delay_ms=1,";
constexpr char kKills[] = "kill=0.002,";

struct Settings {
  TransportOptions transport;
  int cycles = 2000;
  double fault_minutes = 0;
  bool resends = true;  // what faults have done
  uint64_t seed = 1;
  double max_growth_mib = 16;
  std::string peer;  // the program that is killed
};

struct Usage {
  long descriptors = 0;
  long threads = 0;
  double mib = 0;
};

long CountEntries(const char* directory) {
  return std::distance(fs::directory_iterator(directory),
                       fs::directory_iterator());
}

Usage UsageNow() {
  Usage usage;
  usage.descriptors = CountEntries("/proc/self/fd");
  usage.threads = CountEntries("/proc/self/task");
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  usage.mib = resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  return usage;
}

// Small ones are as frequent as large ones.
size_t RandomSize(Random& random) {
  const size_t limit = size_t{1} << random.NextBelow(19);
  return random.NextBelow(std::min(limit, kMaxBytes) + 1);
}

absl::Status Stuck(const char* what) {
  return absl::DeadlineExceededError(what);
}

// Two contexts that stay; connections that come and go.
class ConnectPhase {
 public:
  explicit ConnectPhase(const Settings& settings)
      : random_(settings.seed),
        server_(settings.transport),
        client_(settings.transport) {}

  absl::Status Start() {
    RETURN_IF_ERROR(server_.status);
    RETURN_IF_ERROR(client_.status);
    ASSIGN_OR_RETURN(address_, server_.context->Listen());
    return absl::OkStatus();
  }

  absl::Status Step() {
    const EndpointId endpoint = client_.Connect(address_);
    const uint64_t heard = server_.num_heard, accepted = server_.num_accepted;
    const uint64_t closed = server_.num_closed;
    const uint64_t messages = random_.NextBelow(4);
    for (uint64_t i = 0; i < messages; ++i) {
      client_.Send(endpoint, RandomSize(random_));
    }
    if (!Drive([&] {
          return server_.num_heard == heard + messages &&
                 server_.num_accepted > accepted;
        })) {
      return Stuck("messages of a new connection");
    }
    if (random_.NextBelow(2) == 0) {
      client_.context->Close(endpoint);
    } else {
      server_.context->Close(server_.last_accepted);
    }
    const bool is_over = Drive(
        [&] { return client_.open.empty() && server_.num_closed > closed; });
    if (server_.num_wrong > 0) return absl::DataLossError("a message is wrong");
    return is_over ? absl::OkStatus() : Stuck("the end of a connection");
  }
  static absl::Status Rest() { return absl::OkStatus(); }
  bool Drive(const std::function<bool()>& condition) {
    return DriveSides({&server_, &client_}, condition);
  }

 private:
  Random random_;
  Side server_, client_;
  std::string address_;
};

// A server whose peers, other processes, are killed in the middle.
class KillPhase {
 public:
  explicit KillPhase(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        server_(settings.transport) {}

  absl::Status Start() {
    RETURN_IF_ERROR(server_.status);
    ASSIGN_OR_RETURN(address_, server_.context->Listen());
    return absl::OkStatus();
  }

  absl::Status Step() {
    std::string program = settings_.peer, name = settings_.transport.name,
                tls = settings_.transport.tls, deed = "flood",
                connections = std::to_string(settings_.transport.connections);
    char* argv[] = {program.data(),  name.data(),        tls.data(),
                    address_.data(), connections.data(), deed.data(),
                    nullptr};
    pid_t pid = 0;
    if (posix_spawn(&pid, argv[0], nullptr, nullptr, argv, environ) != 0) {
      return absl::NotFoundError(program + " cannot be started");
    }
    const uint64_t heard = server_.num_heard + 1 + random_.NextBelow(20);
    bool is_heard = Drive([&] { return server_.num_heard >= heard; });
    for (int i = 0; i < 4; ++i) {
      server_.Send(server_.last_accepted, RandomSize(random_));
    }
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    if (!is_heard) return Stuck("messages of a peer");
    const bool is_over = Drive([&] {
      return server_.open.empty() && server_.num_completed == server_.num_sent;
    });
    return is_over ? absl::OkStatus() : Stuck("the end of a killed peer");
  }
  static absl::Status Rest() { return absl::OkStatus(); }
  bool Drive(const std::function<bool()>& condition) {
    return DriveSides({&server_}, condition);
  }

 private:
  const Settings settings_;
  Random random_;
  Side server_;
  std::string address_;
};

// Mixed sizes under faults, on a connection that stays until a fatal one. With
// resend each message is heard once and as it was sent, and now and then two
// ranks sum a vector.
class FaultPhase {
 public:
  explicit FaultPhase(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        server_(WithFaults("")),
        client_(WithFaults(kKills)) {}

  absl::Status Start() {
    RETURN_IF_ERROR(server_.status);
    RETURN_IF_ERROR(client_.status);
    ASSIGN_OR_RETURN(address_, server_.context->Listen());
    return absl::OkStatus();
  }

  absl::Status Step() {
    if (client_.open.empty()) endpoint_ = client_.Connect(address_);
    bool is_open = true;
    for (int i = 0; i < 16; ++i) {
      is_open &= client_.Send(endpoint_, RandomSize(random_));
    }
    // A connection that takes no more has an end to be heard of.
    const bool is_over = Drive([&] {
      return client_.num_completed == client_.num_sent &&
             (is_open || client_.open.empty());
    });
    if (!is_over) return Stuck("messages under faults");
    return settings_.resends ? Check() : absl::OkStatus();
  }

  absl::Status Rest() {
    if (!client_.open.empty()) client_.context->Close(endpoint_);
    const bool is_over =
        Drive([&] { return client_.open.empty() && server_.open.empty(); });
    return is_over ? absl::OkStatus() : Stuck("the end of the last connection");
  }
  bool Drive(const std::function<bool()>& condition) {
    return DriveSides({&server_, &client_}, condition);
  }

 private:
  absl::Status Check() {
    if (server_.num_wrong > 0) return absl::DataLossError("a message is wrong");
    if (server_.num_heard < client_.num_taken) {
      return absl::DataLossError("a message was taken and not received");
    }
    // More while it warms up: what allocators keep for their contexts and
    // threads settles after some of them.
    constexpr int kFirstSums = 10;
    constexpr int kStepsPerSum = 8;
    if (++num_steps_ > kFirstSums && num_steps_ % kStepsPerSum != 0) {
      return absl::OkStatus();
    }
    return RunSums(WithFaults(""), /*rounds=*/4,
                   RandomSize(random_) / sizeof(float));
  }

  // `kills`: a fault, or empty.
  TransportOptions WithFaults(const char* kills) const {
    TransportOptions options = settings_.transport;
    options.fault = absl::StrCat(kFaults, kills, "seed=", settings_.seed);
    options.resend = settings_.resends;
    return options;
  }

  const Settings settings_;
  Random random_;
  Side server_, client_;
  std::string address_;
  EndpointId endpoint_ = 0;
  int num_steps_ = 0;
};

// So many cycles, and then until `minutes` are over. What it uses is compared
// at rest: no connection is open then.
template <typename Phase>
bool Run(const char* name, int64_t cycles, double minutes,
         const Settings& settings) {
  Phase phase(settings);
  absl::Status status = phase.Start();
  for (int64_t i = 0; status.ok() && i < cycles / 4 + 1; ++i) {
    status = phase.Step();
  }
  if (status.ok()) status = phase.Rest();
  const Usage before = UsageNow();
  const TimePoint start = Clock::now();
  int64_t done = 0;
  for (; status.ok() && (done < cycles || SecondsSince(start) < 60 * minutes);
       ++done) {
    status = phase.Step();
  }
  if (status.ok()) status = phase.Rest();
  Usage after = UsageNow();
  // A library may close the last peers' a little later, while it makes
  // progress.
  const bool is_flat = status.ok() && phase.Drive([&] {
    constexpr long kStillClosing = 2;
    after = UsageNow();
    return after.descriptors <= before.descriptors + kStillClosing &&
           after.threads <= before.threads &&
           after.mib - before.mib <= settings.max_growth_mib;
  });
  std::printf(
      "{\"phase\":\"%s\",\"transport\":\"%s\",\"tls\":\"%s\",\"cycles\":%ld,"
      "\"seconds\":%.0f,\"descriptors\":[%ld,%ld],\"threads\":[%ld,%ld],"
      "\"mib\":[%.1f,%.1f],"
      "\"result\":\"%s\"}\n",
      name, settings.transport.name.c_str(), settings.transport.tls.c_str(),
      static_cast<long>(done), SecondsSince(start), before.descriptors,
      after.descriptors, before.threads, after.threads, before.mib, after.mib,
      !status.ok() ? status.ToString().c_str()
      : is_flat    ? "flat"
                   : "grew");
  std::fflush(stdout);
  return is_flat;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Soaks a transport: see docs/transports.md");
  app.add_option("--transport", settings.transport.name)->capture_default_str();
  app.add_option("--tls", settings.transport.tls, "as of telegrad-train");
  app.add_option("--connections", settings.transport.connections,
                 "as of telegrad-train");
  app.add_option("--cycles", settings.cycles, "of each phase; kills: a tenth")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--fault-minutes", settings.fault_minutes,
                 "of the phase with faults, at least")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  app.add_flag("--resend,!--no-resend", settings.resends,
               "in the phase with faults (default); without it nothing is "
               "compared there");
  app.add_option("--seed", settings.seed)->capture_default_str();
  app.add_option("--max-growth-mib", settings.max_growth_mib,
                 "of this process's memory, per phase")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  settings.peer = TELEGRAD_TEST_PEER;
  const absl::Status there = Side(settings.transport).status;
  if (absl::IsNotFound(there)) {
    std::printf("skipped: %s\n", std::string(there.message()).c_str());
    return 77;
  }
  bool is_good = Run<ConnectPhase>("connect", settings.cycles, 0, settings);
  is_good &= Run<FaultPhase>("fault", settings.cycles, settings.fault_minutes,
                             settings);
  // inproc has no other processes; a killed peer of libfabric's shm may hold a
  // lock that hangs this one.
  const bool kills =
      settings.transport.name != "inproc" &&
      !(settings.transport.name == "ofi" && settings.transport.tls == "shm");
  if (kills) {
    is_good &= Run<KillPhase>("kill", settings.cycles / 10 + 1, 0, settings);
  }
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace telegrad::testing

int main(int argc, char** argv) { return telegrad::testing::Main(argc, argv); }
