#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What the option makes, over faults of all kinds in both directions.
TEST(TransportResendOption, HealsFaultsAndCountsThem) {
  TransportOptions options;
  options.name = "inproc";
  options.fault = "drop=0.1,duplicate=0.1,reorder=0.1,flip=0.1,seed=5";
  options.resend = true;
  Node server(options), client(options);
  const auto to_server = Connect(client, server);
  ASSERT_THAT(to_server, IsOk());
  constexpr size_t kMessages = 300;
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(client.Send(*to_server, absl::StrCat(i), Pattern(i * 31, 1)),
                IsOk());
  }
  ASSERT_TRUE(Drive({&server, &client}, [&] {
    return server.heard.size() == kMessages &&
           client.num_completed == kMessages;
  }));
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(server.heard[i].header, absl::StrCat(i));
    ASSERT_EQ(server.heard[i].payload, Pattern(i * 31, 1));
  }
  const std::string details = server.context->info().details;
  EXPECT_THAT(details, HasSubstr(", resend: 0 sent again, "));
  EXPECT_THAT(details, Not(HasSubstr(" 0 duplicates")));
  EXPECT_THAT(details, Not(HasSubstr(" 0 reordered")));
  EXPECT_THAT(details, Not(HasSubstr(" 0 damaged")));
  EXPECT_THAT(client.context->info().details,
              Not(HasSubstr("resend: 0 sent again")));
}

}  // namespace
}  // namespace telegrad::testing
