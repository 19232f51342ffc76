// What codecs keep goes on in a job with other numbers of workers and servers.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "kvstore/engine/codec/guard.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/engine/state/codec_state.h"
#include "kvstore/states.h"
#include "tests/kvstore/cluster.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr int kOldRounds = 5;
constexpr int kNewRounds = 3;
// The second has a part on each of up to three servers.
const std::vector<TensorSpec> kCutTensors = {{"a", 200}, {"b", 99984}};

using Total = std::vector<double>;          // of a tensor
using CutTexts = std::vector<std::string>;  // by rank
using CutOfKeys = std::vector<CutTexts>;    // by key
using Totals = std::vector<Total>;          // by key

ClusterConfig CutConfig(const std::string& codec, int workers, int servers) {
  ClusterConfig config = testing::Job(workers, servers);
  config.tensors = kCutTensors;
  config.chunk_elems = 4096;
  config.compression = {.type = codec, .reply = ReplyMode::kReencode};
  return config;
}

TensorLayout LayoutOf(const ClusterConfig& config, Key key) {
  return (*MakeShardPlan(config.tensors, config.servers, config.chunk_elems,
                         config.compression))[key];
}

// Whole numbers, which float32 adds exactly in any order.
float WholeGradAt(int worker, int round, size_t i) {
  Random random(static_cast<uint64_t>(worker * 1000 + round), i);
  return static_cast<float>(static_cast<int>(random.NextBelow(7)) - 3);
}

// Adds what all push to `totals` and takes off what comes back.
void CutRounds(KVStore& store, int first, int count, Totals* totals) {
  const int rank = store.group().rank();
  const int workers = store.group().num_workers();
  for (int round = first; round < first + count; ++round) {
    for (size_t key = 0; key < kCutTensors.size(); ++key) {
      const size_t n = kCutTensors[key].num_elems;
      const Buffer grad(4 * n);
      for (size_t i = 0; i < n; ++i) {
        grad.as<float>()[i] = WholeGradAt(rank, round, i);
      }
      ASSERT_THAT(
          store.PushPull(static_cast<Key>(key), grad.view(), grad.view(), 0)
              .Wait(Soon()),
          IsOk());
      if (totals == nullptr || rank != 0) continue;
      for (size_t i = 0; i < n; ++i) {
        for (int worker = 0; worker < workers; ++worker) {
          (*totals)[key][i] += WholeGradAt(worker, round, i);
        }
        (*totals)[key][i] -= grad.as<float>()[i];
      }
    }
  }
}

Totals NoTotals() {
  Totals totals;
  for (const TensorSpec& each : kCutTensors) {
    totals.emplace_back(each.num_elems, 0.0);
  }
  return totals;
}

// docs/checkpoints.md, byte by byte.
void AddHeldOf(const std::string& text, const TensorLayout& layout,
               bool has_sums, bool are_units, Total& total) {
  const size_t num_sums = has_sums ? layout.chunks.size() : 0;
  const auto read = ReadCodecSections(text, 1 + num_sums);
  ASSERT_THAT(read, IsOk());
  const auto add = [&](StateReader& reader, const Chunk& chunk, bool is_int,
                       int unit) {
    for (size_t i = 0; i < chunk.num_elems; ++i) {
      total[chunk.begin + i] += is_int
                                    ? std::ldexp(reader.Take<int32_t>(), unit)
                                    : double{reader.Take<float>()};
    }
  };
  StateReader worker(read->sections[0]);
  for (const Chunk& chunk : layout.chunks) {
    for (int i = 0; i < 2; ++i) (void)worker.TakeSettings();
    (void)worker.TakeBytes(36);  // encoded, bad, squares, vetoes
    if (worker.Take<uint8_t>() != 0) add(worker, chunk, false, 0);
    (void)worker.TakeBytes(worker.Take<uint64_t>());
  }
  EXPECT_THAT(worker.Finish(), IsOk());
  for (size_t i = 0; i < num_sums; ++i) {
    StateReader sum(read->sections[1 + i]);
    EXPECT_EQ(sum.Take<uint64_t>() > 0, true);
    for (int settings = 0; settings < 2; ++settings) (void)sum.TakeSettings();
    (void)sum.TakeBytes(2);  // encoded, has
    const auto unit = sum.Take<int16_t>();
    (void)sum.Take<float>();
    if (sum.Take<uint8_t>() != 0) add(sum, layout.chunks[i], are_units, unit);
    EXPECT_THAT(sum.Finish(), IsOk());
  }
}

