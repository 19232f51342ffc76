#include "kvstore/ps/wire/job_config.h"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/codec_policy.h"
#include "tests/testing/same_bits.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;
using testing::IsOk;
using testing::SameBits;
using testing::StatusIs;

constexpr int64_t kPlenty = int64_t{1} << 40;

JobConfig Sample() {
  JobConfig config;
  config.tensors = {{.name = "conv1.weight",
                     .num_elems = 500,
                     .rates = {.lr = 0.1f, .wd = 3}},
                    {"A_b.c:/-9", 1},
                    {.name = "planned",
                     .num_elems = 2,
                     .codec = "topk:0.5",
                     .chunk_elems = 96}};
  config.compression.type = "2bit";
  config.compression.alternatives = {"fp16", "topk:0.1"};
  config.compression.threshold = {ThresholdSpec::Kind::kBatch, 0.1234567f};
  config.compression.batch_size = 3;
  config.compression.min_bytes = 77;
  config.compression.reply = ReplyMode::kDense;
  config.compression.packing = PackingMode::kRadix;
  config.compression.nonfinite = NonFinitePolicy::kSkip;
  config.optimizer = {
      .update_on = UpdateOn::kServer,
      .sgd = {.learning_rate = 1e-7f,
              .momentum_rate = std::nextafter(0.9f, 1.0f),
              .weight_decay = std::numeric_limits<float>::denorm_min(),
              .rescale = -0.0f}};
  config.optimizer.kind = OptimizerKind::kAdamW;
  config.optimizer.adam = {.beta1 = 0.1f, .beta2 = 0.2f, .epsilon = 0.3f};
  config.chunk_elems = 12345;
  config.has_values = true;
  config.is_async = true;
  config.max_staleness = 7;
  return config;
}

