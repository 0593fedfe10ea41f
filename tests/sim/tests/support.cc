// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {
int g_failures = 0;
}

bool in_child(Environment environment, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name, value, 1);
    body();
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void expectation_failed(const char* file, int line, const char* what, long long seen) {
  ++g_failures;
  std::fprintf(stderr, "%s:%d: %s (%lld)\n", file, line, what, seen);
}

CUcontext start(int device) {
  CUcontext context = nullptr;
  EXPECT_OK(cuInit(0));
  EXPECT_OK(cuDevicePrimaryCtxRetain(&context, device));
  EXPECT_OK(cuCtxSetCurrent(context));
  return context;
}

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_OK(cuStreamCreate(&stream, flags));
  return stream;
}

CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  EXPECT_OK(cuMemAlloc(&block, bytes));
  return block;
}

uint32_t word_at(CUdeviceptr address) {
  uint32_t word = 0;
  EXPECT_OK(cuMemcpyDtoH(&word, address, sizeof word));
  return word;
}

size_t free_bytes() {
  size_t free = 0;
  EXPECT_OK(cuMemGetInfo(&free, nullptr));
  return free;
}

std::string kernel_library() {
  Dl_info driver{};
  dladdr(reinterpret_cast<void*>(&cuInit), &driver);
  const std::string path = driver.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "libtest-kernels.so";
}

CUfunction kernel(const char* mangled_name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_OK(cuModuleLoadData(&module, "any image"));
  EXPECT_OK(cuModuleGetFunction(&function, module, mangled_name));
  return function;
}

TemporaryFile::TemporaryFile() {
  const char* folder = std::getenv("TMPDIR");
  path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/simcuda-test-XXXXXX";
  const int file = mkstemp(path_.data());
  if (file >= 0) close(file);
}

TemporaryFile::~TemporaryFile() { unlink(path_.c_str()); }

std::vector<std::string> TemporaryFile::lines() const {
  std::ifstream file(path_);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(line);
  return all;
}

// Each test is a child of its own: a second's sleep at the end of each would add up.
extern "C" const char* __tsan_default_options() { return "atexit_sleep_ms=0"; }
