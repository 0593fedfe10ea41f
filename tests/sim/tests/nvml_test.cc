// SPDX-License-Identifier: Apache-2.0
//
// The simulated NVML beside the simulated driver: what it tells agrees with what CUDA does.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support.h"
#include "tests/catch.h"
#include "tests/sim/nvml/nvml.h"

namespace {

// As programs find it: by dlopen.
template <class Function>
Function* nvml(const char* name) {
  static void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}
#define NVML(name) nvml<decltype(name)>(#name)

// By its place beside the driver: the loader searches the program's RPATH for the driver alone.
bool there() {
  const std::string kernels = kernel_library();
  const std::string beside = kernels.substr(0, kernels.rfind('/')) + "/libnvidia-ml.so.1";
  return dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

nvmlDevice_t device(unsigned index) {
  nvmlDevice_t found = nullptr;
  EXPECT(NVML(nvmlDeviceGetHandleByIndex_v2)(index, &found) == NVML_SUCCESS);
  return found;
}

unsigned long long used(unsigned index) {
  nvmlMemory_t memory{};
  EXPECT(NVML(nvmlDeviceGetMemoryInfo)(device(index), &memory) == NVML_SUCCESS);
  EXPECT(memory.total == memory.free + memory.used);
  return memory.used;
}

unsigned processes(unsigned index) {
  unsigned count = 0;
  NVML(nvmlDeviceGetComputeRunningProcesses)(device(index), &count, nullptr);
  return count;
}

}  // namespace

TEST_CASE("NVML answers before CUDA is started, and nothing before it is itself") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64,128"}}, [] {
    EXPECT(there());
    unsigned count = 0;
    EXPECT(NVML(nvmlDeviceGetCount_v2)(&count) == NVML_ERROR_UNINITIALIZED);
    EXPECT(NVML(nvmlShutdown)() == NVML_ERROR_UNINITIALIZED);
    EXPECT(NVML(nvmlInit_v2)() == NVML_SUCCESS);
    EXPECT(NVML(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS);
    EXPECT(count == 2);
    nvmlMemory_t memory{};
    EXPECT(NVML(nvmlDeviceGetMemoryInfo)(device(1), &memory) == NVML_SUCCESS);
    EXPECT(memory.total == 128 * kMiB);
    EXPECT(memory.used == 0);
    EXPECT(processes(1) == 0);
    nvmlDevice_t none = nullptr;
    EXPECT(NVML(nvmlDeviceGetHandleByIndex_v2)(2, &none) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(NVML(nvmlDeviceGetMemoryInfo)(none, &memory) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(NVML(nvmlShutdown)() == NVML_SUCCESS);
    EXPECT(NVML(nvmlDeviceGetCount_v2)(&count) == NVML_ERROR_UNINITIALIZED);
  }));
}

TEST_CASE("NVML does not start with settings that the driver cannot use") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "much"}}, [] {
    EXPECT(there());
    EXPECT(NVML(nvmlInit_v2)() == NVML_ERROR_DRIVER_NOT_LOADED);
  }));
}

TEST_CASE("NVML tells the memory and the process of each device") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}}, [] {
    EXPECT(there());
    EXPECT(NVML(nvmlInit_v2)() == NVML_SUCCESS);
    start(1);
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&block, 5 * kMiB));
    EXPECT(used(0) == 0);
    EXPECT(used(1) == 6 * kMiB);
    EXPECT(processes(0) == 0);
    nvmlProcessInfo_v1_t info[2] = {};
    unsigned count = 2;
    EXPECT(NVML(nvmlDeviceGetComputeRunningProcesses)(device(1), &count, info) == NVML_SUCCESS);
    EXPECT(count == 1);
    EXPECT(info[0].pid == static_cast<unsigned>(getpid()));
    EXPECT(info[0].usedGpuMemory == 6 * kMiB);
    count = 0;
    EXPECT(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device(1), &count, nullptr) ==
           NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(count == 1);
    nvmlProcessInfo_v2_t newer{};
    EXPECT(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device(1), &count, &newer) ==
           NVML_SUCCESS);
    EXPECT(newer.gpuInstanceId == ~0u);
    nvmlMemory_v2_t memory{};
    EXPECT(NVML(nvmlDeviceGetMemoryInfo_v2)(device(1), &memory) ==
           NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    EXPECT_OK(cuDevicePrimaryCtxReset(1));
    EXPECT(used(1) == 0);
    EXPECT(processes(1) == 0);
  }));
}

