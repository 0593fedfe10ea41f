// SPDX-License-Identifier: Apache-2.0
// Drawn from a seed: what is read is what was written, and at the end all memory is free.
// A random program: threads, devices, contexts, streams, events, captures, and blocks of all sizes
// that are written, checked, copied, handed over and freed while earlier work is still pending; on
// demand kernels that take long, work without end, graphs that live, threads that are cancelled.
// Every access is ordered as CUDA demands, so whatever it reads must be what it wrote, and with one
// seed every run does and prints the same. The arguments are name=number; settings.h.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "rest.h"
#include "worker.h"

namespace {

using namespace random_work;

void use_primaries(World& world, Tally& tally) {
  world.primaries.assign(world.settings.devices, Place{});
  for (size_t i = 0; i < world.primaries.size(); ++i) {
    Place& place = world.primaries[i];
    place.device = static_cast<CUdevice>(i);
    tally.note("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&place.context, place.device));
    tally.note("cuCtxSetCurrent", cuCtxSetCurrent(place.context));
    tally.note("load", place.kernels.load());
  }
  const uint64_t peers = world.settings.peers;
  for (Place& from : world.primaries) {
    tally.note("cuCtxSetCurrent", cuCtxSetCurrent(from.context));
    for (const Place& to : world.primaries) {
      if (&from == &to || peers == 0 || (peers == 2 && to.device < from.device)) continue;
      tally.note("cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(to.context, 0));
      from.reach(to, true);
    }
  }
}

std::vector<size_t> free_memory(const World& world, Tally& tally) {
  std::vector<size_t> all;
  for (const Place& place : world.primaries) {
    size_t bytes = 0, total = 0;
    tally.need("cuCtxSetCurrent", cuCtxSetCurrent(place.context));
    tally.note("cuCtxSynchronize", cuCtxSynchronize());
    tally.note("cuMemGetInfo", cuMemGetInfo(&bytes, &total));
    all.push_back(bytes);
  }
  return all;
}

// Some idle memory may be on its way to the driver for a moment: then it is asked again. How often
// is not told, it is chance. Not where the driver may refuse to take memory, or streams are lost.
bool all_is_free_again(const World& world, const std::vector<size_t>& before, Tally& tally) {
  if (free_memory(world, tally) == before) return true;
  const char* fails = std::getenv("SIMCUDA_FAIL");
  const bool refuses = fails != nullptr && std::strstr(fails, "cuMemFree") != nullptr;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!refuses && world.settings.losses == 0 && std::chrono::steady_clock::now() < end) {
    Tally untold;
    if (free_memory(world, untold) == before) return true;
    std::this_thread::yield();
  }
  return false;
}

// Every thread does its part; the last blocks are freed by this one, or left to the reset, which
// does not end stream-ordered memory.
void play_round(World& world, uint64_t round, bool leave_some, Tally& tally) {
  const uint64_t threads = world.settings.threads;
  world.posts = std::vector<Post>(threads);
  Post last;
  std::vector<Tally> tallies(threads);
  std::vector<std::thread> workers;
  const auto work = [&](uint64_t number) {
    Worker worker(world, tallies[number], number, round);
    worker.run(world.settings.operations / world.settings.rounds / threads);
    worker.finish(last);
  };
  for (uint64_t i = 1; i < threads; ++i) workers.emplace_back(work, i);
  if (threads == 1) work(0);
  if (threads > 1) workers.emplace_back(work, 0);
  for (std::thread& worker : workers) worker.join();
  for (const Tally& one : tallies) tally.add(one);

  Worker heir(world, tally, 0, ~round);
  Block block;
  for (Post& post : world.posts) {
    while (post.take(&block)) heir.retire(block);
  }
  while (last.take(&block)) {
    if (!leave_some || block.id % 2 == 0 || block.stream_ordered) heir.retire(block);
  }
  block = Block{};
  heir.finish(last);
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  for (int i = 1; i < argc; ++i) {
    if (world.settings.read(argv[i])) continue;
    std::printf("not understood: %s\n", argv[i]);
    return 2;
  }
  Tally tally;
  int devices = 0;
  tally.note("cuInit", cuInit(0));
  tally.note("cuDeviceGetCount", cuDeviceGetCount(&devices));
  if (world.settings.devices > static_cast<uint64_t>(devices)) {
    std::printf("only %d devices\n", devices);
    return 2;
  }
  use_primaries(world, tally);
  const std::vector<size_t> free_before = free_memory(world, tally);
  for (uint64_t round = 0; round < world.settings.rounds; ++round) {
    const bool reset = round % 2 == 1;
    play_round(world, round, reset, tally);
    if (reset) {
      for (const Place& place : world.primaries) {
        tally.note("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset(place.device));
      }
      use_primaries(world, tally);
    }
    tally.hold("all memory is free again", all_is_free_again(world, free_before, tally));
    if (world.settings.rests != 0) rest(world.primaries[0], tally);
  }
  tally.print();
  return 0;
}
