#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

// Many arrays in one launch.
namespace telegrad::gpu_check {
namespace {

using kernels::EncodeBatch;
using kernels::EncodeManyFn;
using kernels::EncodeSpan;
using kernels::EncodeStats;
using kernels::NonFinite;
using kernels::SpanResult;
namespace gpu = kernels::cuda;

// Tables of a batch on the device.
class Tables {
 public:
  Tables(std::vector<EncodeSpan> spans, size_t tile_elems, NonFinite nonfinite)
      : spans_(Numbered(spans, tile_elems)),
        span_of_tile_(TilesOf(spans, tile_elems)),
        tile_stats_(std::vector<EncodeStats>(NumTiles(spans, tile_elems))),
        tickets_(std::vector<uint32_t>(spans.size())) {
    batch_.spans = spans_.get();
    batch_.span_of_tile = span_of_tile_.get();
    batch_.num_tiles = static_cast<uint32_t>(NumTiles(spans, tile_elems));
    batch_.tile_elems = static_cast<uint32_t>(tile_elems);
    batch_.tile_stats = tile_stats_.get();
    batch_.tickets = tickets_.get();
    batch_.nonfinite = nonfinite;
  }
  EncodeBatch& batch() { return batch_; }

 private:
  static size_t NumTiles(const EncodeSpan& span, size_t tile_elems) {
    return (span.num_elems + tile_elems - 1) / tile_elems;
  }
  static size_t NumTiles(const std::vector<EncodeSpan>& spans,
                         size_t tile_elems) {
    size_t count = 0;
    for (const EncodeSpan& span : spans) count += NumTiles(span, tile_elems);
    return count;
  }
  static std::vector<EncodeSpan> Numbered(std::vector<EncodeSpan> spans,
                                          size_t tile_elems) {
    size_t tile = 0;
    for (EncodeSpan& span : spans) {
      span.first_tile = static_cast<uint32_t>(tile);
      tile += NumTiles(span, tile_elems);
    }
    return spans;
  }
  static std::vector<uint32_t> TilesOf(const std::vector<EncodeSpan>& spans,
                                       size_t tile_elems) {
    std::vector<uint32_t> span_of_tile;
    for (size_t s = 0; s < spans.size(); ++s) {
      span_of_tile.insert(span_of_tile.end(), NumTiles(spans[s], tile_elems),
                          static_cast<uint32_t>(s));
    }
    return span_of_tile;
  }

