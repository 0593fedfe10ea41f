// SPDX-License-Identifier: Apache-2.0
// Whether Cistern sees what NVIDIA's libraries hand over. Each operation copies kWords floats from
// one place of the device to another one, in its library's way.
//
//   gpu_libraries               names the libraries
//   gpu_libraries NAME order    an operation on one stream, behind a free, behind slow work that
//                               writes its input on another stream: was the input there?
//   gpu_libraries NAME idle     frees behind a synchronisation
//   gpu_libraries NAME busy     the same, with an operation in between
//
// check.py compares `order` without and with Cistern: a launch that is not seen would not wait for
// the work before the free. Cistern's report of the other two must differ by one free for each
// operation that had nothing to wait for (frees.at_once): after one that is not seen it had not. A
// library whose work passes no hook must have been noticed: then the report says why, and each free
// waited. Status 77: the library is not here. `own` is the driver's own copy, which is always here;
// `cupti` the same under a profiler.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "../preload/programs/driver_codes.h"
#include "../preload/programs/timed_code.h"
#include "limit.h"

namespace {

constexpr size_t kSide = 32, kWords = kSide * kSide, kBytes = kWords * sizeof(float);
constexpr uint32_t kOne = 0x3F800000;  // 1.0f; and the floats right after it
constexpr uint32_t kWorkUs = 10'000;
constexpr int kRounds = 20;  // of each operation
constexpr int kSkipped = 77;

struct Operation {
  const char* name;
  std::function<int(CUdeviceptr from, CUdeviceptr to)> run;  // 0: it was handed over
};
using Operations = std::vector<Operation>;

[[noreturn]] void end(int status, const char* why) {
  std::printf("%s\n", why);
  std::fflush(stdout);
  std::_Exit(status);
}

// A library by the first of its names that there is, and its functions.
class Library {
 public:
  Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW);
    }
    if (library_ == nullptr) end(kSkipped, "the library is not here");
  }
  template <typename... Parameters>
  int operator()(const char* name, Parameters... parameters) const {
    const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library_, name));
    if (function == nullptr) end(kSkipped, name);
    return function(parameters...);
  }

 private:
  void* library_ = nullptr;
};

void must_be_0(const char* what, int code) {
  if (code == 0) return;
  std::printf("%s: %d\n", what, code);
  end(1, "the library does not work");
}

Operations own(CUstream stream) {
  return {{"cuMemcpyDtoDAsync", [stream](CUdeviceptr from, CUdeviceptr to) -> int {
             return cuMemcpyDtoDAsync(to, from, kBytes, stream);
           }}};
}

// Adds two vectors, a thread an element. The simulated device knows it by its name.
constexpr char kAddVectors[] = "_Z11add_vectorsPKfS0_Pfi";
constexpr char kAddVectorsImage[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry _Z11add_vectorsPKfS0_Pfi(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count) {
  .reg .u32 %i;
  .reg .u64 %offset, %a, %b, %sum;
  .reg .f32 %x, %y;
  mov.u32 %i, %tid.x;
  mul.wide.u32 %offset, %i, 4;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u64 %sum, [sum];
  add.u64 %a, %a, %offset;
  add.u64 %b, %b, %offset;
  add.u64 %sum, %sum, %offset;
  ld.global.f32 %x, [%a];
  ld.global.f32 %y, [%b];
  add.f32 %x, %x, %y;
  st.global.f32 [%sum], %x;
  ret;
}
)";

