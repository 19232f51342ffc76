// Every codec of the registry through a whole cluster: what comes back is, bit
// by bit, what the codec's own methods give; warm-up and rules.
#include <cmath>
#include <cstring>

#include "compression/codec_spec.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;

constexpr int kWorkers = 3;
constexpr size_t kElems = 1003;
constexpr float kThreshold = 1.0f / 128;

using Steps = std::vector<std::vector<float>>;  // [step][element]

std::vector<float> Grad(int worker, int step) {
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i) grad[i] = GradOf(worker, step, i);
  return grad;
}
ConstBytes View(const std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}
Bytes Mutable(std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}

// What the workers and the server of one chunk do, without a network.
class Simulation {
 public:
  Simulation(const std::string& type, ReplyMode reply, int warmup)
      : reply_(reply), warmup_(warmup) {
    const CodecSpec spec = *ParseCodecSpec(type);
    codec_ = *spec.codec->Prepare(kElems, Device{}, spec.options);
    residuals_.assign(kWorkers, std::vector<float>(kElems));
    states_.resize(kWorkers);
    for (size_t w = 0; w < kWorkers; ++w) {
      if (codec_->traits().needs_residual) {
        states_[w].residual = Mutable(residuals_[w]);
      }
    }
  }

  std::vector<float> Step(int step) {
    std::vector<float> out(kElems);
    if (step < warmup_ || codec_->traits().lossless) {
      for (int w = 0; w < kWorkers; ++w) {
        const std::vector<float> grad = Grad(w, step);
        for (size_t i = 0; i < kElems; ++i) out[i] += grad[i];
      }
      return out;
    }
    std::vector<Buffer> frames;
    std::vector<ConstBytes> payloads;
    for (int w = 0; w < kWorkers; ++w) {
      frames.emplace_back(codec_->max_encoded_bytes());
      EncodeResult result;
      EXPECT_THAT(
          codec_->Encode(View(Grad(w, step)), states_[static_cast<size_t>(w)],
                         Params(step, static_cast<uint64_t>(w)),
                         frames.back().view(), &result, {}),
          IsOk());
      payloads.emplace_back(frames.back().data(), result.encoded_bytes);
    }
    Answer(payloads, step, out);
    return out;
  }

 private:
  static EncodeParams Params(int step, uint64_t source) {
    return {.threshold = kThreshold,
            .stream = 0,
            .step = static_cast<uint64_t>(step),
            .source = source};
  }

  void Answer(const std::vector<ConstBytes>& payloads, int step,
              std::vector<float>& out) {
    const bool is_summable = codec_->traits().summable;
    if (reply_ == ReplyMode::kDense) {
      EXPECT_THAT(codec_->SumDecode(payloads, kThreshold, Mutable(out), {}),
                  IsOk());
    } else if (reply_ == ReplyMode::kAuto && is_summable) {
      Buffer sum(codec_->sum_bytes(kWorkers));
      EXPECT_THAT(codec_->SumCodes(payloads, sum.view(), {}), IsOk());
      EXPECT_THAT(
          codec_->DecodeSum(sum.view(), kWorkers, kThreshold, Mutable(out), {}),
          IsOk());
      for (CodecState& state : states_) {
        EXPECT_THAT(codec_->Learn(sum.view(), kWorkers, state, {}), IsOk());
      }
    } else {
      Buffer reply(codec_->max_reencoded_bytes(kWorkers));
      size_t bytes = 0;
      EXPECT_THAT(codec_->Reencode(payloads, Params(step, UINT64_MAX), 0,
                                   server_, reply.view(), &bytes, {}),
                  IsOk());
      EXPECT_THAT(
          codec_->Decode({reply.data(), bytes},
                         codec_->ReencodeThreshold(kThreshold, kWorkers),
                         Mutable(out), {}),
          IsOk());
    }
  }

  std::unique_ptr<PreparedCodec> codec_;
  const ReplyMode reply_;
  const int warmup_;
  std::vector<std::vector<float>> residuals_;
  std::vector<CodecState> states_;
  ReencodeState server_;
};

