#include "tests/kvstore/simulation/ledger_count.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace telegrad::testing {
namespace {

using Part = std::pair<std::string, int64_t>;  // a tensor, its first element

}  // namespace

LedgerCount CountLedger(const std::string& folder) {
  LedgerCount count;
  std::map<uint64_t, std::map<Part, std::set<int64_t>>> steps;  // by epoch
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(file.path());
    uint64_t epoch = 0;
    size_t num_workers = 0;
    for (std::string text; std::getline(lines, text);) {
      const auto line = nlohmann::json::parse(text);
      if (line.contains("workers")) {
        epoch = line["epoch"];
        num_workers = line["workers"].size();
        continue;
      }
      const Part part = {line["tensor"], line["begin"]};
      if (line["contributors"] != num_workers ||
          !steps[epoch][part].insert(line["step"].get<int64_t>()).second) {
        count.wrong.push_back(
            absl::StrCat("in the ledger of epoch ", epoch, ": ", text));
      }
    }
  }
  for (const auto& [epoch, parts] : steps) {
    int64_t& rounds = count.rounds[epoch] = INT64_MAX;
    for (const auto& [part, its] : parts) {
      rounds = std::min(rounds, static_cast<int64_t>(its.size()));
    }
  }
  return count;
}

}  // namespace telegrad::testing
