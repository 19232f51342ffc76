#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"
#include "transport/ucx/config.h"
#include "transport/ucx/host.h"
#include "transport/ucx/records.h"
#include "transport/ucx/worker.h"

namespace telegrad::testing {
namespace {

TransportOptions OptionsOf(const char* tls) {
  TransportOptions options;
  options.name = "ucx";
  options.tls = tls;
  return options;
}

// Speaks UCX, and says what it likes.
class UcxStranger {
 public:
  explicit UcxStranger(const std::string& address) {
    const auto config =
        *ucx::MakeConfig(OptionsOf("tcp"), *ParseIp("127.0.0.1", 0));
    context_ = *ucx::MakeContext(config);
    worker_ = *ucx::MakeWorker(context_, &UcxStranger::Hear, this);
    const SocketAddress peer = *ParseIpPort(address);
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&peer.storage),
                       peer.length};
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* self, ucp_ep_h, ucs_status_t) {
                            static_cast<UcxStranger*>(self)->is_cut_ = true;
                          },
                          this};
    EXPECT_EQ(ucp_ep_create(worker_.handle, &params, &endpoint_), UCS_OK);
  }
  ~UcxStranger() {
    worker_ = ucx::Worker();
    ucp_cleanup(context_);
  }
  void Say(ucx::Kind kind, const std::string& text) {
    std::string& record = said_.emplace_back(ucx::kPrefixBytes, '\0');
    ucx::Pack({.kind = kind}, reinterpret_cast<std::byte*>(record.data()));
    record += text;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint_, ucx::kMessageId, record.data(),
                        record.size(), nullptr, 0, &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  void Poll() { ucp_worker_progress(worker_.handle); }
  bool is_cut() const { return is_cut_; }
  const std::vector<std::string>& heard() const { return heard_; }

 private:
  static ucs_status_t Hear(void* self, const void* header, size_t size, void*,
                           size_t, const ucp_am_recv_param_t*) {
    static_cast<UcxStranger*>(self)->heard_.emplace_back(
        static_cast<const char*>(header), size);
    return UCS_OK;
  }

  ucp_context_h context_ = nullptr;
  ucx::Worker worker_;
  ucp_ep_h endpoint_ = nullptr;
  bool is_cut_ = false;
  std::deque<std::string> said_;
  std::vector<std::string> heard_;
};

// UCX ends the process on some addresses of shared memory that are none.
TEST(UcxTransport, NothingOfAStrangerReachesUcxAndNothingIsToldToIt) {
  TransportOptions options = OptionsOf("");
  options.key = MakeConnectionKey("the job's");
  Node server(options);
  ASSERT_THAT(server.status, IsOk());
  const std::string address = *server.context->Listen();
  const std::string nonce(32, 'n');
  const std::string lane = Pattern(108, 7);
  using Said = std::vector<std::pair<ucx::Kind, std::string>>;
  for (const Said& all : {
           Said{{ucx::Kind::kHello, "m" + ucx::HostIdentity()},
                {ucx::Kind::kLane, lane}},
           Said{{ucx::Kind::kProof, nonce},
                {ucx::Kind::kHello, "m" + ucx::HostIdentity()},
                {ucx::Kind::kLane, lane}},
           Said{{ucx::Kind::kProof, nonce}, {ucx::Kind::kProof, nonce}},
           Said{{ucx::Kind::kProof, nonce + "more"}},
           Said{{ucx::Kind::kReady, "1"}},
           Said{{ucx::Kind::kData, "h"}},
       }) {
    UcxStranger stranger(address);
    for (const auto& [kind, text] : all) stranger.Say(kind, text);
    EXPECT_TRUE(Drive({&server}, [&] {
      stranger.Poll();
      return stranger.is_cut();
    }));
    for (const std::string& heard : stranger.heard()) {
      EXPECT_EQ(heard.size(), ucx::kPrefixBytes + 64);  // nonce and MAC
      EXPECT_THAT(heard, Not(::testing::HasSubstr("uid:")));
    }
  }
  EXPECT_TRUE(server.accepted.empty());
  EXPECT_TRUE(server.heard.empty());
  Node member(options);
  ASSERT_THAT(member.Send(*member.context->Connect(address), "h", "good"),
              IsOk());
  EXPECT_TRUE(Drive({&server, &member}, [&] { return !server.heard.empty(); }));
}

}  // namespace
}  // namespace telegrad::testing
