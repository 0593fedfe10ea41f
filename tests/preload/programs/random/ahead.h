// SPDX-License-Identifier: Apache-2.0
// Work that ends only when the thread that began it says so, a few operations later. Until then
// that thread must not wait, and nothing it does may depend on the end of that work: memory is
// there or it is not, at once.
#pragma once

#include <array>
#include <chrono>
#include <thread>

#include "worker.h"

namespace random_work {

inline void CUDA_CB wait_on_host(void* word) {
  while (__atomic_load_n(static_cast<const uint32_t*>(word), __ATOMIC_ACQUIRE) == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Each piece of work waits for a word of its own, for earlier ones may still be read.
inline void Worker::take_words() {
  void* words = nullptr;
  if (world_.settings.endless == 0) return;
  enter(*stations_[0]->place);
  if (tally_.note("cuMemHostAlloc",
                  cuMemHostAlloc(&words, kWords * sizeof *words_,
                                 CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))) {
    words_ = static_cast<uint32_t*>(words);
    std::fill_n(words_, kWords, 0u);
  }
}

// All contexts are idle.
inline void Worker::return_words() {
  if (words_ == nullptr) return;
  enter(world_.primaries[0]);
  tally_.note("cuMemFreeHost", cuMemFreeHost(words_));
}

inline void Worker::run_ahead() {
  if (words_ == nullptr || words_used_ == kWords) return;
  uint32_t* word = words_ + words_used_++;
  const Lane& lane = any_lane(any_station(), random_);
  enter(*lane.place);
  if (random_.percent(50)) {
    tally_.note("cuLaunchHostFunc", cuLaunchHostFunc(lane.stream, wait_on_host, word));
  } else {
    tally_.note("hold_words", hold_words(lane.place->kernels, lane.stream, 0, 0, 0, word));
  }
  ahead_ = true;
  for (uint64_t left = 1 + random_.below(12); left > 0; --left) step_ahead();
  CUdeviceptr all = 0;
  size_t bytes = 0;
  if (random_.percent(25)) all = obtain_all(&bytes);
  ahead_ = false;
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  if (all != 0) return_all(all, bytes);
}

inline void Worker::step_ahead() {
  static constexpr std::array<void (Worker::*)(), 12> kAhead{
      &Worker::allocate_one, &Worker::allocate_one,   &Worker::allocate_one, &Worker::allocate_one,
      &Worker::rewrite_one,  &Worker::rewrite_one,    &Worker::check_one,    &Worker::check_one,
      &Worker::copy_one,     &Worker::free_on_stream, &Worker::ask,          &Worker::ask_too_much,
  };
  const auto operation = kAhead[random_.below(kAhead.size())];
  // What other threads free meanwhile comes back when this work has ended; the driver alone has
  // them wait there, and does not wait itself.
  if (operation == &Worker::ask_too_much && world_.settings.threads > 1) return;
  (this->*operation)();
}

inline void Worker::free_on_stream() {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [](const Block& b) { return b.stream_ordered; });
  if (found == held_.end()) return;
  Block block = take_out(static_cast<size_t>(found - held_.begin()));
  give_back_on_stream(block, random_);
}

}  // namespace random_work
