// SPDX-License-Identifier: Apache-2.0
// Counts the threads inside a scope, so that others can see, or wait until, no thread is inside.
// Any thread.
#pragma once

#include <atomic>

namespace cistern::alloc {

class CountedIn {
 public:
  explicit CountedIn(std::atomic<int>& threads) : threads_(threads) { threads_.fetch_add(1); }
  ~CountedIn() { threads_.fetch_sub(1); }
  CountedIn(const CountedIn&) = delete;
  CountedIn& operator=(const CountedIn&) = delete;

 private:
  std::atomic<int>& threads_;
};

}  // namespace cistern::alloc
