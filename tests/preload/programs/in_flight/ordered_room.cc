// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory that the device has is there at once, whatever runs later.
// Also where what was freed before took nearly all of the device, and work waits for the host.
//
//   ordered_room filled SHARE   blocks of 4 MiB fill SHARE per cent of each device and are freed;
//                               work begins that ends when the host says so; then half of the
//                               device is allocated in stream order, from the current pool and by
//                               name
//   ordered_room kept MIB       the driver's pool keeps 192 MiB, freed blocks of 4 MiB half of the
//                               device; then so many MiB are allocated in stream order
//   ordered_room left MIB CLEAN  so many MiB are left of the device, CLEAN more were freed and no
//                               work uses them, and work that waits for the host may use what was
//                               freed last; then 1 MiB and CLEAN are allocated in stream order
//   ordered_room pieces KIB     the driver's pool keeps 7 pieces of 600 KiB, freed blocks the rest
//                               of the device, and work waits for the host; then KIB are allocated
//                               in stream order
//   ordered_room steady ROUNDS  1 MiB is allocated and freed in stream order, beside a freed block

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr size_t kBlock = 4 * kMiB;

void wait_until(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

size_t device_memory() {
  size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  return total;
}

void fill_and_free(size_t share) {
  std::vector<CUdeviceptr> blocks(device_memory() / 100 * share / kBlock);
  for (CUdeviceptr& block : blocks) MUST(cuMemAlloc(&block, kBlock));
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
}

void allocate_beside_endless_work(CUdevice device) {
  CUmemoryPool pool;
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  CUstream stuck = timed::new_stream(), other = timed::new_stream();
  const size_t bytes = device_memory() / 4;
  std::atomic<bool> go{false};
  MUST(cuLaunchHostFunc(stuck, wait_until, &go));
  CUdeviceptr one = 0, two = 0;
  const Naps naps;
  std::printf("current pool: %d\n", cuMemAllocAsync(&one, bytes, other));
  std::printf("by its name: %d\n", cuMemAllocFromPoolAsync(&two, bytes, pool, other));
  std::printf("at once %d\n", naps.few());
  go = true;
  MUST(cuMemFreeAsync(one, other));
  MUST(cuMemFreeAsync(two, other));
  MUST(cuCtxSynchronize());
}

// The device has less than a step of the pool; with what is clean, more than is asked for.
void allocate_beside_what_waits(size_t mib_left, size_t mib_clean) {
  std::vector<CUdeviceptr> live;
  size_t free = 0, total = 0;
  do {
    live.push_back(0);
    MUST(cuMemAlloc(&live.back(), kBlock));
    MUST(cuMemGetInfo(&free, &total));
  } while (free >= mib_left * kMiB + kBlock);
  const CUstream stuck = timed::new_stream(), other = timed::new_stream();
  std::atomic<bool> go{false};
  for (size_t mib = 0; mib < mib_clean; mib += kBlock / kMiB) {
    MUST(cuMemFree(live.back()));
    live.pop_back();
  }
  MUST(cuCtxSynchronize());
  MUST(cuLaunchHostFunc(stuck, wait_until, &go));
  for (int i = 0; i < 4; ++i) {
    MUST(cuMemFreeAsync(live.back(), stuck));
    live.pop_back();
  }
  CUdeviceptr block = 0;
  const Naps naps;
  std::printf("of what is left: %d\n", cuMemAllocAsync(&block, (1 + mib_clean) * kMiB, other));
  std::printf("at once %d\n", naps.few());
  go = true;
  MUST(cuMemFreeAsync(block, other));
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr each : live) MUST(cuMemFree(each));
}

void steady(int rounds) {
  CUdeviceptr block;
  MUST(cuMemAlloc(&block, 16 * kMiB));
  MUST(cuMemFree(block));
  const CUstream stream = timed::new_stream();
  for (int i = 0; i < rounds; ++i) {
    MUST(cuMemAllocAsync(&block, kMiB, stream));
    MUST(cuMemFreeAsync(block, stream));
    if (i % 10 == 0) MUST(cuStreamSynchronize(stream));
  }
  MUST(cuStreamSynchronize(stream));
}

void allocate_from_what_is_kept(CUdevice device, size_t mib) {
  CUmemoryPool pool;
  cuuint64_t everything = UINT64_MAX;
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
  const CUstream stream = timed::new_stream();
  CUdeviceptr block = 0;
  MUST(cuMemAllocAsync(&block, 192 * kMiB, stream));
  MUST(cuMemFreeAsync(block, stream));
  MUST(cuStreamSynchronize(stream));
  fill_and_free(50);
  std::printf("from what is kept: %d\n", cuMemAllocAsync(&block, mib * kMiB, stream));
  MUST(cuMemFreeAsync(block, stream));
  MUST(cuStreamSynchronize(stream));
}

void allocate_beside_pieces(size_t kib) {
  const CUstream stuck = timed::new_stream(), stream = timed::new_stream();
  CUdeviceptr pieces[14];
  for (CUdeviceptr& piece : pieces) MUST(cuMemAllocAsync(&piece, 600 << 10, stream));
  MUST(cuStreamSynchronize(stream));
  CUdeviceptr rest = 0;
  MUST(cuMemAlloc(&rest, free_memory()));
  for (int i = 0; i < 14; i += 2) MUST(cuMemFreeAsync(pieces[i], stream));
  MUST(cuCtxSynchronize());
  MUST(cuMemFree(rest));
  std::atomic<bool> go{false};
  MUST(cuLaunchHostFunc(stuck, wait_until, &go));
  CUdeviceptr block = 0;
  const Naps naps;
  std::printf("beside pieces: %d\n", cuMemAllocAsync(&block, kib << 10, stream));
  std::printf("at once %d\n", naps.few());
  go = true;
  MUST(cuMemFreeAsync(block, stream));
  for (int i = 1; i < 14; i += 2) MUST(cuMemFreeAsync(pieces[i], stream));
  MUST(cuCtxSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int number = std::atoi(argv[2]);
  end_if_it_hangs();
  MUST(cuInit(0));
  int devices = 0;
  MUST(cuDeviceGetCount(&devices));
  for (int i = 0; i < devices; ++i) {
    use_device(i);
    if (std::strcmp(argv[1], "steady") == 0) {
      steady(number);
      continue;
    }
    if (std::strcmp(argv[1], "pieces") == 0) {
      allocate_beside_pieces(static_cast<size_t>(number));
      continue;
    }
    if (std::strcmp(argv[1], "kept") == 0) {
      allocate_from_what_is_kept(i, static_cast<size_t>(number));
      continue;
    }
    if (std::strcmp(argv[1], "left") == 0) {
      const size_t clean = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 0;
      allocate_beside_what_waits(static_cast<size_t>(number), clean);
      continue;
    }
    fill_and_free(static_cast<size_t>(number));
    allocate_beside_endless_work(i);
  }
  std::printf("done\n");
  return 0;
}
