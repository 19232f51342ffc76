#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "perf/network/network_options.h"

namespace CLI {
class App;
}

namespace telegrad::perf {

// Runs `run` when `app` is called and turns its error into the exit code, with
// one line on standard error. `run` gets main's words.
void SetNetworkCallback(
    CLI::App& app, NetworkOptions& options, int& exit_code,
    std::function<absl::Status(const std::vector<std::string>& words)> run);

}  // namespace telegrad::perf
