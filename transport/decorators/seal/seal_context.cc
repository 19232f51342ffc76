#include "transport/decorators/seal/seal_context.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeSealTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return seal::SealContext::Make(make_inner, options, handler);
}

namespace seal {
namespace {

static_assert(2 * kTagBytes <= kMaxSealBytes);
// Kept for sealed payloads: what is under way at once, more or less.
constexpr size_t kMaxSpare = 16;
constexpr size_t kMinBufferBytes = size_t{64} << 10;
// A peer that listens has time, and its own begins later.
constexpr Duration kAnswerGrace = 2 * kGreetGrace;

// What is authenticated beside a header.
std::array<std::byte, 4> Beside(size_t payload_bytes) {
  std::array<std::byte, 4> bytes;
  StoreLittleEndian(bytes.data(), static_cast<uint32_t>(payload_bytes));
  return bytes;
}

ConstBytes View(const std::string& text) { return {text.data(), text.size()}; }

}  // namespace

SealContext::SealContext(const TransportOptions& options,
                         TransportHandler* handler)
    : ForwardingContext(handler),
      key_(options.key),
      setting_(options.encryption),
      memory_(options.memory),
      max_header_bytes_(MaxHeaderBytes(options)) {}

absl::StatusOr<std::unique_ptr<TransportContext>> SealContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  std::unique_ptr<SealContext> context(new SealContext(options, handler));
  TransportOptions inner_options = options;
  inner_options.prefix_bytes += kMaxSealBytes;
  RETURN_IF_ERROR(context->MakeInner(make_inner, inner_options));
  return context;
}

// Payloads on devices cannot be sealed: where that is asked for they are
// staged, else they go as they are.
bool SealContext::Takes(DeviceKind device) const {
  return device == DeviceKind::kCpu || (may_be_open() && inner().Takes(device));
}

bool SealContext::TakesSome(DeviceKind device) const {
  return device == DeviceKind::kCpu ||
         (may_be_open() && inner().TakesSome(device));
}

bool SealContext::TakesNow(Bytes target) {
  return Takes(target.device.kind) && inner().TakesNow(target);
}

SealContext::Endpoint* SealContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

bool SealContext::IsSealed(EndpointId id) const {
  const auto found = endpoints_.find(id);
  return found != endpoints_.end() && found->second.is_sealed();
}

absl::StatusOr<EndpointId> SealContext::Connect(absl::string_view address) {
  const Encryption wanted = setting_ == Encryption::kAuto && takes_devices()
                                ? Encryption::kOff
                                : EncryptionTo(address, setting_);
  ASSIGN_OR_RETURN(Greeting greeting,
                   Greeting::Create(key_, setting_,
                                    /*is_client=*/true, wanted));
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  Endpoint& endpoint =
      endpoints_.try_emplace(id, std::move(greeting)).first->second;
  endpoint.is_announced = true;
  greeting_.Add(id);
  // One that cannot be reached is heard of in Progress.
  (void)Say(id, endpoint.greeting.Begin());
  return id;
}

void SealContext::OnAccept(EndpointId id) {
  absl::StatusOr<Greeting> greeting =
      Greeting::Create(key_, setting_, /*is_client=*/false, Encryption::kOff);
  if (!greeting.ok()) return inner().Close(id);
  endpoints_.try_emplace(id, *std::move(greeting));
  greeting_.Add(id);
}

absl::Status SealContext::Say(EndpointId to, const std::string& text) {
  return inner().Send(to, View(text), {}, [](const absl::Status&) {});
}

void SealContext::Fail(EndpointId id, Endpoint& endpoint,
                       const absl::Status& why) {
  (void)Refuse(endpoint, why);
  inner().Close(id);
}

// The first reason stays.
const absl::Status& SealContext::Refuse(Endpoint& endpoint,
                                        const absl::Status& why) {
  if (endpoint.why.ok()) endpoint.why = why;
  return why;
}

