#pragma once

#include <CLI/CLI.hpp>

namespace telegrad::topo {

// A line of telegrad-topo's table: `add` declares the flags on its CLI::App and
// sets a callback, which leaves its result in `exit_code`.
struct Subcommand {
  const char* name;
  const char* help;
  void (*add)(CLI::App& app, int& exit_code);
};

}  // namespace telegrad::topo
