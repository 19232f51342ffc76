#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/bench.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::NonFinite;
namespace gpu = kernels::cuda;

// Codes of every kind, about a third of them not 0.
void FillInputs(Arrays& a) {
  std::vector<float> values(1 << 20);
  std::vector<uint8_t> codes(1 << 20);
  uint64_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] =
        static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-33f;
    codes[i] = static_cast<uint8_t>(state >> 40);
  }
  for (size_t i = 0; i < num_elements; i += values.size()) {
    const size_t count = std::min(values.size(), num_elements - i);
    Require(
        cudaMemcpy(a.x + i, values.data(), 4 * count, cudaMemcpyHostToDevice),
        "fill");
  }
  for (int f = 0; f < 8; ++f) {
    const size_t bytes = kernels::TwoBitBytes(num_elements);
    uint8_t* frame = Allocate<uint8_t>(bytes);
    for (size_t i = 0; i < bytes; i += codes.size()) {
      Require(
          cudaMemcpy(frame + i, codes.data(), std::min(codes.size(), bytes - i),
                     cudaMemcpyHostToDevice),
          "fill");
    }
    a.frames.push_back(frame);
  }
}

std::vector<Row> MeasureCodes(Arrays& a) {
  const size_t n = num_elements;
  std::vector<Row> rows;
  rows.push_back(Time("copy device to device", 8, [&] {
    cudaMemcpyAsync(a.y, a.x, 4 * n, cudaMemcpyDeviceToDevice, nullptr);
  }));
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
    rows.push_back(Time(mode == NonFinite::kZero ? "two_bit_encode"
                                                 : "two_bit_encode propagate",
                        12.25, [&] {
                          gpu::TwoBitEncode(a.x, a.y, n, 0.25f, mode, a.packed,
                                            a.stats, Stream{});
                        }));
  }
  rows.push_back(Time("two_bit_decode", 4.25, [&] {
    gpu::TwoBitDecode(a.frames[0], n, 0.5f, a.y, Stream{});
  }));
  rows.push_back(Time("two_bit_decode_add", 8.25, [&] {
    gpu::TwoBitDecodeAdd(a.frames[0], n, 0.5f, a.y, Stream{});
  }));
  return rows;
}

void MeasureSums(Arrays& a, uint32_t w, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const std::string suffix = " W=" + std::to_string(w);
  const double in = 0.25 * w;
  const double sum = kernels::SumBits(w) / 8.0;
  rows.push_back(Time("two_bit_sum_pack" + suffix, in + sum, [&] {
    gpu::TwoBitSumPack(a.frames.data(), w, n, a.packed, Stream{});
  }));
  rows.push_back(Time("packed_sum_decode" + suffix, sum + 4, [&] {
    gpu::PackedSumDecode(a.packed, w, n, 0.5f, a.y, Stream{});
  }));
  rows.push_back(Time("two_bit_sum_decode" + suffix, in + 4, [&] {
    gpu::TwoBitSumDecode(a.frames.data(), w, n, 0.5f, a.y, Stream{});
  }));
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(Time("two_bit_reencode" + suffix, in + 8.25, [&] {
    gpu::TwoBitReencode(a.frames.data(), w, n, reinterpret_cast<int32_t*>(a.y),
                        0, static_cast<int32_t>(w), a.packed, Stream{});
  }));
}

void MeasureUnits(Arrays& a, std::vector<Row>& rows) {
  auto* const residual = reinterpret_cast<int32_t*>(a.y);
  rows.push_back(Time("rescale_units", 8, [&] {
    gpu::RescaleUnits(residual, num_elements, 1, Stream{});
  }));
}

void MeasureDense(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
  rows.push_back(
      Time("add_f32", 12, [&] { gpu::AddF32(a.x, n, a.y, Stream{}); }));
  rows.push_back(Time("count_nonfinite", 4,
                      [&] { gpu::CountNonFinite(a.x, n, a.stats, Stream{}); }));
  rows.push_back(Time("sgd_momentum", 20, [&] {
    gpu::SgdMomentum(a.x, n, {1e-3f, 0.9f, 0.0f, 1.0f}, a.y, a.z, Stream{});
  }));
  rows.push_back(Time("sampled_power", 8.0 * 4096 / num_elements, [&] {
    gpu::SampledPower(a.x, a.y, n, a.power, Stream{});
  }));
}

double ElementsPerSecond(const Row& row, double microseconds) {
  return static_cast<double>(row.elements) / microseconds * 1e6;
}

double Bandwidth(const Row& row) {
  return row.bytes_per_element * row.elements / row.median_us * 1e6;
}

void PrintHead() {
  std::printf("%-30s %10s %10s %10s %10s %8s %8s\n", "kernel", "median us",
              "least us", "Gelt/s", "GB/s", "of copy", "of mxnet");
}

void Print(const Row& row, const Row& copy) {
  std::printf("%-30s %10.1f %10.1f %10.1f %10.1f %7.1f%%", row.name.c_str(),
              row.median_us, row.least_us,
              1e-9 * ElementsPerSecond(row, row.median_us),
              Bandwidth(row) * 1e-9, 100 * Bandwidth(row) / Bandwidth(copy));
  if (row.peer_median_us > 0) {
    std::printf(" %7.2fx", row.peer_median_us / row.median_us);
  }
  std::printf("\n");
}

