// SPDX-License-Identifier: Apache-2.0
// With the fill on, every byte of every block holds it; what the program holds stays.
// What is in a block when the program gets it. SHOULD_HOLD in the environment: the byte that every
// one must be full of; not set: nobody knows. What the program wrote into the blocks it holds must
// stay. The arguments choose, one after the other:
//   fresh     blocks of all sizes, read at once on a stream that waits for nothing
//   reused    the same blocks again and again, written to in between on several streams
//   at-once   a block is written to on another stream as soon as it is there
//   pitched   rows and what is between them
//   ordered   stream-ordered memory on every kind of stream, from the current pool and another
//   per-thread  the same by the functions that per-thread default streams have
//   pinned    page-locked memory, again and again
//   skipped   kinds of memory that are not filled
//   abroad    stream-ordered memory on another device than its stream's
//   unseen    memory of a context that a plugin made past any preload
//   capture   memory from inside a capture, and after it
//   many      as many small blocks as it takes, twice
//   released  while other threads release the context, which stays because this one retains it
//   wanted    all memory was freed; while a request of another thread has it filled, most of it is
//             asked for

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../driver_codes.h"

// What cuda.h calls the same functions under per-thread default streams.
extern "C" CUresult cuMemAllocAsync_ptsz(CUdeviceptr* block, size_t bytes, CUstream stream);
extern "C" CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* block, size_t bytes,
                                                 CUmemoryPool pool, CUstream stream);
extern "C" CUresult cuMemFreeAsync_ptsz(CUdeviceptr block, CUstream stream);

namespace {

CUstream reader, writers[3];
int should_hold = -1;
size_t unfilled = 0, damaged = 0;
std::atomic<size_t> failures{0};

CUresult must(CUresult code) {
  failures += code != CUDA_SUCCESS;
  return code;
}

// Until the stream is done; no synchronisation, as far as the driver is concerned.
void finish(CUstream stream) {
  CUresult result;
  while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
  }
  must(result);
}

// Bytes that differ, read on `stream`, which is waited for and nothing else.
size_t different(CUdeviceptr block, size_t bytes, int value, CUstream stream = reader) {
  if (bytes == 0) return 0;
  const std::unique_ptr<unsigned char[]> seen(new unsigned char[bytes]);
  must(cuMemcpyDtoHAsync(seen.get(), block, bytes, stream));
  finish(stream);
  if (seen[0] == value && std::memcmp(&seen[0], &seen[1], bytes - 1) == 0) return 0;
  return bytes - static_cast<size_t>(std::count(&seen[0], &seen[bytes], value));
}

void look(CUdeviceptr block, size_t bytes, CUstream stream = reader) {
  if (should_hold >= 0) unfilled += different(block, bytes, should_hold, stream);
}

CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  must(cuMemAlloc(&block, bytes));
  return block;
}

constexpr size_t kSizes[] = {1, 511, 512, 4096, 100'001, kMiB - 1, kMiB, 2 * kMiB, 5 * kMiB + 3};

void fresh() {
  std::vector<CUdeviceptr> blocks;
  for (const size_t bytes : kSizes) look(blocks.emplace_back(get(bytes)), bytes);
  for (const CUdeviceptr block : blocks) must(cuMemFree(block));
}

struct Held {
  CUdeviceptr address;
  size_t bytes;
  unsigned char value;
};

void reused() {
  std::mt19937 random(3);
  std::vector<Held> held;
  for (int i = 0; i < 1500; ++i) {
    if (held.size() < 40 && random() % 2 == 0) {
      const size_t bytes = kSizes[random() % 7] + random() % 3000;
      const Held block{get(bytes), bytes, static_cast<unsigned char>(random() % 200)};
      look(block.address, bytes);
      must(cuMemsetD8Async(block.address, block.value, bytes, writers[random() % 3]));
      held.push_back(block);
    } else if (!held.empty()) {
      const size_t i_held = random() % held.size();
      const Held block = held[i_held];
      held[i_held] = held.back();
      held.pop_back();
      if (random() % 4 == 0) {
        for (CUstream writer : writers) must(cuStreamSynchronize(writer));
        damaged += different(block.address, block.bytes, block.value);
      }
      must(cuMemFree(block.address));
      if (random() % 20 == 0) must(cuCtxSynchronize());
    }
  }
  must(cuCtxSynchronize());
  for (const Held& block : held) {
    damaged += different(block.address, block.bytes, block.value);
    must(cuMemFree(block.address));
  }
}

void at_once() {
  for (int round = 0; round < 20; ++round) {
    for (const size_t bytes : kSizes) {
      const CUdeviceptr block = get(bytes);
      must(cuMemsetD8Async(block, 7, bytes / 2, writers[round % 3]));
      damaged += different(block, bytes / 2, 7, writers[round % 3]);
      look(block + bytes / 2, bytes - bytes / 2, writers[(round + 1) % 3]);
      must(cuMemFree(block));
    }
    if (round % 4 == 0) must(cuCtxSynchronize());
  }
}

void pitched() {
  CUdeviceptr block = 0;
  size_t pitch = 0;
  must(cuMemAllocPitch(&block, &pitch, 1000, 77, 4));
  look(block, pitch * 77);
  must(cuMemFree(block));
}

CUmemoryPool other_pool(int device = 0) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemoryPool pool = nullptr;
  must(cuMemPoolCreate(&pool, &properties));
  return pool;
}

