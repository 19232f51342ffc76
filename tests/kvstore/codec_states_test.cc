// What codecs keep of a tensor between rounds goes on in another store, to the
// same bits.
#include <algorithm>

#include "base/device_access.h"
#include "base/random.h"
#include "compression/codec.h"
#include "kvstore/states.h"
#include "tests/kvstore/cluster.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Soon;

constexpr int kSavedSteps = 5;
const std::vector<TensorSpec> kSavedTensors = {{"a", 200}, {"b", 33}};

using SavedTexts = std::vector<std::vector<std::string>>;  // by rank and key
using SavedOutputs = std::vector<std::vector<float>>;      // by step and key

// What is pushed differs by magnitude, too, so that scales move.
float SavedGradAt(int worker, int step, size_t i) {
  Random random(static_cast<uint64_t>(worker * 1000 + step), i);
  const float value = random.NextUniform(-1, 1);
  return value * static_cast<float>(1 + step % 3);
}

// Of so many tensors in host memory, or on another device.
void SavedRound(KVStore& store, int first, int step, int devices,
                SavedOutputs* seen, Device place = {}) {
  for (size_t key = 0; key < kSavedTensors.size(); ++key) {
    const size_t n = kSavedTensors[key].num_elems;
    std::vector<Buffer> memory;
    std::vector<TensorView> views;
    for (int device = 0; device < devices; ++device) {
      Buffer& grad = memory.emplace_back(
          place == Device{} ? Buffer(4 * n) : MakeEmulatedBuffer(4 * n));
      auto* const values = reinterpret_cast<float*>(Reach(grad.view()).data);
      for (size_t i = 0; i < n; ++i) {
        values[i] = SavedGradAt(first + device, step, i);
      }
      views.push_back(FloatTensor(grad.view()));
    }
    ASSERT_THAT(
        store.PushPull(static_cast<Key>(key), views, views, 0).Wait(Soon()),
        IsOk());
    const auto* const out =
        reinterpret_cast<const float*>(Reach(memory[0].view()).data);
    if (seen != nullptr) seen->emplace_back(out, out + n);
  }
}

ClusterConfig SavedConfig(const std::string& codec, ReplyMode reply,
                          const std::string& store) {
  ClusterConfig config = testing::Job(2, 2);
  config.store = store;
  config.tensors = kSavedTensors;
  config.compression = {.type = codec, .reply = reply};
  return config;
}

Device PlaceOf(const ClusterConfig& config) {
  const std::vector<Device>& devices = config.tensors[0].devices;
  return devices.empty() ? Device{} : devices[0];
}

ClusterConfig OnTheDevice(ClusterConfig config) {
  for (TensorSpec& each : config.tensors) each.devices = {kEmulatedDevice};
  return config;
}

// Rounds, what they leave, and the rounds after that.
struct SavedHalves {
  SavedTexts saved{2};
  SavedOutputs later;
};
SavedHalves RunAndSave(const ClusterConfig& config) {
  SavedHalves run;
  Cluster(config).Run([&](KVStore& store) {
    const int rank = store.group().rank();
    for (int step = 0; step < kSavedSteps; ++step) {
      SavedRound(store, rank, step, 1, nullptr, PlaceOf(config));
    }
    ASSERT_THAT(store.group().Gather("idle", "").status(), IsOk());
    for (Key key = 0; key < kSavedTensors.size(); ++key) {
      const auto text = store.states()->codec_states()->SaveCodec(key);
      ASSERT_THAT(text, IsOk());
      run.saved[static_cast<size_t>(rank)].push_back(*text);
    }
    ASSERT_THAT(store.group().Gather("saved", "").status(), IsOk());
    for (int step = kSavedSteps; step < 2 * kSavedSteps; ++step) {
      SavedRound(store, rank, step, 1, rank == 0 ? &run.later : nullptr,
                 PlaceOf(config));
    }
  });
  return run;
}

SavedOutputs GoOnFrom(const ClusterConfig& config, const SavedTexts& saved) {
  SavedOutputs later;
  Cluster(config).Run([&](KVStore& store) {
    const int rank = store.group().rank();
    for (Key key = 0; key < kSavedTensors.size(); ++key) {
      ASSERT_THAT(store.states()->codec_states()->LoadCodec(
                      key, saved[static_cast<size_t>(rank)][key]),
                  IsOk());
    }
    ASSERT_THAT(store.group().Gather("loaded", "").status(), IsOk());
    for (int step = kSavedSteps; step < 2 * kSavedSteps; ++step) {
      SavedRound(store, rank, step, 1, rank == 0 ? &later : nullptr,
                 PlaceOf(config));
    }
  });
  return later;
}

