// SPDX-License-Identifier: Apache-2.0
//
// Tests of the simulated driver through its C interface. Settings are read once per process, so
// each test runs its body in a forked child with an environment of its own; what the child found
// wrong goes to stderr and to its exit status.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

using Environment = std::initializer_list<std::pair<const char*, const char*>>;

// Runs the body in a child; true if every EXPECT in it held and it ended normally.
bool in_child(Environment environment, const std::function<void()>& body);

// Records a failed expectation of the child.
void expectation_failed(const char* file, int line, const char* what, long long seen);

#define EXPECT(condition)                                                    \
  do {                                                                       \
    if (!(condition)) expectation_failed(__FILE__, __LINE__, #condition, 0); \
  } while (false)

#define EXPECT_CODE(call, code)                                                \
  do {                                                                         \
    const CUresult seen_ = (call);                                             \
    if (seen_ != (code)) expectation_failed(__FILE__, __LINE__, #call, seen_); \
  } while (false)

#define EXPECT_OK(call) EXPECT_CODE(call, CUDA_SUCCESS)

// cuInit, the primary context of device 0 retained and current.
CUcontext start(int device = 0);

inline constexpr size_t kMiB = size_t{1} << 20;

CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUdeviceptr new_block(size_t bytes);
uint32_t word_at(CUdeviceptr address);
size_t free_bytes();

// The twin of a test kernel, from the library that lies beside the simulated driver.
std::string kernel_library();
CUfunction kernel(const char* mangled_name);

// A file that is gone when the object is.
class TemporaryFile {
 public:
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const char* path() const { return path_.c_str(); }
  std::vector<std::string> lines() const;

 private:
  std::string path_;
};
