// SPDX-License-Identifier: Apache-2.0
// Blocks in units of another process, on a driver that counts handles, mappings and addresses. The
// other process is this one: its service answers as for any importer.
#include "shim/kinds/imported_units.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/os.h"
#include "shim/kinds/imported.h"
#include "shim/order/captures/capture_gate.h"
#include "tests/unit/shim/fake_shim.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim {
namespace {

using test::fakes;
using test::files_become;
using test::open_files;

constexpr uint64_t kUnit = 2 << 20, kOffset = 4096;
constexpr CUdeviceptr kPlace = uint64_t{0x600} << 32;  // where the exporter has its blocks

struct Memory {
  std::map<CUdeviceptr, uint64_t> reserved, mapped;
  std::set<CUmemGenericAllocationHandle> handles;
  std::map<CUdeviceptr, size_t> accesses;  // how many devices
  std::map<std::string, int> calls;
  std::string fails;  // this call, at its use of that number
  int fails_at = 0;
  CUresult fails_with = CUDA_ERROR_ILLEGAL_ADDRESS;
  bool fails_after_all = false;  // the call does its own, and tells of earlier work
  uint64_t last_place = 0, last_handle = 0;

  // Whether the call does its own, and what it tells.
  std::pair<bool, CUresult> use(const char* call) {
    const bool failing = ++calls[call] == fails_at && fails == call;
    return {!failing || fails_after_all, failing ? fails_with : CUDA_SUCCESS};
  }
  bool empty() const { return reserved.empty() && mapped.empty() && handles.empty(); }
};

Memory* memory = nullptr;

CUresult reserve(CUdeviceptr* out, size_t bytes, size_t align, CUdeviceptr, unsigned long long) {
  const auto [does, code] = memory->use("reserve");
  if (!does) return code;
  *out = (memory->last_place += uint64_t{1} << 32);
  CHECK(*out % align == 0);
  memory->reserved[*out] = bytes;
  return CUDA_SUCCESS;
}

CUresult free_reserved(CUdeviceptr address, size_t bytes) {
  const auto [does, code] = memory->use("free");
  if (!does) return code;
  const auto found = memory->reserved.find(address);
  const auto inside = memory->mapped.lower_bound(address);
  if (found == memory->reserved.end() || found->second != bytes ||
      (inside != memory->mapped.end() && inside->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->reserved.erase(found);
  return code;
}

CUresult import_file(CUmemGenericAllocationHandle* out, void* file, CUmemAllocationHandleType) {
  CHECK(fcntl(static_cast<int>(reinterpret_cast<intptr_t>(file)), F_GETFD) == FD_CLOEXEC);
  const auto [does, code] = memory->use("import");
  if (!does) return code;
  *out = ++memory->last_handle;
  memory->handles.insert(*out);
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  const auto [does, code] = memory->use("release");
  if (!does) return code;
  return memory->handles.erase(handle) == 1 ? code : CUDA_ERROR_INVALID_VALUE;
}

CUresult map(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  const auto [does, code] = memory->use("map");
  if (!does) return code;
  if (memory->handles.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto after = memory->reserved.upper_bound(address);
  REQUIRE(after != memory->reserved.begin());
  CHECK(address + bytes <= std::prev(after)->first + std::prev(after)->second);
  CHECK(memory->mapped.emplace(address, bytes).second);
  return code;
}

CUresult unmap(CUdeviceptr address, size_t bytes) {
  const auto [does, code] = memory->use("unmap");
  if (!does) return code;
  const auto first = memory->mapped.find(address);
  if (first == memory->mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  memory->mapped.erase(first, memory->mapped.lower_bound(address + bytes));
  return code;
}

CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  const auto [does, code] = memory->use("access");
  if (!does) return code;
  CHECK(list[0].location.id == 1);  // devices_of_current(), in imported_test.cc
  for (uint64_t at = address; at < address + bytes; at += kUnit) {
    if (memory->mapped.count(at) == 0) return CUDA_ERROR_INVALID_VALUE;
    memory->accesses[at] = count;
  }
  return code;
}

CUresult real_open(CUdeviceptr*, CUipcMemHandle, unsigned) { return CUDA_ERROR_INVALID_VALUE; }

// An importer, and a block of so many units that is exported.
class Import {
 public:
  explicit Import(uint64_t units, uintptr_t context = 0x10) {
    test::reset_fakes();
    memory = &memory_;
    test::hold_units({kOffset, kUnit, units, nullptr});
    test::hold({kPlace + kOffset, units * kUnit - 2 * kOffset, kPlace + kOffset, true});
    token_ = test::exported(0);
    REQUIRE(serve_importers(*exporting_process(), test::find_held));
    fakes().current = reinterpret_cast<CUcontext>(context);
    Driver& d = fakes().driver;
    d.cuMemAddressReserve = reserve;
    d.cuMemAddressFree = free_reserved;
    d.cuMemImportFromShareableHandle = import_file;
    d.cuMemRelease = release;
    d.cuMemMap = map;
    d.cuMemUnmap = unmap;
    d.cuMemSetAccess = set_access;
    d.cuCtxSynchronize = [] { return memory->use("synchronise").second; };
    d.cuIpcCloseMemHandle = [](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; };
    d.cuMemGetInfo_v2 = [](size_t*, size_t*) { return CUDA_SUCCESS; };
  }
  ~Import() {
    imports_of_context_gone(fakes().current);
    unmap_imports_of_gone();
    end_exports_in(kPlace, uint64_t{1} << 32);
    memory = nullptr;
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  CUresult open(CUdeviceptr* out) const {
    CUipcMemHandle handle;
    std::memcpy(&handle, &token_, sizeof handle);
    return open_imported(real_open, out, handle, 0);
  }
  Memory& memory_of() { return memory_; }
  const IpcToken& token() const { return token_; }

 private:
  Memory memory_;
  IpcToken token_;
};

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

TEST_CASE("an exporter whose answers contradict each other is not believed", "[ipc]") {
  const long files = open_files();
  for (const bool other_offset : {false, true}) {
    const Import import(2 * kMostFiles);
    std::atomic<int> asked{0};
    {
      const std::lock_guard guard(test::held_mutex);
      test::held_units.in_hand = [&] {  // in the next answer
        test::HeldUnits& told = test::held_units;
        if (++asked > 1) return;
        if (other_offset) {
          told.offset -= 512;
        } else {
          told.unit_bytes /= 2;
          told.units *= 2;
        }
      };
    }
    CUdeviceptr block = 0;
    CHECK(import.open(&block) == CUDA_ERROR_INVALID_VALUE);
    CHECK(asked == 2);
    CHECK(memory->empty());
  }
  CHECK(files_become(files));
}

TEST_CASE("what came late in many answers ends an opening like what came never", "[ipc]") {
  constexpr uint64_t kLate = 100'000'000, kMessages = 20;
  const Import import(kMessages * kMostFiles);
  std::atomic<int> asked{0};
  test::let_units_be_had([&] {
    ++asked;
    alloc::os::sleep_ns(kLate);
    return true;
  });
  IpcPatience patience{3 * kLate};
  IpcAnswer answer;
  IpcFiles files;
  REQUIRE(ask_exporter(import.token(), 0, &patience, &answer, &files) == IpcReply::given);
  MappedUnits units;
  IpcReply reply = IpcReply::given;
  CHECK(map_units(import.token(), answer, &files, &patience, &units, &reply) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(reply == IpcReply::silent);
  CHECK(asked < 8);
  CHECK(patience.left_ns < kLate);
  CHECK(files.count() == 0);
  CHECK(memory->empty());
}

// None of them is read, which could take for ever.
TEST_CASE("descriptors of anything go to the driver, and are closed", "[ipc]") {
  int ends[2], sockets[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  const int memory_file = memfd_create("no allocation", MFD_CLOEXEC);
  const int folder = open("/proc/self", O_RDONLY | O_CLOEXEC);
  const long files = open_files();
  for (const int file : {ends[0], ends[1], sockets[0], memory_file, folder}) {
    const Import import(3);
    test::let_units_be(file);
    fakes().driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle*, void*,
                                                       CUmemAllocationHandleType) {
      memory->use("import");
      return CUDA_ERROR_INVALID_VALUE;
    };
    CUdeviceptr block = 0;
    CHECK(import.open(&block) == CUDA_ERROR_INVALID_VALUE);
    CHECK(memory->calls["import"] == 1);
    CHECK(memory->empty());
  }
  CHECK(files_become(files));
  for (const int file : {ends[0], ends[1], sockets[0], sockets[1], memory_file, folder}) {
    close(file);
  }
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

TEST_CASE("where the driver refuses peers, the own device has access alone", "[ipc]") {
  Import import(2);
  Memory& m = import.memory_of();
  test::devices_with_access = 0b111;
  static std::vector<std::vector<int>> asked;
  asked.clear();
  fakes().driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc* list,
                                     size_t count) {
    asked.emplace_back();
    for (size_t i = 0; i < count; ++i) asked.back().push_back(list[i].location.id);
    return count > 1 ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
  };
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_SUCCESS);
  test::devices_with_access = 2;
  CHECK(asked == std::vector<std::vector<int>>{{0, 1, 2}, {1}});
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(m.empty());
}

TEST_CASE("a driver without virtual memory management opens no units", "[ipc]") {
  const Import import(2);
  fakes().driver.cuMemImportFromShareableHandle = nullptr;
  CUdeviceptr block = 0;
  CHECK(import.open(&block) == CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace cistern::shim