TEST(CodecStates, OfEachCodecAndReplyComeBackToTheSameBits) {
  for (const Codec* codec : AllCodecs()) {
    for (const ReplyMode reply :
         {ReplyMode::kAuto, ReplyMode::kReencode, ReplyMode::kDense}) {
      const ClusterConfig config =
          SavedConfig(codec->traits().name, reply, "dist_sync");
      const SavedHalves run = RunAndSave(config);
      EXPECT_EQ(GoOnFrom(config, run.saved), run.later)
          << codec->traits().name << " " << ToString(reply);
    }
  }
}

TEST(CodecStates, OnADeviceAreThoseOfTheHost) {
  for (const Codec* codec : AllCodecs()) {
    SCOPED_TRACE(codec->traits().name);
    ClusterConfig here =
        SavedConfig(codec->traits().name, ReplyMode::kReencode, "dist_sync");
    here.has_values = false;
    const ClusterConfig there = OnTheDevice(here);
    const SavedHalves run = RunAndSave(there);
    EXPECT_EQ(RunAndSave(here).saved, run.saved);
    EXPECT_EQ(GoOnFrom(there, run.saved), run.later);
    EXPECT_EQ(GoOnFrom(here, run.saved), run.later);
  }
}

TEST(CodecStates, OfTheFirstRoundsDoNot) {
  for (const char* codec : {"2bit", "threshold", "powersgd", "dgc", "topk"}) {
    const ClusterConfig config =
        SavedConfig(codec, ReplyMode::kReencode, "dist_sync");
    const SavedHalves run = RunAndSave(config);
    SavedOutputs fresh;
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      for (int step = kSavedSteps; step < 2 * kSavedSteps; ++step) {
        SavedRound(store, rank, step, 1, rank == 0 ? &fresh : nullptr);
      }
    });
    EXPECT_NE(fresh, run.later) << codec << ": nothing depends on the state";
  }
}

// docs/checkpoints.md, byte by byte: of a text with one encoder's section.
void ForgetResidual(size_t num_elems, std::string& text) {
  size_t at = 32;  // of the first chunk
  for (size_t begin = 0; begin < num_elems; begin += 32) {
    const size_t num_bytes = 4 * std::min<size_t>(32, num_elems - begin);
    ASSERT_EQ(text[at + 42], 1) << "has a residual";
    text.replace(at + 43, num_bytes, num_bytes, '\0');
    at += 43 + num_bytes + 8;
  }
  EXPECT_EQ(at, text.size());
}

TEST(CodecStates, WithoutAResidualEndElsewhere) {
  const ClusterConfig config =
      SavedConfig("2bit", ReplyMode::kAuto, "dist_sync");
  const SavedHalves run = RunAndSave(config);
  SavedTexts without = run.saved;
  ForgetResidual(kSavedTensors[0].num_elems, without[1][0]);
  EXPECT_NE(GoOnFrom(config, without), run.later);
  EXPECT_EQ(GoOnFrom(config, run.saved), run.later);
}

std::unique_ptr<KVStore> LocalStoreOf(const char* codec, int num_devices) {
  StoreOptions options;
  options.num_devices = num_devices;
  options.chunk_elems = 32;
  auto store = MakeKVStore("local", options, nullptr);
  EXPECT_THAT(store, IsOk());
  EXPECT_THAT(
      (*store)->SetCompression({.type = codec, .reply = ReplyMode::kReencode}),
      IsOk());
  EXPECT_THAT((*store)->Init(kSavedTensors, {}).status(), IsOk());
  return *std::move(store);
}

