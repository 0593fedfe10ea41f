// SPDX-License-Identifier: Apache-2.0
#include "shim/order/plans.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/order/device.h"
#include "shim/process/log.h"
#include "shim/process/own_file.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

struct DevicePlan {
  alloc::plan::Plan plan;
  bool there = false;
  uint32_t context = kNobody;
};

constinit DevicePlan plans[kMaxDevices]{};
constinit bool looked = false;

void refuse(const char* path, const char* what, uint64_t seen, const char* allowed) {
  log(config::LogLevel::kWarn,
      "no plan is used: %s: %s; value seen %llu; allowed: %s; try: cistern plan RECORDING -o FILE",
      path, what, static_cast<unsigned long long>(seen), allowed);
}

// As it is now: whoever writes the file later changes nothing here. nullptr, with errno.
const uint8_t* read_whole(const char* path, size_t* bytes) {
  // O_NONBLOCK: a pipe must not hold up the program.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat status;
  uint8_t* text = nullptr;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    errno = EINVAL;
  } else {
    text = static_cast<uint8_t*>(alloc::os::map(static_cast<size_t>(status.st_size), 4096));
    if (text == nullptr) errno = ENOMEM;
  }
  size_t got = 0;
  while (text != nullptr && got < static_cast<size_t>(status.st_size)) {
    const ssize_t more = read(file, text + got, static_cast<size_t>(status.st_size) - got);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  const int saved = errno;
  close(file);
  errno = saved;
  *bytes = got;
  return text;
}

// All plans of the file, or none. What is read stays mapped.
void load(const char* path) {
  size_t bytes = 0;
  const uint8_t* text = read_whole(path, &bytes);
  if (text == nullptr) {
    return log(config::LogLevel::kWarn,
               "no plan is used: a file cannot be read: %s; value seen \"%s\"; try: ls -l %s",
               strerrordesc_np(errno), path, path);
  }
  DevicePlan read[kMaxDevices];
  for (std::span<const uint8_t> rest(text, bytes); !rest.empty();) {
    alloc::plan::Plan plan;
    const alloc::plan::PlanProblem problem = plan.read_first(&rest);
    if (problem.what != nullptr) return refuse(path, problem.what, problem.seen, problem.allowed);
    const uint32_t device = plan.head().device;
    if (device >= kMaxDevices) return refuse(path, "the device", device, "0 to 63");
    if (read[device].there) return refuse(path, "two plans of one device", device, "one");
    read[device] = {plan, true, kNobody};
  }
  memcpy(plans, read, sizeof plans);
}

bool fits(const alloc::plan::PlanHead& head, uint64_t total, const char* path) {
  const auto& align = policy().align;
  if (head.bytes > total) {
    refuse(path, "a plan of more bytes than the device has", head.bytes, "the device's");
    return false;
  }
  if (align.set && head.alignment < align.value) {
    refuse(path, "a plan of another alignment than CISTERN_ALIGN", head.alignment,
           "that, or more (cistern plan --alignment)");
    return false;
  }
  return true;
}

}  // namespace

const alloc::plan::Plan* claim_plan(CUdevice device, uint64_t total, uint32_t context) {
  const config::Plan& wanted = policy().plan.value;
  if (wanted.mode != config::PlanMode::kFile) return nullptr;
  char path[PATH_MAX];
  path_from_start(wanted.file, path);
  if (!looked) {
    looked = true;
    const int saved = errno;
    load(path);
    errno = saved;
  }
  DevicePlan& own = plans[device];
  if (!own.there || own.context != kNobody) return nullptr;
  own.there = fits(own.plan.head(), total, path);
  if (!own.there) return nullptr;
  own.context = context;
  return &own.plan;
}

void give_up_plan(uint32_t context) {
  for (DevicePlan& each : plans) {
    if (each.context == context) each.context = kNobody;
  }
}

}  // namespace cistern::shim
