// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/shim/fake_shim.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "config/load.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/submissions.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/record/record.h"

namespace cistern::test {

FakeShim& fakes() {
  static FakeShim the_fakes;
  return the_fakes;
}

void reset_fakes() {
  FakeShim& f = fakes();
  f.driver = {};
  f.driver.complete = true;
  f.driver.cuCtxGetCurrent = [](CUcontext* out) {
    *out = fakes().current;
    return CUDA_SUCCESS;
  };
  f.policy = config::default_policy();
  f.active = f.may_call = true;
  f.current = nullptr;
  f.release_idle = nullptr;
  f.releases = 0;
  f.logged.clear();
}

}  // namespace cistern::test

namespace cistern::shim {

using test::fakes;

const Driver& driver() { return fakes().driver; }

bool active() { return fakes().active; }
const config::Policy& policy() { return fakes().policy; }

bool may_call() { return fakes().may_call; }

// Nothing is owed, and nobody asks who submits.
constinit std::atomic<ThreadId> debtor{0};
bool pay_debts(PaidBy) { return true; }
bool pay_for_release() { return true; }
void others_debts_may_cover_work() {}
constinit std::atomic<uintptr_t> quiet_submitter{Unfinished::kSeveral};
constinit std::atomic<uintptr_t> last_submitter{Unfinished::kSeveral};
void submissions_are_not_quiet() {}
void note_first_submission(bool) {}

void note_failure(CUresult, CUcontext) {}

void note_first_submission() {}

void record_obtained(const ChunkPlace&, uint64_t, uint64_t) {}
ChunkRelease::ChunkRelease(alloc::Memory memory, uint64_t address)
    : memory_(memory), address_(address) {}
int ChunkRelease::ended(int code) const { return code; }

constinit thread_local Thread this_thread{};

bool release_idle_memory(CUdevice device) {
  ++fakes().releases;
  return fakes().release_idle && fakes().release_idle(device);
}
bool release_idle_memory() { return release_idle_memory(kNoDevice); }

bool log_enabled(config::LogLevel level) { return level == config::LogLevel::kInfo; }

void log(config::LogLevel, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  static std::mutex mutex;
  const std::lock_guard guard(mutex);
  fakes().logged = line;
}

}  // namespace cistern::shim
