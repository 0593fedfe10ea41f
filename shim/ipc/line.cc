// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/line.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::shim {

bool IpcLines::has_room() {
  const uint64_t now = alloc::os::now_ns();
  for (size_t i = count_; i-- > 0;) {
    // The number may be the program's file by now.
    if (now - lines_[i].since_ns > kLineNs || !lines_[i].socket.still_ours()) close_at(i);
  }
  return count_ < kMostLines;
}

void IpcLines::invite(const IpcProcess& own, uint64_t number, const IpcSender& to,
                      const IpcAnswer& come) {
  const bool there =
      std::any_of(lines_, lines_ + count_, [=](const Line& line) { return line.number == number; });
  if (there || count_ == kMostLines || !to.has_address()) return;
  Line& line = lines_[count_];
  if (!line.socket.open_line(own, number, to)) return;
  line.number = number;
  line.since_ns = alloc::os::now_ns();
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