TEST(JobConfig, ComesBackBitByBit) {
  const JobConfig in = Sample();
  const auto out = ParseJobConfig(SerializeJobConfig(in), kPlenty);
  ASSERT_THAT(out, IsOk());
  ASSERT_EQ(out->tensors.size(), 3u);
  EXPECT_EQ(out->tensors[2].codec, "topk:0.5");
  EXPECT_EQ(out->tensors[2].chunk_elems, 96u);
  EXPECT_EQ(out->tensors[1].codec, "");
  EXPECT_EQ(out->tensors[1].chunk_elems, 0u);
  EXPECT_EQ(out->tensors[1].name, "A_b.c:/-9");
  EXPECT_EQ(out->tensors[0].num_elems, 500u);
  const CompressionConfig& gc = out->compression;
  EXPECT_EQ(gc.type, "2bit");
  EXPECT_EQ(gc.alternatives, in.compression.alternatives);
  EXPECT_EQ(gc.threshold.kind, ThresholdSpec::Kind::kBatch);
  EXPECT_TRUE(SameBits(gc.threshold.value, in.compression.threshold.value));
  EXPECT_EQ(gc.batch_size, 3);
  EXPECT_EQ(gc.min_bytes, 77);
  EXPECT_EQ(gc.reply, ReplyMode::kDense);
  EXPECT_EQ(gc.packing, PackingMode::kRadix);
  EXPECT_EQ(gc.nonfinite, NonFinitePolicy::kSkip);
  EXPECT_EQ(out->optimizer.update_on, UpdateOn::kServer);
  const SgdParameters& sgd = out->optimizer.sgd;
  EXPECT_TRUE(SameBits(sgd.learning_rate, in.optimizer.sgd.learning_rate));
  EXPECT_TRUE(SameBits(sgd.momentum_rate, in.optimizer.sgd.momentum_rate));
  EXPECT_TRUE(SameBits(sgd.weight_decay, in.optimizer.sgd.weight_decay));
  EXPECT_TRUE(SameBits(sgd.rescale, in.optimizer.sgd.rescale));
  EXPECT_EQ(out->optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_TRUE(SameBits(out->optimizer.adam.beta1, 0.1f));
  EXPECT_TRUE(SameBits(out->optimizer.adam.beta2, 0.2f));
  EXPECT_TRUE(SameBits(out->optimizer.adam.epsilon, 0.3f));
  EXPECT_TRUE(SameBits(out->tensors[0].rates.lr, 0.1f));
  EXPECT_TRUE(SameBits(out->tensors[0].rates.wd, 3.0f));
  EXPECT_TRUE(SameBits(out->tensors[1].rates.lr, 1.0f));
  EXPECT_EQ(out->chunk_elems, 12345u);
  EXPECT_TRUE(out->has_values);
  EXPECT_TRUE(out->is_async);
  EXPECT_EQ(out->max_staleness, 7);
  EXPECT_EQ(out->drop_slowest, 0);
  JobConfig sync = Sample();
  sync.is_async = false;
  sync.drop_slowest = 3;
  EXPECT_EQ(ParseJobConfig(SerializeJobConfig(sync), kPlenty)->drop_slowest, 3);
}

TEST(JobConfig, RefusesEveryMissingOrMistypedField) {
  const Json good = Json::parse(SerializeJobConfig(Sample()));
  const std::vector<Json> wrong = {Json(nullptr), Json("x"),  Json(-1),
                                   Json(1.5),     Json(true), Json::array(),
                                   Json::object()};
  for (const auto& [name, value] : good.items()) {
    Json without = good;
    without.erase(name);
    EXPECT_FALSE(ParseJobConfig(without.dump(), kPlenty).ok()) << name;
    for (const Json& one : wrong) {
      if (name == "codec" && one.is_string()) continue;        // NotFound below
      if (name == "alternatives" && one.is_array()) continue;  // none
      Json changed = good;
      changed[name] = one;
      EXPECT_FALSE(ParseJobConfig(changed.dump(), kPlenty).ok())
          << name << " = " << one.dump();
    }
  }
}

TEST(JobConfig, RefusesValuesOutOfRange) {
  const uint64_t inf = 0x7f800000;
  const uint64_t nan = 0x7fc00000;
  const std::vector<std::pair<std::string, uint64_t>> cases = {
      {"threshold_kind", 4},
      {"threshold_bits", inf},
      {"threshold_bits", 0},  // fixed, so it must be a normal number
      {"threshold_bits", uint64_t{1} << 32},
      {"batch_size", 0},
      {"batch_size", (1u << 30) + 1},
      {"min_bytes", UINT64_MAX},
      {"reply", 4},
      {"warmup_steps", UINT64_MAX},
      {"has_guard", 2},
      {"reply", 2},  // reencode with the optimizer on servers
      {"packing", 3},
      {"nonfinite", 4},
      {"update_on", 2},
      {"optimizer", 6},
      {"beta1_bits", 0x3f800000},
      {"beta2_bits", 0xbf800000},
      {"epsilon_bits", nan},
      {"lr_bits", nan},
      {"momentum_bits", inf},
      {"wd_bits", nan},
      {"rescale_bits", inf},
      {"result_scale_bits", inf},
      {"result_scale_bits", 0x3f000000},  // beside an optimizer
      {"chunk_elems", 0},
      {"chunk_elems", kMaxChunkElems + 1},
      {"has_values", 2},
      {"is_async", 2},
      {"staleness_bound", kMaxStaleness + 2},
      {"drop_slowest", -1},
      {"drop_slowest", 1},  // of an asynchronous store
      {"update_on", 0},     // as well
  };
  for (const auto& [name, value] : cases) {
    Json changed = Json::parse(SerializeJobConfig(Sample()));
    changed[name] = value;
    EXPECT_THAT(ParseJobConfig(changed.dump(), kPlenty),
                StatusIs(absl::StatusCode::kInvalidArgument, ""))
        << name << " = " << value;
  }
}

TEST(JobConfig, RefusesChunksAndCodecsOfTensorsThatCannotBe) {
  const auto with = [](const Json& tensor) {
    Json changed = Json::parse(SerializeJobConfig(Sample()));
    changed["tensors"][2] = tensor;
    return ParseJobConfig(changed.dump(), kPlenty).status();
  };
  const Json one = 0x3f800000u;
  EXPECT_THAT(with({"a", 2, one, one, 0u, 96, "2bit"}), IsOk());
  EXPECT_THAT(with({"a", 2, one, one, 0u, 0, ""}), IsOk());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, kMaxChunkElems + 1, "2bit"}).ok());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, -1, "2bit"}).ok());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, 96}).ok());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, 96, 7}).ok());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, 96, "3bit"}).ok());
  EXPECT_FALSE(with({"a", 2, one, one, 0u, 96, "2bit", 1, 1}).ok());
}

