#include "kvstore/operations/device_groups.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "kvstore/operations/gather_texts.h"

namespace telegrad::operations {
namespace {

// "rank 1: ..." of the first that says anything; "": none does.
std::string FirstOf(const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) {
      return absl::StrCat("rank ", rank, ": ", texts[rank]);
    }
  }
  return "";
}

std::string TextOf(const absl::Status& status) {
  return std::string(status.message().substr(0, 1000));
}

// What is said of a group whose traffic is not sealed, where other is.
std::string AboutSealing(const TransportOptions& path) {
  const std::string address = FormatHostPort(path.bind_address, 1);
  const bool is_wanted =
      path.key != nullptr &&
      EncryptionTo(address, path.encryption) != Encryption::kOff;
  return is_wanted ? ", isolated fabric: what NCCL sends cannot be sealed" : "";
}

}  // namespace

GroupOptions DeviceGroups::MadeFor(int device) const {
  GroupOptions options = like_;
  options.backend = backend_;
  options.device = device;
  options.hosts.clear();
  options.sums.clear();
  options.allreduce = CollectiveAlgorithm::kAuto;
  options.sends = false;
  return options;
}

// Whether there is what a group needs on this rank, by one of it alone.
const std::string& DeviceGroups::WhyNot(int device) {
  const auto found = why_not_.try_emplace(device);
  if (found.second) {
    GroupOptions alone = MadeFor(device);
    alone.rank = 0;
    alone.world_size = 1;
    found.first->second =
        TextOf(Group::Make(alone, [](const std::string& mine, TimePoint) {
                 return std::vector<std::string>{mine};
               }).status());
  }
  return found.first->second;
}

absl::StatusOr<std::unique_ptr<Group>> DeviceGroups::Make(
    Group& members, int device, std::string* why_not) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   GatherTexts(members, WhyNot(device)));
  *why_not = FirstOf(texts);
  if (!why_not->empty()) return nullptr;
  GroupOptions options = MadeFor(device);
  options.rank = members.rank();
  options.world_size = members.world_size();
  bool has_said = false;
  auto made = Group::Make(options, [&](const std::string& mine, TimePoint) {
    has_said = true;
    return GatherTexts(members, mine);
  });
  if (!has_said) RETURN_IF_ERROR(GatherTexts(members, "").status());
  // Who has one may do something else, and others would wait for it.
  ASSIGN_OR_RETURN(texts, GatherTexts(members, TextOf(made.status())));
  *why_not = FirstOf(texts);
  if (!why_not->empty()) return nullptr;
  return made;
}

absl::StatusOr<Group*> DeviceGroups::Find(int set, Group& members,
                                          const std::vector<int>& devices) {
  const auto found = groups_.try_emplace({set, devices});
  std::unique_ptr<Group>& group = found.first->second;
  if (found.second) {
    std::string why_not;
    ASSIGN_OR_RETURN(
        group,
        Make(members, devices[static_cast<size_t>(members.rank())], &why_not));
    if (members.rank() == 0) {
      LogInfo("operations: tensors on GPUs go ",
              why_not.empty()
                  ? absl::StrCat("by ", group->info().details,
                                 AboutSealing(like_.transport))
                  : absl::StrCat("through pinned host memory, as not all "
                                 "ranks have NCCL for them: ",
                                 why_not));
    }
  }
  return group.get();
}

void DeviceGroups::Forget(int set) {
  std::erase_if(groups_,
                [set](const auto& each) { return each.first.first == set; });
}

}  // namespace telegrad::operations
