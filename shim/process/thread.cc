// SPDX-License-Identifier: Apache-2.0
#include "shim/process/thread.h"

#include <pthread.h>

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/on_demand/on_demand.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit thread_local Thread this_thread{};

namespace {

constinit alloc::ThreadNumbers numbers{};
constinit pthread_key_t end_of_thread{};
constinit pthread_once_t key_made = PTHREAD_ONCE_INIT;
constinit bool have_key = false;

// The thread ends, and a new thread may get its number. The destructor of another key may run later
// and still allocate: then the thread takes a number again, and this function runs again.
void thread_ends(void* number_plus_one) {
  this_thread.shard_plus_one = this_thread.number_plus_one = 0;
  numbers.release(static_cast<unsigned>(reinterpret_cast<uintptr_t>(number_plus_one) - 1));
}

void make_key() { have_key = pthread_key_create(&end_of_thread, thread_ends) == 0; }

}  // namespace

// If pthread_setspecific fails, the number is never released.
unsigned Thread::choose_number() {
  pthread_once(&key_made, make_key);
  const unsigned number = have_key ? numbers.acquire() : alloc::ThreadNumbers::kCommon;
  if (number == alloc::ThreadNumbers::kCommon) return number;
  pthread_setspecific(end_of_thread, reinterpret_cast<void*>(uintptr_t{number} + 1));
  return number;
}

// The strategy thread_local gives every thread a number of its own. Otherwise each new thread takes
// the next shard, so that a program with one allocating thread fills the slabs of one shard only.
unsigned Thread::choose_shard() {
  if (policy().strategy() == config::Strategy::kThreadLocal) return number();
  static constinit std::atomic<uint32_t> next{0};
  return next.fetch_add(1) % alloc::OnDemand::kShards;
}

}  // namespace cistern::shim