  DeviceArray<EncodeSpan> spans_;
  DeviceArray<uint32_t> span_of_tile_;
  DeviceArray<EncodeStats> tile_stats_;
  DeviceArray<uint32_t> tickets_;
  EncodeBatch batch_;
};

void AddConvolution(size_t weights, size_t outputs, bool has_norm,
                    std::vector<size_t>& sizes) {
  sizes.push_back(weights);
  sizes.push_back(outputs);
  if (has_norm) sizes.push_back(outputs);
}

// Gradients of each layer, as the networks' papers have them.
std::vector<size_t> Vgg16() {
  std::vector<size_t> sizes;
  size_t in = 3;
  for (const size_t out :
       {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    AddConvolution(9 * in * out, out, false, sizes);
    in = out;
  }
  AddConvolution(size_t{25088} * 4096, 4096, false, sizes);
  AddConvolution(size_t{4096} * 4096, 4096, false, sizes);
  AddConvolution(size_t{4096} * 1000, 1000, false, sizes);
  return sizes;
}

std::vector<size_t> Resnet50() {
  std::vector<size_t> sizes;
  AddConvolution(49 * 3 * 64, 64, true, sizes);
  size_t in = 64;
  size_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int b = 0; b < blocks; ++b) {
      AddConvolution(in * width, width, true, sizes);
      AddConvolution(9 * width * width, width, true, sizes);
      AddConvolution(4 * width * width, 4 * width, true, sizes);
      if (b == 0) AddConvolution(4 * in * width, 4 * width, true, sizes);
      in = 4 * width;
    }
    width *= 2;
  }
  AddConvolution(size_t{2048} * 1000, 1000, false, sizes);
  return sizes;
}

std::vector<size_t> Lenet() {
  return {500, 20, 25000, 50, 400000, 500, 5000, 10};
}

constexpr size_t kChunk = size_t{1} << 19;  // the store's

// The sizes in chunks, one after the other in the arrays, each aligned; as many
// elements as there is room for.
std::vector<EncodeSpan> SpansOf(const std::vector<size_t>& sizes,
                                size_t grad_bytes, Arrays& a,
                                SpanResult* results) {
  std::vector<EncodeSpan> spans;
  size_t at = 0;
  for (size_t left : sizes) {
    for (; left > 0 && at < num_elements;) {
      const size_t n = std::min({left, kChunk, num_elements - at});
      spans.push_back({reinterpret_cast<uint8_t*>(a.x) + grad_bytes * at,
                       a.y + at, nullptr, a.packed + at, results + spans.size(),
                       n, kernels::TwoBitBytes(n), 0.25f, 0});
      left -= n;
      at += (n + 31) / 32 * 32;
    }
  }
  return spans;
}

constexpr size_t kMostSpans = size_t{1} << 16;

void MeasureGroup(const std::string& network, const std::vector<size_t>& sizes,
                  SpanResult* results, Arrays& a, std::vector<Row>& rows) {
  struct Kind {
    const char* name;
    EncodeManyFn* encode;
    size_t grad_bytes;
    double bytes_per_element;
  };
  const Kind kinds[] = {
      {"two_bit_encode_many ", gpu::TwoBitEncodeMany, 4, 12.25},
      {"two_bit_encode_many fp16 ", gpu::TwoBitEncodeManyFp16, 2, 10.25},
      {"radix_encode_many ", gpu::RadixEncodeMany, 4, 12.2},
      {"1bit_encode_many ", gpu::OneBitEncodeMany, 4, 12.125},
      {"fp16_encode_many ", gpu::CastManyFp16, 4, 14}};
  for (const Kind& kind : kinds) {
    // Codes of 16 bits go where the third array is.
    std::vector<EncodeSpan> spans = SpansOf(sizes, kind.grad_bytes, a, results);
    size_t elements = 0;
    for (EncodeSpan& span : spans) {
      elements += span.num_elems;
      if (kind.encode == gpu::CastManyFp16) {
        span.codes =
            reinterpret_cast<uint8_t*>(a.z) + 2 * (span.codes - a.packed);
      }
    }
    Require(cudaMemset(a.y, 0, 4 * num_elements), "cudaMemset");
    Tables tables(spans, kernels::kBatchTile, NonFinite::kZero);
    tables.batch().is_aligned = true;
    rows.push_back(Time(kind.name + network, kind.bytes_per_element,
                        [&] { kind.encode(tables.batch(), Stream{}); }));
    rows.back().elements = elements;
  }
}

void MeasureDecodes(const std::string& network,
                    const std::vector<size_t>& sizes, SpanResult* results,
                    Arrays& a, std::vector<Row>& rows) {
  constexpr uint32_t kFrames = 8;
  struct Kind {
    const char* name;
    kernels::DecodeManyFn* decode;
    size_t bits;
  };
  const Kind kinds[] = {{"two_bit_decode_many ", gpu::TwoBitDecodeMany, 2},
                        {"packed_sum_decode_many W=8 ",
                         gpu::PackedSumDecodeMany, kernels::SumBits(kFrames)}};
  for (const Kind& kind : kinds) {
    std::vector<kernels::DecodeSpan> spans;
    std::vector<uint32_t> span_of_tile;
    size_t at = 0;
    size_t elements = 0;
    for (const EncodeSpan& each : SpansOf(sizes, 4, a, results)) {
      const size_t n = each.num_elems;
      spans.push_back({a.packed + at / 8 * kind.bits, a.y + at, n, 0.5f, 1.0f,
                       static_cast<uint32_t>(span_of_tile.size())});
      span_of_tile.insert(span_of_tile.end(),
                          (n + kernels::kDecodeTile - 1) / kernels::kDecodeTile,
                          static_cast<uint32_t>(spans.size() - 1));
      elements += n;
      at += (n + 31) / 32 * 32;
    }
    const DeviceArray<kernels::DecodeSpan> table(spans);
    const DeviceArray<uint32_t> tiles(span_of_tile);
    const kernels::DecodeBatch batch = {
        table.get(), tiles.get(), static_cast<uint32_t>(span_of_tile.size()),
        kFrames, true};
    rows.push_back(Time(kind.name + network, kind.bits / 8.0 + 4,
                        [&] { kind.decode(batch, Stream{}); }));
    rows.back().elements = elements;
  }
}

void MeasurePowers(const std::vector<size_t>& sizes, Arrays& a,
                   std::vector<Row>& rows) {
  std::vector<kernels::PowerSpan> spans;
  DeviceArray<double> powers{std::vector<double>(sizes.size())};
  size_t at = 0;
  size_t sampled = 0;
  for (const size_t size : sizes) {
    const size_t n = std::min(size, num_elements - at);
    if (n == 0) break;
    spans.push_back({a.x + at, a.y + at, n, powers.get() + spans.size()});
    sampled += std::min<size_t>(n, kernels::kMaxPowerSamples);
    at += n;
  }
  const DeviceArray<kernels::PowerSpan> table(spans);
  const auto count = static_cast<uint32_t>(spans.size());
  rows.push_back(Time("sampled_power_many resnet50",
                      8.0 * static_cast<double>(sampled) / num_elements, [&] {
                        gpu::SampledPowerMany(table.get(), count, Stream{});
                      }));
}

}  // namespace

void MeasureBatch(Arrays& a, std::vector<Row>& rows) {
  const size_t chunk = std::min(kChunk, num_elements);
  rows.push_back(Time("two_bit_encode chunk", 12.25, [&] {
    gpu::TwoBitEncode(a.x, a.y, chunk, 0.25f, NonFinite::kZero, a.packed,
                      a.stats, Stream{});
  }));
  rows.back().elements = chunk;
  SpanResult* const results = Allocate<SpanResult>(kMostSpans);
  MeasureGroup("vgg16", Vgg16(), results, a, rows);
  MeasureGroup("resnet50", Resnet50(), results, a, rows);
  MeasureGroup("lenet", Lenet(), results, a, rows);
  MeasureDecodes("vgg16", Vgg16(), results, a, rows);
  MeasureDecodes("resnet50", Resnet50(), results, a, rows);
  MeasurePowers(Resnet50(), a, rows);
  cudaFree(results);
}

}  // namespace telegrad::gpu_check
