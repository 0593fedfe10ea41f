// SPDX-License-Identifier: Apache-2.0
// What frees and the calls around them wait for, and what other threads can do meanwhile.
//
//   own         calls that end something, beside work of their own context
//   contexts    frees beside work of another context of the device
//   peer_copies frees beside a copy of another context from memory of this one
//   devices     frees beside work of another device, with peer access and without
//   meanwhile   calls of another thread while cuMemFree waits
//   mapping     the steps of virtual memory, beside work that does not use it

#include <utility>

#include "facts.h"

namespace {

using namespace facts;

void* new_pinned(unsigned flags = 0) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, 4 * kMiB, flags));
  return memory;
}

// Whether `call`, made in the context `in`, waits for work of `of`.
bool waits_for(const timed::Worker& of, CUcontext in, std::function<CUresult()> call) {
  of.use();
  MUST(cuCtxSynchronize());
  timed::Held work(of.kernels, of.stream);
  return waits(in, work, std::move(call));
}

void own(CUcontext context) {
  const timed::Worker at(context);
  const auto tell = [&](const char* name, std::function<CUresult()> call) {
    fact(waits_for(at, context, std::move(call)), "waits.%s", name);
  };
  CUdeviceptr block = new_block(4096);
  tell("cuMemFree_4KiB", [&] { return cuMemFree(block); });
  block = new_block(64 * kMiB);
  tell("cuMemFree_64MiB", [&] { return cuMemFree(block); });
  void* pinned = new_pinned();
  tell("cuMemFreeHost", [&] { return cuMemFreeHost(pinned); });
  MUST(cuMemAllocManaged(&block, 4 * kMiB, CU_MEM_ATTACH_GLOBAL));
  tell("cuMemFree_managed", [&] { return cuMemFree(block); });
  alignas(4096) static char registered[65536];
  MUST(cuMemHostRegister(registered, sizeof registered, 0));
  tell("cuMemHostUnregister", [&] { return cuMemHostUnregister(registered); });
  const CUDA_ARRAY_DESCRIPTOR shape = {1024, 1024, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray array = nullptr;
  MUST(cuArrayCreate(&array, &shape));
  tell("cuArrayDestroy", [&] { return cuArrayDestroy(array); });
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, timed::kImage));
  tell("cuModuleUnload", [&] { return cuModuleUnload(module); });
  CUstream stream = timed::new_stream();
  tell("cuStreamDestroy", [&] { return cuStreamDestroy(stream); });
  const CUevent event = new_event();
  tell("cuEventDestroy", [&] { return cuEventDestroy(event); });
  stream = timed::new_stream();
  block = new_block(4 * kMiB);
  tell("cuMemFreeAsync_and_its_stream", [&] {
    const CUresult code = cuMemFreeAsync(block, stream);
    return code == CUDA_SUCCESS ? cuStreamSynchronize(stream) : code;
  });
  tell("cuMemAlloc", [&] { return cuMemAlloc(&block, 64 * kMiB); });
  tell("cuMemHostAlloc", [&] { return cuMemHostAlloc(&pinned, 4 * kMiB, 0); });
}

void contexts(CUcontext context) {
  const timed::Worker first(context);
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  const timed::Worker second(other);
  const auto tell = [&](const char* name, const timed::Worker& work, CUcontext in,
                        std::function<CUresult()> call) {
    fact(waits_for(work, in, std::move(call)), "waits_contexts.%s", name);
  };
  first.use();
  CUdeviceptr block = new_block(4 * kMiB);
  tell("cuMemFree.work_of_other", second, context, [&] { return cuMemFree(block); });
  first.use();
  block = new_block(4 * kMiB);
  tell("cuMemFree_abroad.work_of_owner", first, other, [&] { return cuMemFree(block); });
  first.use();
  block = new_block(4 * kMiB);
  tell("cuMemFree_abroad.work_of_current", second, other, [&] { return cuMemFree(block); });
  for (const auto& [flags, name] :
       {std::pair{0u, "cuMemFreeHost"},
        std::pair{unsigned{CU_MEMHOSTALLOC_PORTABLE}, "cuMemFreeHost_portable"}}) {
    char of_other[64], of_owner[64];
    std::snprintf(of_other, sizeof of_other, "%s.work_of_other", name);
    std::snprintf(of_owner, sizeof of_owner, "%s_abroad.work_of_owner", name);
    first.use();
    void* pinned = new_pinned(flags);
    tell(of_other, second, context, [&] { return cuMemFreeHost(pinned); });
    first.use();
    pinned = new_pinned(flags);
    tell(of_owner, first, other, [&] { return cuMemFreeHost(pinned); });
  }
  first.use();
  tell("cuCtxSynchronize.work_of_other", second, context, [] { return cuCtxSynchronize(); });
}

