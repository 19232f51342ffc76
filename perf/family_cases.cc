#include "perf/family_cases.h"

#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "perf/workload.h"

namespace telegrad::perf {
namespace {

constexpr double kDensity = 0.01;
constexpr size_t kSlack = 4096;

// The shares whose payloads were made.
struct PreparedShares {
  std::mutex mutex;
  std::set<std::pair<size_t, size_t>> shares;

  bool IsNew(const Share& share) {
    const std::lock_guard<std::mutex> lock(mutex);
    return shares.emplace(share.begin, share.n).second;
  }
};

}  // namespace

FamilyData::FamilyData(size_t n, double density)
    : grad(NormalGradient(n)),
      threshold(ThresholdFor(grad.as<float>(), n, density)),
      residual(SettledResidual(grad.as<float>(), n, threshold)),
      momentum(NormalGradient(n)),
      out(4 * n),
      payload(8 * n + kSlack),
      scratch(8 * n + kSlack) {}

KernelCase FamilyCase(const std::string& codec, const std::string& name,
                      double bytes_per_element, Traffic traffic, ShareBody run,
                      ShareBody prepare, ShareBody mxnet) {
  const auto make = [=](size_t n, double) {
    const auto data = std::make_shared<FamilyData>(n, kDensity);
    const auto prepared = std::make_shared<PreparedShares>();
    Job job = {.codec = codec,
               .bytes_per_element = bytes_per_element,
               .traffic = traffic,
               .granule = 8192};  // blocks and tiles divide it
    job.body = [=](size_t begin, size_t count) {
      const Share share = {*data, begin, count};
      // A payload of other shares may lie there: prepared ones are few.
      if (prepare && prepared->IsNew(share)) prepare(share);
      run(share);
    };
    if (mxnet) {
      const auto body = [=](size_t begin, size_t count) {
        mxnet({*data, begin, count});
      };
      job.peers = {{"mxnet", body}};
    }
    return job;
  };
  return {name, false, make};
}

}  // namespace telegrad::perf
