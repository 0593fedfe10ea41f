// SPDX-License-Identifier: Apache-2.0
// What one thread can do with blocks: allocate, write, check, copy, free, each in one of several
// ways that the caller's random numbers choose, and always in order.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "ground.h"
#include "settings.h"
#include "tally.h"

namespace random_work {

class Hand {
 public:
  // `captures` is held while a stream captures, and alone to wait for a context, which the driver
  // refuses meanwhile.
  Hand(const Settings& settings, Tally& tally, std::shared_mutex& captures)
      : settings_(settings), tally_(tally), captures_(captures) {}

  void enter(const Place& place) { tally_.need("cuCtxSetCurrent", cuCtxSetCurrent(place.context)); }

  void wait_for_context() {
    const std::lock_guard lock(captures_);
    tally_.note("cuCtxSynchronize", cuCtxSynchronize());
  }

  void arrive(Place& place) {
    enter(place);
    auto station = std::make_unique<Station>();
    station->place = &place;
    for (int kind = 0; kind < Lane::kKinds; ++kind) {
      Lane& lane = station->lanes[static_cast<size_t>(kind)];
      lane.place = &place;
      lane.kind = static_cast<Lane::Kind>(kind);
      open(lane);
    }
    // Where memory is out already, checks are left to copies.
    if (tally_.note("cuMemAlloc", cuMemAlloc(&station->verdict, 2 * sizeof(uint64_t)))) {
      tally_.note("cuMemsetD8", cuMemsetD8(station->verdict, 0, 2 * sizeof(uint64_t)));
    }
    wait_for_context();
    stations_.push_back(std::move(station));
    if (place.primary) primaries_ = stations_.size();
  }

  // Counts what the kernels found so far. The context is idle afterwards.
  void collect(Station& station) {
    uint64_t verdict[2] = {};
    enter(*station.place);
    wait_for_context();
    if (station.verdict == 0) return;
    tally_.note("cuMemcpyDtoH", cuMemcpyDtoH(verdict, station.verdict, sizeof verdict));
    tally_.note("cuMemFree", cuMemFree(station.verdict));
    tally_.read(verdict[0], verdict[1]);
  }

  // Streams go with their work pending.
  void leave(Station& station) {
    collect(station);
    for (Lane& lane : station.lanes) close(lane);
  }

  void open(Lane& lane) {
    if (lane.kind == Lane::kLegacy) lane.stream = CU_STREAM_LEGACY;
    if (lane.kind == Lane::kPerThread) lane.stream = CU_STREAM_PER_THREAD;
    if (!lane.created()) return;
    const unsigned flags = lane.blocking() ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    tally_.note("cuStreamCreate", cuStreamCreate(&lane.stream, flags));
  }

  void close(Lane& lane) {
    if (lane.created()) tally_.note("cuStreamDestroy", cuStreamDestroy(lane.stream));
  }

  Station& home(const Block& block) {
    for (auto& station : stations_) {
      if (station->place == block.place) return *station;
    }
    return *stations_[0];
  }

  static Lane& any_lane(Station& station, Random& random) {
    return station.lanes[random.below(Lane::kKinds)];
  }

  // A stream whose kernels may touch the block.
  Lane& lane_for(const Block& block, Random& random) {
    const bool abroad = block.has_words() && block.shared() && random.percent(20);
    Station& station = *stations_[random.below(primaries_)];
    return any_lane(abroad && station.place->reaches(*block.place) ? station : home(block), random);
  }

