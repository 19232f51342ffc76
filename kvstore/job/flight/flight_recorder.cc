#include "kvstore/job/flight/flight_recorder.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvstore/job/flight/pickle.h"

namespace telegrad {
namespace {

using Op = FlightRecorder::Op;
using Among = FlightRecorder::Among;

constexpr uint32_t kMostKeys = 1u << 20;
// Sequence numbers that people can read: 120000003 is step 12 of key 3.
constexpr int64_t kKeysPerStep = 10'000'000;

// What PyTorch calls them.
const char* CollectiveOf(const Op& op) {
  switch (op.among) {
    case Among::kRound:
      return "nccl:all_reduce";
    case Among::kBroadcast:
      return "nccl:broadcast";
    case Among::kAlone:
      return "nccl:gather";
  }
  return "";
}

const char* TorchName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return "Half";
    case Dtype::kBfloat16:
      return "BFloat16";
    case Dtype::kInt32:
      return "Int";
    default:
      return "Float";
  }
}

const char* StateOf(const Op& op) {
  return op.completed != TimePoint() ? "completed"
         : op.started != TimePoint() ? "started"
                                     : "scheduled";
}

struct Waiting {
  uint32_t key = 0;
  uint64_t step = 0;
  std::string what = {};
  std::vector<std::string> has = {};        // peers with their part
  std::vector<std::string> waits_for = {};  // peers without it
};

}  // namespace

template <typename Item>
std::vector<Item> FlightRecorder::Ring<Item>::InOrder() const {
  if (num < items.size()) {
    return {items.begin(), items.begin() + static_cast<std::ptrdiff_t>(num)};
  }
  std::vector<Item> all = items;
  if (!all.empty()) {
    std::rotate(all.begin(),
                all.begin() + static_cast<std::ptrdiff_t>(num % all.size()),
                all.end());
  }
  return all;
}

// The rings as they were at one moment, and what is made of them.
struct FlightRecorder::Copy {
  const Setup& setup;
  NodeId self;  // the member it tells of
  std::vector<Op> ops = {};
  std::vector<std::vector<Frame>> frames = {};
  std::vector<bool> has_lost = {};  // by peer: older frames
  std::vector<std::string> names = {};
  int64_t zero_ns = 0;  // Clock's zero, since 1970

  int64_t Since1970(TimePoint time) const {
    return zero_ns + std::chrono::duration_cast<std::chrono::nanoseconds>(
                         time.time_since_epoch())
                         .count();
  }
  std::string NameOf(uint32_t key) const {
    return key < names.size() && !names[key].empty()
               ? names[key]
               : absl::StrCat("key ", key);
  }
  std::string PeerName(size_t peer) const {
    if (setup.self.role == Role::kWorker) {
      return ToString({Role::kServer, static_cast<int>(peer)});
    }
    return ToString({Role::kWorker, setup.ranks[peer]});
  }
  const char* GroupOf(const Op& op) const {
    return op.among == Among::kRound       ? "rounds"
           : op.among == Among::kBroadcast ? "broadcasts"
                                           : "alone";
  }

  void PutTime(Pickle& to, const char* name, TimePoint time) const {
    to.Text(name);
    time == TimePoint() ? to.None() : to.Int(Since1970(time));
  }
  void PutOp(Pickle& to, const Op& op) const;
  void PutGroups(Pickle& to) const;
  void PutFrames(Pickle& to) const;
  void PutWaiting(Pickle& to) const;
  std::vector<Waiting> OfWorker() const;
  std::vector<Waiting> OfServer() const;
};

FlightRecorder::FlightRecorder(Setup setup)
    : setup_(std::move(setup)),
      num_peers_(setup_.self.role == Role::kWorker ? setup_.num_servers
                                                   : setup_.ranks.size()),
      frames_(num_peers_) {}

void FlightRecorder::SetName(uint32_t key, absl::string_view name) {
  if (key >= kMostKeys) return;
  MutexLock lock(&mutex_);
  if (names_.size() <= key) names_.resize(key + 1);
  if (active_.size() <= key) active_.resize(key + 1);
  names_[key] = std::string(name);
}

void FlightRecorder::Begin(Op op) {
  op.created = Clock::now();
  MutexLock lock(&mutex_);
  op.number = numbers_[op.among == Among::kAlone ? 1 : 0]++;
  ops_.Next(kMostOps) = op;
  if (op.key < active_.size()) active_[op.key] = ops_.num;
}

void FlightRecorder::End(uint32_t key) {
  const TimePoint now = Clock::now();
  MutexLock lock(&mutex_);
  if (key >= active_.size()) return;
  const uint64_t place = std::exchange(active_[key], 0);
  if (place == 0 || place + kMostOps <= ops_.num) return;
  ops_.items[(place - 1) % kMostOps].completed = now;
}

void FlightRecorder::Note(size_t peer, Frame frame) {
  frame.at = Clock::now();
  MutexLock lock(&mutex_);
  if (peer >= num_peers_) return;
  frames_[peer].Next(std::min(kMostFrames, kMostFramesOfAll / num_peers_)) =
      frame;
  if (!frame.is_sent || frame.key >= active_.size()) return;
  const uint64_t place = active_[frame.key];
  if (place == 0 || place + kMostOps <= ops_.num) return;
  Op& op = ops_.items[(place - 1) % kMostOps];
  if (op.started == TimePoint()) op.started = frame.at;
}