ClusterConfig OneTensor(const std::string& type) {
  ClusterConfig config;
  config.workers = kWorkers;
  config.tensors = {{"only", kElems}};
  config.chunk_elems = 2 * kElems;
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, kThreshold};
  config.has_values = false;
  return config;
}

std::vector<float> PushPull(KVStore& store, std::vector<float> grad) {
  const Bytes view = Mutable(grad);
  EXPECT_THAT(store.PushPull(0, view, view, 0).Wait(Soon()), IsOk());
  return grad;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

void VerifyBits(const ClusterConfig& config, int num_steps) {
  const CompressionConfig& gc = config.compression;
  Simulation simulation(gc.type, gc.reply, static_cast<int>(gc.warmup_steps));
  Steps expected;
  for (int step = 0; step < num_steps; ++step) {
    expected.push_back(simulation.Step(step));
  }
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    for (int step = 0; step < num_steps; ++step) {
      EXPECT_TRUE(SameBits(PushPull(store, Grad(store.group().rank(), step)),
                           expected[static_cast<size_t>(step)]))
          << gc.type << ": worker " << store.group().rank() << " step " << step;
    }
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
}

class CodecInCluster : public ::testing::TestWithParam<const Codec*> {
 protected:
  ClusterConfig config_ = OneTensor(GetParam()->traits().name);
};

TEST_P(CodecInCluster, GivesTheCodecsOwnBitsInAllReplyModes) {
  for (const ReplyMode reply :
       {ReplyMode::kAuto, ReplyMode::kReencode, ReplyMode::kDense}) {
    SCOPED_TRACE(ToString(reply));
    config_.compression.reply = reply;
    VerifyBits(config_, 6);
  }
}

TEST_P(CodecInCluster, WarmsUpDense) {
  config_.compression.warmup_steps = 3;
  VerifyBits(config_, 6);
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecInCluster,
                         ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           return "Codec" + codec.param->traits().name;
                         });

// After which steps all that was pushed has come back, to the last bit, when
// workers switch as told.
std::vector<bool> EvenSteps(const ClusterConfig& config,
                            std::function<void(KVStore&, int)> before) {
  constexpr int kSteps = 10;
  std::vector<bool> even(kSteps);
  // Sums of powers of two near each other are exact.
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i) grad[i] = i % 2 == 0 ? 0x1p-10f : 0x1p-6f;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    std::vector<double> difference(kElems);
    for (int step = 0; step < kSteps; ++step) {
      before(store, step);
      const std::vector<float> sum = PushPull(store, grad);
      for (size_t i = 0; i < kElems; ++i) {
        difference[i] += double{sum[i]} - double{kWorkers * grad[i]};
      }
      if (store.group().rank() == 0) {
        even[static_cast<size_t>(step)] =
            difference == std::vector<double>(kElems);
      }
    }
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
  return even;
}

TEST(SetCodec, SwitchesTwoRoundsLaterAndLosesNothing) {
  for (const ReplyMode reply : {ReplyMode::kSum, ReplyMode::kReencode}) {
    ClusterConfig config = OneTensor("2bit");
    config.compression.starts_dense = true;
    config.compression.reply = reply;
    const std::vector<bool> even =
        EvenSteps(config, [](KVStore& store, int step) {
          if (step == 1 || step == 4) {
            EXPECT_THAT(store.codecs().SetCodec(0, step == 1 ? 0 : kDenseCodec),
                        IsOk());
          }
        });
    // Steps 3 to 5 are compressed; 6 brings what they held back.
    EXPECT_EQ(even, (std::vector<bool>{true, true, true, false, false, false,
                                       true, true, true, true}));
  }
}

class SwitchedCodecs : public ::testing::TestWithParam<
                           std::tuple<std::pair<const char*, const char*>,
                                      ReplyMode, ThresholdSpec::Kind>> {
 protected:
  ClusterConfig Config() const {
    const auto& [codecs, reply, threshold] = GetParam();
    ClusterConfig config = OneTensor(codecs.first);
    config.compression.alternatives = {codecs.second};
    config.compression.starts_dense = true;
    config.compression.reply = reply;
    config.compression.threshold = {threshold, 0x1p-8f};
    return config;
  }
};

