// SPDX-License-Identifier: Apache-2.0
// The operations the random program consists of.
#pragma once

#include <iterator>

#include "worker.h"

namespace random_work {

inline const Worker::Operation Worker::kOperations[] = {
    {"allocate", &Worker::allocate_one, 30},
    {"free", &Worker::retire_one, 22},
    {"write", &Worker::rewrite_one, 8},
    {"check", &Worker::check_one, 5},
    {"copy", &Worker::copy_one, 8},
    {"give", &Worker::give_one, 6},
    {"synchronize", &Worker::synchronize, 2},
    {"renew a stream", &Worker::renew_stream, 3},
    {"ask", &Worker::ask, 5},
    {"free wrongly", &Worker::free_wrongly, 3},
    {"free twice", &Worker::free_twice, 2},
    {"ask too much", &Worker::ask_too_much, 0, &Settings::shortages},
    {"take all", &Worker::take_all, 1},
    {"capture", &Worker::capture, 0, &Settings::captures},
    {"lose a stream", &Worker::lose_stream, 0, &Settings::losses},
    {"export", &Worker::export_one, 0, &Settings::exports},
    {"pin", &Worker::use_pinned, 0, &Settings::pinned},
    {"scratch", &Worker::use_scratch, 0, &Settings::scratch},
    {"own context", &Worker::own_context, 0, &Settings::contexts},
    {"run ahead", &Worker::run_ahead, 0, &Settings::endless},
    {"turn peers", &Worker::turn_peers, 0, &Settings::peer_turns},
    {"roll a graph", &Worker::roll_graph, 0, &Settings::graphs},
    {"launch again", &Worker::launch_again, 0, &Settings::graphs},
    {"mark", &Worker::mark_graph, 0, &Settings::marks},
    {"replace a helper", &Worker::replace_helper, 0, &Settings::cancelled},
};

inline uint64_t Worker::weight_of(const Operation& operation) const {
  return operation.setting == nullptr ? operation.weight : world_.settings.*operation.setting;
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
  if (world_.settings.large < 100 && random_.percent(12)) {
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

// The oldest go first. False when the block is more than a thread may hold, or it would have to
// wait.
inline bool Worker::make_room(const Block& wanted) {
  const uint64_t most = world_.settings.live_mb << 20;
  while (charged_on(wanted.place->device) + charge(wanted) > most) {
    size_t oldest = 0;
    while (oldest < held_.size() && held_[oldest].place->device != wanted.place->device) ++oldest;
    if (oldest == held_.size() || ahead_) return false;
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

// As libraries do: the same size again and again, freed behind the work that uses it.
inline void Worker::use_scratch() {
  Station& station = any_station();
  Lane& lane = any_lane(station, random_);
  enter(*station.place);
  Block block;
  block.bytes = draw_size();
  block.place = station.place;
  block.stream_ordered = true;
  for (int i = 0; i < 2; ++i) {
    block.id = next_id_++;
    if (!tally_.note("cuMemAllocAsync",
                     cuMemAllocAsync(&block.address, block.bytes, lane.stream))) {
      return;
    }
    renew(block);
    if (block.has_words()) {
      for (const Window& window : block.windows()) {
        fill(block, window, lane);
        ask_kernel(block, window, lane);
      }
    }
    tally_.note("cuMemFreeAsync", cuMemFreeAsync(block.address, lane.stream));
  }
}

// Nobody opens it; but from now on somebody could. An IPC handle is had of whole allocations of the
// driver only, so whether it is does not count.
inline void Worker::export_one() {
  if (held_.empty()) return;
  const Block& block = held_[random_.below(held_.size())];
  if (block.stream_ordered) return;
  enter(*block.place);
  CUipcMemHandle handle;
  cuIpcGetMemHandle(&handle, block.address);
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
  tally_.note("tokens of a block",
              cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block.address));
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
  // A cap counts what is allocated alone: where nothing is just then, it has room for all of that.
  if (tally_.note("cuMemAlloc of the whole device", cuMemAlloc(&address, total))) {
    tally_.note("cuMemFree", cuMemFree(address));
  }
  tally_.note("cuMemAlloc of more", cuMemAlloc(&address, size_t{1} << 60));
  tally_.note("cuMemAlloc of nothing", cuMemAlloc(&address, 0));
}

// What is said to be free can be had, all of it. How much that is depends on where the driver found
// room for what is held, so it is not part of what is printed.
inline void Worker::take_all() {
  if (world_.settings.threads > 1 || world_.settings.all == 0) return;
  enter(*any_station().place);
  size_t bytes = 0;
  if (const CUdeviceptr all = obtain_all(&bytes); all != 0) return_all(all, bytes);
}

// Of the current context's device.
inline CUdeviceptr Worker::obtain_all(size_t* bytes) {
  if (world_.settings.threads > 1 || world_.settings.all == 0) return 0;
  constexpr size_t kPage = size_t{2} << 20;
  size_t free_bytes = 0, total = 0;
  tally_.note("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
  *bytes = free_bytes / kPage * kPage;
  CUdeviceptr all = 0;
  if (*bytes == 0 || !tally_.note("cuMemAlloc of all", cuMemAlloc(&all, *bytes))) return 0;
  return all;
}

inline void Worker::return_all(CUdeviceptr all, size_t bytes) {
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
