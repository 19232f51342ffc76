#include <cstdio>
#include <cstdlib>
#include <string>

#include "kvstore/job/launch/placement.h"

// Run by mpirun: every rank must get what rank 0 has published, within so many
// seconds.
int main(int argc, char** argv) {
  const auto placement = telegrad::DetectPlacement(
      [](const char* name) -> const char* { return std::getenv(name); });
  if (!placement.ok() || !placement->has_value()) return 2;
  const int rank = (*placement)->rank;
  const auto address =
      telegrad::ExchangeOverPmix(rank, "address-of-" + std::to_string(rank),
                                 argc < 2 ? 20 : std::atoi(argv[1]));
  if (!address.ok() || *address != "address-of-0") {
    std::fprintf(stderr, "rank %d: %s\n", rank,
                 address.status().ToString().c_str());
    return 1;
  }
  std::printf("rank %d got %s\n", rank, address->c_str());
  return 0;
}
