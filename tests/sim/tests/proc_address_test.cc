// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <dlfcn.h>

#include "support.h"
#include "tests/catch.h"

namespace {

struct Row {
  const char* symbol;
  const char* name;
  int version;
  enum Kind { kAny, kLegacy, kPtds, kPtsz } kind;
};

constexpr Row kRows[] = {
#define CALL(symbol, name, version, kind, traits) {#symbol, #name, version, Row::kind},
#define NEWER(symbol, name, version, kind, traits) {#symbol, #name, version, Row::kind},
#define UNSUPPORTED(symbol, name, version, kind) {#symbol, #name, version, Row::kind},
#include "../driver/table/calls.def"
};

void* exported(const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); }

struct Answer {
  CUresult code;
  void* address;
  CUdriverProcAddressQueryResult status;
};

Answer ask(const char* name, int version, cuuint64_t flags) {
  Answer answer{};
  answer.code = cuGetProcAddress(name, &answer.address, version, flags, &answer.status);
  return answer;
}

}  // namespace

TEST_CASE("every row of the table is found by name, version and flags as its exact symbol") {
  REQUIRE(in_child({}, [] {
    for (const Row& row : kRows) {
      const bool per_thread = row.kind == Row::kPtds || row.kind == Row::kPtsz;
      const cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                          : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
      const Answer answer = ask(row.name, row.version, flags);
      const bool right = answer.code == CUDA_SUCCESS && answer.address != nullptr &&
                         answer.address == exported(row.symbol) &&
                         answer.status == CU_GET_PROC_ADDRESS_SUCCESS;
      if (!right) expectation_failed(__FILE__, __LINE__, row.symbol, answer.code);
    }
  }));
}

TEST_CASE("default flags mean the legacy stream; per-thread falls back to it") {
  REQUIRE(in_child({}, [] {
    EXPECT(ask("cuLaunchKernel", 12000, 0).address == exported("cuLaunchKernel"));
    EXPECT(ask("cuMemcpyHtoD", 6000, 2).address == exported("cuMemcpyHtoD_v2"));
    EXPECT(ask("cuMemAlloc", 12000, 2).address == exported("cuMemAlloc_v2"));
  }));
}

TEST_CASE("the entry point hands out itself in the ABI of the version asked for") {
  REQUIRE(in_child({}, [] {
    EXPECT(ask("cuGetProcAddress", 11030, 0).address == exported("cuGetProcAddress"));
    EXPECT(ask("cuGetProcAddress", 12000, 0).address == exported("cuGetProcAddress_v2"));
  }));
}

TEST_CASE("what is not found says why") {
  REQUIRE(in_child({}, [] {
    const Answer unknown = ask("cuNoSuchThing", 12000, 0);
    EXPECT(unknown.code == CUDA_ERROR_NOT_FOUND);
    EXPECT(unknown.address == nullptr);
    EXPECT(unknown.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(ask("cuMemAlloc_v2", 12000, 0).code == CUDA_ERROR_NOT_FOUND);
    EXPECT(ask("cuMemAllocAsync", 11010, 0).status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT(ask("cuMemAlloc", 99999, 0).code == CUDA_ERROR_INVALID_VALUE);
    EXPECT(ask("", 0, 0).code == CUDA_SUCCESS);
  }));
}
