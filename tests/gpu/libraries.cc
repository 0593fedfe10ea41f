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
// operation that had nothing to wait for (frees.at_once): after one that is not seen it had not.
// Status 77: the library is not here. `own` is the driver's own copy, which is always here.

#include <dlfcn.h>

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
    {"own", own},     {"cublas", cublas},     {"cudnn", cudnn},
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
