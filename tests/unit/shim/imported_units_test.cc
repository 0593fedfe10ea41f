// SPDX-License-Identifier: Apache-2.0
// Blocks in units of another process, on the driver of unit_imports.h.
#include "shim/kinds/imported.h"

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shim/order/captures/capture_gate.h"
#include "tests/catch.h"
#include "tests/unit/shim/unit_imports.h"

namespace cistern::shim {
namespace {

using namespace units_test;  // NOLINT(google-build-using-namespace): written for this file

TEST_CASE("units of another process lie side by side, once", "[ipc]") {
  Import import(3);
  Memory& m = import.memory_of();
  const long files = open_files();
  CUdeviceptr first = 0, second = 0;
  REQUIRE(import.open(&first) == CUDA_SUCCESS);
  CHECK(files_become(files));
  CHECK(m.handles.empty());
  CHECK(m.mapped.size() == 3);
  CHECK(first == m.reserved.begin()->first + kOffset);
  CHECK(m.accesses.size() == 3);
  uint64_t start, bytes;
  REQUIRE(find_imported(first + kUnit, &start, &bytes));
  CHECK(start == first);
  ImportedUnits units{};
  CHECK(find_imported(first, &start, &bytes, &units));
  CHECK(units.opener == fakes().current);
  CHECK(units.unit_bytes == kUnit);
  CHECK(bytes == 3 * kUnit - 2 * kOffset);
  REQUIRE(import.open(&second) == CUDA_SUCCESS);
  CHECK(second == first);
  CHECK(m.mapped.size() == 3);
  CHECK(files_become(files));
  CHECK(close_imported(first) == CUDA_SUCCESS);
  CHECK(m.mapped.size() == 3);
  CHECK(m.calls["synchronise"] == 0);
  CHECK(close_imported(first) == CUDA_SUCCESS);
  CHECK(m.calls["synchronise"] == 1);
  CHECK(m.empty());
  CHECK(close_imported(first) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("more units than one message has descriptors for are asked for", "[ipc]") {
  Import import(2 * kMostFiles + 5);
  Memory& m = import.memory_of();
  CUdeviceptr block = 0;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  CHECK(m.mapped.size() == 2 * kMostFiles + 5);
  CHECK(m.accesses.size() == 2 * kMostFiles + 5);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(m.empty());
}

TEST_CASE("a block that is freed between two messages is not opened", "[ipc]") {
  const Import import(kMostFiles + 1);
  std::atomic<int> asked{0};
  test::let_units_be_had([&] {
    if (++asked == 2) end_exports_in(kPlace, kUnit);
    return true;
  });
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(asked == 2);
  CHECK(memory->empty());
}

TEST_CASE("a call that fails leaves no part of a block", "[ipc]") {
  {
    const Import serves(1);  // from now on
  }
  const long files = open_files();
  for (const char* call :
       {"reserve", "import", "map", "release", "access", "unmap", "free", "synchronise"}) {
    for (int use = 1; use <= 4; ++use) {
      for (const bool after_all : {false, true}) {
        // What tells a handle or an address has to have it done by then.
        const bool gives = std::strcmp(call, "reserve") == 0 || std::strcmp(call, "import") == 0;
        if (gives && after_all) continue;
        INFO(call << " " << use << " " << after_all);
        Import import(4);
        Memory& m = import.memory_of();
        m.fails = call;
        m.fails_at = use;
        m.fails_after_all = after_all;
        CUdeviceptr block = 0;
        if (import.open(&block) == CUDA_SUCCESS) {
          CHECK(m.mapped.size() == 4);
          const CUresult closed = close_imported(block);
          if (closed != CUDA_SUCCESS) CHECK(m.mapped.size() == 4);
          if (closed != CUDA_SUCCESS) CHECK(close_imported(block) == CUDA_SUCCESS);
        }
        CHECK(m.empty());
      }
    }
  }
  CHECK(files_become(files));
}

TEST_CASE("units go once the context that opened them is gone", "[ipc]") {
  Import import(2);
  CUdeviceptr block = 0;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  imports_of_context_gone(reinterpret_cast<CUcontext>(0x20));
  unmap_imports_of_gone();
  CHECK(import.memory_of().mapped.size() == 2);
  const std::map<std::string, int> before = import.memory_of().calls;
  imports_of_context_gone(fakes().current);
  CHECK(import.memory_of().calls == before);  // it may be called with a lock
  unmap_imports_of_gone();
  CHECK(import.memory_of().empty());
  CHECK(close_imported(block) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("units that are closed during a capture are unmapped after it", "[ipc]") {
  Import import(2);
  Memory& m = import.memory_of();
  CUdeviceptr block = 0, again = 0;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  capture_gate().announce();
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(close_imported(block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(m.calls["synchronise"] == 0);
  CHECK(m.mapped.size() == 2);
  REQUIRE(import.open(&again) == CUDA_SUCCESS);
  CHECK(again != block);
  CHECK(m.mapped.size() == 4);
  capture_gate().withdraw();
  CHECK(close_imported(again) == CUDA_SUCCESS);
  CHECK(m.calls["synchronise"] == 1);  // for both
  CHECK(m.empty());
}

TEST_CASE("units that a capture left over delay no opening, and go with a wait of their context",
          "[ipc]") {
  Import import(2);
  Memory& m = import.memory_of();
  CUcontext opener = fakes().current, other = reinterpret_cast<CUcontext>(0x20);
  fakes().driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
  CUdeviceptr block = 0, again = 0, elsewhere = 0;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  capture_gate().announce();
  CHECK(close_imported(block) == CUDA_SUCCESS);
  capture_gate().withdraw();
  REQUIRE(import.open(&again) == CUDA_SUCCESS);
  fakes().current = other;
  REQUIRE(import.open(&elsewhere) == CUDA_SUCCESS);
  CHECK(m.calls["synchronise"] == 0);
  CHECK(m.mapped.size() == 6);
  CHECK(close_imported(elsewhere) == CUDA_SUCCESS);
  CHECK(m.calls["synchronise"] == 1);  // for `other`
  CHECK(m.mapped.size() == 4);
  fakes().current = opener;
  m.fails = "synchronise";
  m.fails_at = 2;
  CHECK(close_imported(again) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(m.mapped.size() == 4);
  CHECK(close_imported(again) == CUDA_SUCCESS);
  CHECK(m.empty());
}

TEST_CASE("units are unmapped when the context that opened them has worked", "[ipc]") {
  Import import(2);
  Memory& m = import.memory_of();
  static std::vector<CUcontext> pushed;
  static CUresult push_answers;
  pushed.clear();
  Driver& d = fakes().driver;
  d.cuCtxPushCurrent_v2 = [](CUcontext context) {
    if (push_answers == CUDA_SUCCESS) pushed.push_back(std::exchange(fakes().current, context));
    return push_answers;
  };
  d.cuCtxPopCurrent_v2 = [](CUcontext* out) {
    *out = std::exchange(fakes().current, pushed.back());
    return CUDA_SUCCESS;
  };
  static CUcontext waited_for;
  d.cuCtxSynchronize = [] {
    waited_for = fakes().current;
    return CUDA_SUCCESS;
  };
  CUcontext opener = fakes().current, other = reinterpret_cast<CUcontext>(0x20);
  for (const bool over : {false, true}) {
    push_answers = over ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
    waited_for = nullptr;
    CUdeviceptr block = 0;
    REQUIRE(import.open(&block) == CUDA_SUCCESS);
    fakes().current = other;
    CHECK(close_imported(block) == CUDA_SUCCESS);
    CHECK(waited_for == (over ? nullptr : opener));
    CHECK(fakes().current == other);
    CHECK(m.empty());
    fakes().current = opener;
  }
}

CUstreamCaptureMode mode;

Memory* in_relaxed_mode() {
  CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  return memory;
}

TEST_CASE("without pools captures forbid no call for units, whose close waits as a free does",
          "[ipc]") {
  Import import(2);
  Memory& m = import.memory_of();
  fakes().active = false;
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  Driver& d = fakes().driver;
  d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* wanted) {
    std::swap(mode, *wanted);
    return CUDA_SUCCESS;
  };
  d.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    in_relaxed_mode();
    return release(handle);
  };
  d.cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
    in_relaxed_mode();
    return unmap(address, bytes);
  };
  d.cuMemAlloc_v2 = [](CUdeviceptr* out, size_t) {
    *out = 0x10;
    return in_relaxed_mode()->use("allocate").second;
  };
  d.cuMemFree_v2 = [](CUdeviceptr address) {
    CHECK(address == 0x10);
    return in_relaxed_mode()->use("free a block").second;
  };
  CUdeviceptr block = 0;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(m.calls["free a block"] == 1);
  CHECK(m.calls["synchronise"] == 0);
  CHECK(m.empty());
  m.fails = "allocate";
  m.fails_at = 2;
  REQUIRE(import.open(&block) == CUDA_SUCCESS);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(m.calls["synchronise"] == 1);
  m.fails = "access";
  m.fails_at = 3;
  CHECK(import.open(&block) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(m.empty());
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_CASE("units are asked for once more when memory is out and some was idle", "[ipc]") {
  for (const char* call : {"reserve", "import", "map", "access"}) {
    for (const bool idle : {false, true}) {
      INFO(call << " " << idle);
      Import import(2);
      Memory& m = import.memory_of();
      fakes().release_idle = [=](CUdevice) { return idle; };
      m.fails = call;
      m.fails_at = 1;
      m.fails_with = CUDA_ERROR_OUT_OF_MEMORY;
      CUdeviceptr block = 0;
      CHECK(import.open(&block) == (idle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
      CHECK(fakes().releases == 0);
      if (idle) CHECK(close_imported(block) == CUDA_SUCCESS);
      CHECK(m.empty());
    }
  }
}

std::vector<std::vector<int>> asked_for;  // the devices of each call

// What the driver is asked for where contexts of these devices reach the importer's.
std::vector<std::vector<int>> access_asked_for(Import& import, uint64_t reaching,
                                               decltype(Driver::cuMemSetAccess) set_access) {
  asked_for.clear();
  test::devices_reaching = reaching;
  fakes().driver.cuMemSetAccess = set_access;
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_SUCCESS);
  test::devices_reaching = 0;
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(import.memory_of().empty());
  return asked_for;
}

CUresult note_devices(CUdeviceptr, size_t, const CUmemAccessDesc* list, size_t count) {
  asked_for.emplace_back();
  for (size_t i = 0; i < count; ++i) asked_for.back().push_back(list[i].location.id);
  return CUDA_SUCCESS;
}

TEST_CASE("where the driver refuses peers, the own device has access alone", "[ipc]") {
  Import import(2);
  const auto refuse_peers = [](CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list,
                               size_t count) {
    note_devices(address, bytes, list, count);
    return count > 1 ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
  };
  const auto asked = access_asked_for(import, 0b111, refuse_peers);
  CHECK(asked == std::vector<std::vector<int>>{{0, 1, 2}, {1}});
}

TEST_CASE("of devices whose contexts reach the importer's, those that can get access", "[ipc]") {
  Import import(2);
  std::vector<int> devices{1, 3, 63};
  SECTION("says the driver") {
    fakes().driver.cuDeviceCanAccessPeer = [](int* can, CUdevice device, CUdevice peer) {
      *can = peer == 1 && (device == 3 || device == 63) ? 1 : 0;
      return CUDA_SUCCESS;
    };
  }
  SECTION("none where it does not say") {
    fakes().driver.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
      *can = 1;
      return CUDA_ERROR_INVALID_DEVICE;
    };
    devices = {1};
  }
  SECTION("none where it cannot be asked") {
    fakes().driver.cuDeviceCanAccessPeer = nullptr;
    devices = {1};
  }
  SECTION("none of a context that is not known") {
    test::context_is_known = false;
    devices = {1};
  }
  SECTION("none without pools") {
    fakes().active = false;
    devices = {1};
  }
  const auto asked = access_asked_for(import, uint64_t{1} << 63 | uint64_t{0b1111}, note_devices);
  test::context_is_known = true;
  CHECK(asked == std::vector<std::vector<int>>{devices});
}

// Another thread opens them while they are mapped here, and closes them while they are unmapped.
TEST_CASE("who finds units just opened, and closed again, at each turn gives up in the end",
          "[ipc]") {
  constexpr int kManyTurns = 100;
  const Import import(2);
  static const Import* importer;
  importer = &import;
  static CUdeviceptr others;
  static bool others_turn;
  static int turns;
  others = 0;
  others_turn = false;
  turns = 0;
  fakes().driver.cuMemSetAccess = [](CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list,
                                     size_t count) {
    const CUresult result = set_access(address, bytes, list, count);
    if (!std::exchange(others_turn, true)) {
      if (++turns < kManyTurns) CHECK(importer->open(&others) == CUDA_SUCCESS);
      others_turn = false;
    }
    return result;
  };
  fakes().driver.cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
    if (others != 0) CHECK(close_imported(std::exchange(others, 0)) == CUDA_SUCCESS);
    return unmap(address, bytes);
  };
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(turns < kManyTurns);
  CHECK(memory->empty());
}

TEST_CASE("a driver without virtual memory management opens no units", "[ipc]") {
  const Import import(2);
  fakes().driver.cuMemImportFromShareableHandle = nullptr;
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace cistern::shim