TEST(CodecStates, ComeBackInOneProcess) {
  for (const char* codec : {"2bit", "int4", "int2", "dgc", "powersgd"}) {
    const auto store = LocalStoreOf(codec, 2);
    for (int step = 0; step < kSavedSteps; ++step)
      SavedRound(*store, 0, step, 2, {});
    const auto other = LocalStoreOf(codec, 2);
    for (Key key = 0; key < kSavedTensors.size(); ++key) {
      const auto text = store->states()->codec_states()->SaveCodec(key);
      ASSERT_THAT(text, IsOk());
      ASSERT_THAT(other->states()->codec_states()->LoadCodec(key, *text),
                  IsOk());
    }
    SavedOutputs end;
    SavedOutputs again;
    for (int step = kSavedSteps; step < 2 * kSavedSteps; ++step) {
      SavedRound(*store, 0, step, 2, &end);
      SavedRound(*other, 0, step, 2, &again);
    }
    EXPECT_EQ(again, end) << codec;
  }
}

// Rounds from a state, twice: those that come first leave nothing behind.
void RunTwiceFromTheStart(KVStore& store, int first, int devices) {
  WorkerGroup& group = store.group();
  std::vector<std::string> texts;
  for (Key key = 0; key < kSavedTensors.size(); ++key) {
    const auto text = store.states()->codec_states()->SaveCodec(key);
    ASSERT_THAT(text, IsOk());
    texts.push_back(*text);
  }
  SavedOutputs seen[2];
  for (SavedOutputs& outputs : seen) {
    ASSERT_THAT(group.Gather("idle", "").status(), IsOk());
    for (Key key = 0; key < kSavedTensors.size(); ++key) {
      ASSERT_THAT(store.states()->codec_states()->LoadCodec(key, texts[key]),
                  IsOk());
    }
    ASSERT_THAT(group.Gather("loaded", "").status(), IsOk());
    for (int step = 0; step < kSavedSteps; ++step) {
      SavedRound(store, first, step, devices, &outputs);
    }
  }
  EXPECT_EQ(seen[1], seen[0]);
}

TEST(CodecStates, LeaveNothingOfRoundsAfterThem) {
  for (const char* codec : {"2bit", "int4", "int2", "dgc", "powersgd"}) {
    SCOPED_TRACE(codec);
    RunTwiceFromTheStart(*LocalStoreOf(codec, 2), 0, 2);
    Cluster(SavedConfig(codec, ReplyMode::kReencode, "dist_sync"))
        .Run([](KVStore& store) {
          RunTwiceFromTheStart(store, store.group().rank(), 1);
        });
  }
}

// Bytes that anybody may have written end in an error or in a state, of which
// the next rounds can be made.
TEST(CodecStates, DamagedOnesEndInAnError) {
  for (const char* codec : {"2bit", "threshold", "dgc", "powersgd"}) {
    const auto make = [&] { return LocalStoreOf(codec, 1); };
    const auto store = make();
    for (int step = 0; step < kSavedSteps; ++step)
      SavedRound(*store, 0, step, 1, {});
    const std::string text = *store->states()->codec_states()->SaveCodec(1);
    for (size_t size = 0; size < text.size(); ++size) {
      EXPECT_FALSE(make()
                       ->states()
                       ->codec_states()
                       ->LoadCodec(1, text.substr(0, size))
                       .ok())
          << codec << " " << size;
    }
    EXPECT_FALSE(
        make()->states()->codec_states()->LoadCodec(1, text + "x").ok());
    EXPECT_FALSE(make()->states()->codec_states()->LoadCodec(0, text).ok())
        << codec;
    EXPECT_FALSE(make()->states()->codec_states()->LoadCodec(9, text).ok());
    for (size_t at = 0; at < text.size(); ++at) {
      std::string bad = text;
      bad[at] = static_cast<char>(bad[at] ^ 0xff);
      const auto other = make();
      if (!other->states()->codec_states()->LoadCodec(1, bad).ok()) continue;
      const size_t n = kSavedTensors[1].num_elems;
      const Buffer grad(4 * n);
      (void)other->PushPull(1, grad.view(), grad.view(), 0).Wait(Soon());
    }
  }
}

TEST(CodecStates, AreRefusedByNameWithoutRounds) {
  ClusterConfig config = testing::Job(1);
  config.store = "dist_async";
  config.optimizer.update_on = UpdateOn::kServer;
  Cluster(config).Run([](KVStore& store) {
    EXPECT_THAT(
        store.states()->codec_states()->SaveCodec(0).status(),
        testing::StatusIs(absl::StatusCode::kUnimplemented, "dist_async"));
  });
}

}  // namespace
}  // namespace telegrad
