#include "kvstore/states.h"

#include <cstring>

#include "base/crc32c.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// What an optimizer keeps, as a text and through every store that has one.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

OptimizerStates Sample() {
  OptimizerStates states{.kind = OptimizerKind::kNag, .tensors = {}};
  states.tensors.push_back(
      {.name = "ab", .num_elems = 2, .num_steps = 3, .arrays = {}});
  Buffer& momentum = states.tensors[0].arrays.emplace_back(8);
  momentum.as<float>()[0] = 1;
  momentum.as<float>()[1] = -2;
  states.tensors.push_back(
      {.name = "c", .num_elems = 7, .num_steps = 0, .arrays = {}});
  return states;
}

// By hand, from the grammar in states.h; the check by Crc32c.
TEST(States, BytesAreThoseOfTheGrammar) {
  const std::string body(
      "TGRS\x01\0\x01\0\x02\0\0\0\0\0\0\0"
      "T\x01\x02\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"
      "ab\0\0\x80\x3f\0\0\0\xc0"
      "T\0\x01\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "c",
      16 + 24 + 10 + 24 + 1);
  const std::string text = SerializeStates(Sample());
  ASSERT_EQ(text.size(), body.size() + 4);
  EXPECT_EQ(text.substr(0, body.size()), body);
  const uint32_t crc = Crc32c(body.data(), body.size());
  EXPECT_EQ(std::memcmp(text.data() + body.size(), &crc, 4), 0);
}

TEST(States, ComeBack) {
  const auto states = ParseStates(SerializeStates(Sample()));
  ASSERT_THAT(states, IsOk());
  EXPECT_EQ(states->kind, OptimizerKind::kNag);
  ASSERT_EQ(states->tensors.size(), 2u);
  EXPECT_EQ(states->tensors[0].name, "ab");
  EXPECT_EQ(states->tensors[0].num_steps, 3u);
  EXPECT_EQ(states->tensors[0].arrays[0].as<float>()[1], -2);
  EXPECT_TRUE(states->tensors[1].arrays.empty());
}

TEST(States, EveryDamageIsSeen) {
  const std::string text = SerializeStates(Sample());
  for (size_t at = 0; at < text.size(); ++at) {
    EXPECT_FALSE(ParseStates(text.substr(0, at)).ok()) << at;
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_FALSE(ParseStates(changed).ok()) << at;
  }
  EXPECT_FALSE(ParseStates(text + "x").ok());
}

// Whole, but not possible: with a check that is right.
TEST(States, NumbersThatCannotBeAreRefused) {
  const auto parse = [](size_t at, char value) {
    std::string text = SerializeStates(Sample());
    text.resize(text.size() - 4);
    text[at] = value;
    const uint32_t crc = Crc32c(text.data(), text.size());
    text.append(reinterpret_cast<const char*>(&crc), 4);
    return ParseStates(text).status();
  };
  const auto damaged = absl::StatusCode::kDataLoss;
  EXPECT_THAT(parse(4, 2), StatusIs(kInvalid, "version 2"));
  EXPECT_THAT(parse(6, 9), StatusIs(kInvalid, "optimizer 9"));
  EXPECT_THAT(parse(8, 3), StatusIs(damaged, "no tensor"));
  EXPECT_THAT(parse(8, 1), StatusIs(damaged, "more than"));
  EXPECT_THAT(parse(16 + 1, 3), StatusIs(damaged, "longer"));
  EXPECT_THAT(parse(16 + 3, 1), StatusIs(damaged, "longer"));
  EXPECT_THAT(parse(16 + 15, '\x40'), StatusIs(damaged, "longer"));
}

