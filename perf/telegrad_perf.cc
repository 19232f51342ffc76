#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/check.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/resource_limit.h"
#include "kvstore/program/write_by_signal.h"
#include "perf/network/commands.h"
#include "perf/options.h"
#include "transport/transport.h"

namespace telegrad::perf {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"kernel", "speed of each kernel, beside the memory's ceiling and peers",
     AddKernelCommand},
    {"codec", "speed of each codec, beside the memory's ceiling and peers",
     AddCodecCommand},
    {"calibrate", "what codecs cost here, for telegrad-topo plan",
     AddCalibrateCommand},
    {"latency", "half the round trip of a message between two ranks",
     AddLatencyCommand},
    {"bandwidth", "messages one way in a window", AddBandwidthCommand},
    {"bibw", "messages both ways in a window", AddBibwCommand},
    {"msgrate", "small messages per second", AddMsgrateCommand},
    {"allreduce", "sums of all ranks to all ranks", AddAllreduceCommand},
    {"reducescatter", "sums of all ranks, a block to each",
     AddReduceScatterCommand},
    {"allgather", "the blocks of all ranks to all ranks", AddAllgatherCommand},
    {"broadcast", "the data of one rank to all", AddBroadcastCommand},
    {"alltoall", "a block of each rank to each rank", AddAlltoallCommand},
    {"barrier", "until all ranks have come", AddBarrierCommand},
    {"operations", "how long ranks take to agree on the tensors of a step",
     AddOperationsCommand},
    {"pushpull", "push and pull through workers and servers, with a codec",
     AddPushPullCommand},
};

}  // namespace
}  // namespace telegrad::perf

int main(int argc, char** argv) {
  telegrad::EndWhenOutOfMemory();
  telegrad::RaiseOpenFileLimit();
  telegrad::IgnoreFlightSignal();
  CLI::App app("Measures what Telegrad's parts can do on this machine.",
               "telegrad-perf");
  app.set_version_flag("--version", TELEGRAD_VERSION);
  app.footer([] { return "Transports:\n" + telegrad::DescribeTransports(); });
  int exit_code = 0;
  for (const telegrad::perf::Subcommand& each : telegrad::perf::kSubcommands) {
    each.add(*app.add_subcommand(each.name, each.help), exit_code);
  }
  exit_code = telegrad::RunSubcommand(app, argc, argv).value_or(exit_code);
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written || exit_code != 0) return exit_code;
  std::fputs("telegrad-perf: standard output cannot be written\n", stderr);
  return static_cast<int>(telegrad::ExitCode::kUsage);
}
