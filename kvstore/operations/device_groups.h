#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"

namespace telegrad::operations {

// Groups of GPUs, one for each list of them that members of a process set have
// arrays on; made by all members alike, with the first batch that wants one.
// One thread.
class DeviceGroups {
 public:
  // `like`: how ranks reach each other, and its `timeout` and nccl_library.
  // `backend`: Group's, "nccl".
  DeviceGroups(GroupOptions like, std::string backend)
      : like_(std::move(like)), backend_(std::move(backend)) {}

  // `devices`: Request::device of each member of `members`, which is the group
  // of process set `set`. Null: a member cannot, which member 0 logs once.
  absl::StatusOr<Group*> Find(int set, Group& members,
                              const std::vector<int>& devices);
  // The set is no more.
  void Forget(int set);
  void Close() { groups_.clear(); }

 private:
  absl::StatusOr<std::unique_ptr<Group>> Make(Group& members, int device,
                                              std::string* why_not);
  GroupOptions MadeFor(int device) const;
  const std::string& WhyNot(int device);

  const GroupOptions like_;
  const std::string backend_;
  std::map<int, std::string> why_not_;  // by device of this process; "": none
  std::map<std::pair<int, std::vector<int>>, std::unique_ptr<Group>> groups_;
};

}  // namespace telegrad::operations
