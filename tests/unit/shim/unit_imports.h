// SPDX-License-Identifier: Apache-2.0
// For tests of imported units: a driver that counts handles, mappings and addresses, and an
// importer of a block in units. The exporting process is this one: its service answers as for any
// importer.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "shim/kinds/imported.h"
#include "tests/unit/shim/fake_shim.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim::units_test {

using test::fakes;
using test::files_become;
using test::open_files;

inline constexpr uint64_t kUnit = 2 << 20, kOffset = 4096;
inline constexpr CUdeviceptr kPlace = uint64_t{0x600} << 32;  // where the exporter has its blocks

struct Memory {
  std::map<CUdeviceptr, uint64_t> reserved, mapped;
  std::set<CUmemGenericAllocationHandle> handles;
  std::map<CUdeviceptr, size_t> accesses;  // how many devices
  std::map<std::string, int> calls;
  std::string fails;  // this call, at its use of that number
  int fails_at = 0;
  CUresult fails_with = CUDA_ERROR_ILLEGAL_ADDRESS;
  bool fails_after_all = false;  // the call does its own, and tells of earlier work
  uint64_t last_place = 0, last_handle = 0;

  // Whether the call does its own, and what it tells.
  std::pair<bool, CUresult> use(const char* call) {
    const bool failing = ++calls[call] == fails_at && fails == call;
    return {!failing || fails_after_all, failing ? fails_with : CUDA_SUCCESS};
  }
  bool empty() const { return reserved.empty() && mapped.empty() && handles.empty(); }
};

inline Memory* memory = nullptr;

inline CUresult reserve(CUdeviceptr* out, size_t bytes, size_t align, CUdeviceptr,
                        unsigned long long) {
  const auto [does, code] = memory->use("reserve");
  if (!does) return code;
  *out = (memory->last_place += uint64_t{1} << 32);
  CHECK(*out % align == 0);
  memory->reserved[*out] = bytes;
  return CUDA_SUCCESS;
}

inline CUresult free_reserved(CUdeviceptr address, size_t bytes) {
  const auto [does, code] = memory->use("free");
  if (!does) return code;
  const auto found = memory->reserved.find(address);
  const auto inside = memory->mapped.lower_bound(address);
  if (found == memory->reserved.end() || found->second != bytes ||
      (inside != memory->mapped.end() && inside->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->reserved.erase(found);
  return code;
}

inline CUresult import_file(CUmemGenericAllocationHandle* out, void* file,
                            CUmemAllocationHandleType) {
  CHECK(fcntl(static_cast<int>(reinterpret_cast<intptr_t>(file)), F_GETFD) == FD_CLOEXEC);
  const auto [does, code] = memory->use("import");
  if (!does) return code;
  *out = ++memory->last_handle;
  memory->handles.insert(*out);
  return CUDA_SUCCESS;
}

inline CUresult release(CUmemGenericAllocationHandle handle) {
  const auto [does, code] = memory->use("release");
  if (!does) return code;
  return memory->handles.erase(handle) == 1 ? code : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult map(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                    unsigned long long) {
  const auto [does, code] = memory->use("map");
  if (!does) return code;
  if (memory->handles.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto after = memory->reserved.upper_bound(address);
  REQUIRE(after != memory->reserved.begin());
  CHECK(address + bytes <= std::prev(after)->first + std::prev(after)->second);
  CHECK(memory->mapped.emplace(address, bytes).second);
  return code;
}

inline CUresult unmap(CUdeviceptr address, size_t bytes) {
  const auto [does, code] = memory->use("unmap");
  if (!does) return code;
  const auto first = memory->mapped.find(address);
  if (first == memory->mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  memory->mapped.erase(first, memory->mapped.lower_bound(address + bytes));
  return code;
}

inline CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list,
                           size_t count) {
  const auto [does, code] = memory->use("access");
  if (!does) return code;
  CHECK(list[0].location.id == 1);
  for (uint64_t at = address; at < address + bytes; at += kUnit) {
    if (memory->mapped.count(at) == 0) return CUDA_ERROR_INVALID_VALUE;
    memory->accesses[at] = count;
  }
  return code;
}

inline CUresult real_open(CUdeviceptr*, CUipcMemHandle, unsigned) {
  return CUDA_ERROR_INVALID_VALUE;
}

// An importer, and a block of so many units that is exported.
class Import {
 public:
  explicit Import(uint64_t units, uintptr_t context = 0x10) {
    test::reset_fakes();
    memory = &memory_;
    test::hold_units({kOffset, kUnit, units, nullptr});
    test::hold({kPlace + kOffset, units * kUnit - 2 * kOffset, kPlace + kOffset, true});
    token_ = test::exported(0);
    REQUIRE(serve_importers(test::find_held));
    fakes().current = reinterpret_cast<CUcontext>(context);
    Driver& d = fakes().driver;
    d.cuMemAddressReserve = reserve;
    d.cuMemAddressFree = free_reserved;
    d.cuMemImportFromShareableHandle = import_file;
    d.cuMemRelease = release;
    d.cuMemMap = map;
    d.cuMemUnmap = unmap;
    d.cuMemSetAccess = set_access;
    d.cuCtxGetDevice = [](CUdevice* out) {
      *out = 1;
      return CUDA_SUCCESS;
    };
    d.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
      *can = 1;
      return CUDA_SUCCESS;
    };
    d.cuCtxSynchronize = [] { return memory->use("synchronise").second; };
    d.cuIpcCloseMemHandle = [](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; };
    d.cuMemGetInfo_v2 = [](size_t*, size_t*) { return CUDA_SUCCESS; };
  }
  ~Import() {
    imports_of_context_gone(fakes().current);
    unmap_imports_of_gone();
    end_exports_in(kPlace, uint64_t{1} << 32);
    memory = nullptr;
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  CUresult open(CUdeviceptr* out) const {
    CUipcMemHandle handle;
    std::memcpy(&handle, &token_, sizeof handle);
    return open_imported(real_open, out, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
  Memory& memory_of() { return memory_; }
  const IpcToken& token() const { return token_; }

 private:
  Memory memory_;
  IpcToken token_;
};

}  // namespace cistern::shim::units_test