// The codec, as --gc-type takes it, of which this is a part; "none": of all.
const char* CodecOf(const std::string& name) {
  constexpr const char* kCodecs[][2] = {{"two_bit", "2bit"},
                                        {"2bit", "2bit"},
                                        {"packed_sum", "2bit"},
                                        {"radix", "2bit"},
                                        {"rescale", "2bit"},
                                        {"1bit", "1bit"},
                                        {"onebit", "onebit"},
                                        {"threshold", "threshold"},
                                        {"sparse", "threshold"},
                                        {"topk", "topk"},
                                        {"select", "dgc"},
                                        {"drawn", "randomk"},
                                        {"block_top", "sparseloco"},
                                        {"low_rank", "powersgd"},
                                        {"dither", "qsgd"},
                                        {"fp16", "fp16"},
                                        {"bf16", "bf16"},
                                        {"shared_quantize 2", "int2shared"},
                                        {"shared_quantize 3", "int3shared"},
                                        {"shared", "int8shared"},
                                        {"quantize 2", "int2"},
                                        {"quantize 3", "int3"},
                                        {"quantize 4", "int4"},
                                        {"quantize 8", "int8"}};
  for (const auto& [part, codec] : kCodecs) {
    if (name.find(part) != std::string::npos) return codec;
  }
  return "none";
}

void Write(const Row& row, const Row& copy, const char* device_name,
           std::FILE* file) {
  std::fprintf(file,
               "{\"what\": \"kernel\", \"name\": \"%s\", \"codec\": \"%s\", "
               "\"device\": \"%s\", \"elements\": %zu, \"threads\": null, "
               "\"bytes_per_element\": %.4g, \"p50_us\": %.2f, "
               "\"min_us\": %.2f, \"samples\": %d, \"GBps\": %.4g, "
               "\"ceiling\": \"copy\", \"ceiling_GBps\": %.4g, "
               "\"share_of_ceiling\": %.4g, \"elements_per_s\": %.4g, ",
               row.name.c_str(), CodecOf(row.name), device_name, row.elements,
               row.bytes_per_element, row.median_us, row.least_us, num_runs,
               1e-9 * Bandwidth(row), 1e-9 * Bandwidth(copy),
               Bandwidth(row) / Bandwidth(copy),
               ElementsPerSecond(row, row.median_us));
  if (row.peer_median_us > 0) {
    std::fprintf(file,
                 "\"peer\": \"mxnet\", \"peer_elements_per_s\": %.4g, "
                 "\"of_peer\": %.4g}\n",
                 ElementsPerSecond(row, row.peer_median_us),
                 row.peer_median_us / row.median_us);
  } else {
    std::fprintf(file,
                 "\"peer\": null, \"peer_elements_per_s\": null, "
                 "\"of_peer\": null}\n");
  }
}

// Prints and writes rows as they come: a run that ends early leaves them.
class Report {
 public:
  Report(const char* device_name, const char* path)
      : device_name_(device_name),
        file_(path == nullptr ? nullptr : std::fopen(path, "w")) {
    if (path != nullptr && file_ == nullptr) {
      std::printf("cannot write %s\n", path);
      std::exit(1);
    }
    PrintHead();
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  ~Report() {
    if (file_ != nullptr) std::fclose(file_);
  }

  // Prints and writes rows that are new; the first of all is the copy.
  void Take(const std::vector<Row>& rows) {
    for (; num_taken_ < rows.size(); ++num_taken_) {
      Print(rows[num_taken_], rows[0]);
      if (file_ != nullptr) {
        Write(rows[num_taken_], rows[0], device_name_, file_);
      }
    }
    std::fflush(stdout);
    if (file_ != nullptr) std::fflush(file_);
  }

 private:
  const char* const device_name_;
  std::FILE* const file_;
  size_t num_taken_ = 0;
};

}  // namespace

// The process ends after this, and its memory on the device with it.
void MeasureAll(const char* device_name, const char* path) {
  Arrays arrays;
  FillInputs(arrays);
  Report report(device_name, path);
  std::vector<Row> rows = MeasureCodes(arrays);
  MeasureSign(arrays, rows);
  MeasureMxnet(arrays, rows);
  report.Take(rows);
  MeasureSums(arrays, 2, rows);
  MeasureSums(arrays, 8, rows);
  MeasureUnits(arrays, rows);
  MeasureDense(arrays, rows);
  report.Take(rows);
  struct Family {
    const char* name;
    void (*measure)(Arrays& arrays, std::vector<Row>& rows);
  };
  constexpr Family kFamilies[] = {
      {"batch", MeasureBatch},   {"cast", MeasureCast},
      {"block", MeasureBlock},   {"block_top", MeasureBlockTop},
      {"sparse", MeasureSparse}, {"sparse_list", MeasureSparseList},
      {"select", MeasureSelect}, {"drawn", MeasureDrawn},
      {"radix", MeasureRadix},   {"low_rank", MeasureLowRank},
      {"half", MeasureHalf},     {"optimizer", MeasureOptimizer}};
  for (const Family& family : kFamilies) {
    // For whoever looks at what hangs, or ends with an error.
    std::printf("# %s\n", family.name);
    std::fflush(stdout);
    family.measure(arrays, rows);
    report.Take(rows);
  }
}

}  // namespace telegrad::gpu_check