Totals HeldOf(const ClusterConfig& config, const CutOfKeys& saved) {
  const bool are_units = config.compression.type == "2bit";
  Totals totals = NoTotals();
  for (Key key = 0; key < saved.size(); ++key) {
    const TensorLayout layout = LayoutOf(config, key);
    for (size_t rank = 0; rank < saved[key].size(); ++rank) {
      AddHeldOf(saved[key][rank], layout, rank == 0, are_units, totals[key]);
    }
  }
  return totals;
}

void SaveAll(KVStore& store, CutOfKeys& saved) {
  const auto rank = static_cast<size_t>(store.group().rank());
  ASSERT_THAT(store.group().Gather("idle", "").status(), IsOk());
  for (Key key = 0; key < kCutTensors.size(); ++key) {
    const auto text = store.states()->codec_states()->SaveCodec(key);
    ASSERT_THAT(text, IsOk());
    saved[key][rank] = *text;
  }
  ASSERT_THAT(store.group().Gather("saved", "").status(), IsOk());
}

CutOfKeys RunOld(const ClusterConfig& config, Totals* totals) {
  CutOfKeys saved(kCutTensors.size(),
                  CutTexts(static_cast<size_t>(config.workers)));
  Cluster(config).Run([&](KVStore& store) {
    CutRounds(store, 0, kOldRounds, totals);
    SaveAll(store, saved);
  });
  return saved;
}

// Worker i's go to i mod W', as trainers deal them.
OldCodecs DealtTo(const ClusterConfig& config, const CutTexts& texts, int rank,
                  int workers, bool drops) {
  OldCodecs old{.num_servers = config.servers,
                .takes_first = !drops && rank < config.workers};
  for (int from = rank; from < config.workers || old.texts.empty();
       from += workers) {
    const int part = from % config.workers;
    old.texts.push_back({part, texts[static_cast<size_t>(part)]});
    if (drops) break;
  }
  return old;
}

void LoadDealt(KVStore& store, const ClusterConfig& config,
               const CutOfKeys& saved, bool drops) {
  CodecStates& codecs = *store.states()->codec_states();
  for (Key key = 0; key < kCutTensors.size(); ++key) {
    const auto text =
        codecs.RecutCodec(key, DealtTo(config, saved[key], store.group().rank(),
                                       store.group().num_workers(), drops));
    ASSERT_THAT(text, IsOk());
    ASSERT_THAT(codecs.LoadCodec(key, *text), IsOk());
  }
  ASSERT_THAT(store.group().Gather("loaded", "").status(), IsOk());
}

struct Numbers {
  int workers;
  int servers;
};
constexpr Numbers kOtherNumbers[] = {{2, 1}, {2, 3}, {8, 2}, {3, 2}, {4, 3}};