// CUDA's runtime, whose own version need not be that of this program.
Operations runtime(const Library& library, CUstream stream) {
  constexpr int kDeviceToDevice = 3;
  struct Shape {
    unsigned x, y, z;
  };
  void *code = nullptr, *kernel = nullptr, *none = nullptr;
  CUdeviceptr zeros = 0;
  MUST(cuMemAlloc(&zeros, kBytes));
  MUST(cuMemsetD32(zeros, 0, kWords));
  must_be_0("cudaLibraryLoadData", library("cudaLibraryLoadData", &code, kAddVectorsImage, none,
                                           none, 0U, none, none, 0U));
  must_be_0("cudaLibraryGetKernel", library("cudaLibraryGetKernel", &kernel, code, kAddVectors));
  return {{"cudaMemcpyAsync",
           [&library, stream](CUdeviceptr from, CUdeviceptr to) {
             return library("cudaMemcpyAsync", to, from, kBytes, kDeviceToDevice, stream);
           }},
          {"cudaMemcpy2DAsync",
           [&library, stream](CUdeviceptr from, CUdeviceptr to) {
             constexpr size_t kRow = kSide * sizeof(float);
             return library("cudaMemcpy2DAsync", to, kRow, from, kRow, kRow, kSide, kDeviceToDevice,
                            stream);
           }},
          {"cudaMemcpyPeerAsync",
           [&library, stream](CUdeviceptr from, CUdeviceptr to) {
             return library("cudaMemcpyPeerAsync", to, 0, from, 0, kBytes, stream);
           }},
          {"cudaLaunchKernel", [&library, stream, kernel, zeros](CUdeviceptr from, CUdeviceptr to) {
             CUdeviceptr with = zeros;
             int count = kWords;
             void* parameters[] = {&from, &with, &to, &count};
             return library("cudaLaunchKernel", kernel, Shape{1, 1, 1}, Shape{kWords, 1, 1},
                            &parameters[0], size_t{0}, stream);
           }}};
}

Operations cudart12(CUstream stream) {
  static const Library library{"libcudart.so.12"};
  return runtime(library, stream);
}

Operations cudart13(CUstream stream) {
  static const Library library{"libcudart.so.13"};
  return runtime(library, stream);
}

// A profiler that records every kernel and copy, and is called in each function of the driver.
Operations cupti(CUstream stream) {
  static const Library library{"libcupti.so.13", "libcupti.so.12"};
  constexpr int kCopies = 1, kKernels = 3, kDriverApi = 1;
  constexpr size_t kBuffer = 1 << 20;
  using Records = uint8_t;
  void (*const give)(Records**, size_t*, size_t*) = [](Records** buffer, size_t* bytes,
                                                       size_t* most) {
    *buffer = static_cast<Records*>(std::aligned_alloc(8, kBuffer));
    *bytes = kBuffer;
    *most = 0;
  };
  void (*const take)(void*, uint32_t, Records*, size_t, size_t) =
      [](void*, uint32_t, Records* buffer, size_t, size_t) { std::free(buffer); };
  void (*const called)(void*, int, uint32_t, const void*) = [](void*, int, uint32_t, const void*) {
  };
  void *subscriber = nullptr, *none = nullptr;
  must_be_0("cuptiSubscribe", library("cuptiSubscribe", &subscriber, called, none));
  must_be_0("cuptiEnableDomain", library("cuptiEnableDomain", 1U, subscriber, kDriverApi));
  must_be_0("cuptiActivityRegisterCallbacks",
            library("cuptiActivityRegisterCallbacks", give, take));
  must_be_0("cuptiActivityEnable", library("cuptiActivityEnable", kCopies));
  must_be_0("cuptiActivityEnable", library("cuptiActivityEnable", kKernels));
  return own(stream);
}

const float kFactorOne = 1, kFactorNone = 0;

float* floats(CUdeviceptr address) { return reinterpret_cast<float*>(address); }

CUdeviceptr new_unit_matrix() {
  std::vector<float> unit(kWords);
  for (size_t i = 0; i < kSide; ++i) unit[i * (kSide + 1)] = 1;
  CUdeviceptr matrix = 0;
  MUST(cuMemAlloc(&matrix, kBytes));
  MUST(cuMemcpyHtoD(matrix, unit.data(), kBytes));
  return matrix;
}

