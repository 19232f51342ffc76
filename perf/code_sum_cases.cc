#include <memory>

#include "kernels/dispatch.h"
#include "perf/kernel_cases.h"
#include "perf/peers.h"
#include "perf/two_bit_data.h"

namespace telegrad::perf {
namespace {

using kernels::CpuKernels;
using kernels::PackedSumBytes;
using kernels::SumBits;

constexpr double kSumDensity = 0.1;

double SumBytesPerElement(uint32_t num_frames) {
  return SumBits(num_frames) / 8.0;
}

struct SumData : TwoBitData {
  SumData(size_t n, uint32_t num_frames)
      : TwoBitData(n, kSumDensity, num_frames),
        packed(PackedSumBytes(n, num_frames)),
        sum(4 * n) {}
  uint8_t* PackedFrom(size_t begin) const {
    return packed.as<uint8_t>() +
           PackedSumBytes(begin, static_cast<uint32_t>(frames.size()));
  }
  HugeArray packed;
  HugeArray sum;
};

// What MXNet's server does with all contributions.
RangeBody MergeAll(const std::shared_ptr<SumData>& data) {
  return [data](size_t begin, size_t count) {
    for (const uint8_t* codes : data->FramesFrom(begin)) {
      MxnetMergeInCache(codes, count, data->threshold,
                        data->sum.as<float>() + begin);
    }
  };
}

template <uint32_t kFrames>
Job SumPack(size_t n, double) {
  const auto data = std::make_shared<SumData>(n, kFrames);
  Job job = {.codec = "2bit",
             .bytes_per_element = 0.25 * kFrames + SumBytesPerElement(kFrames),
             .traffic = Traffic::kCopy};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().two_bit_sum_pack(data->FramesFrom(begin).data(), kFrames,
                                  count, data->PackedFrom(begin), {});
  };
  job.peers = {{"mxnet_in_cache", MergeAll(data)}};
  return job;
}

template <uint32_t kFrames>
Job PackedDecode(size_t n, double) {
  const auto data = std::make_shared<SumData>(n, kFrames);
  CpuKernels().two_bit_sum_pack(data->FramesFrom(0).data(), kFrames, n,
                                data->PackedFrom(0), {});
  Job job = {.codec = "2bit",
             .bytes_per_element = SumBytesPerElement(kFrames) + 4,
             .traffic = Traffic::kWrite};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().packed_sum_decode(data->PackedFrom(begin), kFrames, count,
                                   data->threshold,
                                   data->sum.as<float>() + begin, {});
  };
  return job;
}

template <uint32_t kFrames>
Job SumDecode(size_t n, double) {
  const auto data = std::make_shared<SumData>(n, kFrames);
  Job job = {.codec = "2bit",
             .bytes_per_element = 0.25 * kFrames + 4,
             .traffic = Traffic::kWrite};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().two_bit_sum_decode(data->FramesFrom(begin).data(), kFrames,
                                    count, data->threshold,
                                    data->sum.as<float>() + begin, {});
  };
  job.peers = {{"mxnet_in_cache", MergeAll(data)}};
  return job;
}

template <uint32_t kFrames>
Job Reencode(size_t n, double) {
  const auto data = std::make_shared<SumData>(n, kFrames);
  Job job = {.codec = "2bit",
             .bytes_per_element = 0.25 * kFrames + 8.25,
             .traffic = Traffic::kUpdate};
  job.body = [data](size_t begin, size_t count) {
    CpuKernels().two_bit_reencode(data->FramesFrom(begin).data(), kFrames,
                                  count, data->sum.as<int32_t>() + begin, 0,
                                  static_cast<int32_t>(kFrames),
                                  data->codes.as<uint8_t>() + begin / 4, {});
  };
  return job;
}

template <uint32_t kFrames>
void AppendFor(std::vector<KernelCase>& cases) {
  const std::string suffix = "/W" + std::to_string(kFrames);
  cases.push_back({"2bit/sum_pack" + suffix, false, SumPack<kFrames>});
  cases.push_back({"2bit/sum_unpack" + suffix, false, PackedDecode<kFrames>});
  cases.push_back({"2bit/sum_decode" + suffix, false, SumDecode<kFrames>});
  cases.push_back({"2bit/reencode" + suffix, false, Reencode<kFrames>});
}

}  // namespace

void AppendCodeSumCases(std::vector<KernelCase>& cases) {
  AppendFor<2>(cases);
  AppendFor<4>(cases);
  AppendFor<8>(cases);
}

}  // namespace telegrad::perf
