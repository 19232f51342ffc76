#pragma once

#include "topology/calibration.h"

namespace telegrad {

// Calls visit(name, figure) for each figure; the one list of their names.
template <typename Machine, typename Visit>
requires requires(Machine& machine) { machine.handover_s; }
void VisitFigures(Machine& machine, const Visit& visit) {
  visit("cores", machine.cores);
  visit("reduce", machine.reduce);
  visit("check", machine.check);
  visit("copy", machine.copy);
  visit("handover_s", machine.handover_s);
}

template <typename Codec, typename Visit>
requires requires(Codec& codec) { codec.decode_add; }
void VisitFigures(Codec& codec, const Visit& visit) {
  visit("encode", codec.encode);
  visit("decode", codec.decode);
  visit("decode_add", codec.decode_add);
  visit("sum", codec.sum);
  visit("reply_encode", codec.reply_encode);
  visit("call_s", codec.call_s);
}

template <typename Link, typename Visit>
requires requires(Link& link) { link.cpu_s_per_byte; }
void VisitFigures(Link& link, const Visit& visit) {
  visit("send", link.send);
  visit("receive", link.receive);
  visit("latency_s", link.latency_s);
  visit("message_cpu_s", link.message_cpu_s);
  visit("cpu_s_per_byte", link.cpu_s_per_byte);
  visit("frame_latency_s", link.frame_latency_s);
  visit("frame_cpu_s", link.frame_cpu_s);
  visit("frame_cpu_s_per_byte", link.frame_cpu_s_per_byte);
}

}  // namespace telegrad