TEST(Packing, AutoIsRadixOnLinksSlowerThanACore) {
  const auto automatic = [](double link_bytes_per_s) {
    return ChoosePacking(PackingMode::kAuto, link_bytes_per_s);
  };
  EXPECT_EQ(automatic(0), PackingMode::kPlain);  // unknown
  EXPECT_EQ(automatic(125e6), PackingMode::kRadix);
  EXPECT_EQ(automatic(1250e6), PackingMode::kPlain);
  EXPECT_EQ(ChoosePacking(PackingMode::kRadix, 0), PackingMode::kRadix);
  EXPECT_EQ(ChoosePacking(PackingMode::kPlain, 1), PackingMode::kPlain);
}

// The text of a codec wins over the job's setting.
TEST(Packing, IsTheJobsWhereTheCodecSaysNothing) {
  CompressionConfig config;
  config.type = "2bit";
  config.rules = "a=2bit:packing=1;b=2bit:packing=0;c=none";
  const auto packing_of = [&](const char* name) {
    auto policy = MakeCodecPolicy(config);
    EXPECT_THAT(policy, IsOk());
    return policy->Choose({name, 64})->specs[0]->options.packing;
  };
  EXPECT_EQ(packing_of("x"), 0);
  EXPECT_EQ(packing_of("a"), 1);
  config.packing = PackingMode::kRadix;
  EXPECT_EQ(packing_of("x"), 1);
  EXPECT_EQ(packing_of("b"), 0);
  EXPECT_EQ(packing_of("c"), 0);
}

TEST(JobConfig, RefusesCodecsThatDoNotExist) {
  Json changed = Json::parse(SerializeJobConfig(Sample()));
  changed["codec"] = "zip";
  EXPECT_THAT(ParseJobConfig(changed.dump(), kPlenty),
              StatusIs(absl::StatusCode::kNotFound, "zip"));
}

TEST(JobConfig, RefusesAlternativesThatAreNoneOrTooMany) {
  Json changed = Json::parse(SerializeJobConfig(Sample()));
  changed["alternatives"] = Json::array({"zip"});
  EXPECT_THAT(ParseJobConfig(changed.dump(), kPlenty),
              StatusIs(absl::StatusCode::kNotFound, "zip"));
  changed["alternatives"] = Json::array({1});
  EXPECT_THAT(ParseJobConfig(changed.dump(), kPlenty),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a string"));
  changed["alternatives"] = std::vector<std::string>(8, "fp16");
  EXPECT_THAT(ParseJobConfig(changed.dump(), kPlenty),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 7"));
}

TEST(JobConfig, RefusesEveryTruncation) {
  const std::string text = SerializeJobConfig(Sample());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseJobConfig(text.substr(0, length), kPlenty).ok())
        << length;
  }
}

TEST(JobConfig, SurvivesEveryChangedByte) {
  const std::string text = SerializeJobConfig(Sample());
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'\0', '"', '{', '[', '9', '-', '\x80', '\xff'}) {
      std::string changed = text;
      changed[at] = c;
      const auto parsed = ParseJobConfig(changed, kPlenty);
      if (!parsed.ok()) continue;
      EXPECT_THAT(CheckTensors(parsed->tensors), IsOk()) << at;
    }
  }
  EXPECT_FALSE(ParseJobConfig(std::string(1 << 20, '['), kPlenty).ok());
}

