// How long operations of the C interface took.
#include "python/c/timeline.h"

#include "kvstore/ticket_state.h"

namespace telegrad {
namespace {

TEST(OperationEnds, CountsWhatItLeavesOut) {
  Timeline timeline;
  timeline.Switch(true);
  const auto under_way = std::make_shared<Ticket::State>();
  {
    c::OperationEnds ends(timeline, 2);
    for (Key key = 0; key < 5; ++key) {
      ends.Await(key, "push", Clock::now(), Ticket(under_way));
    }
    EXPECT_EQ(ends.TakeNumLeftOut(), 3u);
    EXPECT_EQ(ends.TakeNumLeftOut(), 0u);
    under_way->Finish(absl::OkStatus());
  }
  uint64_t num_left_out = 0;
  EXPECT_EQ(timeline.Take(&num_left_out).size(), 2u);
}

}  // namespace
}  // namespace telegrad
