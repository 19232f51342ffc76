#pragma once

// Calls that make a stream wait for an event, by the place that made them, for
// tests/simt/waits.py: TELEGRAD_SIMT_WAITS names a file for a list of the
// places, as offsets in the program, and TELEGRAD_SIMT_LEFT_OUT one of them, of
// which no call does anything.
namespace telegrad::simt {

// Whether that place is left out which called DeviceQueue::WaitOn, which
// returns to `queue_call`.
bool IsLeftOut(const void* queue_call);

}  // namespace telegrad::simt
