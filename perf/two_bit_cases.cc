#include <cstring>
#include <memory>

#include "kernels/dispatch.h"
#include "perf/kernel_cases.h"
#include "perf/peers.h"
#include "perf/two_bit_data.h"

namespace telegrad::perf {
namespace {

using kernels::CpuKernels;
using kernels::NonFinite;

template <NonFinite kNonFinite>
Job Encode(size_t n, double density) {
  const auto data = std::make_shared<TwoBitData>(n, density, 1);
  Job job = {.codec = "2bit",
             .bytes_per_element = 12.25,
             .traffic = Traffic::kAdd,
             .density = data->density};
  job.body = [data](size_t begin, size_t count) {
    kernels::EncodeStats stats;
    CpuKernels().two_bit_encode(
        data->grad.as<float>() + begin, data->residual.as<float>() + begin,
        count, data->threshold, kNonFinite,
        data->codes.as<uint8_t>() + begin / 4, &stats, {});
  };
  const auto quantize = [data](size_t begin, size_t count) {
    MxnetQuantize(data->grad.as<float>() + begin,
                  data->residual.as<float>() + begin, count, data->threshold,
                  data->codes.as<uint8_t>() + begin / 4);
  };
  const auto copy = std::make_shared<HugeArray>(4 * n);
  const auto memcpy_gradient = [data, copy](size_t begin, size_t count) {
    std::memcpy(copy->as<float>() + begin, data->grad.as<float>() + begin,
                4 * count);
  };
  job.peers = {{"mxnet", quantize}, {"memcpy", memcpy_gradient}};
  return job;
}

using Half = kernels::CastFormatKernels kernels::CastKernels::*;
using EncodeHalf = kernels::TwoBitEncodeHalfFn* kernels::KernelTable::*;

// The peer casts a gradient that does not stay in cache to float32 first.
template <Half kFormat, EncodeHalf kEncode>
Job EncodeHalves(size_t n, double density) {
  const auto data = std::make_shared<TwoBitData>(n, density, 1);
  const auto halves = std::make_shared<HugeArray>(2 * n);
  const auto floats = std::make_shared<HugeArray>(4 * n);
  kernels::EncodeStats cast_stats;
  (CpuKernels().cast.*kFormat)
      .encode(data->grad.as<float>(), nullptr, n, NonFinite::kZero,
              halves->as<uint8_t>(), &cast_stats, {});
  Job job = {.codec = "2bit",
             .bytes_per_element = 10.25,
             .traffic = Traffic::kAdd,
             .density = data->density};
  job.body = [data, halves](size_t begin, size_t count) {
    kernels::EncodeStats stats;
    (CpuKernels().*kEncode)(halves->as<uint16_t>() + begin,
                            data->residual.as<float>() + begin, count,
                            data->threshold, NonFinite::kZero,
                            data->codes.as<uint8_t>() + begin / 4, &stats, {});
  };
  const auto cast_first = [data, halves, floats](size_t begin, size_t count) {
    kernels::EncodeStats stats;
    float* const grad = floats->as<float>() + begin;
    (CpuKernels().cast.*kFormat)
        .decode(halves->as<uint8_t>() + 2 * begin, count, grad, {});
    CpuKernels().two_bit_encode(
        grad, data->residual.as<float>() + begin, count, data->threshold,
        NonFinite::kZero, data->codes.as<uint8_t>() + begin / 4, &stats, {});
  };
  job.peers = {{"cast_first", cast_first}};
  return job;
}

Job Decode(size_t n, double density) {
  const auto data = std::make_shared<TwoBitData>(n, density, 1);
  const auto out = std::make_shared<HugeArray>(4 * n);
  Job job = {.codec = "2bit",
             .bytes_per_element = 4.25,
             .traffic = Traffic::kWrite,
             .density = data->density};
  job.body = [data, out](size_t begin, size_t count) {
    CpuKernels().two_bit_decode(data->frames[0].as<uint8_t>() + begin / 4,
                                count, data->threshold,
                                out->as<float>() + begin, {});
  };
  const auto dequantize = [data, out](size_t begin, size_t count) {
    MxnetDequantize(data->frames[0].as<uint8_t>() + begin / 4, count,
                    data->threshold, out->as<float>() + begin);
  };
  job.peers = {{"mxnet", dequantize}};
  return job;
}

Job DecodeAdd(size_t n, double density) {
  const auto data = std::make_shared<TwoBitData>(n, density, 1);
  const auto sum = std::make_shared<HugeArray>(4 * n);
  const auto temporary = std::make_shared<HugeArray>(4 * n);
  Job job = {.codec = "2bit",
             .bytes_per_element = 8.25,
             .traffic = Traffic::kUpdate,
             .density = data->density};
  job.body = [data, sum](size_t begin, size_t count) {
    CpuKernels().two_bit_decode_add(data->frames[0].as<uint8_t>() + begin / 4,
                                    count, data->threshold,
                                    sum->as<float>() + begin, {});
  };
  const auto merge = [data, sum, temporary](size_t begin, size_t count) {
    MxnetMerge(data->frames[0].as<uint8_t>() + begin / 4, count,
               data->threshold, temporary->as<float>() + begin,
               sum->as<float>() + begin);
  };
  const auto merge_in_cache = [data, sum](size_t begin, size_t count) {
    MxnetMergeInCache(data->frames[0].as<uint8_t>() + begin / 4, count,
                      data->threshold, sum->as<float>() + begin);
  };
  job.peers = {{"mxnet", merge}, {"mxnet_in_cache", merge_in_cache}};
  return job;
}

}  // namespace

void AppendTwoBitCases(std::vector<KernelCase>& cases) {
  cases.push_back({"2bit/encode", true, Encode<NonFinite::kZero>});
  cases.push_back(
      {"2bit/encode_propagate", true, Encode<NonFinite::kPropagate>});
  cases.push_back({"2bit/encode_fp16", true,
                   EncodeHalves<&kernels::CastKernels::fp16,
                                &kernels::KernelTable::two_bit_encode_fp16>});
  cases.push_back({"2bit/encode_bf16", true,
                   EncodeHalves<&kernels::CastKernels::bf16,
                                &kernels::KernelTable::two_bit_encode_bf16>});
  cases.push_back({"2bit/decode", true, Decode});
  cases.push_back({"2bit/decode_add", true, DecodeAdd});
}

}  // namespace telegrad::perf
