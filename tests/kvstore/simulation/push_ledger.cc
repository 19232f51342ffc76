#include "tests/kvstore/simulation/push_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/kvstore/simulation/job_oracle.h"

namespace telegrad::testing {

PushLedger::PushLedger(const Scenario& scenario, Say say)
    : codec_(scenario.codec),
      num_places_(static_cast<size_t>(scenario.workers) + 1),
      sizes_(TensorSizes()),
      say_(std::move(say)) {}

void PushLedger::OnGiven(uint64_t epoch, const OfTensors& weights) {
  given_[epoch] = weights;
}

bool PushLedger::MayBe(const Epoch& epoch, size_t tensor, size_t i, float value,
                       size_t least, size_t most) const {
  const Pushes& own = epoch.tensors[tensor][i % num_places_];
  for (size_t count = least; count <= most; ++count) {
    if (value == epoch.begin[tensor][i] + own.sums[count][i]) return true;
  }
  return false;
}

void PushLedger::OnBegin(const Membership& membership,
                         const OfTensors& weights) {
  const auto [found, is_new] = epochs_.try_emplace(membership.epoch);
  Epoch& epoch = found->second;
  if (!is_new) {
    if (epoch.begin != weights) {
      say_(absl::StrCat("epoch ", membership.epoch,
                        " begins with other weights at worker/",
                        membership.self.rank));
    }
    return;
  }
  epoch.begin = weights;
  for (const Member& server : membership.servers) {
    epoch.servers.push_back(server.pid);
  }
  for (const size_t size : sizes_) {
    const Values zeros(size, 0.0f);
    epoch.tensors.emplace_back(num_places_,
                               Pushes{.sums = {zeros}, .residual = zeros});
  }
  const OfTensors& given = given_[membership.epoch];
  const Epoch* const before =
      found == epochs_.begin() ? nullptr : &std::prev(found)->second;
  const bool counts_given =
      before == nullptr || before->servers != epoch.servers;
  for (size_t tensor = 0; tensor < sizes_.size(); ++tensor) {
    for (size_t i = 0; i < sizes_[tensor]; ++i) {
      const float value = weights[tensor][i];
      if (counts_given && value == given[tensor][i]) continue;
      if (before != nullptr) {
        const Pushes& own = before->tensors[tensor][i % num_places_];
        if (MayBe(*before, tensor, i, value, own.num_answered,
                  own.num_sent())) {
          continue;
        }
      }
      return say_(absl::StrCat("epoch ", membership.epoch, " begins with ",
                               value, " as tensor ", tensor, ", element ", i,
                               ", which the pushes before do not make"));
    }
  }
}

Values PushLedger::Coded(Values& residual, size_t place, int64_t number,
                         size_t tensor) const {
  Values sent(sizes_[tensor], 0.0f);
  for (size_t i = place; i < sent.size(); i += num_places_) {
    const float value = Gradient(place, number, tensor, i);
    sent[i] = codec_ == "none" ? value : TwoBit(residual[i], value);
  }
  return sent;
}

std::vector<size_t> PushLedger::OnPush(uint64_t epoch, size_t place,
                                       int64_t number, size_t tensor) {
  std::vector<Pushes>& all = epochs_.at(epoch).tensors[tensor];
  Pushes& own = all[place];
  Values sum = Coded(own.residual, place, number, tensor);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += own.sums.back()[i];
  own.sums.push_back(std::move(sum));
  std::vector<size_t> known;
  for (const Pushes& each : all) known.push_back(each.num_answered);
  known[place] = own.num_sent();  // once it is answered itself
  return known;
}

void PushLedger::OnAnswer(uint64_t epoch, size_t place, size_t tensor,
                          const std::vector<size_t>& known,
                          const Values& weights) {
  Epoch& own = epochs_.at(epoch);
  std::vector<Pushes>& all = own.tensors[tensor];
  all[place].num_answered = known[place];
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t its = i % num_places_;
    if (MayBe(own, tensor, i, weights[i], known[its], all[its].num_sent())) {
      continue;
    }
    return say_(absl::StrCat("epoch ", epoch, ", tensor ", tensor, ", element ",
                             i, ": ", weights[i], ", which is not what ",
                             known[its], " to ", all[its].num_sent(),
                             " pushes of its worker make"));
  }
}

void PushLedger::OnEnd(uint64_t epoch, size_t tensor, const Values& weights) {
  const Epoch& own = epochs_.at(epoch);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t num_sent = own.tensors[tensor][i % num_places_].num_sent();
    if (MayBe(own, tensor, i, weights[i], num_sent, num_sent)) continue;
    return say_(absl::StrCat("the end, tensor ", tensor, ", element ", i, ": ",
                             weights[i], ", which is not what all ", num_sent,
                             " pushes of its worker make"));
  }
}

}  // namespace telegrad::testing
