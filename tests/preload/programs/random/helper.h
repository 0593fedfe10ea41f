// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled while they allocate, write, check and free, and replaced. When one
// ends depends on the machine, so it counts for nothing but what went wrong: no call may end the
// thread, and what it held is given back as it unwinds.
#pragma once

#include <pthread.h>

#include <memory>

#include "worker.h"

namespace random_work {

class Helper : public Hand {
 public:
  Helper(World& world, Tally& tally, uint64_t seed)
      : Hand(world.settings, tally, world.captures), world_(world), random_(seed), next_id_(seed) {}

  // While the thread unwinds.
  ~Helper() {
    tally_.hold("no call is a cancellation point", !inside_);
    for (Block& block : held_) {
      check(block, random_);
      free(block, random_);
    }
    for (auto& station : stations_) leave(*station);
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  [[noreturn]] void work() {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    tally_.note("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    for (Place& place : world_.primaries) arrive(place);
    while (true) {
      inside_ = false;
      pthread_testcancel();
      inside_ = true;
      step();
    }
  }

 private:
  void step() {
    constexpr size_t kMost = 8, kLargest = size_t{1} << 21;
    if (held_.size() < kMost && random_.percent(60)) {
      Block block;
      block.bytes = 1 + random_.below(size_t{1} << random_.below(22)) % kLargest;
      block.id = next_id_++;
      block.place = stations_[random_.below(stations_.size())]->place;
      if (!allocate(block, random_)) return;
      write(block, random_);
      held_.push_back(std::move(block));
    } else if (!held_.empty()) {
      std::swap(held_[random_.below(held_.size())], held_.back());
      Block block = std::move(held_.back());
      held_.pop_back();
      check(block, random_);
      free(block, random_);
    }
  }

  World& world_;
  Random random_;
  uint64_t next_id_;
  std::vector<Block> held_;
  bool inside_ = true;
};

struct Worker::Hired {
  World& world;
  const uint64_t seed;
  Tally tally{};
  pthread_t thread{};

  static void* begin(void* hired) {
    auto& self = *static_cast<Hired*>(hired);
    Helper helper(self.world, self.tally, self.seed);
    helper.work();
  }
};

inline void Worker::replace_helper() {
  dismiss_helper();
  hired_ = std::make_unique<Hired>(Hired{world_, random_.next()});
  if (pthread_create(&hired_->thread, nullptr, Hired::begin, hired_.get()) != 0) hired_.reset();
  tally_.hold("a helper has begun", hired_ != nullptr);
}

inline void Worker::dismiss_helper() {
  if (hired_ == nullptr) return;
  void* end = nullptr;
  pthread_cancel(hired_->thread);
  pthread_join(hired_->thread, &end);
  tally_.hold("a helper was cancelled", end == PTHREAD_CANCELED);
  tally_.add_failures(hired_->tally);
  hired_.reset();
}

}  // namespace random_work