TEST_P(SwitchedCodecs, LoseNothingWithDenseStepsBetween) {
  const std::vector<bool> even =
      EvenSteps(Config(), [](KVStore& store, int step) {
        if (step % 2 != 0) return;
        const int codec = step == 0 ? 0 : step == 4 ? 1 : kDenseCodec;
        EXPECT_THAT(store.codecs().SetCodec(0, codec), IsOk());
      });
  EXPECT_EQ(even, (std::vector<bool>{true, true, false, false, true, true,
                                     false, false, true, true}));
}

// The store puts a dense step between two codecs itself.
TEST_P(SwitchedCodecs, LoseNothingWhenOneReplacesTheOther) {
  const std::vector<bool> even =
      EvenSteps(Config(), [](KVStore& store, int step) {
        if (step % 3 != 0) return;
        const int codec = step == 0 ? 1 : step == 3 ? 0 : kDenseCodec;
        EXPECT_THAT(store.codecs().SetCodec(0, codec), IsOk());
        EXPECT_EQ(store.codecs().Report()[0].is_dense, step == 0 || step == 9);
      });
  EXPECT_EQ(even, (std::vector<bool>{true, true, false, false, false, true,
                                     false, false, true, true}));
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, SwitchedCodecs,
    ::testing::Combine(::testing::Values(std::pair("2bit", "topk:0.01"),
                                         std::pair("topk:0.01", "2bit"),
                                         std::pair("2bit", "2bit:packing=1"),
                                         std::pair("threshold", "2bit"),
                                         std::pair("randomk", "topk:0.3")),
                       ::testing::Values(ReplyMode::kAuto, ReplyMode::kReencode,
                                         ReplyMode::kDense),
                       ::testing::Values(ThresholdSpec::Kind::kAbsolute,
                                         ThresholdSpec::Kind::kAuto)));

TEST(SetCodec, StaysDenseWhileWorkersDiffer) {
  ClusterConfig config = OneTensor("2bit");
  config.compression.starts_dense = true;
  const std::vector<bool> even =
      EvenSteps(config, [](KVStore& store, int step) {
        if (step == 0 && store.group().rank() == 0) {
          EXPECT_THAT(store.codecs().SetCodec(0, 0), IsOk());
        }
        EXPECT_FALSE(store.codecs().SetCodec(1, 0).ok());
        EXPECT_FALSE(store.codecs().SetCodec(0, 1).ok());
      });
  EXPECT_EQ(even, std::vector<bool>(10, true));
}

TEST(Rules, ChooseCodecsByName) {
  ClusterConfig config = OneTensor("2bit");
  config.tensors = {{"conv.weight", 1000}, {"conv.bias", 1000}, {"tiny", 10}};
  config.compression.type = "2bit:0.5";
  config.compression.rules = "bias=none";
  config.compression.min_bytes = 100;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    const std::vector<TensorReport> reports = store.codecs().Report();
    EXPECT_EQ(reports[0].setting, "2bit:0.5");
    EXPECT_EQ(reports[1].setting, "none");
    EXPECT_EQ(reports[2].setting, "none");
    EXPECT_FALSE(reports[0].has_rule);
    EXPECT_TRUE(reports[1].has_rule);
    EXPECT_FALSE(reports[2].has_rule);
    EXPECT_EQ(reports[0].codec, "2bit");
    EXPECT_EQ(reports[0].reason, "type 2bit:0.5");
    EXPECT_EQ(reports[1].codec, "none");
    EXPECT_EQ(reports[1].reason, "rule bias=none");
    EXPECT_EQ(reports[2].codec, "none");
    EXPECT_EQ(reports[2].reason, "below 100 bytes");
  });
}

TEST(Rules, AreCheckedBeforeTheJobBegins) {
  EXPECT_THAT(CheckCodecRules(""), IsOk());
  EXPECT_THAT(CheckCodecRules("bn|bias=none; fc.*=2bit:auto;*=2bit:0.5:batch"),
              IsOk());
  for (const char* bad : {"bias", "=none", "(=none", "a=3bit", "a=2bit:x",
                          "a=none:1", "a\n=none"}) {
    EXPECT_FALSE(CheckCodecRules(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace telegrad
