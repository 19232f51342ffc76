#include "tests/kvstore/ps/hostile_worker.h"

#include "tests/testing/memory_limit.h"

namespace telegrad {
namespace {

using testing::ClusterConfig;
using testing::HostileWorker;
using testing::IsOk;
using testing::kElems;
using testing::kPushBytes;
using testing::RawConnection;
using testing::Soon;

struct Case {
  const char* name;
  ExitCode code;
  const char* word;
  void (*change)(FrameHeader&, std::string&);
};

constexpr ExitCode kBad = ExitCode::kMismatch;
constexpr ExitCode kDamaged = ExitCode::kIntegrity;
using H = FrameHeader;
using P = std::string;

const Case kWellFormed[] = {
    {"ShortPayload", kBad, "12 bytes", [](H&, P& p) { p.resize(12); }},
    {"LongPayload", kBad, "20 bytes", [](H&, P& p) { p.resize(20); }},
    {"EmptyPayload", kBad, "0 bytes", [](H&, P& p) { p.clear(); }},
    {"HugePayload", kBad, "bytes", [](H&, P& p) { p.resize(1 << 20); }},
    {"UnknownKey", kBad, "key 2", [](H& h, P&) { h.key = 2; }},
    {"HugeKey", kBad, "key", [](H& h, P&) { h.key = UINT32_MAX; }},
    {"UnknownChunk", kBad, "chunk 2", [](H& h, P&) { h.chunk = 2; }},
    {"HugeChunk", kBad, "chunk", [](H& h, P&) { h.chunk = UINT32_MAX; }},
    {"KeyOfAnotherServer", kBad, "not served", [](H& h, P&) { h.key = 1; }},
    {"SpoofedSource", kBad, "from 0", [](H& h, P&) { h.source = 0; }},
    {"UnknownSource", kBad, "from 99", [](H& h, P&) { h.source = 99; }},
    {"OtherDestination", kBad, "to 1", [](H& h, P&) { h.destination = 1; }},
    {"OldEpoch", kBad, "epoch 0", [](H& h, P&) { h.epoch = 0; }},
    {"NewEpoch", kBad, "epoch", [](H& h, P&) { h.epoch += 1; }},
    {"StepAhead", kBad, "step 1", [](H& h, P&) { h.step = 1; }},
    {"LastStep", kBad, "step", [](H& h, P&) { h.step = UINT64_MAX; }},
    {"OtherCodec", kBad, "codec 0", [](H& h, P&) { h.codec = 0; }},
    {"OtherCodecVersion", kBad, "version 9",
     [](H& h, P&) { h.codec_version = 9; }},
    {"OtherReplyMode", kBad, "format 2", [](H& h, P&) { h.reply_format = 2; }},
    {"OtherPacking", kBad, "push", [](H& h, P&) { h.packing = 1; }},
    {"TwoContributors", kBad, "push", [](H& h, P&) { h.contributors = 2; }},
    {"AScaleWhereItIsFixed", kBad, "scale", [](H& h, P&) { h.scale = 3; }},
    {"AProposalOutOfRange", kBad, "proposes scale",
     [](H& h, P&) { h.proposed_scale = 101; }},
    {"ACodeThatIsNone", kBad, "no code", [](H&, P& p) { p[0] = 0x40; }},
    {"AValueOutOfTurn", kBad, "value 3",
     [](H& h, P& p) {
       h.type = FrameType::kInit;
       h.step = 3;
       p.resize(256);
     }},
    {"NewTensorsOfAnotherWorker", kBad, "new tensors",
     [](H& h, P&) { h.type = FrameType::kDeclare; }},
    {"NewRatesOfAnotherWorker", kBad, "new tensors",
     [](H& h, P&) { h.type = FrameType::kRates; }},
    {"AStateOfAnotherWorker", kBad, "new tensors",
     [](H& h, P&) {
       h.type = FrameType::kSetState;
       h.step = 2;  // of a codec
     }},
    {"ACodecsStateForAnotherWorker", kBad, "asked for",
     [](H& h, P& p) {
       h.type = FrameType::kAskState;
       h.step = 2;
       p.clear();
     }},
    {"AStateThatNobodyWanted", kBad, "type 19",
     [](H& h, P&) { h.type = FrameType::kState; }},
    {"AnAnswerToNewTensors", kBad, "type 16",
     [](H& h, P&) { h.type = FrameType::kDeclared; }},
    {"APullBeforeValues", kBad, "pull",
     [](H& h, P& p) {
       h.type = FrameType::kPull;
       p.clear();
     }},
    {"APullOfALaterStep", kBad, "pull",
     [](H& h, P& p) {
       h.type = FrameType::kPull;
       h.step = 7;
       p.clear();
     }},
    {"APullWithPayload", kBad, "type 6",
     [](H& h, P&) { h.type = FrameType::kPull; }},
    {"AProposalWhereItIsFixed", kBad, "proposal",
     [](H& h, P& p) {
       h.type = FrameType::kPropose;
       p.clear();
     }},
    {"AReply", kBad, "type 11", [](H& h, P&) { h.type = FrameType::kReply; }},
    {"AnAck", kBad, "type 12", [](H& h, P&) { h.type = FrameType::kAck; }},
    {"AValue", kBad, "type 7", [](H& h, P&) { h.type = FrameType::kValue; }},
    {"AHello", kBad, "type 1", [](H& h, P&) { h.type = FrameType::kHello; }},
    {"AProbeOfVersion2", kBad, "type 13",
     [](H& h, P&) { h.type = static_cast<FrameType>(13); }},
    {"RowsOfATensorWithoutAny", kBad, "it has no rows",
     [](H& h, P&) { h.type = FrameType::kPushRows; }},
    {"APullOfRowsOfATensorWithoutAny", kBad, "it has no rows",
     [](H& h, P&) { h.type = FrameType::kPullRows; }},
    {"AnUnknownType", kBad, "type 99",
     [](H& h, P&) { h.type = static_cast<FrameType>(99); }},
};

class HostileFrame : public HostileWorker,
                     public ::testing::WithParamInterface<Case> {};

TEST_P(HostileFrame, EndsTheJobByName) {
  const Ticket ticket = HonestPush();
  FrameHeader header = Push();
  std::string payload(kPushBytes, '\0');
  GetParam().change(header, payload);
  raw_->Send(header, payload);
  ExpectFatal(GetParam().code, GetParam().word);
  EXPECT_EQ(ExitCodeOf(ticket.Wait(Soon())), GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(All, HostileFrame, ::testing::ValuesIn(kWellFormed),
                         [](const auto& test) { return test.param.name; });

// Of a tensor with 35 rows of 2: the first chunk has 32.
const Case kRowFrames[] = {
    {"NoRows", kBad, "in 0 bytes", [](H&, P& p) { p.clear(); }},
    {"MoreRowsThanItHas", kBad, "row ids", [](H&, P& p) { p[0] = 33; }},
    {"AHugeNumberOfRows", kBad, "row ids",
     [](H&, P& p) { p.replace(0, 8, 8, '\xff'); }},
    {"ARowOfAnotherChunk", kBad, "row 32", [](H&, P& p) { p[16] = 32; }},
    {"RowsOutOfOrder", kBad, "row 1", [](H&, P& p) { p[8] = 2, p[16] = 1; }},
    {"ARowTwice", kBad, "row 1", [](H&, P& p) { p[16] = 1; }},
    {"TooFewValues", kBad, "bytes", [](H&, P& p) { p.resize(39); }},
    {"TooManyBytes", kBad, "at most", [](H&, P& p) { p.resize(8000); }},
    {"ALaterStep", kBad, "step 3", [](H& h, P&) { h.step = 3; }},
    {"APullBeforeAValue", kBad, "pull",
     [](H& h, P& p) {
       h.type = FrameType::kPullRows;
       p.resize(24);
     }},
    {"APullWithValues", kBad, "40 bytes for 2 rows",
     [](H& h, P&) { h.type = FrameType::kPullRows; }},
};

class HostileRows : public HostileWorker,
                    public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    ClusterConfig config = testing::TwoBitJob();
    config.tensors[0].row_elems = 2;
    Start(config);
  }
};

TEST_P(HostileRows, EndTheJobByName) {
  FrameHeader header = Push();
  header.type = FrameType::kPushRows;
  header.codec = static_cast<uint8_t>(CodecId::kNone);
  header.reply_format = 0;
  std::string payload(40, '\0');  // rows 1 and 5, two values each
  payload[0] = 2;
  payload[8] = 1;
  payload[16] = 5;
  GetParam().change(header, payload);
  raw_->Send(header, payload);
  ExpectFatal(GetParam().code, GetParam().word);
}

INSTANTIATE_TEST_SUITE_P(All, HostileRows, ::testing::ValuesIn(kRowFrames),
                         [](const auto& test) { return test.param.name; });

// A frame of 16 MiB, which is in order.
class LargeFrame : public HostileWorker {
 protected:
  static constexpr size_t kRows = size_t{1} << 22;
  void SetUp() override {
    ClusterConfig config = testing::TwoBitJob();
    config.tensors[0] = {.name = "a", .num_elems = kRows, .row_elems = 1};
    config.chunk_elems = kRows;
    Start(config);
  }
};

TEST_F(LargeFrame, ForWhichThereIsNoMemoryEndsTheJob) {
  FrameHeader header = Push();
  header.type = FrameType::kPullRows;
  std::string payload(4 * kRows + 8, '\0');
  const testing::MemoryLimit limit(payload.size() / 2);
  raw_->Send(header, std::move(payload));
  ExpectFatal(ExitCode::kResourceLimit, "no memory for a buffer");
}

// Bytes of an honest push's header, spoilt afterwards.
class DamagedFrame : public HostileWorker {
 protected:
  void ExpectDamage(void (*change)(std::string& header, std::string& payload),
                    ExitCode code, const std::string& word) {
    std::string payload(kPushBytes, '\0');
    FrameHeader push = Push();
    push.payload_bytes = kPushBytes;
    const FrameHeaderBytes bytes =
        SerializeFrame(push, {payload.data(), payload.size()});
    std::string header(reinterpret_cast<const char*>(bytes.data()),
                       bytes.size());
    change(header, payload);
    raw_->Send(header, payload);
    ExpectFatal(code, word);
  }
};

TEST_F(DamagedFrame, WithoutTheMagic) {
  ExpectDamage([](P& header, P&) { header[0] ^= 1; }, kDamaged, "magic");
}
TEST_F(DamagedFrame, WithAFlippedHeaderBit) {
  ExpectDamage([](P& header, P&) { header[30] ^= 4; }, kDamaged, "check");
}
TEST_F(DamagedFrame, WithAFlippedPayloadBit) {
  ExpectDamage([](P&, P& payload) { payload[7] ^= 2; }, kDamaged, "check");
}
TEST_F(DamagedFrame, WithATruncatedHeader) {
  ExpectDamage([](P& header, P&) { header.resize(63); }, kBad, "63 bytes");
}
TEST_F(DamagedFrame, WithoutAnyHeader) {
  ExpectDamage([](P& header, P&) { header.clear(); }, kBad, "0 bytes");
}
TEST_F(DamagedFrame, WithALengthThatLies) {
  ExpectDamage([](P&, P& payload) { payload.resize(17); }, kDamaged,
               "header says 16");
}

TEST_F(HostileWorker, DuplicatesCountOnce) {
  const Ticket ticket = HonestPush();
  for (int i = 0; i < 20; ++i) {
    raw_->Send(Push(), std::string(kPushBytes, '\xff'));
  }
  ExpectUndisturbed(ticket);
}

TEST_F(HostileWorker, StrangersDoNotDisturbARound) {
  const Ticket ticket = HonestPush();
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect());
  EXPECT_TRUE(silent.back()->AwaitClosed());  // one too many
  silent.clear();
  const auto expect_refused = [&](const FrameHeader& header,
                                  const std::string& payload) {
    const std::unique_ptr<RawConnection> stranger = Connect();
    stranger->Send(header, payload);
    EXPECT_TRUE(stranger->AwaitClosed());
  };
  expect_refused(Push(), std::string(kPushBytes, '\0'));
  expect_refused({.type = FrameType::kProof}, "proof");
  expect_refused({.type = FrameType::kHello}, "hello");
  expect_refused({.type = FrameType::kHello}, std::string(513, 'x'));
  expect_refused({.type = FrameType::kReady}, "");
  const std::unique_ptr<RawConnection> garbage = Connect();
  garbage->Send("GET / HTTP/1.1", "");
  EXPECT_TRUE(garbage->AwaitClosed());
  ExpectUndisturbed(ticket);
}

class LateWorker : public HostileWorker {
 protected:
  void SetUp() override {
    num_silent_ = 64;
    Start(testing::TwoBitJob());
  }
};

// As workers do that connect together with more than 64 others.
TEST_F(LateWorker, IsLetInBehindTheMostStrangers) {
  ExpectUndisturbed(HonestPush());
}

// It had no place among idle strangers and tries again.
TEST(CrowdedServer, LetsAWorkerIn) {
  ClusterConfig config = testing::TwoBitJob();
  config.workers = 1;
  config.servers = 1;
  testing::Cluster cluster(config);
  cluster.StartServers();
  testing::Worker store = cluster.MakeWorker(0);
  ASSERT_THAT(store.Join(), IsOk());
  std::vector<std::unique_ptr<RawConnection>> idle;
  while (idle.size() < 200) {
    idle.push_back(std::make_unique<RawConnection>(
        cluster.Options().path.transport,
        store->group().data_path().server_addresses[0]));
  }
  EXPECT_THAT(store->Init(config.tensors, {}), IsOk());
  store->Close();
}

TEST_F(HostileWorker, IdentitiesAreChecked) {
  const Ticket ticket = HonestPush();
  const Secret& secret = cluster_->config().secret;
  const auto is_admitted = [&](const Secret& key, Identity identity) {
    return Connect()->Authenticate(key, identity);
  };
  const Secret other = *Secret::Derive(std::string(32, 'x'), "local");
  const uint64_t epoch = self_.epoch;
  EXPECT_FALSE(is_admitted(other, self_));
  EXPECT_FALSE(is_admitted({}, self_));
  EXPECT_FALSE(is_admitted(secret, self_));  // is there already
  EXPECT_FALSE(is_admitted(secret, {{Role::kWorker, 2}, epoch}));
  EXPECT_FALSE(is_admitted(secret, {{Role::kWorker, -1}, epoch}));
  EXPECT_FALSE(is_admitted(secret, {{Role::kServer, 1}, epoch}));
  EXPECT_FALSE(is_admitted(secret, {{Role::kWorker, 1}, epoch + 1}));
  ExpectUndisturbed(ticket);
}

}  // namespace
}  // namespace telegrad
