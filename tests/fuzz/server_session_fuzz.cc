// libFuzzer: whole sessions of a server. Each input is a job and what its
// workers and strangers do: connect, prove who they are, declare tensors, push,
// pull, give values, ask for states, leave, in any order, rightly or not. The
// server is the product's, over the transport within a process, in one thread.
// It answers each request once at most, to whom it is due, and ends, if at all,
// with an error of a member; until then it lets others in.
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "kvstore/ps/server/server.h"
#include "kvstore/ps/wire/json_fields.h"
#include "tests/fuzz/edited.h"
#include "tests/fuzz/quiet_job.h"
#include "tests/fuzz/session_script.h"
#include "tests/fuzz/variants.h"

namespace telegrad {
namespace {

constexpr int kMostWorkers = 3;
constexpr size_t kMostActs = 96;
constexpr int64_t kMostModelBytes = 1 << 20;

class Session : private TransportHandler {
 public:
  explicit Session(Script script)
      : script_(script),
        config_(ConfigOf(script_.Next())),
        num_workers_(1 + script_.Next() % kMostWorkers),
        server_(
            {.job = {}, .num_threads = 0, .max_model_bytes = kMostModelBytes}) {
    DataPath path;
    path.transport.name = "inproc";
    auto job = std::make_unique<QuietJob>(num_workers_);
    job_ = job.get();
    address_ = *server_.Open(std::move(job), path);
    transport_ = *MakeTransport(path.transport, this);
    engine_ = {.compression = config_.compression,
               .optimizer = config_.optimizer,
               .num_contributors = config_.is_async ? 1 : num_workers_,
               .buffers = &buffers_};
    layouts_ = *MakeShardPlan(config_.tensors, 1, config_.chunk_elems,
                              config_.compression);
  }

  void Run() {
    const uint8_t skips = script_.Next();
    for (int rank = 0; rank < num_workers_; ++rank) {
      if (rank > 0 && (skips & (1 << rank)) != 0) continue;
      Enter(rank);
    }
    if (skips % 8 != 1) Declare();
    if (skips % 16 != 2 && config_.has_values) GiveValues();
    for (size_t i = 0; i < kMostActs && script_.has_more() && Act(); ++i) {
    }
    Judge();
  }

 private:
  // Whether the server is still there.
  bool Turn() {
    for (int i = 0; i < 8; ++i) {
      if (end_.ok()) end_ = server_.Turn(TimePoint::min());
      if (!transport_->Progress(TimePoint::min()) && i > 0) break;
    }
    if (end_.ok()) end_ = server_.Turn(TimePoint::min());
    return end_.ok();
  }

  EndpointId Connect(int rank) {
    const EndpointId id = *transport_->Connect(address_);
    peers_.emplace(id, Peer{.rank = rank,
                            .handshake = HandshakeClient(
                                {}, "local", {{Role::kWorker, rank}, 1},
                                {Role::kServer, 0})});
    of_rank_[static_cast<size_t>(rank) % of_rank_.size()] = id;
    return id;
  }

  void Send(EndpointId to, FrameHeader header, std::string payload) {
    if (to == 0) return;  // it has not come
    const Peer& peer = peers_.at(to);
    if (harm_ == Harm::kPayload) {
      const auto [rest, size] = script_.rest();
      payload = EditedOrRaw(std::move(payload), rest, size);
    }
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    sent_.push_back(std::move(payload));
    const ConstBytes body(sent_.back().data(), sent_.back().size());
    FrameHeaderBytes bytes = SerializeFrame(header, body);
    if (harm_ == Harm::kField || harm_ == Harm::kBit) {
      bytes[script_.Next() % bytes.size()] ^= std::byte{script_.Next()};
    }
    if (harm_ == Harm::kField) Check(bytes, body);
    harm_ = Harm::kNone;
    if (peer.is_ready) ++due_[PlaceOf(peer.rank, bytes)];
    transport_->Send(to, {bytes.data(), bytes.size()}, body, nullptr)
        .IgnoreError();
    Turn();
  }

  // A worker's rank, key, chunk and step.
  using Place = std::tuple<int, uint32_t, uint32_t, uint64_t>;
  static Place PlaceOf(int rank, const FrameHeaderBytes& bytes) {
    return PlaceOf(rank, ReadFrameHeader({bytes.data(), bytes.size()}));
  }
  static Place PlaceOf(int rank, const FrameHeader& header) {
    return {rank, header.key, header.chunk, header.step};
  }

  // Makes the checks right again.
  static void Check(FrameHeaderBytes& bytes, ConstBytes body) {
    const uint32_t crc = Crc32c(bytes.data(), 56);
    StoreLittleEndian(bytes.data() + 56, Crc32c(body.data, body.size, crc));
    StoreLittleEndian(bytes.data() + 60, Crc32c(bytes.data(), 60));
  }

  void Hello(EndpointId to) {
    Send(to, {.type = FrameType::kHello}, peers_.at(to).handshake.Hello());
  }
  void Prove(EndpointId to) {
    Send(to, {.type = FrameType::kProof}, peers_.at(to).proof);
  }
  void Enter(int rank) {
    const EndpointId id = Connect(rank);
    Hello(id);
    Prove(id);
  }