TEST(RecutCodecs, KeepsTheSumOfWhatIsHeldBackExactly) {
  for (const char* codec :
       {"2bit", "threshold", "int4shared", "int2shared", "topk"}) {
    const ClusterConfig config = CutConfig(codec, 4, 2);
    Totals pushed = NoTotals();
    const CutOfKeys saved = RunOld(config, &pushed);
    const Totals before = HeldOf(config, saved);
    EXPECT_EQ(before, pushed) << codec;  // nothing was lost so far
    EXPECT_NE(before, NoTotals());
    for (const Numbers& numbers : kOtherNumbers) {
      SCOPED_TRACE(
          absl::StrCat(codec, " ", numbers.workers, " ", numbers.servers));
      const ClusterConfig other =
          CutConfig(codec, numbers.workers, numbers.servers);
      CutOfKeys there(kCutTensors.size(),
                      CutTexts(static_cast<size_t>(numbers.workers)));
      CutOfKeys end = there;
      Totals later = before;
      Cluster(other).Run([&](KVStore& store) {
        LoadDealt(store, config, saved, false);
        SaveAll(store, there);
        CutRounds(store, kOldRounds, kNewRounds, &later);
        SaveAll(store, end);
      });
      EXPECT_EQ(HeldOf(other, there), before);
      EXPECT_EQ(HeldOf(other, end), later);
    }
  }
}

// Of worker 0's text, as docs/checkpoints.md has it: of each chunk.
struct SavedSquares {
  uint64_t count = 0;
  double sum = 0;
};
std::vector<SavedSquares> SquaresOf(const std::string& text,
                                    const TensorLayout& layout) {
  std::vector<SavedSquares> found;
  const auto read = ReadCodecSections(text, 1 + layout.chunks.size());
  EXPECT_THAT(read, IsOk());
  if (!read.ok()) return found;
  StateReader worker(read->sections[0]);
  for (const Chunk& chunk : layout.chunks) {
    for (int i = 0; i < 2; ++i) (void)worker.TakeSettings();
    (void)worker.TakeBytes(2);  // encoded, bad
    SavedSquares& squares = found.emplace_back();
    squares.count = worker.Take<uint64_t>();
    squares.sum = worker.Take<double>();
    (void)worker.TakeBytes(18);  // squares before, vetoes
    if (worker.Take<uint8_t>() != 0)
      (void)worker.TakeBytes(4 * chunk.num_elems);
    (void)worker.TakeBytes(worker.Take<uint64_t>());
  }
  return found;
}

// Every element's square is 1, so that a sample's are as many as it has.
TEST(RecutCodecs, TheGuardGoesOnWithGradientsOfBefore) {
  constexpr int kRounds = 2 * static_cast<int>(kGuardPeriod);
  const ClusterConfig config = CutConfig("2bit", 2, 2);
  CutOfKeys saved(kCutTensors.size(), CutTexts(2));
  Cluster(config).Run([&](KVStore& store) {
    for (int round = 0; round < kRounds; ++round) {
      for (Key key = 0; key < kCutTensors.size(); ++key) {
        const Buffer grad(4 * kCutTensors[key].num_elems);
        std::fill_n(grad.as<float>(), kCutTensors[key].num_elems, 1.0f);
        ASSERT_THAT(
            store.PushPull(key, grad.view(), grad.view(), 0).Wait(Soon()),
            IsOk());
      }
    }
    SaveAll(store, saved);
  });
  for (const bool drops : {false, true}) {
    const ClusterConfig other = CutConfig("2bit", 1, 3);
    CutOfKeys there(kCutTensors.size(), CutTexts(1));
    Cluster(other).Run([&](KVStore& store) {
      LoadDealt(store, config, saved, drops);
      SaveAll(store, there);
    });
    for (Key key = 0; key < kCutTensors.size(); ++key) {
      const TensorLayout layout = LayoutOf(other, key);
      const std::vector<SavedSquares> squares =
          SquaresOf(there[key][0], layout);
      ASSERT_EQ(squares.size(), layout.chunks.size());
      for (size_t i = 0; i < squares.size(); ++i) {
        const size_t n = layout.chunks[i].num_elems;
        const size_t stride = std::max<size_t>(1, n / kGuardSamples);
        EXPECT_EQ(squares[i].count, 2u) << key << " " << i;
        const size_t num_samples = (n + stride - 1) / stride;
        EXPECT_EQ(squares[i].sum, static_cast<double>(2 * num_samples)) << i;
      }
    }
  }
}

