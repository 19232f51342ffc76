#include <memory>

#include "base/crc32c.h"
#include "kernels/dispatch.h"
#include "perf/kernel_cases.h"
#include "perf/workload.h"

namespace telegrad::perf {
namespace {

using kernels::CpuKernels;

struct DenseData {
  explicit DenseData(size_t n)
      : grad(NormalGradient(n)), sum(4 * n), momentum(4 * n) {}
  HugeArray grad;
  HugeArray sum;
  HugeArray momentum;
};

Job Add(size_t n, double) {
  const auto data = std::make_shared<DenseData>(n);
  Job job = {
      .codec = "none", .bytes_per_element = 12, .traffic = Traffic::kAdd};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().add_f32(data->grad.as<float>() + begin, count,
                         data->sum.as<float>() + begin, {});
  };
  return job;
}

Job CountNonFinite(size_t n, double) {
  const auto data = std::make_shared<DenseData>(n);
  Job job = {
      .codec = "none", .bytes_per_element = 4, .traffic = Traffic::kRead};
  job.body = [data](size_t begin, size_t count) {
    kernels::EncodeStats stats;
    CpuKernels().count_nonfinite(data->grad.as<float>() + begin, count, &stats,
                                 {});
  };
  return job;
}

Job SgdMomentum(size_t n, double) {
  const auto data = std::make_shared<DenseData>(n);
  Job job = {
      .codec = "none", .bytes_per_element = 20, .traffic = Traffic::kAdd};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().sgd_momentum(data->grad.as<float>() + begin, count,
                              {.learning_rate = 1e-3f, .momentum_rate = 0.9f},
                              data->sum.as<float>() + begin,
                              data->momentum.as<float>() + begin, {});
  };
  return job;
}

// For automatic thresholds; reads at most 4096 elements of each array, however
// many there are.
Job SampledPower(size_t n, double) {
  const auto data = std::make_shared<DenseData>(n);
  Job job = {.codec = "2bit"};
  job.body = [data](size_t begin, size_t count) {
    double power = 0;
    CpuKernels().sampled_power(data->grad.as<float>() + begin,
                               data->sum.as<float>() + begin, count, &power,
                               {});
  };
  return job;
}

// What frames are checked with, beside the CPU's instruction alone.
Job Checksum(size_t n, double) {
  const auto data = std::make_shared<DenseData>(n);
  const auto by = [data](const Crc32cVariant& variant) {
    return [data, advance = variant.advance](size_t begin, size_t count) {
      [[maybe_unused]] volatile uint32_t crc =
          advance(data->grad.as<unsigned char>() + 4 * begin, 4 * count, 0);
    };
  };
  const std::span<const Crc32cVariant> variants = Crc32cVariants();
  Job job = {.codec = "none",
             .bytes_per_element = 4,
             .traffic = Traffic::kRead,
             .body = by(variants.front())};
  // The table is far behind.
  for (size_t i = 1; i + 1 < variants.size(); ++i) {
    job.peers.push_back({variants[i].name, by(variants[i])});
  }
  return job;
}

}  // namespace

void AppendDenseCases(std::vector<KernelCase>& cases) {
  cases.push_back({"dense/add", false, Add});
  cases.push_back({"dense/count_nonfinite", false, CountNonFinite});
  cases.push_back({"dense/sgd_momentum", false, SgdMomentum});
  cases.push_back({"dense/sampled_power", false, SampledPower});
  cases.push_back({"dense/crc32c", false, Checksum});
}

}  // namespace telegrad::perf
