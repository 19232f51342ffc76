#include "transport/job/settle.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

using Members = std::vector<const RosterEntry*>;

const std::vector<std::string>& NamesOf(const RosterEntry& member) {
  return member.join.offers.names;
}

// Null: all offer it.
const RosterEntry* FirstWithout(const Members& members,
                                const std::string& name) {
  const auto found = absl::c_find_if(members, [&](const RosterEntry* member) {
    return !absl::c_linear_search(NamesOf(*member), name);
  });
  return found == members.end() ? nullptr : *found;
}

std::string WhyOf(const RosterEntry& member) {
  if (!member.join.offers.why.empty()) {
    return absl::Utf8SafeCEscape(member.join.offers.why);
  }
  return absl::StrCat(NamesOf(member).front(), " was asked for");
}

std::string BothChoices(const RosterEntry& a, const RosterEntry& b) {
  const auto text = [](const RosterEntry& member) {
    return absl::StrCat(ToString(member.id()), " has ", NamesOf(member).front(),
                        " (", WhyOf(member), ")");
  };
  return absl::StrCat("transport: ", text(a), ", ", text(b));
}

// Two that have nothing in common, else two that want different ones.
std::string Conflict(const Members& members) {
  for (const RosterEntry* one : members) {
    for (const RosterEntry* other : members) {
      const bool is_disjoint =
          absl::c_none_of(NamesOf(*one), [&](const std::string& name) {
            return absl::c_linear_search(NamesOf(*other), name);
          });
      if (is_disjoint) return BothChoices(*one, *other);
    }
  }
  const RosterEntry& first = *members.front();
  return BothChoices(first, *FirstWithout(members, NamesOf(first).front()));
}

// Of the first member that would have chosen another.
std::string ReasonFor(const Members& members, const std::string& name) {
  for (const RosterEntry* member : members) {
    const std::string& wish = NamesOf(*member).front();
    const RosterEntry* lacking =
        wish == name ? nullptr : FirstWithout(members, wish);
    if (lacking == nullptr) continue;
    return absl::StrCat(ToString(lacking->id()), " on ", lacking->join.host,
                        " cannot use ", wish, ": ", WhyOf(*lacking));
  }
  return "";
}

// The number of connections and whose they are, or the error.
void SettleConnections(const Members& members, SettledTransport* settled) {
  const RosterEntry* fixed = nullptr;
  const RosterEntry* most = members.front();
  for (const RosterEntry* member : members) {
    const TransportOffers& offers = member->join.offers;
    if (offers.connections > most->join.offers.connections) most = member;
    if (offers.is_open) continue;
    if (fixed == nullptr) fixed = member;
    if (fixed->join.offers.connections == offers.connections) continue;
    settled->error = absl::StrCat(
        "connections: ", ToString(fixed->id()), " has ",
        fixed->join.offers.connections, ", ", ToString(member->id()), " has ",
        offers.connections, "; give all the same --connections and --rails");
    return;
  }
  const RosterEntry& taken = fixed == nullptr ? *most : *fixed;
  const TransportOffers& offers = taken.join.offers;
  settled->connections = offers.connections;
  const bool are_all_fixed = absl::c_none_of(
      members,
      [](const RosterEntry* member) { return member->join.offers.is_open; });
  if (are_all_fixed) return;
  settled->connections_reason = absl::StrCat(
      "of ", ToString(taken.id()), " on ", taken.join.host, ": ",
      offers.is_open ? absl::Utf8SafeCEscape(offers.connections_why)
                     : "given there");
}

}  // namespace

SettledTransport Settle(const Members& all) {
  Members members = all;
  std::erase_if(members, [](const RosterEntry* member) {
    return NamesOf(*member).empty();
  });
  if (members.empty()) return {};
  for (const std::string& name : NamesOf(*members.front())) {
    if (FirstWithout(members, name) != nullptr) continue;
    SettledTransport settled{.name = name, .reason = ReasonFor(members, name)};
    SettleConnections(members, &settled);
    return settled;
  }
  return {.error = Conflict(members)};
}

std::string AddressFor(const RosterEntry& member,
                       const SettledTransport& settled) {
  const TransportOffers& offers = member.join.offers;
  const auto found = absl::c_find(offers.names, settled.name);
  const auto i = static_cast<size_t>(found - offers.names.begin());
  const auto has = [i](const std::vector<std::string>& all) {
    return i < all.size() && !all[i].empty();
  };
  if (settled.connections > 1 && has(offers.striped_addresses)) {
    return offers.striped_addresses[i];
  }
  return has(offers.addresses) ? offers.addresses[i] : member.join.data_address;
}

}  // namespace telegrad