  FrameHeader Of(FrameType type, int rank) const {
    return {.type = type,
            .epoch = 1,
            .source = static_cast<uint16_t>(rank),
            .contributors = 1};
  }

  void Declare() {
    Send(of_rank_[0], Of(FrameType::kDeclare, 0), SerializeJobConfig(config_));
    for (size_t key = 0; key < layouts_.size() && progress_.size() < 9; ++key) {
      for (const Chunk& chunk : layouts_[key].chunks) {
        for (int rank = 0; rank < num_workers_; ++rank) {
          progress_.try_emplace(
              {rank, chunk.key, chunk.index},
              Progress{.codec = *ChunkCodec::Make(layouts_[key], chunk, engine_,
                                                  Dtype::kFloat32)});
        }
      }
    }
  }

  void GiveValues() {
    for (auto& [place, progress] : progress_) {
      const auto& [rank, key, chunk] = place;
      if (rank == 0) {
        Ask(FrameType::kInit, rank, progress, Zeros(progress, 0));
      } else {
        Ask(FrameType::kPull, rank, progress, "", kFlagNextValue);
      }
    }
  }

  std::string Nothing(const Progress&, uint8_t) const { return ""; }
  std::string Zeros(const Progress& progress, uint8_t) const {
    return std::string(progress.codec.value_bytes(), '\0');
  }
  // How many rows, which, and their values.
  std::string RowId(const Progress&, uint8_t choice) const {
    const uint64_t ids[] = {1, choice % 40u};
    return {reinterpret_cast<const char*>(ids), sizeof(ids)};
  }
  std::string Row(const Progress& progress, uint8_t choice) const {
    return RowId(progress, choice) + std::string(8, '\0');
  }

  // A request of a worker for a chunk, in turn.
  void Ask(FrameType type, int rank, Progress& progress, std::string payload,
           uint16_t flags = 0) {
    const Chunk& chunk = progress.codec.chunk();
    FrameHeader header = Of(type, rank);
    const bool is_value =
        type == FrameType::kInit || (flags & kFlagNextValue) != 0;
    header.step = is_value ? progress.values : progress.rounds;
    header.flags = flags;
    if (type == FrameType::kPush || type == FrameType::kPushRows) {
      Write(progress.codec.Push(progress.rounds, {}), header);
      if (type == FrameType::kPush) ++progress.rounds;
    }
    if (type == FrameType::kPropose) header.proposed_scale = 3;
    if (is_value) ++progress.values;
    header.key = chunk.key;
    header.chunk = chunk.index;
    Send(of_rank_[static_cast<size_t>(rank)], header, std::move(payload));
  }

  void Push(int rank, Progress& progress, uint16_t flags = 0) {
    const CodecMode mode = progress.codec.At(progress.rounds).mode;
    const PreparedCodec& codec = *progress.codec.codings().Of(mode).codec;
    Ask(FrameType::kPush, rank, progress,
        std::string(codec.max_encoded_bytes(), '\0'), flags);
  }

  // A right round of all, of one chunk.
  void Round(uint8_t choice) {
    for (auto& [place, progress] : progress_) {
      const auto& [rank, key, chunk] = place;
      if ((key + chunk) % 3 == choice % 3u) Push(rank, progress);
    }
  }

  // One more act; false: the server has ended.
  bool Act() {
    const uint8_t act = script_.Next();
    const uint8_t choice = script_.Next();
    // Of four acts one is wrong.
    harm_ = act < 192 ? Harm::kNone : static_cast<Harm>(1 + choice % 3);
    const int rank = choice % num_workers_;
    const EndpointId id = of_rank_[static_cast<size_t>(rank)];
    if (id == 0 || act % 20 < 4) return ActOfMany(act % 20, choice);
    if (!progress_.empty()) ActOnChunk(act % 20, choice, rank);
    return Turn();
  }

  bool ActOfMany(int act, uint8_t choice) {
    const int rank = choice % (num_workers_ + 1);
    const auto [rest, size] = script_.rest();
    switch (act) {
      case 0:
        Enter(rank);
        break;
      case 1:
        transport_->Close(of_rank_[static_cast<size_t>(rank)]);
        if (choice > 127 && rank < num_workers_) job_->HasLeft(rank);
        break;
      case 2: {
        const EndpointId id = Connect(rank);
        if (choice < 64) Hello(id);
        if (choice < 16) Hello(id);
        Prove(id);
        break;
      }
      default:
        Send(Connect(rank), {.type = static_cast<FrameType>(choice % 24)},
             EditedOrRaw(peers_.begin()->second.proof, rest, size));
    }
    if (choice % 4 == 0) server_.Sweep();
    return Turn();
  }

