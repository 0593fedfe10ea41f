// SPDX-License-Identifier: Apache-2.0
// Start, end, versions and texts of codes.

#include <cstdio>

#include "tests/sim/nvml/driver.h"

using namespace simnvml;

namespace {

// A branch that has the CUDA version of the simulated driver.
constexpr const char* kDriverVersion = "580.65.06";

nvmlReturn_t put_text(const char* from, char* to, unsigned length) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const int needed = std::snprintf(to, length, "%s", from);
  return static_cast<unsigned>(needed) < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

}  // namespace

nvmlReturn_t nvmlInit(void) { return initialise(); }
nvmlReturn_t nvmlInit_v2(void) { return initialise(); }
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return initialise(); }
nvmlReturn_t nvmlShutdown(void) { return shut_down(); }

const char* nvmlErrorString(nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED:
      return "Already Initialized";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument Version Mismatch";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return put_text(kDriverVersion, text, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return put_text("13.580.65.06", text, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (driver() == nullptr) return NVML_ERROR_DRIVER_NOT_LOADED;
  return driver()->version(version) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