// A copy of another context takes memory of this one as its source, behind work that goes on.
void peer_copies(CUcontext context) {
  const timed::Worker first(context);
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  const timed::Worker second(other);
  const CUdeviceptr target = new_block(4 * kMiB);
  const auto tell = [&](const char* name, std::function<CUresult(CUdeviceptr)> call) {
    first.use();
    const CUdeviceptr source = new_block(4 * kMiB);
    MUST(cuCtxSynchronize());
    second.use();
    MUST(cuCtxSynchronize());
    timed::Held work(second.kernels, second.stream);
    MUST(cuMemcpyPeerAsync(target, other, source, context, 4 * kMiB, second.stream));
    fact(waits(context, work, [&] { return call(source); }), "waits_peer_copies.%s", name);
  };
  CUdeviceptr unused = 0;
  tell("cuMemFree_of_its_source", [](CUdeviceptr source) { return cuMemFree(source); });
  tell("cuMemFree_of_another_block", [&](CUdeviceptr source) {
    unused = source;
    CUdeviceptr block = 0;
    const CUresult code = cuMemAlloc(&block, 4 * kMiB);
    return code == CUDA_SUCCESS ? cuMemFree(block) : code;
  });
  first.use();
  MUST(cuMemFree(unused));
  tell("cuCtxSynchronize", [](CUdeviceptr) { return cuCtxSynchronize(); });
  first.use();
  void* pinned = new_pinned(CU_MEMHOSTALLOC_PORTABLE);
  second.use();
  timed::Held work(second.kernels, second.stream);
  MUST(cuMemcpyHtoDAsync(target, pinned, 4 * kMiB, second.stream));
  fact(waits(context, work, [&] { return cuMemFreeHost(pinned); }),
       "waits_peer_copies.cuMemFreeHost_of_its_source");
}

void devices(CUcontext context) {
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  fact(count, "devices");
  if (count < 2) return;
  const timed::Worker first(context);
  const timed::Worker second(use_device(1));
  const auto tell = [&](const char* access) {
    first.use();
    const CUdeviceptr block = new_block(4 * kMiB);
    fact(waits_for(second, context, [&] { return cuMemFree(block); }), "waits_devices.cuMemFree.%s",
         access);
    first.use();
    void* pinned = new_pinned(CU_MEMHOSTALLOC_PORTABLE);
    fact(waits_for(second, context, [&] { return cuMemFreeHost(pinned); }),
         "waits_devices.cuMemFreeHost.%s", access);
  };
  tell("no_peers");
  int can = 0;
  MUST(cuDeviceCanAccessPeer(&can, 1, 0));
  fact(can, "devices.peer_access");
  if (can == 0) return;
  second.use();
  MUST(cuCtxEnablePeerAccess(context, 0));
  tell("worker_reaches_memory");
  second.use();
  MUST(cuCtxDisablePeerAccess(context));
  first.use();
  MUST(cuCtxEnablePeerAccess(second.context, 0));
  tell("owner_reaches_worker");
}

// A call of another thread beside a cuMemFree that waits.
void tell_meanwhile(const timed::Worker& at, const char* name, std::function<CUresult()> call) {
  const CUdeviceptr block = new_block(4 * kMiB);
  MUST(cuCtxSynchronize());
  timed::Held work(at.kernels, at.stream);
  Beside freeing(at.context, [&] { return cuMemFree(block); });
  std::this_thread::sleep_for(kHeadStart);
  Beside calling(at.context, std::move(call));
  const bool back = calling.back_within(kPatience);
  const bool waited = !freeing.back();
  work.end();
  MUST(freeing.join());
  fact(waited, "meanwhile.%s.the_free_waited", name);
  fact(back, "meanwhile.%s.came_back", name);
  fact(calling.join(), "meanwhile.%s.code", name);
}