FlightRecorder::Copy FlightRecorder::Take() const {
  Copy copy{.setup = setup_, .self = setup_.self};
  const auto zero = std::chrono::system_clock::now().time_since_epoch() -
                    Clock::now().time_since_epoch();
  copy.zero_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(zero).count();
  MutexLock lock(&mutex_);
  copy.names = names_;
  copy.ops = ops_.InOrder();
  for (const Ring<Frame>& ring : frames_) {
    copy.frames.push_back(ring.InOrder());
    copy.has_lost.push_back(ring.num > ring.items.size());
  }
  return copy;
}

void FlightRecorder::Copy::PutOp(Pickle& to, const Op& op) const {
  const auto number = [&](const char* name, int64_t value) {
    to.Text(name).Int(value);
  };
  const auto text = [&](const char* name, absl::string_view value) {
    to.Text(name).Text(value);
  };
  const bool is_over = op.completed != TimePoint();
  const int64_t sequence =
      static_cast<int64_t>(op.step) * kKeysPerStep + op.key;
  to.Dict([&] {
    number("record_id", op.number);
    number("pg_id", static_cast<int64_t>(op.among));
    to.Text("process_group").List([&] {
      to.Text(GroupOf(op)).Text(setup.type);
    });
    number("collective_seq_id", sequence);
    number("p2p_seq_id", 0);
    number("op_id", op.number);
    text("profiling_name", CollectiveOf(op));
    PutTime(to, "time_created_ns", op.created);
    PutTime(to, "time_discovered_started_ns", op.started);
    PutTime(to, "time_discovered_completed_ns", op.completed);
    text("state", StateOf(op));
    for (const char* side : {"input", "output"}) {
      to.Text(absl::StrCat(side, "_sizes")).List([&] {
        to.List([&] { to.Int(static_cast<int64_t>(op.num_elems)); });
      });
      to.Text(absl::StrCat(side, "_dtypes")).List([&] {
        to.Text(TorchName(op.dtype));
      });
    }
    number("timeout_ms",
           std::chrono::duration_cast<std::chrono::milliseconds>(setup.timeout)
               .count());
    to.Text("is_p2p").Bool(false).Text("retired").Bool(is_over);
    // The analysis prints it as a stack: what, of which tensor, in which step.
    to.Text("frames").List([&] {
      to.Dict([&] {
        text("name", absl::StrCat(op.what, " of ", NameOf(op.key)));
        text("filename", "step");
        number("line", static_cast<int64_t>(op.step));
      });
    });
    text("tensor", NameOf(op.key));
    number("step", static_cast<int64_t>(op.step));
  });
}

void FlightRecorder::Copy::PutGroups(Pickle& to) const {
  const std::vector<int> pushers(
      setup.ranks.begin(),
      setup.ranks.begin() + static_cast<std::ptrdiff_t>(setup.num_pushers));
  const auto group = [&](const char* name, const std::vector<int>& ranks) {
    to.Text(name).Dict([&] {
      to.Text("name").Text(name).Text("desc").Text(setup.type);
      to.Text("ranks").Text(absl::StrCat("[", absl::StrJoin(ranks, ", "), "]"));
    });
  };
  to.Text("pg_config").Dict([&] {
    if (self.role != Role::kWorker) return;
    group("rounds", pushers);
    group("broadcasts", pushers);
    group("alone", {self.rank});
  });
  to.Text("pg_status").Dict([&] {
    for (const Among among : {Among::kRound, Among::kBroadcast}) {
      int64_t last[3] = {-1, -1, -1};  // begun, started, completed
      for (const Op& op : ops) {
        if (op.among != among) continue;
        last[0] = op.number;
        if (op.started != TimePoint()) last[1] = op.number;
        if (op.completed != TimePoint()) last[2] = op.number;
      }
      to.Text(absl::StrCat(static_cast<int>(among))).Dict([&] {
        to.Text("last_enqueued_collective").Int(last[0]);
        to.Text("last_started_collective").Int(last[1]);
        to.Text("last_completed_collective").Int(last[2]);
      });
    }
  });
}

void FlightRecorder::Copy::PutFrames(Pickle& to) const {
  to.Text("frame_fields").List([&] {
    for (const char* name : {"time_ns", "direction", "type", "key", "chunk",
                             "step", "payload_bytes"}) {
      to.Text(name);
    }
  });
  to.Text("frames").Dict([&] {
    for (size_t peer = 0; peer < frames.size(); ++peer) {
      if (frames[peer].empty()) continue;
      to.Text(PeerName(peer)).List([&] {
        for (const Frame& frame : frames[peer]) {
          to.List([&] {
            to.Int(Since1970(frame.at));
            to.Text(frame.is_sent ? "sent" : "received").Text(frame.what);
            to.Int(frame.key).Int(frame.chunk);
            to.Int(static_cast<int64_t>(frame.step)).Int(frame.num_bytes);
          });
        }
      });
    }
  });
}