TEST(States, OfOtherTensorsAreRefused) {
  const std::vector<TensorSpec> own = {{"ab", 2}, {"c", 7}};
  EXPECT_THAT(CheckStates(Sample(), OptimizerKind::kNag, own), IsOk());
  EXPECT_THAT(CheckStates(Sample(), OptimizerKind::kSgd, own),
              StatusIs(kInvalid, "nag for a store of 2 with sgd"));
  EXPECT_THAT(CheckStates(Sample(), OptimizerKind::kNag, {{"ab", 2}}),
              StatusIs(kInvalid, "2 tensors"));
  EXPECT_THAT(CheckStates(Sample(), OptimizerKind::kNag, {{"ab", 2}, {"c", 8}}),
              StatusIs(kInvalid, "'c' with 7"));
  OptimizerStates lacking = Sample();
  lacking.tensors[0].arrays.clear();
  EXPECT_THAT(CheckStates(lacking, OptimizerKind::kNag, own),
              StatusIs(kInvalid, "0 arrays after 3"));
}

struct Stored {
  std::string states;
  std::vector<std::vector<float>> weights;  // by key
};

const std::vector<TensorSpec> kTensors = {{"a", 100}, {"b", 33}, {"c", 1}};

void Step(KVStore& store, int contributor, int step, Stored* seen) {
  if (seen != nullptr) seen->weights.clear();
  const size_t devices = store.traits().has_workers ? 0 : 1;
  for (size_t key = 0; key < kTensors.size(); ++key) {
    const size_t n = kTensors[key].num_elems;
    std::vector<Buffer> memory;
    std::vector<TensorView> views;
    for (size_t device = 0; device < 1 + devices; ++device) {
      Buffer& grad = memory.emplace_back(4 * n);
      for (size_t i = 0; i < n; ++i) {
        grad.as<float>()[i] =
            GradOf(contributor + static_cast<int>(device), step, i);
      }
      views.push_back(FloatTensor(grad.view()));
    }
    ASSERT_THAT(
        store.PushPull(static_cast<Key>(key), views, views, 0).Wait(Soon()),
        IsOk());
    const auto* const out = memory[0].as<float>();
    if (seen != nullptr) seen->weights.emplace_back(out, out + n);
  }
}

ClusterConfig Config(OptimizerKind kind, const std::string& store,
                     int servers) {
  ClusterConfig config = testing::Job(store == "dist_async" ? 1 : 2, servers);
  config.store = store;
  config.tensors = kTensors;
  config.optimizer = {.update_on = UpdateOn::kServer,
                      .kind = kind,
                      .sgd = {.learning_rate = 0.1f, .momentum_rate = 0.9f}};
  return config;
}

// Steps, saves, and steps on.
struct Course {
  Stored saved;
  Stored end;
};
Course RunCourse(const ClusterConfig& config) {
  Course course;
  Cluster(config).Run([&](KVStore& store) {
    const int rank = store.group().rank();
    for (int step = 0; step < 3; ++step) {
      Step(store, rank, step, rank == 0 ? &course.saved : nullptr);
    }
    const auto text = store.states()->Save();
    ASSERT_THAT(text, IsOk());
    EXPECT_EQ(text->empty(), rank != 0);
    if (rank == 0) course.saved.states = *text;
    for (int step = 3; step < 5; ++step) {
      Step(store, rank, step, rank == 0 ? &course.end : nullptr);
    }
  });
  return course;
}

// A new store with these weights and states, which steps on.
std::vector<std::vector<float>> Resume(const ClusterConfig& config,
                                       const Stored& from) {
  Stored end;
  Cluster(config).Run([&](KVStore& store) {
    const int rank = store.group().rank();
    for (size_t key = 0; key < kTensors.size(); ++key) {
      Buffer value(4 * kTensors[key].num_elems);
      std::copy(from.weights[key].begin(), from.weights[key].end(),
                value.as<float>());
      const TensorView view = FloatTensor(value.view());
      ASSERT_THAT(
          store.Broadcast(static_cast<Key>(key), 0, {&view, 1}, 0).Wait(Soon()),
          IsOk());
    }
    ASSERT_THAT(store.states()->Load(rank == 0 ? from.states : ""), IsOk());
    for (int step = 3; step < 5; ++step) {
      Step(store, rank, step, rank == 0 ? &end : nullptr);
    }
  });
  return end.weights;
}