TEST(JobConfig, LimitsTheModel) {
  const auto parse = [](uint64_t a, uint64_t b, int64_t max_model_bytes) {
    JobConfig config = Sample();
    config.tensors = {{"a", a}, {"b", b}};
    return ParseJobConfig(SerializeJobConfig(config), max_model_bytes).status();
  };
  EXPECT_THAT(parse(10, 15, 100), IsOk());
  const auto too_big =
      StatusIs(absl::StatusCode::kResourceExhausted, "--max-model-bytes");
  EXPECT_THAT(parse(10, 16, 100), too_big);
  EXPECT_THAT(parse(1, UINT64_MAX, 100), too_big);
  EXPECT_THAT(parse(uint64_t{1} << 62, uint64_t{1} << 62, kPlenty), too_big);
  EXPECT_THAT(parse(25, 0, 100), IsOk());
}

TEST(JobConfig, RefusesBadNames) {
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\"b"),
        std::string("a\n"), std::string("\xc3\xa4"), std::string(257, 'a')}) {
    JobConfig config = Sample();
    config.tensors = {{name, 1}};
    EXPECT_THAT(CheckTensors(config.tensors),
                StatusIs(absl::StatusCode::kInvalidArgument, "tensor"));
    EXPECT_FALSE(ParseJobConfig(SerializeJobConfig(config), kPlenty).ok());
  }
  JobConfig config = Sample();
  config.tensors = {{std::string(256, 'a'), 1}};
  EXPECT_THAT(ParseJobConfig(SerializeJobConfig(config), kPlenty), IsOk());
}

TEST(Facts, DifferWhereSettingsDo) {
  const JobConfig sample = Sample();
  const auto differs = [&](auto change) {
    JobConfig other = Sample();
    change(other);
    return MakeFacts(other) != MakeFacts(sample);
  };
  EXPECT_FALSE(differs([](JobConfig&) {}));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[0].num_elems = 501; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[0].name = "x"; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[1].rates.wd = 0; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[1].codec = "none"; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[1].chunk_elems = 32; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.tensors[1].has_momentum = false; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.has_values = false; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.is_async = false; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.max_staleness = 8; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.drop_slowest = 1; }));
  EXPECT_TRUE(differs([](JobConfig& c) { c.optimizer.adam.beta2 = 0; }));
  EXPECT_TRUE(differs([](JobConfig& c) {  // the last bit of a float counts
    float& value = c.compression.threshold.value;
    value = std::nextafter(value, 1.0f);
  }));
  EXPECT_TRUE(differs([](JobConfig& c) {
    float& value = c.optimizer.sgd.momentum_rate;
    value = std::nextafter(value, 1.0f);
  }));
}

TEST(CheckConfig, RefusesContradictions) {
  CompressionConfig gc;
  gc.type = "2bit";
  EXPECT_THAT(CheckConfig(gc, {}), IsOk());
  gc.threshold = {ThresholdSpec::Kind::kAbsolute, -1.0f};
  EXPECT_THAT(CheckConfig(gc, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "threshold -1"));
  gc.threshold = {ThresholdSpec::Kind::kAbsolute, 0.0f};
  EXPECT_FALSE(CheckConfig(gc, {}).ok());
  gc.threshold = {};
  gc.reply = ReplyMode::kReencode;
  EXPECT_THAT(CheckConfig(gc, {}), IsOk());
  EXPECT_THAT(CheckConfig(gc, {.update_on = UpdateOn::kServer, .sgd = {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "reencode"));
  gc.type = "none";
  EXPECT_THAT(CheckConfig(gc, {.update_on = UpdateOn::kServer, .sgd = {}}),
              IsOk());
}

}  // namespace
}  // namespace telegrad
