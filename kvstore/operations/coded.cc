#include "kvstore/operations/coded.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/operations/scale.h"
#include "kvstore/ticket_state.h"

namespace telegrad::operations {
namespace {

constexpr uint64_t kEnd = 0;  // a tag of no operation
constexpr size_t kMostKeyBytes = 200;
constexpr Duration kLook = std::chrono::seconds(1);

// A key's name, of letters that the store takes.
std::string KeyName(const std::string& name, size_t number) {
  std::string clean = name.substr(0, kMostKeyBytes);
  for (char& letter : clean) {
    const bool is_taken =
        absl::ascii_isalnum(static_cast<uint8_t>(letter)) ||
        absl::string_view("_.:/-").find(letter) != absl::string_view::npos;
    if (!is_taken) letter = '_';
  }
  return clean == name ? name : absl::StrCat(clean, ":", number);
}

std::string TextOf(const TensorSpec& spec) {
  return absl::StrCat(spec.num_elems, " elements of ", ToString(spec.dtype),
                      " by codec ",
                      spec.codec.empty() ? kCodecOfStore : spec.codec);
}

TensorView HostView(std::byte* data, const TensorSpec& spec) {
  return {.bytes = Bytes(data, spec.num_elems * SizeOf(spec.dtype)),
          .dtype = spec.dtype,
          .num_elems = static_cast<int64_t>(spec.num_elems)};
}

}  // namespace

Coded::Coded(std::shared_ptr<KVStore> store, Duration timeout, Done done)
    : store_(std::move(store)),
      timeout_(timeout),
      done_(std::move(done)),
      thread_(StartThread([this] { HearEnds(); })) {}

Coded::~Coded() {
  FinishedTicket(absl::OkStatus()).NotifyTo(ends_, kEnd);
  thread_.join();
}

TensorSpec Coded::SpecOf(const Request& request) const {
  TensorSpec spec;
  spec.num_elems = static_cast<size_t>(NumElems(request.shape));
  spec.dtype = request.dtype;
  if (request.codec != kCodecOfStore) spec.codec = request.codec;
  return spec;
}

absl::Status Coded::AddKeys(const std::vector<Response>& batch,
                            std::vector<absl::Status>* refused) {
  std::vector<TensorSpec> specs;
  std::vector<std::string> names;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Request& request = batch[i].agreed->any();
    TensorSpec spec = SpecOf(request);
    const auto known = tensors_.find(request.name);
    if (known == tensors_.end()) {
      spec.name = KeyName(request.name, tensors_.size() + specs.size());
      specs.push_back(std::move(spec));
      names.push_back(request.name);
      continue;
    }
    const TensorSpec& before = known->second.spec;
    if (before.num_elems == spec.num_elems && before.dtype == spec.dtype &&
        before.codec == spec.codec) {
      continue;
    }
    (*refused)[i] = absl::InvalidArgumentError(absl::StrCat(
        ToString(request.kind), " \"", request.name, "\" of ", TextOf(spec),
        ": its residuals are of ", TextOf(before), "; take another name"));
  }
  if (specs.empty()) return absl::OkStatus();
  Drain();
  const auto keys = store_->Init(specs, {});
  if (!keys.ok()) {
    // What is wrong with a request is so on all ranks.
    if (!absl::IsInvalidArgument(keys.status())) return keys.status();
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!tensors_.contains(batch[i].agreed->any().name)) {
        (*refused)[i] = keys.status();
      }
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    tensors_[names[i]] = {std::move(specs[i]), (*keys)[i]};
  }
  return absl::OkStatus();
}

absl::Status Coded::Run(const std::vector<Response>& batch,
                        const std::vector<Shared>& mine) {
  std::vector<absl::Status> refused(batch.size());
  RETURN_IF_ERROR(AddKeys(batch, &refused));
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!refused[i].ok()) {
      if (mine[i] != nullptr) done_(mine[i], Clock::now(), refused[i]);
      continue;
    }
    const Request& request = batch[i].agreed->any();
    RETURN_IF_ERROR(Start(tensors_.at(request.name), request, mine[i]));
  }
  return absl::OkStatus();
}

absl::Status Coded::Start(const Tensor& tensor, const Request& request,
                          const Shared& mine) {
  const TensorSpec& spec = tensor.spec;
  const size_t bytes = spec.num_elems * SizeOf(spec.dtype);
  UnderWay begun{.mine = mine, .begin = Clock::now()};
  begun.factor = request.postscale;
  if (request.op == Op::kAverage) begun.factor /= store_->group().num_workers();
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  if (mine == nullptr) {
    ASSIGN_OR_RETURN(begun.zeros, Buffer::Create(bytes));
    out = begun.zeros.data();
    if (bytes > 0) std::memset(out, 0, bytes);
    in = out;
  } else {
    ASSIGN_OR_RETURN(out, PlaceResult(*mine, spec.num_elems));
    in = static_cast<const std::byte*>(mine->in);
    if (request.prescale != 1 && bytes > 0) {
      if (in != out) std::memcpy(out, in, bytes);
      in = out;
      Scale(spec.dtype, request.prescale, spec.num_elems, out);
    }
  }
  // The store reads it only.
  const TensorView from = HostView(const_cast<std::byte*>(in), spec);
  const TensorView to = HostView(out, spec);
  begun.ticket =
      store_->PushPull(tensor.key, TensorViews(&from, 1), TensorViews(&to, 1),
                       -static_cast<int>(tensor.key));
  const Ticket ticket = begun.ticket;
  const uint64_t tag = ++last_tag_;
  {
    MutexLock lock(&mutex_);
    under_way_.emplace(tag, std::move(begun));
  }
  ticket.NotifyTo(ends_, tag);
  return absl::OkStatus();
}

void Coded::End(UnderWay& ended) {
  const absl::Status status = ended.ticket.Wait(Clock::now());
  if (ended.mine == nullptr) return;
  Submission& mine = *ended.mine;
  if (status.ok()) {
    // The result lies where PlaceResult has said.
    Scale(mine.request.dtype, ended.factor, static_cast<size_t>(mine.num_elems),
          static_cast<std::byte*>(const_cast<void*>(mine.result)));
  }
  done_(ended.mine, ended.begin, status);
}

void Coded::HearEnds() {
  for (;;) {
    const std::optional<uint64_t> tag = ends_.Next(Clock::now() + kLook);
    if (!tag.has_value()) {
      EndLate();
      continue;
    }
    if (*tag == kEnd) return;
    UnderWay* ended = nullptr;
    {
      MutexLock lock(&mutex_);
      ended = &under_way_.at(*tag);  // others come beside it; it goes below
    }
    End(*ended);
    MutexLock lock(&mutex_);
    under_way_.erase(*tag);
    ended_.NotifyAll();
  }
}

void Coded::EndLate() {
  std::vector<Ticket> late;
  {
    MutexLock lock(&mutex_);
    for (const auto& [tag, each] : under_way_) {
      if (each.begin + timeout_ < Clock::now()) late.push_back(each.ticket);
    }
  }
  // It is cancelled, and says so by its tag.
  for (const Ticket& ticket : late) (void)ticket.Wait(Clock::now());
}

void Coded::Drain() {
  MutexLock lock(&mutex_);
  while (!under_way_.empty()) ended_.WaitUntil(&mutex_, Clock::now() + kLook);
}

}  // namespace telegrad::operations