TEST(States, ComeBackThroughServersHoweverMany) {
  for (const char* type : {"dist_sync", "dist_async"}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
      const Course course = RunCourse(Config(kind, type, 1));
      EXPECT_EQ(Resume(Config(kind, type, 3), course.saved), course.end.weights)
          << type << " " << ToString(kind);
      Stored without = course.saved;
      without.states = SerializeStates(
          {.kind = kind, .tensors = {}});  // what is refused changes nothing
      Cluster(Config(kind, type, 1)).Run([&](KVStore& store) {
        EXPECT_THAT(store.states()->Load(without.states),
                    StatusIs(kInvalid, "0 tensors"));
        Step(store, store.group().rank(), 0, nullptr);
      });
    }
  }
}

std::unique_ptr<KVStore> MakeLocal(OptimizerKind kind,
                                   const std::vector<std::vector<float>>& at) {
  StoreOptions options;
  options.num_devices = 2;
  options.chunk_elems = 32;
  auto store = MakeKVStore("local", options, nullptr);
  EXPECT_THAT(store, IsOk());
  EXPECT_THAT((*store)->SetOptimizer(Config(kind, "local", 1).optimizer),
              IsOk());
  std::vector<Buffer> memory;
  std::vector<TensorView> views;
  for (size_t key = 0; key < kTensors.size(); ++key) {
    for (int device = 0; device < 2; ++device) {
      Buffer& value = memory.emplace_back(4 * kTensors[key].num_elems);
      if (!at.empty()) {
        std::copy(at[key].begin(), at[key].end(), value.as<float>());
      }
      views.push_back(FloatTensor(value.view()));
    }
  }
  EXPECT_THAT((*store)->Init(kTensors, views).status(), IsOk());
  return *std::move(store);
}

TEST(States, ComeBackInOneProcess) {
  for (const OptimizerKind kind : {OptimizerKind::kNag, OptimizerKind::kAdam}) {
    const auto store = MakeLocal(kind, {});
    Stored saved;
    for (int step = 0; step < 3; ++step) Step(*store, 0, step, &saved);
    const auto text = store->states()->Save();
    ASSERT_THAT(text, IsOk());
    Stored end;
    for (int step = 3; step < 5; ++step) Step(*store, 0, step, &end);
    const auto other = MakeLocal(kind, saved.weights);
    ASSERT_THAT(other->states()->Load(*text), IsOk());
    Stored again;
    for (int step = 3; step < 5; ++step) Step(*other, 0, step, &again);
    EXPECT_EQ(again.weights, end.weights) << ToString(kind);
    EXPECT_THAT(other->states()->Load("x"),
                StatusIs(absl::StatusCode::kDataLoss, ""));
  }
}

// Those of one process come back on servers: the same tensors and optimizer.
TEST(States, MoveBetweenTypesOfStores) {
  const OptimizerKind kind = OptimizerKind::kAdam;
  const auto store = MakeLocal(kind, {});
  Stored saved;
  for (int step = 0; step < 3; ++step) Step(*store, 0, step, &saved);
  saved.states = *store->states()->Save();
  Stored end;
  for (int step = 3; step < 5; ++step) Step(*store, 0, step, &end);
  EXPECT_EQ(Resume(Config(kind, "dist_sync", 2), saved), end.weights);
}

TEST(States, NeedAnOptimizerInTheStore) {
  Cluster(testing::Job(1)).Run([](KVStore& store) {
    const auto too_soon = absl::StatusCode::kFailedPrecondition;
    EXPECT_THAT(store.states()->Save().status(),
                StatusIs(too_soon, "on the workers"));
    EXPECT_THAT(store.states()->Load(""), StatusIs(too_soon, ""));
  });
}

}  // namespace
}  // namespace telegrad
