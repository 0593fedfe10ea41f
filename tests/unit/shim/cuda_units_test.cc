// SPDX-License-Identifier: Apache-2.0
// Units from the driver's virtual memory management: all or nothing, who has access, what captures
// and the end of a context mean for them.
#include "shim/order/cuda_source.h"

#include <map>
#include <string>
#include <vector>

#include "allocator/base/source.h"
#include "shim/order/captures/capture_gate.h"
#include "tests/catch.h"
#include "tests/unit/shim/fake_shim.h"
#include "tests/unit/shim/ipc_peers.h"

using namespace cistern::shim;
using cistern::alloc::kNotNow;
using cistern::alloc::kSuccess;
using cistern::alloc::Unit;
using cistern::test::fakes;

namespace {

constexpr uint64_t kUnit = uint64_t{2} << 20;
constexpr CUdevice kDevice = 1;

// A driver that maps: what is mapped where, and which devices have access.
struct VirtualMemory {
  struct Mapping {
    CUmemGenericAllocationHandle unit;
    std::map<int, CUmemAccess_flags> access;
  };
  std::map<CUdeviceptr, Mapping> mapped;
  std::map<CUmemGenericAllocationHandle, CUmemAllocationProp> units;
  std::map<std::string, int> calls, fails_at;  // by name: the use that fails
  std::map<std::string, CUresult> fails_with;
  std::map<CUdevice_attribute, int> attributes;
  size_t granularity = kUnit;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstreamCaptureMode mode_of_last_unmapping{};
  int accesses = 0;  // calls of cuMemSetAccess
  void (*during_access)() = nullptr;

  CUresult use(const char* call) {
    const int at = ++calls[call] - fails_at[call];
    const bool fails = fails_at[call] != 0 && at >= 0 && at < times;
    return fails ? fails_with[call] : CUDA_SUCCESS;
  }
  int times = 1;  // uses that fail, one after the other
  void fail(const char* call, int use, CUresult code) {
    fails_at[call] = use;
    fails_with[call] = code;
  }
};

VirtualMemory* memory = nullptr;
std::atomic<int> closing{0}, at_work{0};
std::atomic<uint64_t> peers{0};

void set_driver() {
  Driver& d = fakes().driver;
  d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = memory->attributes[attribute];
    return CUDA_SUCCESS;
  };
  // Device 5 can reach nobody.
  d.cuDeviceCanAccessPeer = [](int* can, CUdevice device, CUdevice) {
    *can = device != 5 ? 1 : 0;
    return device < 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  };
  d.cuMemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    *bytes = memory->granularity;
    return CUDA_SUCCESS;
  };
  d.cuMemAddressReserve = [](CUdeviceptr* at, size_t, size_t, CUdeviceptr, unsigned long long) {
    *at = 64 * kUnit;
    return CUDA_SUCCESS;
  };
  d.cuMemAddressFree = [](CUdeviceptr, size_t) { return memory->use("free addresses"); };
  d.cuMemCreate = [](CUmemGenericAllocationHandle* unit, size_t, const CUmemAllocationProp* what,
                     unsigned long long) {
    const CUresult result = memory->use("create");
    if (result != CUDA_SUCCESS) return result;
    *unit = static_cast<CUmemGenericAllocationHandle>(memory->calls["create"]);
    memory->units[*unit] = *what;
    return CUDA_SUCCESS;
  };
  d.cuMemRelease = [](CUmemGenericAllocationHandle unit) {
    const CUresult result = memory->use("release");
    if (result == CUDA_SUCCESS) memory->units.erase(unit);
    return result;
  };
  d.cuMemMap = [](CUdeviceptr at, size_t, size_t, CUmemGenericAllocationHandle unit,
                  unsigned long long) {
    const CUresult result = memory->use("map");
    if (result == CUDA_SUCCESS) memory->mapped[at] = {unit, {}};
    return result;
  };
  d.cuMemUnmap = [](CUdeviceptr at, size_t bytes) {
    const CUresult result = memory->use("unmap");
    memory->mode_of_last_unmapping = memory->mode;
    for (size_t i = 0; result == CUDA_SUCCESS && i < bytes; i += kUnit)
      memory->mapped.erase(at + i);
    return result;
  };
  d.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* list, size_t count) {
    ++memory->accesses;
    const CUresult result = memory->use("access");
    for (size_t i = 0; result == CUDA_SUCCESS && i < bytes; i += kUnit) {
      for (size_t n = 0; n < count; ++n) {
        memory->mapped[at + i].access[list[n].location.id] = list[n].flags;
      }
    }
    if (memory->during_access != nullptr) memory->during_access();
    return result;
  };
  d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    std::swap(*mode, memory->mode);
    return CUDA_SUCCESS;
  };
}

class Units {
 public:
  Units() {
    cistern::test::reset_fakes();
    memory = &memory_;
    closing = at_work = 0;
    peers = 0;
    for (const CUdevice_attribute each :
         {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
          CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
          CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED}) {
      memory_.attributes[each] = 1;
    }
    set_driver();
  }
  ~Units() { memory = nullptr; }