// Servers that have been sent something of an operation that has not ended, and
// have not answered.
std::vector<Waiting> FlightRecorder::Copy::OfWorker() const {
  // By key, peer and chunk.
  std::map<std::tuple<uint32_t, size_t, uint32_t>, const Frame*> last;
  for (size_t peer = 0; peer < frames.size(); ++peer) {
    for (const Frame& frame : frames[peer]) {
      last[{frame.key, peer, frame.chunk}] = &frame;
    }
  }
  std::vector<Waiting> all;
  for (const Op& op : ops) {
    if (op.completed != TimePoint()) continue;
    std::map<size_t, bool> is_open;  // by peer that has a part of it
    for (auto at = last.lower_bound({op.key, 0, 0});
         at != last.end() && std::get<0>(at->first) == op.key; ++at) {
      if (at->second->at < op.created) continue;
      is_open[std::get<1>(at->first)] |= at->second->is_sent;
    }
    Waiting waiting{.key = op.key, .step = op.step, .what = op.what};
    for (const auto& [peer, waits] : is_open) {
      (waits ? waiting.waits_for : waiting.has).push_back(PeerName(peer));
    }
    all.push_back(std::move(waiting));
  }
  return all;
}

// Workers whose push of a chunk is not there though others' is.
std::vector<Waiting> FlightRecorder::Copy::OfServer() const {
  struct Round {
    uint64_t step = 0;
    TimePoint first = {};
    std::set<size_t> peers;
    bool is_answered = false;
  };
  std::map<std::pair<uint32_t, uint32_t>, Round> last;  // by key and chunk
  const size_t num_pushers = std::min(setup.num_pushers, frames.size());
  for (size_t peer = 0; peer < num_pushers; ++peer) {
    for (const Frame& frame : frames[peer]) {
      const absl::string_view what = frame.what;
      const bool is_answer = what == "reply" || what == "ack";
      if (!is_answer && !absl::StartsWith(what, "push")) continue;
      Round& round = last[{frame.key, frame.chunk}];
      if (round.first == TimePoint() || frame.step > round.step) {
        round = {.step = frame.step, .first = frame.at, .peers = {}};
      }
      if (frame.step < round.step) continue;
      round.is_answered |= is_answer;
      if (!is_answer) round.peers.insert(peer);
      round.first = std::min(round.first, frame.at);
    }
  }
  std::map<std::tuple<uint32_t, uint64_t, std::set<size_t>>, size_t> chunks;
  for (const auto& [at, round] : last) {
    if (round.is_answered) continue;
    std::set<size_t> there = round.peers;
    for (size_t peer = 0; peer < num_pushers; ++peer) {
      // Its push may have been forgotten.
      if (has_lost[peer] && frames[peer].front().at >= round.first) {
        there.insert(peer);
      }
    }
    if (there.size() < num_pushers) ++chunks[{at.first, round.step, there}];
  }
  std::vector<Waiting> all;
  for (const auto& [round, num_chunks] : chunks) {
    const auto& [key, step, there] = round;
    Waiting waiting{.key = key, .step = step};
    waiting.what = absl::StrCat("sum of ", num_chunks, " chunks");
    for (size_t peer = 0; peer < num_pushers; ++peer) {
      (there.contains(peer) ? waiting.has : waiting.waits_for)
          .push_back(PeerName(peer));
    }
    all.push_back(std::move(waiting));
  }
  return all;
}

void FlightRecorder::Copy::PutWaiting(Pickle& to) const {
  const std::vector<Waiting> all =
      setup.self.role == Role::kWorker ? OfWorker() : OfServer();
  to.Text("waiting").List([&] {
    for (const Waiting& waiting : all) {
      to.Dict([&] {
        to.Text("tensor").Text(NameOf(waiting.key));
        to.Text("step").Int(static_cast<int64_t>(waiting.step));
        to.Text("what").Text(waiting.what);
        const auto put = [&](const char* name,
                             const std::vector<std::string>& peers) {
          to.Text(name).List([&] {
            for (const std::string& peer : peers) to.Text(peer);
          });
        };
        put("has", waiting.has);
        put("waits_for", waiting.waits_for);
      });
    }
  });
}

std::string FlightRecorder::Dump(std::optional<int> in_place_of) const {
  Copy copy = Take();
  if (in_place_of.has_value()) {
    copy.self.rank = *in_place_of;
    copy.frames.clear();
    std::erase_if(copy.ops, [](const Op& op) {
      return op.among == Among::kAlone || op.completed == TimePoint();
    });
  }
  Pickle to;
  to.Dict([&] {
    to.Text("version").Text("2.10");
    to.Text("self").Text(ToString(copy.self));
    to.Text("written_by").Text(ToString(setup_.self));
    copy.PutGroups(to);
    to.Text("entries").List([&] {
      for (const Op& op : copy.ops) copy.PutOp(to, op);
    });
    copy.PutFrames(to);
    copy.PutWaiting(to);
  });
  return std::move(to).Finish();
}

}  // namespace telegrad