absl::Status SealContext::Send(EndpointId to, ConstBytes header,
                               ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || !endpoint->why.ok()) return NotOpen(to);
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  if (!endpoint->greeting.is_done()) {
    if (!takes_devices()) RETURN_IF_ERROR(CheckOnHost("seal", payload.device));
    endpoint->waiting.push_back(
        {std::string(reinterpret_cast<const char*>(header.data), header.size),
         payload, std::move(done)});
    return absl::OkStatus();
  }
  if (!endpoint->is_sealed()) {
    return inner().Send(to, header, payload, std::move(done));
  }
  return SendSealed(to, *endpoint, header, payload, std::move(done));
}

absl::Status SealContext::SendSealed(EndpointId to, Endpoint& endpoint,
                                     ConstBytes header, ConstBytes payload,
                                     SendDone done) {
  RETURN_IF_ERROR(CheckOnHost("seal", payload.device));
  const uint64_t number = 2 * endpoint.num_sent;
  std::array<std::byte, kMaxCarriedBytes> sealed;
  std::byte* const text = sealed.data() + kTagBytes;
  std::byte* end = text;
  if (payload.size > 0) {
    std::shared_ptr<Buffer> buffer;
    if (endpoint.greeting.mode() == Encryption::kOn) {
      buffer = TakeBuffer(payload.size);
    }
    RETURN_IF_ERROR(endpoint.sealers->seals.Seal(
        number, {}, payload, buffer == nullptr ? nullptr : buffer->data(),
        end));
    end += kTagBytes;
    if (buffer != nullptr) {
      payload = {buffer->data(), payload.size};
      done = [this, buffer, done = std::move(done)](const absl::Status& sent) {
        if (spare_.size() < kMaxSpare) spare_.push_back(buffer);
        if (done) done(sent);
      };
    }
  }
  end = std::copy_n(header.data, header.size, end);
  const ConstBytes all(text, static_cast<size_t>(end - text));
  const auto beside = Beside(payload.size);
  RETURN_IF_ERROR(endpoint.sealers->seals.Seal(
      number + 1, {beside.data(), beside.size()}, all, text, sealed.data()));
  RETURN_IF_ERROR(inner().Send(to, {sealed.data(), kTagBytes + all.size},
                               payload, std::move(done)));
  ++endpoint.num_sent;
  return absl::OkStatus();
}

std::shared_ptr<Buffer> SealContext::TakeBuffer(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kMinBufferBytes));
  const auto found =
      std::find_if(spare_.begin(), spare_.end(),
                   [size](const auto& each) { return each->size() == size; });
  if (found == spare_.end()) return std::make_shared<Buffer>(size);
  std::shared_ptr<Buffer> buffer = std::move(*found);
  spare_.erase(found);
  return buffer;
}

void SealContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || !endpoint->why.ok()) return;
  endpoint->why = absl::CancelledError("closed by this side");
  if (endpoint->waiting.empty()) return inner().Close(id);
  closing_.Add(id);
}

absl::StatusOr<Bytes> SealContext::OnHeader(EndpointId from, ConstBytes header,
                                            size_t payload_bytes) {
  Endpoint& endpoint = *Find(from);
  if (!endpoint.greeting.is_done()) {
    const absl::Status taken =
        payload_bytes > 0
            ? absl::UnauthenticatedError("the peer does not seal its messages")
            : TakeGreeting(from, endpoint, header);
    if (!taken.ok()) return Refuse(endpoint, taken);
    endpoint.arriving.push_back({.is_greeting = true});
    return Bytes();
  }
  if (!endpoint.is_sealed()) {
    return handler().OnHeader(from, header, payload_bytes);
  }
  if (absl::IsDataLoss(endpoint.why)) return endpoint.why;
  absl::StatusOr<Arriving> opened = OpenHeader(endpoint, header, payload_bytes);
  if (!opened.ok()) return Refuse(endpoint, opened.status());
  const Arriving& message = endpoint.arriving.emplace_back(*opened);
  return handler().OnHeader(from, message.header(), payload_bytes);
}

