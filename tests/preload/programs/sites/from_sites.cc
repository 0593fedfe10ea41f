// SPDX-License-Identifier: Apache-2.0
// Settings choose requests by the functions that make them.
// The program notices nothing. Each function has a size of its own, by which the trace tells who
// was served by whom.
//
//   from_sites named      functions in C and C++, each three times
//   from_sites deep       below ten thousand frames
//   from_sites broken     from code without unwind information, with a frame pointer that points
//                         nowhere, and from generated code
//   from_sites threads    64 threads, twice; each of them ends
//   from_sites libraries  from two libraries that take turns at one address
//   from_sites forked     children forked before and after the driver was started
//   from_sites async      stream-ordered memory

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

std::atomic<int> failures{0};

// The block goes back at once, and all work is done: a pool would serve the next one with it.
[[gnu::noipa, gnu::noinline]] int take(int mib) {
  CUdeviceptr block = 0;
  const bool took = cuMemAlloc(&block, static_cast<size_t>(mib) * kMiB) == CUDA_SUCCESS;
  if (!took || cuMemFree(block) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS) ++failures;
  return mib;
}

// What follows the call keeps it from becoming a jump, which would leave no frame.
void stay() { asm volatile("" ::: "memory"); }

namespace nn {
struct Layer {
  [[gnu::noipa, gnu::noinline]] void forward(int mib) {
    take(mib);
    stay();
  }
};
struct ConvolutionBackward0 {
  [[gnu::noipa, gnu::noinline]] void apply(int mib) {
    take(mib);
    stay();
  }
};
struct HardSigmoid {
  [[gnu::noipa, gnu::noinline]] void run(int mib) {
    take(mib);
    stay();
  }
};
}  // namespace nn

}  // namespace

extern "C" {

[[gnu::noipa, gnu::noinline]] void fc_layer(int mib) {
  take(mib);
  stay();
}

[[gnu::noipa, gnu::noinline]] int work_below(int depth, int mib) {
  const int result = depth == 0 ? take(mib) : work_below(depth - 1, mib);
  stay();
  return result + 1;
}

int call_without_unwind_information(int (*work)(int), int argument);
int call_with_bad_frame_pointer(int (*work)(int), int argument);

#if defined(__x86_64__)
asm(R"(
  .text
  .type call_without_unwind_information, @function
call_without_unwind_information:
  sub $40, %rsp
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  add $40, %rsp
  ret
  .size call_without_unwind_information, . - call_without_unwind_information
  .type call_with_bad_frame_pointer, @function
call_with_bad_frame_pointer:
  .cfi_startproc
  push %rbp
  .cfi_adjust_cfa_offset 8
  mov $0x123456789ab8, %rbp
  .cfi_def_cfa rbp, 16
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  pop %rbp
  ret
  .cfi_endproc
  .size call_with_bad_frame_pointer, . - call_with_bad_frame_pointer
)");
#else
int call_without_unwind_information(int (*work)(int), int argument) { return work(argument); }
int call_with_bad_frame_pointer(int (*work)(int), int argument) { return work(argument); }
#endif
}

namespace {

void named() {
  nn::Layer layer;
  nn::ConvolutionBackward0 backward;
  nn::HardSigmoid sigmoid;
  for (int i = 0; i < 3; ++i) {
    fc_layer(4);
    layer.forward(5);
    backward.apply(6);
    sigmoid.run(7);
    take(8);
  }
}

int call_generated(int (*work)(int), int argument) {
#if defined(__x86_64__)
  // sub $24, %rsp; mov %rdi, %rax; mov %esi, %edi; call *%rax; add $24, %rsp; ret
  const unsigned char code[] = {0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x89,
                                0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18, 0xc3};
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memcpy(page, code, sizeof code);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  const int result = reinterpret_cast<int (*)(int (*)(int), int)>(page)(work, argument);
  munmap(page, 4096);
  return result;
#else
  return work(argument);
#endif
}

int take_from_fc_layer(int mib) {
  fc_layer(mib);
  return mib;
}

void broken() {
  for (int i = 0; i < 20; ++i) {
    call_without_unwind_information(take_from_fc_layer, 4);
    call_with_bad_frame_pointer(take_from_fc_layer, 4);
    call_generated(take_from_fc_layer, 4);
  }
}

void threads(CUcontext context) {
  for (int wave = 0; wave < 2; ++wave) {
    std::vector<std::thread> all;
    for (int i = 0; i < 64; ++i) {
      all.emplace_back([=] {
        if (cuCtxSetCurrent(context) != CUDA_SUCCESS) ++failures;
        for (int round = 0; round < 10; ++round) work_below(i % 8, 5);
        fc_layer(4);
      });
    }
    for (std::thread& thread : all) thread.join();
  }
}

void in_library(const std::string& folder, const char* name, int mib) {
  void* library = dlopen((folder + "/libsite_" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string function = std::string("work_in_") + name;
  auto* work = library == nullptr
                   ? nullptr
                   : reinterpret_cast<int (*)(int (*)(int), int)>(dlsym(library, function.c_str()));
  if (work == nullptr || work(take, mib) != mib + 1) {
    ++failures;
    return;
  }
  dlclose(library);
}

void libraries(const char* program) {
  const std::string path = program;
  const std::string folder = path.substr(0, path.rfind('/'));
  for (int i = 0; i < 50; ++i) {
    in_library(folder, "one", 5);
    in_library(folder, "two", 6);
  }
}

template <typename Work>
void in_child(Work work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("the child ended with %d\n", status);
}

[[gnu::noipa, gnu::noinline]] void take_ordered(CUstream stream, int mib) {
  CUdeviceptr block = 0;
  const size_t bytes = static_cast<size_t>(mib) * kMiB;
  if (cuMemAllocAsync(&block, bytes, stream) != CUDA_SUCCESS) ++failures;
  if (cuMemFreeAsync(block, stream) != CUDA_SUCCESS) ++failures;
}

[[gnu::noipa, gnu::noinline]] void scratch_of_layer(CUstream stream) {
  take_ordered(stream, 4);
  stay();
}

void async() {
  CUstream stream;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 3; ++i) {
    scratch_of_layer(stream);
    take_ordered(stream, 5);
  }
  SAY(cuStreamSynchronize(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "named";
  if (mode == "forked") {
    in_child([] {
      use_device(0);
      named();
    });
  }
  CUcontext context = use_device(0);
  if (mode == "named") named();
  if (mode == "deep") work_below(10'000, 4);
  if (mode == "broken") broken();
  if (mode == "threads") threads(context);
  if (mode == "libraries") libraries(argv[0]);
  if (mode == "async") async();
  if (mode == "forked") {
    named();
    in_child(named);
  }
  std::printf("failures %d\n", failures.load());
  return 0;
}
