#include "tests/kvstore/simulation/simulated_job.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/kvstore.h"
#include "kvstore/server.h"
#include "kvstore/states.h"
#include "tests/kvstore/simulation/async_worker.h"
#include "tests/kvstore/simulation/job_oracle.h"
#include "tests/kvstore/simulation/push_ledger.h"
#include "tests/kvstore/simulation/virtual_network.h"
#include "tests/kvstore/simulation/virtual_world.h"

namespace telegrad::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kPort = 5000;

Secret SecretOf(const Scenario& scenario) {
  if (scenario.encryption == Encryption::kOff) return {};
  return *Secret::Derive("thirty-two bytes, or some more of them", "local");
}

// A worker's program, as a trainer's: it goes on in the next epoch from the
// newest checkpoint.
class SimulatedWorker {
 public:
  SimulatedWorker(const Scenario& scenario, const Mutation& mutation,
                  JobOracle& oracle, DistOptions options)
      : scenario_(scenario),
        mutation_(mutation),
        oracle_(oracle),
        options_(std::move(options)) {}

  absl::Status Run() {
    for (;;) {
      std::optional<int> seat;
      const absl::Status status = Live(seat);
      if (status.ok() || !seat.has_value()) return status;
      options_.wanted_rank = *seat;
    }
  }
  int64_t num_steps() const { return step_; }

 private:
  absl::Status Live(std::optional<int>& seat) {
    absl::StatusOr<std::unique_ptr<WorkerGroup>> group = JoinWorkers(options_);
    if (!group.ok()) {
      seat = SeatOf(group.status());
      if (seat.has_value()) oracle_.OnEpochsEnd(group.status());
      return group.status();
    }
    group_ = group->get();
    step_ = oracle_.OnJoined(group_->membership());
    const absl::Status status = Train();
    if (!status.ok()) {
      seat = group_->seat();
      if (seat.has_value()) oracle_.OnEpochsEnd(status);
      if (!seat.has_value()) group_->Fail(status);
    }
    store_.reset();
    return status;
  }

  absl::Status Train() {
    const char* const type = scenario_.has_parts ? "allreduce" : "dist_sync";
    ASSIGN_OR_RETURN(store_, MakeKVStore(type, options_, group_));
    CompressionConfig compression{
        .type = scenario_.codec, .reply = ReplyMode::kSum, .has_guard = false};
    compression.threshold = {.kind = ThresholdSpec::Kind::kAbsolute,
                             .value = 0.5f};
    RETURN_IF_ERROR(store_->SetCompression(compression));
    RETURN_IF_ERROR(store_->SetOptimizer({}));
    RETURN_IF_ERROR(Restore());
    while (step_ < scenario_.steps) {
      RETURN_IF_ERROR(Step());
      ++step_;
      if (step_ % scenario_.pace.steps_per_checkpoint == 0) {
        RETURN_IF_ERROR(Save());
      }
    }
    oracle_.OnWeights(group_->membership().epoch, weights_);
    oracle_.OnLeaving();
    store_->Close();
    return absl::OkStatus();
  }

  absl::Status Restore() {
    const SavedState& state = oracle_.At(step_);
    weights_ = state.weights;
    std::vector<TensorSpec> tensors;
    std::vector<TensorView> views;
    for (size_t i = 0; i < weights_.size(); ++i) {
      tensors.push_back(
          {.name = absl::StrCat("tensor", i), .num_elems = weights_[i].size()});
      views.push_back(
          FloatTensor({reinterpret_cast<std::byte*>(weights_[i].data()),
                       4 * weights_[i].size()}));
    }
    RETURN_IF_ERROR(store_->Init(tensors, views).status());
    for (Key key = 0; key < state.texts.size(); ++key) {
      if (mutation_.loses_residuals) break;
      RETURN_IF_ERROR(RestoreCodec(state, key));
    }
    std::this_thread::sleep_for(scenario_.pace.load);
    return group_->Gather("restored", "").status();
  }

  absl::Status RestoreCodec(const SavedState& state, Key key) {
    CodecStates& codecs = *store_->states()->codec_states();
    const int rank = group_->rank();
    const bool is_known = rank < state.workers;
    const int own = is_known ? rank : 0;
    const std::vector<std::string>& texts = state.texts[key];
    const bool is_alike = state.workers == group_->num_workers() &&
                          state.servers == group_->num_servers();
    if (is_alike) return codecs.LoadCodec(key, texts[static_cast<size_t>(own)]);
    OldCodecs old{.num_servers = state.servers, .takes_first = is_known};
    old.texts.push_back({.rank = own, .text = texts[static_cast<size_t>(own)]});
    for (int part = rank + group_->num_workers(); part < state.workers;
         part += group_->num_workers()) {
      old.texts.push_back(
          {.rank = part, .text = texts[static_cast<size_t>(part)]});
    }
    ASSIGN_OR_RETURN(const std::string text, codecs.RecutCodec(key, old));
    return codecs.LoadCodec(key, text);
  }

