#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Counts what servers have written
// (docs/when_a_machine_dies.md#who-was-counted).
namespace telegrad::testing {

struct LedgerCount {
  std::map<uint64_t, int64_t> rounds;  // whole ones, by epoch
  std::vector<std::string> wrong;      // what cannot be
};

LedgerCount CountLedger(const std::string& folder);

}  // namespace telegrad::testing
