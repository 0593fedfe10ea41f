// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/open_devices.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "allocator/base/os.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/process/log.h"

namespace cistern::shim {
namespace {

constexpr const char* kDevices[] = {"/dev/infiniband/uverbs", "/dev/gdrdrv", "/dev/nvidia-fs"};

constexpr uint64_t kBetweenNs = 100'000'000, kShare = 100;
constinit std::atomic<uint64_t> due_ns{0};
constinit char found[160] = "";  // written once, before everything becomes visible

// Below a container's root, too. A number may follow, and nothing else.
bool names_device(const char* path) {
  const auto names = [=](const char* device) {
    const char* at = std::strstr(path, device);
    if (at == nullptr) return false;
    at += std::strlen(device);
    return at[std::strspn(at, "0123456789")] == '\0';
  };
  return std::any_of(std::begin(kDevices), std::end(kDevices), names);
}

bool is_device(int descriptor) {
  char link[32], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  if (!names_device(path)) return false;
  std::snprintf(found, sizeof found, "the program has %.120s open", path);
  return true;
}

// No directory is read: that takes a descriptor, and programs expect the low numbers for their own
// files. The kernel gives out the lowest one that is free, so that there are no wide gaps.
bool any_is_open() {
  constexpr int kWidestGap = 256;
  for (int descriptor = 0, gap = 0; gap < kWidestGap; ++descriptor) {
    const bool open = fcntl(descriptor, F_GETFD) >= 0;
    gap = open ? 0 : gap + 1;
    if (open && is_device(descriptor)) return true;
  }
  return false;
}

}  // namespace

// One thread looks at a time: it has put the next look off before.
void look_for_open_devices() {
  if (everything_is_visible.load(std::memory_order_relaxed)) return;
  constexpr uint64_t kLongestLookNs = 1'000'000'000;
  const uint64_t start = alloc::os::now_ns();
  uint64_t due = due_ns.load(std::memory_order_relaxed);
  if (start < due || !due_ns.compare_exchange_strong(due, start + kLongestLookNs)) return;
  const int error = errno;
  const bool any = any_is_open();
  errno = error;
  const uint64_t end = alloc::os::now_ns();
  due_ns.store(end + std::max(kBetweenNs, kShare * (end - start)));
  if (!any) return;
  everything_becomes_visible(found);
  log(config::LogLevel::kInfo,
      "%s, which may access device memory; from now on frees wait for all work", found);
}

}  // namespace cistern::shim
