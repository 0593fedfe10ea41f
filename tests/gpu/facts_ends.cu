// SPDX-License-Identifier: Apache-2.0
// Facts about what a kernel prints, and about the end of a process (facts.h): which calls bring out
// what a kernel has printed, and until when the driver answers while the process ends. Each is
// asked of a process of its own, which this program starts from itself.

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "facts.h"

__global__ void print_late(uint32_t delay_us) {
  const long long start = clock64();
  while (clock64() - start < 1500ll * delay_us) {
  }
  printf("printed by the device\n");
}

namespace {

using namespace facts;

constexpr uint32_t kSoonUs = 2'000, kLateUs = 20'000;
constexpr milliseconds kSurelyDone{200};

// Behind a kernel that prints, in the process that prints it.
struct After {
  const char* name;
  void (*run)(CUdeviceptr block, void* pinned, CUevent printed);
};

void ask(CUresult (*question)(CUevent), CUevent event) {
  while (question(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}
void rest() { std::this_thread::sleep_for(kSurelyDone); }

constexpr After kAfters[] = {
    {"nothing", [](CUdeviceptr, void*, CUevent) {}},
    {"time", [](CUdeviceptr, void*, CUevent) { rest(); }},
    {"exit", [](CUdeviceptr, void*, CUevent) { rest(), std::exit(0); }},
    {"cuMemFree", [](CUdeviceptr block, void*, CUevent) { MUST(cuMemFree(block)); }},
    {"cuMemFree_when_done",
     [](CUdeviceptr block, void*, CUevent) { rest(), MUST(cuMemFree(block)); }},
    {"cuMemFreeHost", [](CUdeviceptr, void* pinned, CUevent) { MUST(cuMemFreeHost(pinned)); }},
    {"cuMemAlloc_when_done", [](CUdeviceptr, void*, CUevent) { rest(), new_block(1 << 20); }},
    {"cuMemGetInfo_when_done", [](CUdeviceptr, void*, CUevent) { rest(), free_memory(); }},
    {"cuEventQuery", [](CUdeviceptr, void*, CUevent printed) { ask(cuEventQuery, printed); }},
    {"cuStreamQuery",
     [](CUdeviceptr, void*, CUevent printed) {
       ask([](CUevent) { return cuStreamQuery(nullptr); }, printed);
     }},
    {"cuEventSynchronize",
     [](CUdeviceptr, void*, CUevent printed) { MUST(cuEventSynchronize(printed)); }},
    {"cuEventSynchronize_when_done",
     [](CUdeviceptr, void*, CUevent printed) {
       ask(cuEventQuery, printed);
       MUST(cuEventSynchronize(printed));
     }},
    {"cuStreamSynchronize",
     [](CUdeviceptr, void*, CUevent) { MUST(cuStreamSynchronize(nullptr)); }},
    {"cuStreamSynchronize_of_another",
     [](CUdeviceptr, void*, CUevent) {
       rest();
       MUST(cuStreamSynchronize(timed::new_stream()));
     }},
    {"cuCtxSynchronize", [](CUdeviceptr, void*, CUevent) { MUST(cuCtxSynchronize()); }},
};

void print_and(const After& after) {
  use_device(0);
  const CUdeviceptr block = new_block(1 << 20);
  void* pinned = nullptr;
  MUST(cuMemHostAlloc(&pinned, 4096, 0));
  const CUevent printed = new_event();
  print_late<<<1, 1>>>(kSoonUs);
  MUST(cuEventRecord(printed, nullptr));
  after.run(block, pinned, printed);
  std::fflush(stdout);
  _exit(0);
}

CUevent late = nullptr;

void tell(int, void* when) {
  fact(cuEventQuery(late), "ends.%s.query_code", static_cast<const char*>(when));
}
void tell_of(const char* when) { on_exit(tell, const_cast<char*>(when)); }

[[gnu::destructor]] void tell_last() {
  if (late != nullptr) tell(0, const_cast<char*>("destructor"));
}

// Its handlers are run in the reverse order.
void end_beside_work() {
  tell_of("before_init");
  MUST(cuInit(0));
  tell_of("after_init");
  use_device(0);
  tell_of("with_a_context");
  late = new_event();
  print_late<<<1, 1>>>(kLateUs);
  MUST(cuEventRecord(late, nullptr));
  tell_of("with_work");
}

std::string output_of(const std::string& words) {
  std::string output;
  FILE* child = popen(("exec /proc/" + std::to_string(getpid()) + "/exe " + words).c_str(), "r");
  if (child == nullptr) return output;
  for (int c = 0; (c = std::fgetc(child)) != EOF;) output += static_cast<char>(c);
  pclose(child);
  return output;
}

void prints(CUcontext) {
  cudaFuncAttributes of_kernel = {};
  if (cudaFuncGetAttributes(&of_kernel, print_late) == cudaSuccess) {
    fact(static_cast<double>(of_kernel.localSizeBytes), "prints.local_bytes");
  }
  for (const After& after : kAfters) {
    const bool out =
        output_of(std::string("print ") + after.name).find("printed") != std::string::npos;
    fact(out, "prints.%s", after.name);
  }
}

void ends(CUcontext) { std::fputs(output_of("end").c_str(), stdout); }

constexpr Group kGroups[] = {{"prints", prints}, {"ends", ends}};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  for (const After& after : kAfters) {
    if (mode == "print" && argc > 2 && std::string_view(argv[2]) == after.name) print_and(after);
  }
  if (mode == "end") return end_beside_work(), 0;
  return run(kGroups, argc, argv);
}
