#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace telegrad::perf {

// The flags that measurements of kernels and codecs share.
struct SpeedOptions {
  size_t elements = size_t{32} << 20;
  std::vector<int> threads = {1, 2};
  int repeats = 15;
  std::vector<double> densities = {0.01, 0.1, 0.39};
  std::string filter;  // substring of names
  bool json = false;
};

void AddSpeedFlags(CLI::App& app, SpeedOptions& options);

// A program's subcommand: `add` declares its flags and sets what it runs; the
// result is the exit code.
struct Subcommand {
  const char* name;
  const char* help;
  void (*add)(CLI::App& app, int& exit_code);
};

// Where speeds are kept for runs; empty: nowhere.
std::string CacheFolder();

void AddKernelCommand(CLI::App& app, int& exit_code);
void AddCodecCommand(CLI::App& app, int& exit_code);
void AddCalibrateCommand(CLI::App& app, int& exit_code);

}  // namespace telegrad::perf
