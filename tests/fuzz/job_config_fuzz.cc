// libFuzzer: what DECLARE tells a server; what is taken is written and taken
// again.
#include <cstdlib>
#include <string>

#include "kvstore/ps/wire/job_config.h"
#include "tests/fuzz/edited.h"

namespace telegrad {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

std::string GoodConfig() {
  JobConfig config;
  config.tensors = {{"w", 1000}, {"bias", 10}};
  config.chunk_elems = 65536;
  config.compression.type = "2bit";
  return SerializeJobConfig(config);
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const std::string* const good = new std::string(GoodConfig());
  const auto config =
      ParseJobConfig(EditedOrRaw(*good, data, size), kMostBytes);
  if (!config.ok()) return 0;
  const auto again = ParseJobConfig(SerializeJobConfig(*config), kMostBytes);
  if (!again.ok() || again->tensors.size() != config->tensors.size()) {
    std::abort();
  }
  return 0;
}