  CudaUnits& begun(bool wanted = true) {
    units_.init({.context = nullptr,
                 .device = kDevice,
                 .number = 3,
                 .closing = &closing,
                 .at_work = &at_work,
                 .peers = [](uint32_t number) { return number == 3 ? peers.load() : 0; }},
                wanted);
    return units_;
  }
  std::vector<Unit> created(int count) {
    std::vector<Unit> list(static_cast<size_t>(count));
    for (Unit& unit : list) REQUIRE(units_.create(&unit) == kSuccess);
    return list;
  }

 private:
  VirtualMemory memory_;
  CudaUnits units_{};
};

constexpr uint64_t kHere = 64 * kUnit;

bool may(uint64_t address, int device) {
  const auto& access = memory->mapped.at(address).access;
  const auto found = access.find(device);
  return found != access.end() && found->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

TEST_CASE("units are as large as the driver recommends, 2 MiB at least") {
  Units units;
  memory->granularity = 65536;
  CHECK(units.begun().unit_bytes() == kUnit);
  memory->granularity = 3 * kUnit;
  CHECK(units.begun().unit_bytes() == 4 * kUnit);
}

TEST_CASE("there are no units unless wanted, on a device and a driver that have them") {
  Units units;
  CHECK(units.begun(/*wanted=*/false).unit_bytes() == 0);
  memory->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
  CHECK(units.begun().unit_bytes() == 0);
  memory->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1;
  fakes().driver.cuMemSetAccess = nullptr;
  CHECK(units.begun().unit_bytes() == 0);
}

TEST_CASE("as many units can be had as the device has free, or any number if it does not tell") {
  Units units;
  CudaUnits& source = units.begun();
  static CUresult told;
  told = CUDA_SUCCESS;
  fakes().driver.cuMemGetInfo_v2 = [](size_t* free, size_t* total) {
    if (told == CUDA_SUCCESS) *free = *total = 5 * kUnit + kUnit / 2;
    return told;
  };
  CHECK(source.most_units() == 5);
  told = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(source.most_units() == UINT64_MAX);
}

TEST_CASE("a unit can be exported and is for GPUDirect RDMA where the device has that") {
  Units units;
  units.begun();
  const CUmemAllocationProp& what = memory->units[units.created(1)[0]];
  CHECK(what.location.id == kDevice);
  CHECK(what.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK(what.allocFlags.gpuDirectRDMACapable == 1);
}

TEST_CASE("a unit leaves as a descriptor, whatever captures, where the device has that") {
  Units units;
  fakes().driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle unit,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long) {
    CHECK(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK(memory->mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(memory->units.count(unit) == 1);
    *static_cast<int*>(out) = dup(STDERR_FILENO);
    return memory->use("export");
  };
  const CudaUnits& source = units.begun();
  CHECK(source.can_be_files());
  const Unit unit = units.created(1)[0];
  capture_gate().announce();
  int file = 0;
  const long files = cistern::test::open_files();
  CHECK(source.export_file(unit, &file) == CUDA_SUCCESS);
  memory->fail("export", 2, CUDA_ERROR_ILLEGAL_ADDRESS);  // of earlier work
  int none = 0;
  CHECK(source.export_file(unit, &none) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(none == -1);
  CHECK(cistern::test::open_files() == files + 1);
  capture_gate().withdraw();
  CHECK(file >= 100);
  CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC);
  CHECK(close(file) == 0);
  CHECK(memory->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  memory->attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 0;
  CHECK_FALSE(units.begun().can_be_files());
}

TEST_CASE("what the first unit cannot have, no unit asks for again") {
  Units units;
  units.begun();
  memory->fail("create", 1, CUDA_ERROR_NOT_PERMITTED);
  const std::vector<Unit> list = units.created(2);
  CHECK(memory->calls["create"] == 3);
  for (const Unit unit : list) {
    CHECK(memory->units[unit].requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
    CHECK(memory->units[unit].allocFlags.gpuDirectRDMACapable == 1);
  }
}

TEST_CASE("lack of memory, and refusals of later units, mean nothing for what units can do") {
  Units units;
  CudaUnits& source = units.begun();
  Unit unit;
  memory->fail("create", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(source.create(&unit) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(memory->calls["create"] == 1);
  units.created(1);
  memory->fail("create", 3, CUDA_ERROR_NOT_PERMITTED);
  CHECK(source.create(&unit) == CUDA_ERROR_NOT_PERMITTED);
  CHECK(memory->calls["create"] == 3);
  CHECK(memory->units[units.created(1)[0]].requestedHandleTypes ==
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_CASE("units are mapped side by side, with one call for access") {
  Units units;
  CudaUnits& source = units.begun();
  const std::vector<Unit> list = units.created(3);
  peers = uint64_t{1} << 2 | uint64_t{1} << 5;
  CHECK(source.map(kHere, list.data(), 3) == kSuccess);
  CHECK(memory->accesses == 1);
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK(memory->mapped[kHere + i * kUnit].unit == list[i]);
    CHECK(may(kHere + i * kUnit, kDevice));
    CHECK(may(kHere + i * kUnit, 2));
    CHECK_FALSE(may(kHere + i * kUnit, 5));
  }
}

TEST_CASE("all units are mapped or none") {
  for (const char* call : {"map", "access"}) {
    for (const int use : {1, 2, 3}) {
      Units units;
      CudaUnits& source = units.begun();
      const std::vector<Unit> list = units.created(3);
      memory->fail(call, use, CUDA_ERROR_OUT_OF_MEMORY);
      const bool met = std::string(call) == "map" || use == 1;
      CHECK(source.map(kHere, list.data(), 3) == (met ? CUDA_ERROR_OUT_OF_MEMORY : kSuccess));
      CHECK(memory->mapped.size() == (met ? 0 : 3));
      CHECK(memory->units.size() == 3);
    }
  }
}

TEST_CASE("a peer that comes or goes while units are mapped is not missed") {
  Units units;
  CudaUnits& source = units.begun();
  const std::vector<Unit> list = units.created(1);
  memory->during_access = [] {
    memory->during_access = nullptr;
    peers = uint64_t{1} << 2;
  };
  CHECK(source.map(kHere, list.data(), 1) == kSuccess);
  CHECK(may(kHere, 2));
  memory->during_access = [] {
    memory->during_access = nullptr;
    peers = 0;
  };
  CHECK(source.map(kHere + kUnit, list.data(), 1) == kSuccess);
  CHECK_FALSE(may(kHere + kUnit, 2));
}

TEST_CASE("access follows the peers of what is mapped") {
  Units units;
  CudaUnits& source = units.begun();
  CHECK(source.map(kHere, units.created(1).data(), 1) == kSuccess);
  peers = uint64_t{1} << 2;
  CHECK(source.access_changed(kHere, kUnit) == kSuccess);
  CHECK(may(kHere, 2));
  peers = 0;
  CHECK(source.access_changed(kHere, kUnit) == kSuccess);
  CHECK_FALSE(may(kHere, 2));
  CHECK(may(kHere, kDevice));
}

TEST_CASE("nothing is unmapped during a capture, nor while the context may be ending") {
  Units units;
  CudaUnits& source = units.begun();
  CHECK(source.map(kHere, units.created(2).data(), 2) == kSuccess);
  capture_gate().announce();
  CHECK(source.unmap(kHere, 2) == kNotNow);
  capture_gate().withdraw();
  closing = 1;
  CHECK(source.unmap(kHere, 2) == kNotNow);
  closing = 0;
  fakes().may_call = false;
  CHECK(source.unmap(kHere, 2) == kNotNow);
  fakes().may_call = true;
  CHECK(memory->calls["unmap"] == 0);
  CHECK(source.unmap(kHere, 2) == kSuccess);
  CHECK(memory->calls["unmap"] == 1);
  CHECK(memory->mapped.empty());
  CHECK(at_work == 0);
}

TEST_CASE("what the driver does not unmap stays mapped") {
  Units units;
  CudaUnits& source = units.begun();
  CHECK(source.map(kHere, units.created(1).data(), 1) == kSuccess);
  memory->times = 2;
  memory->fail("unmap", 1, CUDA_ERROR_UNKNOWN);
  CHECK(source.unmap(kHere, 1) == CUDA_ERROR_UNKNOWN);
  CHECK(memory->mapped.size() == 1);
}

TEST_CASE("an error that belonged to earlier work does not say that memory is still mapped") {
  Units units;
  CudaUnits& source = units.begun();
  CHECK(source.map(kHere, units.created(1).data(), 1) == kSuccess);
  memory->fail("unmap", 1, CUDA_ERROR_UNKNOWN);
  CHECK(source.unmap(kHere, 1) == kSuccess);
  CHECK(memory->mapped.empty());
}

TEST_CASE("a context that is gone gives all back, also during a capture of another") {
  Units units;
  CudaUnits& source = units.begun();
  const std::vector<Unit> list = units.created(1);
  CHECK(source.map(kHere, list.data(), 1) == kSuccess);
  closing = 1;
  source.context_gone();
  capture_gate().announce();
  CHECK(source.unmap(kHere, 1) == kSuccess);
  CHECK(memory->mode_of_last_unmapping == CU_STREAM_CAPTURE_MODE_RELAXED);
  source.release(list[0]);
  capture_gate().withdraw();
  CHECK(memory->mapped.empty());
  CHECK(memory->units.empty());
  CHECK(memory->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_CASE("what cannot be asked for again is tried twice") {
  Units units;
  CudaUnits& source = units.begun();
  const std::vector<Unit> list = units.created(2);
  for (const char* call : {"unmap", "release", "free addresses"}) {
    memory->fail(call, 1, CUDA_ERROR_LAUNCH_FAILED);
  }
  memory->fail("access", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(source.map(kHere, list.data(), 2) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(memory->mapped.empty());
  source.release(list[0]);
  CHECK(memory->units.size() == 1);
  source.free_addresses(kHere, kUnit);
  CHECK(memory->calls["free addresses"] == 2);
}