Operations cublas(CUstream stream) {
  static const Library library{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
  void* handle = nullptr;
  must_be_0("cublasCreate", library("cublasCreate_v2", &handle));
  must_be_0("cublasSetStream", library("cublasSetStream_v2", handle, stream));
  constexpr int kCount = int{kWords}, kRows = int{kSide}, kPlain = 0;
  return {{"cublasScopy",
           [=](CUdeviceptr from, CUdeviceptr to) {
             return library("cublasScopy_v2", handle, kCount, floats(from), 1, floats(to), 1);
           }},
          {"cublasSaxpy",
           [=](CUdeviceptr from, CUdeviceptr to) {
             return library("cublasSaxpy_v2", handle, kCount, &kFactorOne, floats(from), 1,
                            floats(to), 1);
           }},
          {"cublasSgemm", [=, unit = new_unit_matrix()](CUdeviceptr from, CUdeviceptr to) {
             return library("cublasSgemm_v2", handle, kPlain, kPlain, kRows, kRows, kRows,
                            &kFactorOne, floats(from), kRows, floats(unit), kRows, &kFactorNone,
                            floats(to), kRows);
           }}};
}

Operations cudnn(CUstream stream) {
  static const Library library{"libcudnn.so.9", "libcudnn.so.8"};
  constexpr int kNchw = 0, kFloat = 0;
  void *handle = nullptr, *shape = nullptr;
  must_be_0("cudnnCreate", library("cudnnCreate", &handle));
  must_be_0("cudnnSetStream", library("cudnnSetStream", handle, stream));
  must_be_0("cudnnCreateTensorDescriptor", library("cudnnCreateTensorDescriptor", &shape));
  must_be_0("cudnnSetTensor4dDescriptor", library("cudnnSetTensor4dDescriptor", shape, kNchw,
                                                  kFloat, 1, 1, int{kSide}, int{kSide}));
  const auto operation = [=](const char* name) {
    return Operation{name, [=](CUdeviceptr from, CUdeviceptr to) {
                       return library(name, handle, &kFactorOne, shape, floats(from), &kFactorNone,
                                      shape, floats(to));
                     }};
  };
  return {operation("cudnnAddTensor"), operation("cudnnTransformTensor")};
}

// Transforms of one value each leave it as it is.
Operations cufft(CUstream stream) {
  static const Library library{"libcufft.so.12", "libcufft.so.11", "libcufft.so.10"};
  constexpr int kComplex = 0x29, kForward = -1, kCount = int{kWords} / 2;
  int plan = 0;
  must_be_0("cufftPlan1d", library("cufftPlan1d", &plan, 1, kComplex, kCount));
  must_be_0("cufftSetStream", library("cufftSetStream", plan, stream));
  return {{"cufftExecC2C", [=](CUdeviceptr from, CUdeviceptr to) {
             return library("cufftExecC2C", plan, floats(from), floats(to), kForward);
           }}};
}

// A sparse vector in which nothing is left out.
Operations cusparse(CUstream stream) {
  static const Library library{"libcusparse.so.12", "libcusparse.so.11"};
  constexpr int kIndices32 = 2, kFromZero = 0, kFloat = 0;
  constexpr int64_t kCount = kWords;
  void *handle = nullptr, *sparse = nullptr, *dense = nullptr;
  std::vector<int> in_order(kWords);
  for (size_t i = 0; i < kWords; ++i) in_order[i] = static_cast<int>(i);
  CUdeviceptr indices = 0;
  MUST(cuMemAlloc(&indices, kWords * sizeof(int)));
  MUST(cuMemcpyHtoD(indices, in_order.data(), kWords * sizeof(int)));
  must_be_0("cusparseCreate", library("cusparseCreate", &handle));
  must_be_0("cusparseSetStream", library("cusparseSetStream", handle, stream));
  must_be_0("cusparseCreateSpVec",
            library("cusparseCreateSpVec", &sparse, kCount, kCount, floats(indices),
                    floats(indices), kIndices32, kFromZero, kFloat));
  must_be_0("cusparseCreateDnVec",
            library("cusparseCreateDnVec", &dense, kCount, floats(indices), kFloat));
  return {{"cusparseGather",
           [=](CUdeviceptr from, CUdeviceptr to) {
             const int code = library("cusparseDnVecSetValues", dense, floats(from)) +
                              library("cusparseSpVecSetValues", sparse, floats(to));
             return code != 0 ? code : library("cusparseGather", handle, dense, sparse);
           }},
          {"cusparseScatter", [=](CUdeviceptr from, CUdeviceptr to) {
             const int code = library("cusparseSpVecSetValues", sparse, floats(from)) +
                              library("cusparseDnVecSetValues", dense, floats(to));
             return code != 0 ? code : library("cusparseScatter", handle, sparse, dense);
           }}};
}

// Of one device: a copy, and a kernel that multiplies beforehand.
Operations nccl(CUstream stream) {
  static const Library library{"libnccl.so.2"};
  constexpr int kFloat = 7, kSum = 0, kOfHost = 1, kDevice = 0;
  void* communicator = nullptr;
  static float factor = 1;
  int product = 0;
  must_be_0("ncclCommInitAll", library("ncclCommInitAll", &communicator, 1, &kDevice));
  must_be_0("ncclRedOpCreatePreMulSum",
            library("ncclRedOpCreatePreMulSum", &product, &factor, kFloat, kOfHost, communicator));
  const auto operation = [=](const char* name, int by) {
    return Operation{name, [=](CUdeviceptr from, CUdeviceptr to) {
                       return library("ncclAllReduce", floats(from), floats(to), kWords, kFloat, by,
                                      communicator, stream);
                     }};
  };
  return {operation("ncclAllReduce", kSum), operation("ncclAllReduce, multiplied", product)};
}

struct Places {
  CUdeviceptr from = 0, to = 0;
  Places() {
    MUST(cuMemAlloc(&from, kBytes));
    MUST(cuMemAlloc(&to, kBytes));
  }
  void clear() const {
    MUST(cuMemsetD32(from, 0, kWords));
    MUST(cuMemsetD32(to, 0, kWords));
    MUST(cuCtxSynchronize());
  }
  bool arrived() const {
    uint32_t words[kWords];
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(words, to, kBytes));
    for (uint32_t i = 0; i < kWords; ++i) {
      if (words[i] != kOne + i) return false;
    }
    return true;
  }
};

