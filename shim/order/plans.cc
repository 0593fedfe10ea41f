// SPDX-License-Identifier: Apache-2.0
#include "shim/order/plans.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/order/shared.h"
#include "shim/process/log.h"
#include "shim/process/own_file.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

struct DevicePlan {
  alloc::plan::Plan plans[alloc::plan::kMostPlans];
  uint32_t count = 0;
  uint32_t context = kNobody;

  std::span<const alloc::plan::Plan> all() const { return {plans, count}; }
};

constinit DevicePlan plans[kMaxDevices]{};
constinit bool looked = false;

void refuse(const char* path, const char* what, uint64_t seen, const char* allowed) {
  log(config::LogLevel::kWarn,
      "no plan is used: %s: %s; value seen %llu; allowed: %s; try: cistern plan RECORDING -o FILE",
      path, what, static_cast<unsigned long long>(seen), allowed);
}

// No plan that can be read is larger.
constexpr off_t kMostFileBytes = off_t{4} << 30;

// Reads the whole text of a file that begins like a plan into memory of its own, so later writes to
// the file change nothing here. Empty, with errno set, if it cannot be read (EINVAL: not a regular
// file, or empty).
std::span<const uint8_t> read_whole(int file) {
  struct stat status;
  char magic[sizeof alloc::plan::kPlanMagic] = {};
  if (fstat(file, &status) != 0) return {};
  errno = EINVAL;
  if (!S_ISREG(status.st_mode) || status.st_size == 0) return {};
  errno = EFBIG;
  const bool begins = pread(file, magic, sizeof magic, 0) == ssize_t{sizeof magic} &&
                      memcmp(magic, alloc::plan::kPlanMagic, sizeof magic) == 0;
  // A file that is no plan is refused by its beginning.
  const off_t wanted = begins ? status.st_size : std::min<off_t>(status.st_size, alloc::os::kPage);
  if (wanted > kMostFileBytes) return {};
  const auto bytes = static_cast<size_t>(wanted);
  auto* text = static_cast<uint8_t*>(alloc::os::map(bytes));
  errno = ENOMEM;
  size_t got = 0;
  while (text != nullptr && got < bytes) {
    const ssize_t more = pread(file, text + got, bytes - got, static_cast<off_t>(got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  if (text == nullptr || got == bytes) return {text, text == nullptr ? 0 : bytes};
  const int saved = errno;
  alloc::os::unmap(text, bytes);
  errno = saved;
  return {};
}

std::span<const uint8_t> read_whole(const char* path) {
  // O_NONBLOCK: a pipe must not hold up the program.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return {};
  const std::span<const uint8_t> text = read_whole(file);
  const int saved = errno;
  close(file);
  errno = saved;
  return text;
}

// Adds a plan to those of the same device that were read before.
bool add(const alloc::plan::Plan& plan, const char* path) {
  using alloc::plan::Period;
  DevicePlan& own = plans[plan.head().device];
  const bool of_threads = plan.head().period == Period::thread;
  if (own.count != 0 && (!of_threads || own.plans[0].head().period != Period::thread)) {
    return refuse(path, "two plans of one device", plan.head().device, "one"), false;
  }
  if (own.count == alloc::plan::kMostPlans) {
    return refuse(path, "plans of one device", own.count + 1, "16"), false;
  }
  own.plans[own.count++] = plan;
  return true;
}

// Reads each plan of the file. The plans refer to the text.
bool read_each(const char* path, std::span<const uint8_t> text) {
  while (!text.empty()) {
    alloc::plan::Plan plan;
    const alloc::plan::PlanProblem problem = plan.read_first(&text);
    const uint32_t device = plan.head().device;
    if (problem.what != nullptr) {
      return refuse(path, problem.what, problem.seen, problem.allowed), false;
    }
    if (device >= kMaxDevices) return refuse(path, "the device", device, "0 to 63"), false;
    if (!add(plan, path)) return false;
  }
  return true;
}

// Reads all plans of the file, or none.
bool read_plans(const char* path, std::span<const uint8_t> text) {
  if (read_each(path, text)) return true;
  for (DevicePlan& each : plans) each.count = 0;
  return false;
}

void load(const char* path) {
  const std::span<const uint8_t> text = read_whole(path);
  if (text.empty()) {
    return log(config::LogLevel::kWarn,
               "no plan is used: a file cannot be read: %s; value seen \"%s\"; try: ls -l %s",
               strerrordesc_np(errno), path, path);
  }
  if (!read_plans(path, text)) {
    alloc::os::unmap(const_cast<uint8_t*>(text.data()), text.size());
  }
}

bool fits(std::span<const alloc::plan::Plan> all, uint64_t total, const char* path) {
  const auto& align = policy().align;
  uint64_t left = total;
  for (const alloc::plan::Plan& plan : all) {
    const alloc::plan::PlanHead& head = plan.head();
    if (head.bytes > left) {
      refuse(path, "a plan of more bytes than the device has", head.bytes, "the device's");
      return false;
    }
    left -= head.bytes;
    if (align.set && head.alignment < align.value) {
      refuse(path, "a plan of another alignment than CISTERN_ALIGN", head.alignment,
             "that, or more (cistern plan --alignment)");
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const alloc::plan::Plan> claim_plan(CUdevice device, uint64_t total, uint32_t context) {
  const config::Plan& wanted = policy().plan.value;
  if (wanted.mode != config::PlanMode::kFile) return {};
  char path[PATH_MAX];
  path_from_start(wanted.file, path);
  if (!looked) {
    looked = true;
    const int saved = errno;
    load(path);
    errno = saved;
  }
  DevicePlan& own = plans[device];
  if (own.count == 0 || own.context != kNobody) return {};
  if (!fits(own.all(), total, path)) own.count = 0;
  if (own.count == 0) return {};
  own.context = context;
  return own.all();
}

void give_up_plan(uint32_t context) {
  for (DevicePlan& each : plans) {
    if (each.context == context) each.context = kNobody;
  }
}

}  // namespace cistern::shim