  absl::Status Step() {
    const Pace& pace = scenario_.pace;
    const auto span =
        static_cast<uint64_t>((pace.most - pace.least) / milliseconds(1));
    std::this_thread::sleep_for(
        pace.least +
        milliseconds(VirtualWorld::The()->random().NextBelow(span + 1)));
    OfTensors outs = weights_;
    std::vector<Ticket> tickets;
    for (size_t tensor = 0; tensor < outs.size(); ++tensor) {
      Values& out = outs[tensor];
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = GradientAt(group_->rank(), step_, tensor, i);
      }
      const Bytes view(reinterpret_cast<std::byte*>(out.data()),
                       4 * out.size());
      tickets.push_back(
          store_->PushPull(static_cast<Key>(tensor), view, view, 0));
    }
    absl::Status status;
    for (Ticket& ticket : tickets) {
      status.Update(ticket.Wait(Clock::now() + options_.operation_timeout));
    }
    RETURN_IF_ERROR(status);
    for (size_t tensor = 0; tensor < outs.size(); ++tensor) {
      oracle_.OnStep(group_->membership().epoch, step_, tensor, outs[tensor]);
      for (size_t i = 0; i < outs[tensor].size(); ++i) {
        weights_[tensor][i] -= kRate * outs[tensor][i];
      }
    }
    group_->SetStep(step_ + 1);
    return absl::OkStatus();
  }

  absl::Status Save() {
    RETURN_IF_ERROR(group_->Gather("idle", "").status());
    std::this_thread::sleep_for(scenario_.pace.save);
    std::vector<std::string> texts;
    // Where workers of a host sum first nobody comes back to it.
    const bool has_codecs = scenario_.codec != "none" && scenario_.hosts == 0;
    for (Key key = 0; key < weights_.size() && has_codecs; ++key) {
      ASSIGN_OR_RETURN(texts.emplace_back(),
                       store_->states()->codec_states()->SaveCodec(key));
    }
    oracle_.Save(group_->membership().epoch, step_, group_->rank(), weights_,
                 std::move(texts));
    const bool others_wait = group_->rank() == 0 && group_->Newcomers() > 0;
    ASSIGN_OR_RETURN(
        const std::vector<std::string> answers,
        group_->Gather(absl::StrCat("saved ", step_), others_wait ? "1" : ""));
    oracle_.OnSaved(group_->membership().epoch, step_);
    if (answers[0].empty()) return absl::OkStatus();
    return group_->Gather(kLettingIn, "").status();
  }

  const Scenario& scenario_;
  const Mutation& mutation_;
  JobOracle& oracle_;
  DistOptions options_;
  WorkerGroup* group_ = nullptr;
  std::unique_ptr<KVStore> store_;
  OfTensors weights_;
  int64_t step_ = 0;
};

// Its members, and what happens to them.
class SimulatedJob {
 public:
  SimulatedJob(const Scenario& scenario, const Mutation& mutation)
      : scenario_(scenario),
        mutation_(mutation),
        oracle_(scenario),
        pushes_(scenario,
                [this](std::string wrong) { oracle_.Say(std::move(wrong)); }) {}

  Outcome Run() {
    VirtualWorld::Begin(scenario_.seed);
    VirtualNetwork::The().SetLatency(std::chrono::microseconds(20),
                                     scenario_.latency);
    SetFrameFaults({.duplicates = scenario_.duplicates,
                    .flips = scenario_.flips,
                    .stale = scenario_.stale,
                    .blind = mutation_.blind,
                    .on_wrong = [this](int) { oracle_.OnWrongFrame(); }});
    StartMembers();
    for (const Blow& blow : scenario_.blows) {
      VirtualWorld::The()->At(blow.at, [this, &blow] { Strike(blow); });
    }
    KillAfter(scenario_.kills.every);
    VirtualWorld::The()->Await([this] { return AllEnded(); }, scenario_.most);
    oracle_.JudgeEnd();
    return oracle_.TakeOutcome();
  }

 private:
  DistOptions Options() {
    DistOptions options;
    options.scheduler_address = absl::StrCat("127.0.0.1:", kPort);
    options.timing = scenario_.timing;
    options.operation_timeout = seconds(30) + scenario_.pace.most +
                                scenario_.pace.save + scenario_.pace.load;
    options.ledger = scenario_.ledger;
    options.chunk_elems = 32;
    options.num_threads = 1;
    TransportOptions& transport = options.path.transport;
    transport.name = transport.tls = "tcp";
    transport.congestion = "system";
    transport.poll = Duration::zero();
    transport.fault = scenario_.fault;
    transport.resend = scenario_.resends;
    transport.encryption = scenario_.encryption;
    options.secret = SecretOf(scenario_);
    if (scenario_.hosts > 0) options.path.host = "of servers";
    options.on_fatal = [this](const FatalEvent& event) {
      oracle_.OnFatal(event);
    };
    return options;
  }