  void ActOnChunk(int act, uint8_t choice, int rank) {
    auto at = progress_.lower_bound({rank, choice / 4 % 2, choice / 8 % 2});
    if (at == progress_.end()) at = progress_.begin();
    Progress& progress = at->second;
    const auto [rest, size] = script_.rest();
    if (act < 7) return Round(choice);
    if (act < 10)
      return Push(rank, progress, act == 9 ? kFlagNoReply : uint16_t{0});
    if (act < 16) {
      const auto& [type, flags, body] =
          kRequests[static_cast<size_t>(act - 10)];
      return Ask(type, rank, progress, (this->*body)(progress, choice), flags);
    }
    if (act == 16) return AskState(FrameType::kAskState, progress, choice, "");
    if (act == 17) {
      return AskState(FrameType::kSetState, progress, choice,
                      EditedOrRaw(state_, rest, size));
    }
    const bool is_rates = act == 18;
    const std::string text = is_rates
                                 ? OptimizerFields(config_.optimizer).dump()
                                 : SerializeJobConfig(config_);
    Send(of_rank_[0], Of(is_rates ? FrameType::kRates : FrameType::kDeclare, 0),
         EditedOrRaw(text, rest, size));
  }

  struct Request {
    FrameType type;
    uint16_t flags;
    std::string (Session::*body)(const Progress&, uint8_t) const;
  };
  static constexpr Request kRequests[] = {
      {FrameType::kPull, 0, &Session::Nothing},
      {FrameType::kPull, kFlagNextValue, &Session::Nothing},
      {FrameType::kInit, 0, &Session::Zeros},
      {FrameType::kPropose, 0, &Session::Nothing},
      {FrameType::kPushRows, 0, &Session::Row},
      {FrameType::kPullRows, 0, &Session::RowId}};

  void AskState(FrameType type, const Progress& progress, uint8_t choice,
                std::string payload) {
    FrameHeader header = Of(type, 0);
    header.step = choice % 4;  // 2: a codec's
    header.key = progress.codec.chunk().key;
    header.chunk = progress.codec.chunk().index;
    Send(of_rank_[0], header, std::move(payload));
  }

  // It has ended because of a member, by name, or takes others.
  void Judge() {
    if (!Turn()) {
      const ExitCode code = ExitCodeOf(end_);
      Require(code == ExitCode::kMismatch || code == ExitCode::kIntegrity ||
              code == ExitCode::kPeerDied || code == ExitCode::kResourceLimit);
      Require(absl::StrContains(end_.message(), "worker/"));
      return;
    }
    harm_ = Harm::kNone;
    const EndpointId stranger = Connect(num_workers_ + 1);
    Hello(stranger);
    Require(!end_.ok() || !peers_.at(stranger).proof.empty());
  }

  void OnAccept(EndpointId) override { std::abort(); }
  absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes bytes,
                                 size_t payload_bytes) override {
    const auto header = ParseFrameHeader(bytes);
    Require(header.ok() && header->payload_bytes == payload_bytes);
    received_ = Buffer(payload_bytes);
    return received_.view();
  }
  void OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) override {
    Require(CheckFramePayload(bytes, payload).ok());
    const FrameHeader header = ReadFrameHeader(bytes);
    Peer& peer = peers_.at(from);
    const std::string text(reinterpret_cast<char*>(payload.data), payload.size);
    if (header.type == FrameType::kChallenge) {
      const auto proof = peer.handshake.OnChallenge(text);
      peer.proof = proof.ok() ? *proof : "none";
      return;
    }
    if (header.type == FrameType::kReady) {
      Require(!std::exchange(peer.is_ready, true));
      return;
    }
    Require(peer.is_ready && header.epoch == 1 && header.source == 0 &&
            header.destination == peer.rank);
    if (header.type == FrameType::kState) state_ = text;
    if (header.type == FrameType::kState ||
        header.type == FrameType::kDeclared) {
      return;
    }
    if (header.type == FrameType::kAgree) {
      const auto found = progress_.find({peer.rank, header.key, header.chunk});
      Require(found != progress_.end());
      found->second.codec.AgreeFirst(header.scale);
      return;
    }
    Require(--due_[PlaceOf(peer.rank, header)] >= 0);
  }
  void OnClosed(EndpointId, const absl::Status&) override {}

  Script script_;
  const JobConfig config_;
  const int num_workers_;
  std::deque<std::string> sent_;  // outlives both transports
  Buffer received_;
  DistServer server_;
  std::string address_;
  QuietJob* job_ = nullptr;  // the server's
  BufferPool buffers_;
  EngineConfig engine_;
  std::vector<TensorLayout> layouts_;
  std::map<EndpointId, Peer> peers_;
  std::array<EndpointId, kMostWorkers + 2> of_rank_ = {};  // the newest
  // By rank, key and chunk.
  std::map<std::tuple<int, uint32_t, uint32_t>, Progress> progress_;
  // Requests without an answer.
  std::map<Place, int> due_;
  std::string state_;
  Harm harm_ = Harm::kNone;  // of the next frame
  absl::Status end_;
  std::unique_ptr<TransportContext> transport_;
};

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  telegrad::SetLogThreshold(telegrad::Severity::kError);
  telegrad::Session(telegrad::Script(data, size)).Run();
  return 0;
}
