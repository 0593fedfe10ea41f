// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/imported_table.h"

#include <bit>

#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/ties.h"
#include "shim/pooled/out_of_memory.h"

namespace cistern::shim {
namespace {

bool has_all_calls(const Driver& d) {
  return d.cuMemAddressReserve != nullptr && d.cuMemAddressFree != nullptr &&
         d.cuMemImportFromShareableHandle != nullptr && d.cuMemRelease != nullptr &&
         d.cuMemMap != nullptr && d.cuMemUnmap != nullptr && d.cuMemSetAccess != nullptr;
}

// For calls that give something back: repeats a failed call, since the error may belong to earlier
// work.
template <typename Call>
CUresult for_sure(Call call) {
  const CUresult result = call();
  return result == CUDA_SUCCESS ? result : call();
}

// A mapping keeps its memory without a handle.
CUresult map_file(int file, CUdeviceptr address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(file));  // as cuda.h wants it
  CUresult result = ask_with_idle_memory(driver().cuMemImportFromShareableHandle, &handle,
                                         as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = ask_with_idle_memory(driver().cuMemMap, address, bytes, size_t{0}, handle, 0ULL);
  const LetByCaptures allowed;
  for_sure([=] { return driver().cuMemRelease(handle); });
  return result;
}

// The peers with access were determined for the current device, but the memory may be on another.
// The driver refuses a list with a device that cannot have access. Then only the current device
// gets access.
CUresult give_access(const MappedUnits& units) {
  CUmemAccessDesc list[64];
  CUdevice own = 0;
  size_t count = 0;
  for (uint64_t left = devices_of_current(&own); left != 0; left &= left - 1) {
    list[count].location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = std::countr_zero(left)};
    list[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  const auto give = [&](const CUmemAccessDesc* first, size_t devices) {
    return ask_with_idle_memory(driver().cuMemSetAccess, units.base, size_t{units.bytes}, first,
                                devices);
  };
  const CUresult result = give(list, count);
  if (result == CUDA_SUCCESS || count < 2) return result;
  list[0].location.id = own;
  return give(list, 1);
}

// Maps the units of all answers; `*mapped`: the bytes that were mapped.
CUresult map_all(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                 IpcPatience* patience, const MappedUnits& out, uint64_t* mapped, IpcReply* reply) {
  const uint64_t unit = first.unit_bytes;
  while (*mapped < out.bytes) {
    if (files->count() == 0) {
      IpcAnswer next;
      *reply = ask_exporter(token, static_cast<uint32_t>(*mapped / unit), patience, &next, files);
      if (*reply != IpcReply::given) return CUDA_ERROR_INVALID_VALUE;
      // All answers about one block agree in these.
      if (next.unit_bytes != unit || next.offset != first.offset) return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < files->count(); ++i, *mapped += unit) {
      const CUresult result = map_file(files->number(i), out.base + *mapped, unit);
      if (result != CUDA_SUCCESS) return result;
    }
    files->close_all();
  }
  return give_access(out);
}

void free_addresses(const MappedUnits& units) {
  for_sure([&] { return driver().cuMemAddressFree(units.base, units.bytes); });
}

}  // namespace

CUresult map_units(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                   IpcPatience* patience, MappedUnits* out, IpcReply* reply) {
  if (!has_all_calls(driver())) return CUDA_ERROR_NOT_SUPPORTED;
  // The product cannot overflow: it is the end of the block, rounded up to units (ipc/client.cc).
  out->bytes = first.units * first.unit_bytes;
  CUresult result =
      ask_with_idle_memory(driver().cuMemAddressReserve, &out->base, size_t{out->bytes},
                           size_t{first.unit_bytes}, CUdeviceptr{0}, 0ULL);
  if (result != CUDA_SUCCESS) return result;
  uint64_t mapped = 0;
  result = map_all(token, first, files, patience, *out, &mapped, reply);
  files->close_all();
  if (result == CUDA_SUCCESS) return result;
  const LetByCaptures allowed;
  // A mapping may exist although its call returned the error of earlier work.
  for (uint64_t at = 0; at < out->bytes && at <= mapped; at += first.unit_bytes) {
    for_sure([&] { return driver().cuMemUnmap(out->base + at, first.unit_bytes); });
  }
  free_addresses(*out);
  return result;
}

CUresult unmap_units(const MappedUnits& units) {
  const LetByCaptures allowed;
  const auto unmap = [&] { return ask(driver().cuMemUnmap, units.base, size_t{units.bytes}); };
  CUresult result = unmap();
  // The first error may belong to earlier work, and the call may have unmapped the units.
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) {
    result = unmap();
    if (result == CUDA_ERROR_INVALID_VALUE) result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) free_addresses(units);
  return result;
}

}  // namespace cistern::shim
