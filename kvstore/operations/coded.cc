#include "kvstore/operations/coded.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/job/path/data_path.h"
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

TensorView ViewOf(std::byte* data, const TensorSpec& spec, Stream stream) {
  const Device device = spec.devices.empty() ? Device() : spec.devices[0];
  return {.bytes = Bytes(data, spec.num_elems * SizeOf(spec.dtype), device),
          .dtype = spec.dtype,
          .num_elems = static_cast<int64_t>(spec.num_elems),
          .stream = stream};
}

// What it holds back stays where it is.
absl::Status CheckDevice(int device, const Request& request) {
  if (request.device == device) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(request.kind), " \"", request.name,
                   "\" by a codec on ", request.device, ", and before on ",
                   device, " (GPUs, or -1 in host memory): take another name"));
}

}  // namespace

Coded::Coded(std::shared_ptr<KVStore> store, Duration timeout, Devices& devices,
             Done done)
    : store_(std::move(store)),
      timeout_(timeout),
      devices_(devices),
      devices_of_ends_(timeout),
      done_(std::move(done)),
      takes_devices_(store_->group().data_path().plan.pushers.empty()),
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
                            const std::vector<Shared>& mine,
                            std::vector<absl::Status>* refused) {
  std::vector<TensorSpec> specs;
  std::vector<std::string> names;
  std::vector<int> devices;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Request& request = batch[i].agreed->any();
    TensorSpec spec = SpecOf(request);
    const auto known = tensors_.find(request.name);
    if (known == tensors_.end()) {
      spec.name = KeyName(request.name, tensors_.size() + specs.size());
      devices.push_back(mine[i] == nullptr || !takes_devices_
                            ? kHostMemory
                            : mine[i]->request.device);
      if (devices.back() != kHostMemory) {
        spec.devices = {DeviceOf(devices.back())};
      }
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
    tensors_[names[i]] = {std::move(specs[i]), (*keys)[i], devices[i]};
  }
  return absl::OkStatus();
}

absl::Status Coded::Run(const std::vector<Response>& batch,
                        const std::vector<Shared>& mine) {
  std::vector<absl::Status> refused(batch.size());
  RETURN_IF_ERROR(AddKeys(batch, mine, &refused));
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
  TensorView from, to;
  if (tensor.device != kHostMemory) {
    RETURN_IF_ERROR(StartOnDevice(tensor, request, begun, &from, &to));
    return Push(tensor, from, to, std::move(begun));
  }
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  if (mine == nullptr) {
    ASSIGN_OR_RETURN(begun.zeros, Buffer::Create(bytes));
    out = begun.zeros.data();
    if (bytes > 0) std::memset(out, 0, bytes);
    in = out;
  } else {
    if (IsOnDevice(mine->request)) {
      ASSIGN_OR_RETURN(DevicePlace* const place,
                       devices_.Find(mine->request.device));
      ASSIGN_OR_RETURN(const std::vector<Shared> copies,
                       place->CopyDown({mine}));
      begun.copy = copies.front();
    }
    Submission& here = begun.copy == nullptr ? *mine : *begun.copy;
    ASSIGN_OR_RETURN(out, PlaceResult(here, spec.num_elems));
    in = static_cast<const std::byte*>(here.in);
    if (request.prescale != 1 && bytes > 0) {
      if (in != out) std::memcpy(out, in, bytes);
      in = out;
      Scale(spec.dtype, request.prescale, spec.num_elems, out);
    }
  }
  // The store reads it only.
  from = ViewOf(const_cast<std::byte*>(in), spec, {});
  return Push(tensor, from, ViewOf(out, spec, {}), std::move(begun));
}

// Behind what is queued there; the store goes on by the place's stream.
absl::Status Coded::StartOnDevice(const Tensor& tensor, const Request& request,
                                  UnderWay& begun, TensorView* from,
                                  TensorView* to) {
  const TensorSpec& spec = tensor.spec;
  const size_t bytes = spec.num_elems * SizeOf(spec.dtype);
  ASSIGN_OR_RETURN(DevicePlace* const place, devices_.Find(tensor.device));
  std::byte* out = nullptr;
  std::byte* in = nullptr;
  if (begun.mine == nullptr) {
    ASSIGN_OR_RETURN(begun.zeros, place->Make(bytes));
    in = out = begun.zeros.data();
  } else {
    Submission& mine = *begun.mine;
    RETURN_IF_ERROR(CheckDevice(tensor.device, mine.request));
    place->Follow(mine);
    ASSIGN_OR_RETURN(out, place->ResultOf(mine, spec.num_elems));
    in = static_cast<std::byte*>(const_cast<void*>(mine.in));
    if (request.prescale != 1) {
      place->Copy(in, bytes, out);
      place->Multiply(spec.dtype, request.prescale, spec.num_elems, out);
      in = out;
    }
  }
  *from = ViewOf(in, spec, place->lane().stream());
  *to = ViewOf(out, spec, place->lane().stream());
  return absl::OkStatus();
}

absl::Status Coded::Push(const Tensor& tensor, const TensorView& from,
                         const TensorView& to, UnderWay begun) {
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

// The result lies where PlaceResult has said.
absl::Status Coded::Multiply(Submission& mine, double factor) {
  const auto elems = static_cast<size_t>(mine.num_elems);
  void* const result = const_cast<void*>(mine.result);
  if (!IsOnDevice(mine.request)) {
    Scale(mine.request.dtype, factor, elems, result);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(DevicePlace* const place,
                   devices_of_ends_.Find(mine.request.device));
  place->Multiply(mine.request.dtype, factor, elems, result);
  return place->Finish();
}

absl::Status Coded::GiveResult(UnderWay& ended) {
  const bool is_copied = ended.copy != nullptr;
  if (ended.factor != 1) {
    RETURN_IF_ERROR(
        Multiply(is_copied ? *ended.copy : *ended.mine, ended.factor));
  }
  if (!is_copied) return absl::OkStatus();
  ASSIGN_OR_RETURN(DevicePlace* const place,
                   devices_of_ends_.Find(ended.mine->request.device));
  return place->CopyUp({ended.copy}, {ended.mine});
}

void Coded::End(UnderWay& ended) {
  absl::Status status = ended.ticket.Wait(Clock::now());
  if (ended.mine == nullptr) return;
  if (status.ok()) status = GiveResult(ended);
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
