// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/user.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

constexpr uid_t kUsualOverflowId = 65534;
constexpr uid_t kNone = static_cast<uid_t>(-1);  // is no user's id

// The id that several users may have here.
constinit std::atomic<uid_t> shared_id{kUsualOverflowId};

// The beginning of a file of numbers; false where it cannot be read.
template <size_t kSize>
bool read_text(const char* name, char (&text)[kSize]) {
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, kSize - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = '\0';
  return bytes > 0;
}

// One line that maps every id to itself or another one: first id here, first id outside, how many.
bool all_are_mapped() {
  constexpr uint64_t kAllIds = UINT32_MAX;
  char text[64];
  if (!read_text("/proc/self/uid_map", text)) return false;
  char* at = text;
  const uint64_t first = strtoull(at, &at, 10);
  strtoull(at, &at, 10);
  return first == 0 && strtoull(at, &at, 10) == kAllIds;
}

uid_t overflow_id() {
  char text[32];
  if (!read_text("/proc/sys/kernel/overflowuid", text)) return kUsualOverflowId;
  return static_cast<uid_t>(strtoul(text, nullptr, 10));
}

}  // namespace

void look_at_users() {
  const NoCancel reads;
  const int saved = errno;
  shared_id.store(all_are_mapped() ? kNone : overflow_id());
  errno = saved;
}

bool is_own_user(uid_t user) { return user == getuid() && user != shared_id.load(); }

}  // namespace cistern::shim
