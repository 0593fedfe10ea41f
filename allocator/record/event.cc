// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/event.h"

namespace cistern::alloc {

uint32_t adler32(const void* data, size_t bytes) {
  constexpr uint32_t kModulus = 65521;
  constexpr size_t kBeforeOverflow = 5552;  // so many bytes fit into 32 bits without the modulus
  const auto* next = static_cast<const uint8_t*>(data);
  uint32_t sum = 1, sum_of_sums = 0;
  while (bytes > 0) {
    const size_t part = bytes < kBeforeOverflow ? bytes : kBeforeOverflow;
    for (size_t i = 0; i < part; ++i) sum_of_sums += sum += next[i];
    sum %= kModulus;
    sum_of_sums %= kModulus;
    next += part;
    bytes -= part;
  }
  return sum_of_sums << 16 | sum;
}

namespace {

// Most events of a thread come from where the one before came from: that is one comparison.
uint8_t* put_state(uint8_t* out, EventContext& context, const Event& event) {
  const uint64_t now[kStates] = {event.thread, event.device, event.context, event.stream,
                                 event.site,   event.range,  event.phase};
  const unsigned told = states_of(event.type);
  uint64_t changed = 0;
  for (int i = 0; i < kStates; ++i) {
    changed |= (now[i] ^ context.state[i]) & (0 - uint64_t{told >> i & 1});
  }
  if (changed == 0) [[likely]]
    return out;
  for (int i = 0; i < kStates; ++i) {
    if (now[i] == context.state[i] || (told & 1u << i) == 0) continue;
    context.state[i] = now[i];
    *out++ = static_cast<uint8_t>(kFirstStateTag + i);
    out = put_varint(out, now[i]);
  }
  return out;
}

uint8_t* put_difference(uint8_t* out, uint64_t& last, uint64_t now) {
  out = put_varint(out, zigzag(static_cast<int64_t>(now - last)));
  last = now;
  return out;
}

}  // namespace

uint8_t* put_event(uint8_t* out, EventContext& context, const Event& event) {
  out = put_state(out, context, event);
  *out++ = static_cast<uint8_t>(static_cast<unsigned>(event.type) |
                                static_cast<unsigned>(event.memory) << kTypeBits);
  out = put_difference(out, context.time_ns, event.time_ns);
  if (has_address(event.type)) out = put_difference(out, context.address, event.address);
  if (has_bytes(event.type)) out = put_varint(out, event.bytes);
  if (event.type == EventType::refused) out = put_varint(out, event.code);
  return out;
}

}  // namespace cistern::alloc
