#include "topology/calibration.h"

namespace telegrad {
namespace {

Figure Assumed(double value) {
  return {.value = value,
          .spread = 0.25,
          .confidence = Confidence::kAssumed,
          .reason = "default"};
}

// A sum of W ternary codes needs ceil(log2(2W + 1)) bits.
std::vector<BitsForWorkers> SumBits() {
  std::vector<BitsForWorkers> rows;
  for (int bits = 2; bits <= 16; ++bits) {
    rows.push_back({(1 << (bits - 1)) - 1, static_cast<double>(bits)});
  }
  return rows;
}

std::vector<BitsForWorkers> Constant(double bits) {
  return {{1'000'000'000, bits}};
}

CodecFigures Codec(const char* name, double push_bits, Reply reply,
                   std::vector<BitsForWorkers> reply_bits) {
  return {.name = name,
          .reply = reply,
          .push_bits = push_bits,
          .reply_bits = std::move(reply_bits),
          .call_s = Assumed(1e-6)};
}

CodecFigures TwoBit(const char* name, Reply reply,
                    std::vector<BitsForWorkers> reply_bits) {
  CodecFigures codec = Codec(name, 2, reply, std::move(reply_bits));
  codec.is_summable = reply != Reply::kDense;
  codec.encode = Assumed(1.46e9);
  codec.decode = Assumed(2.65e9);
  codec.decode_add = Assumed(2.45e9);
  codec.sum = Assumed(6.6e9);
  codec.reply_encode = Assumed(5.5e9);
  return codec;
}

// Codes of so many bits, the scales of blocks included, by which servers
// answer, too.
CodecFigures BlockCodes(const char* name, double bits,
                        double encoded_elems_per_s) {
  CodecFigures codec = Codec(name, bits, Reply::kReencode, Constant(bits));
  codec.encode = Assumed(encoded_elems_per_s);
  codec.decode = Assumed(2.6e9);
  codec.decode_add = Assumed(2.4e9);
  return codec;
}

// The loops of MXNet 1.9: one way only, element by element.
CodecFigures MxnetTwoBit() {
  CodecFigures codec = Codec("mxnet-2bit", 2, Reply::kDense, Constant(32));
  codec.encode = Assumed(0.40e9);
  codec.decode = Assumed(10e9);  // the reply is copied
  codec.decode_add = Assumed(0.305e9);
  return codec;
}

CodecFigures Fp16() {
  CodecFigures codec = Codec("fp16", 16, Reply::kReencode, Constant(16));
  codec.is_summable = true;
  codec.encode = Assumed(1.5e9);
  codec.decode = Assumed(1.5e9);
  codec.decode_add = Assumed(1.2e9);
  codec.sum = Assumed(1.2e9);
  codec.reply_encode = Assumed(3e9);
  return codec;
}

// 1 % of the elements as pairs of index and value; in replies of each worker,
// up to all of them.
CodecFigures TopK() {
  std::vector<BitsForWorkers> reply_bits;
  for (int workers = 1; workers < 64; workers *= 2) {
    reply_bits.push_back({workers, 0.64 * workers});
  }
  reply_bits.push_back({1'000'000'000, 36});
  CodecFigures codec =
      Codec("topk:0.01", 0.64, Reply::kReencode, std::move(reply_bits));
  codec.encode = Assumed(0.4e9);
  codec.decode = Assumed(8e9);
  codec.decode_add = Assumed(8e9);
  return codec;
}

LinkFigures Link(const char* name, double bytes_per_s, double latency_s,
                 double message_cpu_s, double cpu_s_per_byte) {
  return {.name = name,
          .send = Assumed(bytes_per_s),
          .receive = Assumed(bytes_per_s),
          .latency_s = Assumed(latency_s),
          .message_cpu_s = Assumed(message_cpu_s),
          .cpu_s_per_byte = Assumed(cpu_s_per_byte)};
}

}  // namespace

Calibration AssumedCalibration() {
  Calibration calibration;
  calibration.cores = Assumed(1);
  calibration.reduce = Assumed(0.85e9);
  calibration.codecs = {TwoBit("2bit", Reply::kSum, SumBits()),
                        TwoBit("2bit:reencode", Reply::kReencode, Constant(2)),
                        BlockCodes("int2", 2.0625, 1.2e9),
                        MxnetTwoBit(),
                        BlockCodes("1bit", 1.0625, 1.3e9),
                        TopK(),
                        Fp16()};
  // Rates are those of the ports, which the machines know: 0 here.
  calibration.links = {
      Link("TCP", 0, 30e-6, 70e-6, 0.3e-9), Link("IB", 0, 3e-6, 1e-6, 0),
      Link("RoCEv2", 0, 4e-6, 1e-6, 0), Link("EFA", 0, 15e-6, 2e-6, 0),
      Link("intra", 100e9, 5e-6, 0, 0)};
  return calibration;
}

}  // namespace telegrad