void meanwhile(CUcontext context) {
  const timed::Worker at(context);
  const CUstream other = timed::new_stream();
  const CUdeviceptr words = new_block(4096);
  const CUevent event = new_event();
  CUdeviceptr more = 0;
  void* pinned = new_pinned();
  const auto launch = [&] { return timed::fill_words(at.kernels, other, words, 8, 1, 0); };
  MUST(launch());  // loads the kernel
  MUST(cuEventRecord(event, other));
  tell_meanwhile(at, "launch", launch);
  tell_meanwhile(at, "launch_and_its_end", [&] {
    const CUresult code = launch();
    return code == CUDA_SUCCESS ? cuStreamSynchronize(other) : code;
  });
  tell_meanwhile(at, "cuMemcpyHtoDAsync",
                 [&] { return cuMemcpyHtoDAsync(words, pinned, 4096, other); });
  tell_meanwhile(at, "cuEventQuery", [&] { return cuEventQuery(event); });
  tell_meanwhile(at, "cuStreamQuery", [&] { return cuStreamQuery(at.stream); });
  tell_meanwhile(at, "cuEventRecord", [&] { return cuEventRecord(event, other); });
  tell_meanwhile(at, "cuMemAlloc_4KiB", [&] { return cuMemAlloc(&more, 4096); });
  tell_meanwhile(at, "cuMemFree", [freed = more] { return cuMemFree(freed); });
  tell_meanwhile(at, "cuMemAlloc_64MiB", [&] { return cuMemAlloc(&more, 64 * kMiB); });
  tell_meanwhile(at, "cuMemAllocAsync", [&] { return cuMemAllocAsync(&more, 4 * kMiB, other); });
  tell_meanwhile(at, "cuMemHostAlloc", [&] { return cuMemHostAlloc(&pinned, 4096, 0); });
  tell_meanwhile(at, "cuMemGetInfo", [] {
    size_t told = 0, total = 0;
    return cuMemGetInfo(&told, &total);
  });
  CUstream stream = nullptr;
  tell_meanwhile(at, "cuStreamCreate",
                 [&] { return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); });
  if (const RecordContext record = record_context()) {
    tell_meanwhile(at, "cuCtxRecordEvent", [&] { return record(context, event); });
  }
}

void mapping(CUcontext context) {
  const timed::Worker at(context);
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const size_t bytes = 20 * kMiB;
  CUdeviceptr place = 0;
  CUmemGenericAllocationHandle handle = 0;
  const std::pair<const char*, std::function<CUresult()>> steps[] = {
      {"cuMemAddressReserve", [&] { return cuMemAddressReserve(&place, bytes, 0, 0, 0); }},
      {"cuMemCreate", [&] { return cuMemCreate(&handle, bytes, &kind, 0); }},
      {"cuMemMap", [&] { return cuMemMap(place, bytes, 0, handle, 0); }},
      {"cuMemSetAccess", [&] { return cuMemSetAccess(place, bytes, &access, 1); }},
      {"cuMemUnmap", [&] { return cuMemUnmap(place, bytes); }},
      {"cuMemRelease", [&] { return cuMemRelease(handle); }},
      {"cuMemAddressFree", [&] { return cuMemAddressFree(place, bytes); }}};
  for (const bool busy : {false, true}) {
    for (const auto& [name, call] : steps) {
      timed::Held work(at.kernels, at.stream);
      if (!busy) {
        work.end();
        MUST(cuCtxSynchronize());
      }
      double us = 0;
      const bool waited = waits(context, work, call, &us);
      fact(us, "mapping.%s.us.%s", busy ? "busy" : "idle", name);
      if (busy) fact(waited, "waits.%s", name);
    }
  }
}

constexpr Group kGroups[] = {
    {"own", own},         {"contexts", contexts},   {"peer_copies", peer_copies},
    {"devices", devices}, {"meanwhile", meanwhile}, {"mapping", mapping}};

}  // namespace

int main(int argc, char** argv) { return run(kGroups, argc, argv); }