void ordered() {
  CUmemoryPool pool = other_pool();
  const CUstream streams[] = {writers[0], nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  for (int round = 0; round < 3; ++round) {
    for (CUstream stream : streams) {
      for (const size_t bytes : kSizes) {
        CUdeviceptr block = 0;
        must(round == 2 ? cuMemAllocFromPoolAsync(&block, bytes, pool, stream)
                        : cuMemAllocAsync(&block, bytes, stream));
        look(block, bytes, stream);
        must(cuMemsetD8Async(block, 9, bytes, stream));
        must(cuMemFreeAsync(block, stream));
      }
    }
  }
  must(cuCtxSynchronize());
  must(cuMemPoolDestroy(pool));
}

void per_thread() {
  CUmemoryPool pool = other_pool();
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr block = 0;
    must(round % 2 == 0 ? cuMemAllocAsync_ptsz(&block, 5000, nullptr)
                        : cuMemAllocFromPoolAsync_ptsz(&block, 5000, pool, nullptr));
    look(block, 5000, CU_STREAM_PER_THREAD);
    must(cuMemFreeAsync_ptsz(block, nullptr));
  }
  must(cuCtxSynchronize());
  must(cuMemPoolDestroy(pool));
}

void look_at_pinned(size_t bytes) {
  void* block = nullptr;
  must(cuMemHostAlloc(&block, bytes, 0));
  const auto* seen = static_cast<unsigned char*>(block);
  for (size_t i = 0; should_hold >= 0 && i < bytes; ++i) unfilled += seen[i] != should_hold;
  std::memset(block, 1, bytes);
  must(cuMemFreeHost(block));
}

void pinned() {
  for (const size_t bytes : {size_t{1}, size_t{5001}, 3 * kMiB + 7}) {
    for (int i = 0; i < 3; ++i) look_at_pinned(bytes);
  }
}

