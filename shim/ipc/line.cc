// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/line.h"

#include <algorithm>

namespace cistern::shim {

// The first of several, and 0 where there is none.
size_t IpcLines::oldest() const {
  const auto older = [](const Line& a, const Line& b) { return a.since_ns < b.since_ns; };
  return static_cast<size_t>(std::min_element(lines_, lines_ + count_, older) - lines_);
}

bool IpcLines::one_may_go(uint64_t now_ns) const {
  return count_ == kMostLines && now_ns - lines_[oldest()].since_ns > kFairNs;
}

bool IpcLines::has_room(uint64_t now_ns) {
  for (size_t i = count_; i-- > 0;) {
    // The number may be the program's file by now.
    if (now_ns - lines_[i].since_ns > kLineNs || !lines_[i].socket.still_ours()) close_at(i);
  }
  return count_ < kMostLines || one_may_go(now_ns);
}

uint64_t IpcLines::unchanged_for(uint64_t now_ns) const {
  if (count_ == 0) return UINT64_MAX;
  const bool full = count_ == kMostLines && !one_may_go(now_ns);
  const uint64_t end = lines_[oldest()].since_ns + (full ? kFairNs : kLineNs);
  return end > now_ns ? end - now_ns : 0;
}

void IpcLines::invite(const IpcProcess& own, uint64_t number, const IpcSender& to,
                      const IpcAnswer& come, uint64_t now_ns) {
  const bool there =
      std::any_of(lines_, lines_ + count_, [=](const Line& line) { return line.number == number; });
  if (there || !to.has_address()) return;
  if (one_may_go(now_ns)) close_at(oldest());
  if (count_ == kMostLines) return;
  Line& line = lines_[count_];
  if (!line.socket.open_line(own, number, to)) return;
  line.number = number;
  line.since_ns = now_ns;
  ++count_;
  if (!line.socket.send_connected(&come, sizeof come, IpcFiles())) close_at(count_ - 1);
}

size_t IpcLines::put_polled(pollfd* out) const {
  for (size_t i = 0; i < count_; ++i) out[i] = {lines_[i].socket.number(), POLLIN, 0};
  return count_;
}

void IpcLines::close_at(size_t i) {
  lines_[i].socket.close_own();
  lines_[i] = lines_[--count_];
  lines_[count_] = {};
}

// Also one that is being opened while the process is forked.
void IpcLines::close_all() {
  for (Line& line : lines_) line.socket.close_own();
  count_ = 0;
}

}  // namespace cistern::shim