  void StartMembers() {
    VirtualWorld& world = *VirtualWorld::The();
    world.Spawn(world.AddMember(), [this] { RunScheduler(); });
    for (int rank = 0; rank < scenario_.workers; ++rank) StartWorker(rank);
    for (int rank = 0; rank < scenario_.servers; ++rank) {
      const int member = world.AddMember();
      world.Spawn(member, [this, member, rank] {
        ServerOptions options{.job = Options()};
        options.job.wanted_rank = rank;
        oracle_.OnEnd(member, RunServer(options), 0);
      });
    }
  }

  void RunScheduler() {
    SchedulerOptions options;
    options.port = kPort;
    options.num_workers = scenario_.workers;
    options.num_servers =
        scenario_.has_parts ? scenario_.workers : scenario_.servers;
    options.timing = scenario_.timing;
    options.secret = SecretOf(scenario_);
    const auto scheduler = Scheduler::Start(options);
    FatalEvent event;
    const absl::Status status = (*scheduler)->Wait(&event);
    oracle_.OnEnd(0, status, 0);
  }

  void StartWorker(int rank) {
    VirtualWorld& world = *VirtualWorld::The();
    const int member = world.AddMember();
    world.Spawn(member, [this, member, rank] {
      DistOptions options = Options();
      options.wanted_rank = rank;
      if (scenario_.hosts > 0) {
        options.path.tier_one = true;
        options.path.host = absl::StrCat("host", rank % scenario_.hosts);
      }
      if (scenario_.has_parts) options.part = HostPart(options.num_threads);
      if (scenario_.is_async) return TrainAsync(member, std::move(options));
      if (scenario_.is_elastic) options.facts.push_back({kElasticFact, "1"});
      SimulatedWorker worker(scenario_, mutation_, oracle_, options);
      const absl::Status status = worker.Run();
      oracle_.OnEnd(member, status, worker.num_steps());
    });
  }

  void TrainAsync(int member, DistOptions options) {
    options.max_staleness = scenario_.max_staleness;
    if (scenario_.is_elastic) options.elastic = {1, scenario_.workers};
    options.on_epoch = options.on_fatal;
    // A newcomer's number is behind those of servers.
    const int place = member <= scenario_.workers
                          ? member - 1
                          : member - 1 - scenario_.servers;
    AsyncWorker worker(scenario_, oracle_, pushes_, std::move(options),
                       static_cast<size_t>(place));
    const absl::Status status = worker.Run();
    oracle_.OnEnd(member, status, worker.num_steps());
  }

  void Strike(const Blow& blow) {
    if (oracle_.has_ended(blow.member)) return;
    VirtualWorld& world = *VirtualWorld::The();
    switch (blow.kind) {
      case Blow::Kind::kReplace:
        return StartWorker(-1);
      case Blow::Kind::kKill:
        oracle_.OnBlow(blow);
        return world.Kill(blow.member);
      case Blow::Kind::kPause:
        oracle_.OnBlow(blow);
        return world.Pause(blow.member, blow.time);
      case Blow::Kind::kCut:
        oracle_.OnBlow(blow);
        VirtualNetwork::The().Cut(
            blow.member, blow.other,
            world.Now() + std::chrono::nanoseconds(blow.time).count());
        return;
      case Blow::Kind::kTamper:
        oracle_.OnBlow(blow);
        VirtualNetwork::The().Tamper(blow.member, blow.other);
    }
  }

  // A worker that lives, once the time has passed, and so on; nobody when the
  // job is about to end.
  void KillAfter(Duration time) {
    if (time == Duration()) return;
    VirtualWorld& world = *VirtualWorld::The();
    world.At(time, [this, &world, time] {
      std::vector<int> living;
      for (int member = 0; member < world.num_members(); ++member) {
        if (oracle_.is_worker(member) && !world.is_dead(member) &&
            !oracle_.has_ended(member)) {
          living.push_back(member);
        }
      }
      const int64_t last = scenario_.steps - 2;
      if (oracle_.newest_step() >= last || living.empty()) return;
      const int member = living[world.random().NextBelow(living.size())];
      oracle_.OnBlow({.member = member});
      world.Kill(member, scenario_.kills.are_silent);
      world.At(scenario_.kills.start, [this] { StartWorker(-1); });
      KillAfter(time);
    });
  }

  bool AllEnded() {
    const VirtualWorld& world = *VirtualWorld::The();
    for (int member = 0; member < world.num_members(); ++member) {
      if (!world.is_dead(member) && !oracle_.has_ended(member)) return false;
    }
    return true;
  }

  const Scenario scenario_;
  const Mutation mutation_;
  JobOracle oracle_;
  PushLedger pushes_;
};

}  // namespace

Outcome RunScenario(const Scenario& scenario, const Mutation& mutation) {
  return (new SimulatedJob(scenario, mutation))->Run();  // its threads stay
}

}  // namespace telegrad::testing