void free_a_block() {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, 1000));
  MUST(cuMemFree(block));
}

// Libraries load code and take memory in the first operation.
void warm_up(const Operations& operations, const Places& places) {
  for (const Operation& one : operations) must_be_0(one.name, one.run(places.from, places.to));
  MUST(cuCtxSynchronize());
}

void order(const Operations& operations, const timed::Worker& at, const Places& places) {
  for (const Operation& one : operations) {
    int there = 0;
    for (int round = 0; round < kRounds; ++round) {
      places.clear();
      MUST(timed::fill_words(at.kernels, at.stream, places.from, kWords, kOne, kWorkUs));
      free_a_block();
      must_be_0(one.name, one.run(places.from, places.to));
      there += places.arrived();
    }
    std::printf("%s: the input was there in %d of %d rounds\n", one.name, there, kRounds);
  }
}

void frees(const Operations& operations, const Places& places, bool busy) {
  for (const Operation& one : operations) {
    for (int round = 0; round < kRounds; ++round) {
      CUdeviceptr block = 0;
      MUST(cuMemAlloc(&block, 1000));
      MUST(cuCtxSynchronize());
      if (busy) must_be_0(one.name, one.run(places.from, places.to));
      MUST(cuMemFree(block));
    }
  }
  MUST(cuCtxSynchronize());
  std::printf("operations: %zu\n", operations.size() * kRounds);
}

constexpr std::pair<const char*, Operations (*)(CUstream)> kLibraries[] = {
    {"own", own},     {"cudart12", cudart12}, {"cudart13", cudart13},
    {"cupti", cupti}, {"cublas", cublas},     {"cudnn", cudnn},
    {"cufft", cufft}, {"cusparse", cusparse}, {"nccl", nccl}};

int run(Operations (*library)(CUstream), const char* mode) {
  const timed::Worker at(use_device(0));
  const Places places;
  const Operations operations = library(timed::new_stream());
  warm_up(operations, places);
  if (std::strcmp(mode, "order") == 0) order(operations, at, places);
  if (std::strcmp(mode, "idle") == 0) frees(operations, places, false);
  if (std::strcmp(mode, "busy") == 0) frees(operations, places, true);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  end_in_time();
  for (const auto& [name, library] : kLibraries) {
    if (argc < 3) std::printf("%s\n", name);
    if (argc > 2 && std::strcmp(argv[1], name) == 0) return run(library, argv[2]);
  }
  return argc < 3 ? 0 : 2;
}