TEST(RecutCodecs, DropsAllAndTellsItsNorm) {
  const ClusterConfig config = CutConfig("2bit", 4, 2);
  const CutOfKeys saved = RunOld(config, nullptr);
  const Totals held = HeldOf(config, saved);
  const ClusterConfig other = CutConfig("2bit", 2, 3);
  CutOfKeys there(kCutTensors.size(), CutTexts(2));
  Cluster(other).Run([&](KVStore& store) {
    CodecStates& codecs = *store.states()->codec_states();
    for (Key key = 0; key < kCutTensors.size(); ++key) {
      double squares = 0;
      for (const double each : held[key]) squares += each * each;
      const auto norm =
          codecs.HeldNorm(key, DealtTo(config, saved[key], 0, 1, false));
      ASSERT_THAT(norm, IsOk());
      EXPECT_NEAR(*norm, std::sqrt(squares), 1e-6 * *norm);
    }
    LoadDealt(store, config, saved, true);
    SaveAll(store, there);
    CutRounds(store, kOldRounds, kNewRounds, nullptr);
  });
  EXPECT_EQ(HeldOf(other, there), NoTotals());
}

TEST(RecutCodecs, OfEachCodecGoesOn) {
  for (const Codec* codec : AllCodecs()) {
    SCOPED_TRACE(codec->traits().name);
    const ClusterConfig config = CutConfig(codec->traits().name, 2, 2);
    const CutOfKeys saved = RunOld(config, nullptr);
    Cluster(CutConfig(codec->traits().name, 3, 1)).Run([&](KVStore& store) {
      LoadDealt(store, config, saved, false);
      CutRounds(store, kOldRounds, kNewRounds, nullptr);
    });
  }
}

TEST(RecutCodecs, OfTheSameNumbersIsTheSameText) {
  for (const char* codec : {"2bit", "int4shared", "int2", "dgc", "powersgd"}) {
    const ClusterConfig config = CutConfig(codec, 2, 2);
    const CutOfKeys saved = RunOld(config, nullptr);
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      for (Key key = 0; key < kCutTensors.size(); ++key) {
        const auto text = store.states()->codec_states()->RecutCodec(
            key, DealtTo(config, saved[key], rank, 2, false));
        ASSERT_THAT(text, IsOk());
        EXPECT_TRUE(*text == saved[key][static_cast<size_t>(rank)]) << codec;
      }
    });
  }
}

// Bytes that anybody may have written, or of another number of servers.
TEST(RecutCodecs, DamagedOnesEndInAnError) {
  const ClusterConfig config = CutConfig("2bit", 1, 3);
  const CutOfKeys saved = RunOld(config, nullptr);
  Cluster(CutConfig("2bit", 1, 1)).Run([&](KVStore& store) {
    CodecStates& codecs = *store.states()->codec_states();
    const std::string& text = saved[0][0];
    for (size_t size = 0; size < text.size(); ++size) {
      EXPECT_FALSE(codecs.RecutCodec(0, {3, {{0, text.substr(0, size)}}}).ok());
    }
    for (size_t at = 0; at < text.size(); ++at) {
      std::string bad = text;
      bad[at] = static_cast<char>(bad[at] ^ 0xff);
      (void)codecs.RecutCodec(0, {3, {{0, bad}}});
    }
    EXPECT_THAT(codecs.RecutCodec(1, {2, {{0, saved[1][0]}}}),
                StatusIs(absl::StatusCode::kDataLoss, "state of a codec"));
    EXPECT_THAT(codecs.RecutCodec(0, {0, {{0, text}}}),
                StatusIs(absl::StatusCode::kInvalidArgument, "no server"));
    EXPECT_FALSE(codecs.RecutCodec(9, {3, {{0, text}}}).ok());
  });
}

}  // namespace
}  // namespace telegrad