absl::StatusOr<SealContext::Arriving> SealContext::OpenHeader(
    Endpoint& endpoint, ConstBytes header, size_t payload_bytes) {
  Arriving message{.number = 2 * endpoint.num_heard++};
  message.tag_bytes = payload_bytes > 0 ? kTagBytes : 0;
  if (header.size < kTagBytes + message.tag_bytes ||
      header.size > kTagBytes + message.text.size()) {
    return absl::DataLossError("message altered on its way: its header");
  }
  const size_t bytes = header.size - kTagBytes;
  message.header_bytes = bytes - message.tag_bytes;
  std::copy_n(header.data + kTagBytes, bytes, message.text.begin());
  const auto beside = Beside(payload_bytes);
  const absl::Status opened = endpoint.sealers->opens.Open(
      message.number + 1, {beside.data(), beside.size()},
      {message.text.data(), bytes}, header.data);
  if (opened.ok()) return message;
  return absl::DataLossError(absl::StrCat("message ", opened.message()));
}

void SealContext::OnMessage(EndpointId from, ConstBytes header, Bytes payload) {
  Endpoint& endpoint = *Find(from);
  if (endpoint.arriving.empty()) {  // an open connection
    return handler().OnMessage(from, header, payload);
  }
  const Arriving message = endpoint.arriving.front();
  endpoint.arriving.pop_front();
  if (message.is_greeting || absl::IsDataLoss(endpoint.why)) return;
  if (message.tag_bytes > 0) {
    const absl::Status opened = endpoint.sealers->opens.Open(
        message.number, {}, payload, message.text.data());
    if (!opened.ok()) {
      return Fail(
          from, endpoint,
          absl::DataLossError(absl::StrCat("payload ", opened.message())));
    }
  }
  handler().OnMessage(from, message.header(), payload);
}

absl::Status SealContext::TakeGreeting(EndpointId from, Endpoint& endpoint,
                                       ConstBytes header) {
  const bool is_client = endpoint.is_announced;
  Greeting& greeting = endpoint.greeting;
  const Ends ends{.is_in_memory = inner().IsInMemory(from),
                  .takes_devices = takes_devices()};
  const absl::StatusOr<std::string> answer = greeting.Take(header, ends);
  if (absl::IsFailedPrecondition(answer.status()) && !is_client) {
    (void)Say(from, greeting.Refusal());
    Fail(from, endpoint, answer.status());
    return absl::OkStatus();  // so that these words leave
  }
  RETURN_IF_ERROR(answer.status());
  if (!answer->empty()) RETURN_IF_ERROR(Say(from, *answer));
  if (!greeting.is_done()) return absl::OkStatus();
  greeting_.Remove(from);
  if (greeting.mode() != Encryption::kOff) {
    ASSIGN_OR_RETURN(
        endpoint.sealers,
        Sealers::Create(greeting.keys(), greeting.mode(), is_client));
  }
  if (!std::exchange(endpoint.is_announced, true)) handler().OnAccept(from);
  for (Waiting& each : std::exchange(endpoint.waiting, {})) {
    const absl::Status sent =
        endpoint.is_sealed()
            ? SendSealed(from, endpoint, View(each.header), each.payload,
                         each.done)
            : inner().Send(from, View(each.header), each.payload, each.done);
    if (!sent.ok()) Defer(each.done, absl::UnavailableError(sent.message()));
  }
  if (!endpoint.why.ok()) inner().Close(from);
  return absl::OkStatus();
}

void SealContext::OnClosed(EndpointId id, const absl::Status& why) {
  greeting_.Remove(id);
  closing_.Remove(id);
  auto node = endpoints_.extract(id);
  if (node.empty()) return;
  Endpoint& endpoint = node.mapped();
  const absl::Status reason = endpoint.why.ok() ? why : endpoint.why;
  for (Waiting& each : endpoint.waiting) Defer(std::move(each.done), reason);
  CallDue();
  if (endpoint.is_announced) handler().OnClosed(id, reason);
}

bool SealContext::HandleEvents(TimePoint* next) {
  greeting_.CutLate(kAnswerGrace, [this](EndpointId id) {
    Fail(id, *Find(id), absl::UnavailableError("no exchange of keys in time"));
  });
  closing_.CutLate(kCloseGrace, [this](EndpointId id) { inner().Close(id); });
  *next = std::min({*next, greeting_.NextTimer(kAnswerGrace),
                    closing_.NextTimer(kCloseGrace)});
  return CallDue();
}

}  // namespace seal
}  // namespace telegrad