TEST_CASE("NVML sees nothing of its parent's in a child forked after CUDA was started") {
  REQUIRE(in_child({}, [] {
    EXPECT(there());
    EXPECT(NVML(nvmlInit_v2)() == NVML_SUCCESS);
    start();
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&block, 5 * kMiB));
    const pid_t child = fork();
    if (child == 0) _exit(processes(0) == 0 && used(0) == 0 ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(status == 0);
    EXPECT(processes(0) == 1);
  }));
}

TEST_CASE("NVML finds a device by its bus and by what CUDA calls it") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "3"}}, [] {
    EXPECT(there());
    EXPECT(NVML(nvmlInit_v2)() == NVML_SUCCESS);
    start();
    char bus[32] = "";
    EXPECT_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 2));
    nvmlDevice_t by_bus = nullptr, by_uuid = nullptr;
    EXPECT(NVML(nvmlDeviceGetHandleByPciBusId_v2)(bus, &by_bus) == NVML_SUCCESS);
    EXPECT(by_bus == device(2));
    CUuuid uuid{};
    EXPECT_OK(cuDeviceGetUuid(&uuid, 2));
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char digits[4];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
      text += digits;
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    EXPECT(NVML(nvmlDeviceGetHandleByUUID)(text.c_str(), &by_uuid) == NVML_SUCCESS);
    EXPECT(by_uuid == device(2));
    EXPECT(NVML(nvmlDeviceGetHandleByPciBusId_v2)("0000:FF:00.0", &by_bus) == NVML_ERROR_NOT_FOUND);
    nvmlPciInfo_t info{};
    EXPECT(NVML(nvmlDeviceGetPciInfo_v3)(device(2), &info) == NVML_SUCCESS);
    EXPECT(std::string(info.busIdLegacy) == bus);
    char name[64] = "", cuda_name[64] = "";
    EXPECT(NVML(nvmlDeviceGetName)(device(2), name, sizeof name) == NVML_SUCCESS);
    EXPECT_OK(cuDeviceGetName(cuda_name, sizeof cuda_name, 2));
    EXPECT(std::string(name) == cuda_name);
    EXPECT(NVML(nvmlDeviceGetName)(device(2), name, 4) == NVML_ERROR_INSUFFICIENT_SIZE);
    int nvml_version = 0, cuda_version = 0;
    EXPECT(NVML(nvmlSystemGetCudaDriverVersion_v2)(&nvml_version) == NVML_SUCCESS);
    EXPECT_OK(cuDriverGetVersion(&cuda_version));
    EXPECT(nvml_version == cuda_version);
  }));
}

TEST_CASE("NVML tells of no fabric in whatever version of the structure") {
  REQUIRE(in_child({}, [] {
    EXPECT(there());
    EXPECT(NVML(nvmlInit_v2)() == NVML_SUCCESS);
    struct {
      nvmlGpuFabricInfoV_t known;
      unsigned more[4];
    } info;
    info.known.version = sizeof info | (3u << 24);
    info.known.state = 9;
    info.more[3] = 9;
    EXPECT(NVML(nvmlDeviceGetGpuFabricInfoV)(device(0), &info.known) == NVML_SUCCESS);
    EXPECT(info.known.state == 0);
    EXPECT(info.more[3] == 0);
    info.known.version = 4;
    EXPECT(NVML(nvmlDeviceGetGpuFabricInfoV)(device(0), &info.known) ==
           NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  }));
}
