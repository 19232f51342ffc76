#include "transport/decorators/multirail/connections.h"

#include <algorithm>
#include <utility>

namespace telegrad::multirail {
namespace {

// What a connection is given before it has sent it: four parts, enough to be
// busy until more comes, little enough that a slower one is not left with all.
constexpr size_t kWindowBytes = 4 * (kPartBytes + kMaxCarriedBytes);

}  // namespace

bool Connection::HasRoom(size_t bytes) const {
  return bytes_given == 0 || bytes_given + bytes <= kWindowBytes;
}

Connection& Connections::Add(EndpointId inner_id, size_t index) {
  ++num_open_;
  Connection& added = all_.emplace_back();
  added.inner = inner_id;
  added.index = index;
  return added;
}

void Connections::HasClosed(Connection& connection) {
  connection.is_open = false;
  --num_open_;
}

bool Connections::Has(size_t index) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Connection& c) { return c.index == index; });
}

bool Connections::AreAll(bool (TransportContext::*is)(EndpointId) const) const {
  bool has_any = false;
  for (const Connection& connection : all_) {
    if (!connection.is_usable) continue;
    if (!(inner_.*is)(connection.inner)) return false;
    has_any = true;
  }
  return has_any;
}

bool Connections::IsWanted(EndpointId inner_id) const {
  return inner_.IsInMemory(inner_id) || !IsInMemory();
}

Connection* Connections::Soonest(size_t bytes, bool has_heard) {
  const TimePoint now = Clock::now();
  Connection* best = nullptr;
  std::pair<double, size_t> best_finish;
  for (Connection& connection : all_) {
    if (!connection.is_open || !connection.is_usable) continue;
    const size_t given = connection.bytes_given;
    const bool has_room = connection.HasRoom(bytes);
    if (!has_heard) return has_room ? &connection : nullptr;
    // Small messages keep to one connection, and so arrive in order.
    if (bytes < kSmallBytes && given < kSmallBytes) return &connection;
    if (!has_room && !connection.pace.is_known()) continue;
    const std::pair finish(connection.pace.SecondsFor(given, bytes, now),
                           given);  // where no pace is known
    if (best == nullptr || finish < best_finish) {
      best = &connection;
      best_finish = finish;
    }
  }
  return best;
}

bool Connections::SendBare(const std::array<std::byte, kPrefixBytes>& text) {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Connection& connection) {
                       return connection.is_open && connection.is_usable &&
                              inner_
                                  .Send(connection.inner,
                                        {text.data(), text.size()}, {}, nullptr)
                                  .ok();
                     });
}

}  // namespace telegrad::multirail