void skipped() {
  CUdeviceptr managed = 0;
  must(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  must(cuMemsetD8(managed, 1, 4096));
  must(cuMemFree(managed));
  const CUDA_ARRAY_DESCRIPTOR flat{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  must(cuArrayCreate(&array, &flat));
  must(cuArrayDestroy(array));
  const CUDA_ARRAY3D_DESCRIPTOR deep{64, 64, 4, CU_AD_FORMAT_FLOAT, 1, 0};
  must(cuArray3DCreate(&array, &deep));
  must(cuArrayDestroy(array));
  CUmipmappedArray levels = nullptr;
  must(cuMipmappedArrayCreate(&levels, &deep, 3));
  must(cuMipmappedArrayDestroy(levels));
}

// A pool on another device, whose memory the stream may have no access to.
void abroad() {
  CUmemoryPool pool = other_pool(1);
  CUdeviceptr block = 0;
  must(cuMemAllocFromPoolAsync(&block, 5000, pool, writers[0]));
  must(cuMemFreeAsync(block, writers[0]));
  must(cuCtxSynchronize());
  must(cuMemPoolDestroy(pool));
}

void unseen() {
  void* plugin = dlopen("libdeepbind_user.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  const auto make = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(plugin, "plugin_context"));
  CUcontext context = nullptr;
  must(make(&context));
  must(cuMemFree(get(5000)));
  must(cuCtxDestroy(context));
}

void capture() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  must(cuThreadExchangeStreamCaptureMode(&mode));
  must(cuStreamBeginCapture(writers[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUdeviceptr small = get(5000), large = get(3 * kMiB);
  CUdeviceptr of_stream = 0;
  must(cuMemAllocAsync(&of_stream, 5000, writers[1]));
  must(cuMemsetD8Async(small, 4, 5000, writers[0]));
  CUgraph graph = nullptr;
  must(cuStreamEndCapture(writers[0], &graph));
  size_t nodes = 0;
  must(cuGraphGetNodes(graph, nullptr, &nodes));
  std::printf("nodes: %zu\n", nodes);
  must(cuGraphDestroy(graph));
  must(cuMemFreeAsync(of_stream, writers[1]));
  must(cuCtxSynchronize());
  must(cuMemFree(small));
  must(cuMemFree(large));
  must(cuThreadExchangeStreamCaptureMode(&mode));
  fresh();
}

// 256 blocks of 8 KiB are a slab.
void many() {
  std::vector<CUdeviceptr> blocks(256);
  for (int round = 0; round < 2; ++round) {
    for (CUdeviceptr& block : blocks) look(block = get(8192), 8192);
    for (const CUdeviceptr block : blocks) must(cuMemFree(block));
    must(cuCtxSynchronize());
  }
}

int fills_so_far() {
  int fills = 0;
  std::ifstream trace(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(trace, line);) fills += line.starts_with("cuMemsetD8Async ");
  return fills;
}

void wanted() {
  constexpr size_t kSmall = size_t{64} << 10;
  const size_t all = free_memory();
  std::vector<CUdeviceptr> blocks;
  for (CUdeviceptr block; cuMemAlloc(&block, kSmall) == CUDA_SUCCESS;) blocks.push_back(block);
  for (const CUdeviceptr block : blocks) must(cuMemFree(block));
  must(cuCtxSynchronize());
  const int fills = fills_so_far();
  std::atomic<bool> served{false};
  CUresult small_code = CUDA_SUCCESS;
  std::thread other([&] {
    use_device(0);
    CUdeviceptr small = 0;
    small_code = cuMemAlloc(&small, kSmall);
    if (small_code == CUDA_SUCCESS) small_code = cuMemFree(small);
    served = true;
  });
  while (!served && fills_so_far() == fills) {
  }
  const bool told = free_memory() + 2 * kMiB >= all;
  must(cuMemFree(get(40 * kMiB)));
  other.join();
  must(small_code);
  std::printf("all but the small block is told to be free: %d\n", told);
}

// Blocks as a whole, cut from something larger, and pitched ones.
void released() {
  std::atomic<bool> over{false};
  std::vector<std::thread> others(2);
  for (std::thread& other : others) {
    other = std::thread([&] {
      CUcontext context;
      while (!over) {
        must(cuDevicePrimaryCtxRetain(&context, 0));
        must(cuDevicePrimaryCtxRelease(0));
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    const size_t bytes = kSizes[2 + i % 6];
    const CUdeviceptr block = get(bytes);
    look(block, bytes);
    must(cuMemFree(block));
    CUdeviceptr rows = 0;
    size_t pitch = 0;
    must(cuMemAllocPitch(&rows, &pitch, 1000, 8, 4));
    look(rows, 8 * pitch);
    must(cuMemFree(rows));
  }
  over = true;
  for (std::thread& other : others) other.join();
}

}  // namespace

int main(int argc, char** argv) {
  use_device(0);
  if (const char* byte = std::getenv("SHOULD_HOLD")) should_hold = std::atoi(byte);
  must(cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
  for (CUstream& writer : writers) must(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
  struct {
    const char* name;
    void (*run)();
  } const parts[] = {{"fresh", fresh},           {"reused", reused},    {"at-once", at_once},
                     {"pitched", pitched},       {"ordered", ordered},  {"skipped", skipped},
                     {"pinned", pinned},         {"capture", capture},  {"many", many},
                     {"per-thread", per_thread}, {"abroad", abroad},    {"unseen", unseen},
                     {"wanted", wanted},         {"released", released}};
  for (int i = 1; i < argc; ++i) {
    for (const auto& part : parts) {
      if (std::strcmp(argv[i], part.name) == 0) part.run();
    }
  }
  std::printf("bytes not filled %zu, bytes damaged %zu, calls that failed %zu\n", unfilled, damaged,
              failures.load());
  return 0;
}