  std::shared_ptr<Event> mark(const Lane& lane) {
    enter(*lane.place);
    CUevent event = nullptr;
    tally_.note("cuEventCreate", cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    tally_.note("cuEventRecord", cuEventRecord(event, lane.stream));
    return std::make_shared<Event>(lane.place, event);
  }

  // What comes next on `lane` is after all that was done with the block.
  void order(Block& block, Lane& lane, Random& random) {
    if (settings_.relies != 0 && random.percent(settings_.relies)) rely_on_free(block);
    if (block.lane != nullptr && block.lane != &lane && !driver_orders(*block.lane, lane)) {
      if (!ahead_ && random.percent(15)) {
        wait(*block.lane, random);
      } else {
        block.ready = mark(*block.lane);
      }
    }
    if (block.ready) wait(*block.ready, lane, random);
    block.ready.reset();
    block.lane = &lane;
    block.accesses = ++accesses_;
    enter(*lane.place);
  }

  // The driver's cuMemFree comes back once all earlier work of the context is done. So what was
  // done with the block before this thread's last free there is over.
  void rely_on_free(Block& block) {
    if (block.accesses == 0) return;  // of another thread
    const auto is_over = [&](const Place& place) {
      return block.accesses <= station_in(place).freed_after;
    };
    if (block.lane != nullptr && is_over(*block.lane->place)) block.lane = nullptr;
    if (block.ready && is_over(*block.ready->place)) block.ready.reset();
  }

  // The host waits for a stream.
  void wait(const Lane& lane, Random& random) {
    enter(*lane.place);
    if (random.percent(20)) {
      wait_for_context();
    } else {
      tally_.note("cuStreamSynchronize", cuStreamSynchronize(lane.stream));
    }
  }

  void wait(const Event& event, const Lane& lane, Random& random) {
    if (ahead_ || random.percent(75)) {
      enter(*lane.place);
      tally_.note("cuStreamWaitEvent", cuStreamWaitEvent(lane.stream, event.handle, 0));
    } else if (random.percent(80)) {
      tally_.note("cuEventSynchronize", cuEventSynchronize(event.handle));
    } else {
      CUresult code;
      do code = cuEventQuery(event.handle);
      while (code == CUDA_ERROR_NOT_READY);
      tally_.note("cuEventQuery, in the end", code);
    }
  }

  // Nothing is pending on the block afterwards.
  void settle(Block& block, Random& random) {
    if (block.lane != nullptr) wait(*block.lane, random);
    if (block.ready) tally_.note("cuEventSynchronize", cuEventSynchronize(block.ready->handle));
    block.lane = nullptr;
    block.ready.reset();
  }

  // False: there was no memory.
  bool allocate(Block& block, Random& random) {
    enter(*block.place);
    if (!block.stream_ordered) {
      const bool served = tally_.note("cuMemAlloc", cuMemAlloc(&block.address, block.bytes));
      if (!served && settings_.must_fit != 0) give_up();
      return served;
    }
    block.lane = &any_lane(home(block), random);
    return tally_.note("cuMemAllocAsync",
                       cuMemAllocAsync(&block.address, block.bytes, block.lane->stream));
  }

  void write(Block& block, Random& random) {
    Lane& lane = lane_for(block, random);
    order(block, lane, random);
    renew(block);
    const bool copied = !ahead_ && random.percent(30);
    if (!block.has_words()) return fill_bytes(block, lane, copied);
    for (const Window& window : block.windows()) {
      copied ? upload(block, window, lane) : fill(block, window, lane);
    }
  }

  // What can only be checked by the host is not, where that may not wait.
  void check(Block& block, Random& random) {
    if (ahead_ && !block.has_words()) return;
    Lane& lane = lane_for(block, random);
    order(block, lane, random);
    const bool copied = !ahead_ && (random.percent(20) || station_of(lane).verdict == 0);
    if (!block.has_words()) return read_bytes(block, lane);
    for (const Window& window : block.windows()) {
      copied ? download(block, window, lane) : ask_kernel(block, window, lane);
    }
  }

  // `to` is as large as `from` and gets what that holds.
  void copy(Block& to, Block& from, Random& random) {
    Lane& lane = any_lane(home(random.percent(50) ? to : from), random);
    order(to, lane, random);
    order(from, lane, random);
    const uint64_t form = settings_.forms == 0 ? 0 : random.below(kForms);
    if (from.has_words()) {
      for (const Window& w : from.windows()) {
        copy_part(to, from, {4 * w.first, 4 * w.count}, lane, form);
      }
    } else {
      copy_part(to, from, {0, from.bytes}, lane, form);
    }
    to.pattern = from.pattern;
  }

  // Every access so far is ordered before this; most of them may still be pending. The driver's
  // cuMemFree waits for the work of the block's own context, so what was done in others must be
  // before something there.
  void free(Block& block, Random& random) {
    Station& station = home(block);
    const bool abroad = block.ready || (block.lane && block.lane->place != block.place);
    if (abroad) order(block, any_lane(station, random), random);
    if (block.stream_ordered && random.percent(70)) return give_back_on_stream(block, random);
    if (block.stream_ordered) settle(block, random);
    if (random.percent(20)) enter(*stations_[random.below(stations_.size())]->place);
    const bool freed = tally_.note("cuMemFree", cuMemFree(block.address));
    if (freed && !block.stream_ordered) station.freed_after = accesses_;
  }

  void give_back_on_stream(Block& block, Random& random) {
    Lane& lane = any_lane(home(block), random);
    order(block, lane, random);
    tally_.note("cuMemFreeAsync", cuMemFreeAsync(block.address, lane.stream));
  }

  // The pattern of the next write.
  static void renew(Block& block) {
    block.pattern =
        static_cast<uint32_t>(Random(block.id + (uint64_t{++block.writes} << 48)).next());
  }

  void fill(Block& block, const Window& window, const Lane& lane) {
    const Place& place = *lane.place;
    if (const uint32_t delay_us = delay_of(block); delay_us != 0) {
      tally_.note("slow_fill_words", slow_fill_words(place.kernels, lane.stream, at(block, window),
                                                     window.count, seed(block, window), delay_us));
      return;
    }
    tally_.note("fill_words", fill_words(place.kernels, lane.stream, at(block, window),
                                         window.count, seed(block, window)));
  }

  // Nothing where its answer has no place; what a graph wrote is then checked later, as a copy.
  void ask_kernel(Block& block, const Window& window, const Lane& lane) {
    const CUdeviceptr verdict = station_of(lane).verdict;
    if (verdict == 0) return;
    tally_.note("check_words", check_words(lane.place->kernels, lane.stream, at(block, window),
                                           window.count, seed(block, window), verdict));
  }

  Station& station_in(const Place& place) const {
    const auto there = [&](const auto& station) { return station->place == &place; };
    return **std::find_if(stations_.begin(), stations_.end(), there);
  }
  const Station& station_of(const Lane& lane) const { return station_in(*lane.place); }

 protected:
  const Settings& settings_;
  Tally& tally_;
  std::shared_mutex& captures_;
  std::vector<std::unique_ptr<Station>> stations_;  // the primary contexts' first
  size_t primaries_ = 0;
  uint64_t accesses_ = 0;
  bool ahead_ = false;  // work is under way that this thread has to end: it must not wait

 private:
  static constexpr uint64_t kForms = 3;  // of copies between devices

  // Drawn from what is written, so that it is the same in a graph that is launched again.
  uint32_t delay_of(const Block& block) const {
    if (block.pattern % 100 >= settings_.slow) return 0;
    const uint32_t drawn = block.pattern / 100;
    return drawn % 64 == 0 ? 1000 + drawn % 3000 : 5 + drawn % 96;
  }

  // Where every block is to fit, the device is too small: nothing else matters any more.
  [[noreturn]] static void give_up() {
    std::printf("refused\n");
    std::fflush(stdout);
    std::_Exit(3);
  }

  static CUdeviceptr at(const Block& block, const Window& window) {
    return block.address + sizeof(uint32_t) * window.first;
  }
  static uint32_t seed(const Block& block, const Window& window) {
    return block.pattern + static_cast<uint32_t>(window.first);
  }

  void fill_bytes(Block& block, const Lane& lane, bool copied) {
    if (!copied) {
      tally_.note("cuMemsetD8Async",
                  cuMemsetD8Async(block.address, block.byte(), block.bytes, lane.stream));
      return;
    }
    const std::vector<uint8_t> data(block.bytes, block.byte());
    tally_.note("cuMemcpyHtoDAsync",
                cuMemcpyHtoDAsync(block.address, data.data(), data.size(), lane.stream));
  }

  void read_bytes(Block& block, const Lane& lane) {
    std::vector<uint8_t> data(block.bytes);
    tally_.note("cuMemcpyDtoHAsync",
                cuMemcpyDtoHAsync(data.data(), block.address, data.size(), lane.stream));
    for (const uint8_t byte : data) tally_.read(byte != block.byte(), byte);
  }

  void upload(Block& block, const Window& window, const Lane& lane) {
    std::vector<uint32_t> data(window.count);
    uint32_t value = seed(block, window);
    for (uint32_t& word : data) word = value++;
    tally_.note("cuMemcpyHtoDAsync",
                cuMemcpyHtoDAsync(at(block, window), data.data(), sizeof(uint32_t) * data.size(),
                                  lane.stream));
  }

  // From device memory to pageable memory: over when the call returns.
  void download(Block& block, const Window& window, const Lane& lane) {
    std::vector<uint32_t> data(window.count);
    tally_.note("cuMemcpyDtoHAsync",
                cuMemcpyDtoHAsync(data.data(), at(block, window), sizeof(uint32_t) * data.size(),
                                  lane.stream));
    uint32_t value = seed(block, window);
    for (const uint32_t word : data) tally_.read(word != value++, word);
  }

  // A stretch of bytes, at the same place of both.
  void copy_part(Block& to, Block& from, const Window& bytes, const Lane& lane, uint64_t form) {
    const CUdeviceptr target = to.address + bytes.first, source = from.address + bytes.first;
    if (to.place == from.place || form == 1) {
      tally_.note("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync(target, source, bytes.count, lane.stream));
    } else if (form == 2) {
      tally_.note("cuMemcpyAsync", cuMemcpyAsync(target, source, bytes.count, lane.stream));
    } else {
      tally_.note("cuMemcpyPeerAsync",
                  cuMemcpyPeerAsync(target, to.place->context, source, from.place->context,
                                    bytes.count, lane.stream));
    }
  }
};

}  // namespace random_work
