// SPDX-License-Identifier: Apache-2.0
// The operations the random program consists of.
#pragma once

#include <iterator>

#include "worker.h"

namespace random_work {

inline const Worker::Operation Worker::kOperations[] = {
    {"allocate", 30, &Worker::allocate_one},
    {"free", 22, &Worker::retire_one},
    {"write", 8, &Worker::rewrite_one},
    {"check", 5, &Worker::check_one},
    {"copy", 8, &Worker::copy_one},
    {"give", 6, &Worker::give_one},
    {"synchronize", 2, &Worker::synchronize},
    {"renew a stream", 3, &Worker::renew_stream},
    {"ask", 5, &Worker::ask},
    {"free wrongly", 3, &Worker::free_wrongly},
    {"free twice", 2, &Worker::free_twice},
    {"ask too much", 0, &Worker::ask_too_much},
    {"take all", 1, &Worker::take_all},
    {"capture", 3, &Worker::capture},
    {"own context", 0, &Worker::own_context},
};

inline uint64_t Worker::weight_of(const Operation& operation) const {
  if (operation.weight != 0) return operation.weight;
  return operation.run == &Worker::own_context ? world_.settings.contexts
                                               : world_.settings.shortages;
}

inline void Worker::step() {
  uint64_t sum = 0;
  for (const Operation& operation : kOperations) sum += weight_of(operation);
  uint64_t drawn = random_.below(sum);
  const Operation* chosen = kOperations;
  for (; drawn >= weight_of(*chosen); ++chosen) drawn -= weight_of(*chosen);
  tally_.operation(chosen->name);
  (this->*chosen->run)();
}

// Mostly small, any magnitude as likely as another, and what lies at borders.
inline size_t Worker::draw_size() {
  constexpr size_t kMiB = size_t{1} << 20;
  constexpr size_t kBorders[] = {1, 512, kMiB, 2 * kMiB};
  if (random_.percent(12)) {
    const size_t border = kBorders[random_.below(std::size(kBorders))];
    return std::max<size_t>(1, border - 1 + random_.below(3));
  }
  const uint64_t most = world_.settings.most_mb;
  if (most > 1 && random_.percent(world_.settings.large))
    return kMiB + random_.below((most - 1) * kMiB);
  const size_t magnitude = size_t{1} << random_.below(18);
  return magnitude + random_.below(magnitude);
}

inline Block Worker::draw_block() {
  Block block;
  block.bytes = draw_size();
  block.id = next_id_++;
  block.place = any_station().place;
  block.stream_ordered = random_.percent(world_.settings.stream_ordered);
  return block;
}

// The oldest go first. False when the block is more than a thread may hold.
inline bool Worker::make_room(const Block& wanted) {
  const uint64_t most = world_.settings.live_mb << 20;
  while (charged_on(wanted.place->device) + charge(wanted) > most) {
    size_t oldest = 0;
    while (oldest < held_.size() && held_[oldest].place->device != wanted.place->device) ++oldest;
    if (oldest == held_.size()) return false;
    Block block = take_out(oldest);
    check(block, random_);
    free(block, random_);
  }
  return true;
}

inline bool Worker::obtain(Block block) {
  if (!make_room(block) || !allocate(block, random_)) return false;
  write(block, random_);
  held_.push_back(std::move(block));
  return true;
}

inline void Worker::allocate_one() { obtain(draw_block()); }

inline void Worker::retire_one() {
  if (held_.empty()) return;
  Block block = pick();
  if (random_.percent(70)) check(block, random_);
  if (random_.percent(30)) write(block, random_);  // and free what may still be being written
  free(block, random_);
}

inline void Worker::rewrite_one() {
  if (!held_.empty()) write(held_[random_.below(held_.size())], random_);
}

inline void Worker::check_one() {
  if (!held_.empty()) check(held_[random_.below(held_.size())], random_);
}

inline void Worker::copy_one() {
  if (held_.empty()) return;
  Block from = pick();
  Block to;
  to.bytes = from.bytes;
  to.id = next_id_++;
  to.place = from.shared() ? any_station().place : from.place;
  if (make_room(to) && allocate(to, random_)) {
    copy(to, from, random_);
    check(to, random_);
    held_.push_back(std::move(to));
  }
  held_.push_back(std::move(from));
}

inline void Worker::give_one() {
  if (held_.empty()) return;
  Block block = pick();
  if (!block.place->primary || world_.posts.size() == 1) {
    held_.push_back(std::move(block));
    return;
  }
  const uint64_t others = world_.posts.size() - 1;
  hand_over(block, world_.posts[(number_ + 1 + random_.below(others)) % world_.posts.size()]);
}

inline void Worker::synchronize() { wait(any_lane(any_station(), random_), random_); }

// The old stream ends with work pending; what that touches is known by an event from then on.
inline void Worker::renew_stream() {
  Station& station = any_station();
  Lane& lane = station.lanes[Lane::kBlocking + random_.below(Lane::kKinds - Lane::kBlocking)];
  forget_lane(lane);
  enter(*station.place);
  close(lane);
  open(lane);
}

inline void Worker::forget_lane(const Lane& lane) {
  std::shared_ptr<Event> last;
  for (Block& block : held_) {
    if (block.lane != &lane) continue;
    if (!last) last = mark(lane);
    block.lane = nullptr;
    block.ready = last;
  }
}

inline void Worker::ask() {
  if (held_.empty()) return;
  const Block& block = held_[random_.below(held_.size())];
  enter(*block.place);
  const CUdeviceptr inside = block.address + random_.below(block.bytes);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  tally_.note("cuMemGetAddressRange", cuMemGetAddressRange(&base, &bytes, inside));
  tally_.hold("a block's range is its own", base == block.address && bytes == block.bytes);

  unsigned type = 0;
  int device = -1;
  tally_.note("cuPointerGetAttribute",
              cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  tally_.note("cuPointerGetAttribute",
              cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  tally_.hold("it is on its device", type == CU_MEMORYTYPE_DEVICE && device == block.place->device);
  if (!block.stream_ordered) {
    CUcontext context = nullptr;
    tally_.note("cuPointerGetAttribute",
                cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    tally_.hold("it is in its context", context == block.place->context);
  }
  size_t free_bytes = 0, total = 0, all = 0;
  tally_.note("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
  tally_.note("cuDeviceTotalMem", cuDeviceTotalMem(&all, block.place->device));
  tally_.hold("some memory is free, not all", total == all && free_bytes < total);
}

inline void Worker::free_wrongly() {
  int on_the_stack = 0;
  enter(*any_station().place);
  tally_.note("cuMemFree of nothing", cuMemFree(0));
  tally_.note("cuMemFree of the host's", cuMemFree(reinterpret_cast<CUdeviceptr>(&on_the_stack)));
  if (held_.empty()) return;
  const Block& block = held_[random_.below(held_.size())];
  if (block.bytes == 1) return;
  const uint64_t inside = 1 + random_.below(block.bytes - 1);
  tally_.note("cuMemFree of an inside", cuMemFree(block.address + inside));
}

// With other threads the address might be theirs by then.
inline void Worker::free_twice() {
  if (held_.empty() || world_.settings.threads > 1) return;
  Block block = pick();
  if (block.stream_ordered) settle(block, random_);
  const bool abroad = block.ready || (block.lane != nullptr && block.lane->place != block.place);
  if (abroad) order(block, any_lane(home(block), random_), random_);
  enter(*block.place);
  tally_.note("cuMemFree", cuMemFree(block.address));
  tally_.note("cuMemFree, twice", cuMemFree(block.address));
}

// More than is free, as the program itself holds something.
inline void Worker::ask_too_much() {
  Place& place = *any_station().place;
  enter(place);
  CUdeviceptr address = 0;
  size_t total = 0;
  tally_.note("cuDeviceTotalMem", cuDeviceTotalMem(&total, place.device));
  tally_.note("cuMemAlloc of the whole device", cuMemAlloc(&address, total));
  tally_.note("cuMemAlloc of more", cuMemAlloc(&address, size_t{1} << 60));
  tally_.note("cuMemAlloc of nothing", cuMemAlloc(&address, 0));
}

// What is said to be free can be had, all of it. How much that is depends on where the driver found
// room for what is held, so it is not part of what is printed.
inline void Worker::take_all() {
  if (world_.settings.threads > 1 || world_.settings.all == 0) return;
  constexpr size_t kPage = size_t{2} << 20;
  enter(*any_station().place);
  size_t free_bytes = 0, total = 0;
  tally_.note("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
  const size_t bytes = free_bytes / kPage * kPage;
  CUdeviceptr all = 0;
  if (bytes == 0 || !tally_.note("cuMemAlloc of all", cuMemAlloc(&all, bytes))) return;
  uint64_t ends[2] = {next_id_++, next_id_++}, read[2] = {};
  for (int i = 0; i < 2; ++i) {
    const CUdeviceptr end = i == 0 ? all : all + bytes - sizeof ends[0];
    tally_.note("cuMemcpyHtoD", cuMemcpyHtoD(end, &ends[i], sizeof ends[0]));
    tally_.note("cuMemcpyDtoH", cuMemcpyDtoH(&read[i], end, sizeof ends[0]));
  }
  tally_.hold("all of it can be used", read[0] == ends[0] && read[1] == ends[1]);
  tally_.note("cuMemFree", cuMemFree(all));
}

}  // namespace random_work
