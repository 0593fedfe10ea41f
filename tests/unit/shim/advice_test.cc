// SPDX-License-Identifier: Apache-2.0
#include "shim/process/report_writer.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocator/base/cap.h"
#include "allocator/reclaim/garbage.h"
#include "config/load.h"
#include "tests/catch.h"

namespace {

using namespace cistern;
using shim::Advice;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct OneDevice {
  alloc::Ledger ledger;
  alloc::Cap cap{};
  alloc::Garbage garbage;
  shim::DeviceReport report{};
  OneDevice() {
    report.ledger = &ledger;
    report.cap = &cap;
    report.strategy = alloc::StrategyKind::on_demand;
  }
};

// What a process reports of: its devices, and pinned memory where its limit refused something.
struct Process {
  std::unique_ptr<OneDevice> devices[2] = {std::make_unique<OneDevice>(),
                                           std::make_unique<OneDevice>()};
  alloc::Ledger pinned;
  config::Policy policy = config::default_policy();
  shim::IpcReport ipc{};
  shim::FreeCounts frees{};
  uint64_t ran_ns = 10'000'000'000;
  shim::Frameworks loaded;

  OneDevice& first() { return *devices[0]; }
  alloc::Ledger& ledger() { return first().ledger; }
  void requests(uint64_t count) { first().report.allocations = first().report.frees = count; }
  // So many chunks were taken, in so many sizes, and given back.
  void chunks(uint64_t taken, uint64_t returned, uint64_t sizes) {
    ledger().obtained.add(taken);
    ledger().released.add(returned);
    for (uint64_t i = 0; i < sizes; ++i) ledger().note_size_taken((i + 1) * 12345 * 512);
  }
};

Process* described;

bool next_device(int ordinal, shim::DeviceReport* out) {
  if (ordinal >= 2) return false;
  *out = described->devices[ordinal]->report;
  out->ordinal = ordinal;
  return true;
}

bool pinned_memory(shim::PinnedReport* out) {
  *out = {&described->pinned, 100 * kMiB, 0, 0, {}};
  return true;
}

Advice advice_for(Process& process) {
  described = &process;
  shim::ProcessReport report{};
  report.next_device = next_device;
  report.pinned_memory = pinned_memory;
  report.ipc = process.ipc;
  report.frees = &process.frees;
  report.ran_ns = process.ran_ns;
  return shim::advise(report, process.policy, process.loaded);
}

struct Case {
  const char* what;
  std::function<void(Process&)> happened;
  std::vector<std::pair<std::string, std::string>> hints;  // about what, and a part of it
};

constexpr char kAutoGrowth[] = "FLAGS_auto_growth_chunk_size_in_mb=64";
constexpr char kKeep[] = "FLAGS_free_idle_memory=false";

void mixed(Process& p) {
  p.requests(5000);
  p.chunks(1500, 1400, 60);
}

const Case kCases[] = {
    {"nothing", [](Process&) {}, {}},
    {"the demo's training run, on an idle device",
     [](Process& p) {
       p.requests(2163);
       p.chunks(235, 232, 40);
     },
     {}},
    {"the same with work in flight",
     [](Process& p) {
       p.requests(2163);
       p.chunks(331, 328, 40);
       p.ledger().held_back_ns.add(90'000'000);
     },
     {}},

    {"sizes that keep going to the driver", mixed, {{"sizes", kAutoGrowth}}},
    {"on the second device",
     [](Process& p) {
       mixed(p);
       std::swap(p.devices[0], p.devices[1]);
     },
     {{"sizes", "on device 1 went"}}},
    {"few of all go there",
     [](Process& p) {
       mixed(p);
       p.requests(15'000);
     },
     {}},
    {"few in all",
     [](Process& p) {
       p.requests(1900);
       p.chunks(999, 999, 60);
     },
     {}},
    {"growth",
     [](Process& p) {
       p.requests(5000);
       p.chunks(1500, 749, 60);
       p.first().report.frees = 1000;
     },
     {}},
    {"few sizes",
     [](Process& p) {
       p.requests(5000);
       p.chunks(1500, 1400, 6);
     },
     {{"sizes", kKeep}}},
    {"idle for long, as was asked for",
     [](Process& p) {
       mixed(p);
       p.ledger().aged[1].add(1000);
     },
     {}},
    {"memory that is short",
     [](Process& p) {
       mixed(p);
       p.ledger().shortages.add(151);
     },
     {}},
    {"a setting for idle memory",
     [](Process& p) {
       mixed(p);
       p.policy.free_idle_memory = {false, true};
     },
     {}},
    {"another strategy",
     [](Process& p) {
       mixed(p);
       p.first().report.strategy = alloc::StrategyKind::legacy;
     },
     {}},

    {"a limit that refused",
     [](Process& p) {
       p.first().cap.set_limit(512 * kMiB);
       p.ledger().refused_by_cap.add(3);
       p.policy.gpu_limit.set = true;
     },
     {{"limit", "512.0 MiB refused 3 calls on device 0; a higher CISTERN_GPU_LIMIT would"}}},
    {"a limit of one device",
     [](Process& p) {
       p.devices[1]->ledger.refused_by_cap.add();
       p.policy.gpu_limit.set = p.policy.gpu_limit_of[1].set = true;
     },
     {{"limit", "a higher CISTERN_GPU_LIMIT_1 would"}}},
    {"a limit in MB",
     [](Process& p) {
       p.ledger().refused_by_cap.add();
       p.policy.gpu_memory_limit_mb = {1, true};
     },
     {{"limit", "a higher FLAGS_gpu_memory_limit_mb would"}}},
    {"a limit of pinned memory",
     [](Process& p) { p.pinned.refused_by_cap.add(2); },
     {{"limit", "100.0 MiB refused 2 calls for pinned memory; a higher FLAGS_fraction_of_cuda_"}}},

    {"handles that nobody opens",
     [](Process& p) {
       p.ipc = {3, 0, 0, 0};
     },
     {{"ipc",
       "3 IPC handles of blocks inside chunks or in static memory were made, and none was opened; "
       "run the other process under Cistern too"}}},
    {"handles of which one was opened",
     [](Process& p) {
       p.ipc = {3, 1, 0, 0};
     },
     {}},
    {"handles opened here",
     [](Process& p) {
       p.ipc = {0, 0, 7, 0};
     },
     {}},
    {"handles of nobody",
     [](Process& p) {
       p.ipc = {0, 0, 7, 2};
     },
     {{"ipc", "2 IPC handles could not be opened"}}},

    {"frees that were held back",
     [](Process& p) {
       p.ledger().held_back.add(40);
       p.ledger().held_back_ns.add(1'500'000'000);
     },
     {{"bound", "waited 40 times, 1.5 s in all: "}}},
    {"frees that were hardly held back",
     [](Process& p) {
       p.ledger().held_back.add(40);
       p.ledger().held_back_ns.add(999'999'999);
     },
     {}},
    {"garbage that was wanted",
     [](Process& p) {
       p.first().report.garbage = &p.first().garbage;
       p.first().garbage.flushed_when_short.add(8 * kMiB);
     },
     {{"bound", "while 8.0 MiB of freed memory was held back; FLAGS_eager_delete_tensor_gb=0"}}},
    {"garbage that was not", [](Process& p) { p.first().report.garbage = &p.first().garbage; }, {}},

    {"frees that waited, and other calls for what they had left",
     [](Process& p) {
       p.frees.for_visible.add(40'000'000);
       p.frees.waited(shim::FreeWaitReason::peers).add(30'000'000);
       p.frees.paid_by(shim::PaidBy::query).add(30'000'000);
     },
     {{"free_waits",
       "CISTERN_FREE_SYNC=false would have saved up to 100 ms (3 waits); use it only if the "
       "program synchronises by itself before it reads results after a cudaFree"}}},
    {"frees that waited, in a longer run",
     [](Process& p) {
       p.frees.for_visible.add(100'000'000);
       p.ran_ns = 10'000'000'100;
     },
     {}},
    {"frees that waited for little",
     [](Process& p) {
       p.frees.for_visible.add(99'999'999);
       p.ran_ns = 1'000'000'000;
     },
     {}},
    {"frees that waited, as they were told to",
     [](Process& p) {
       p.frees.waited(shim::FreeWaitReason::setting).add(900'000'000);
       p.policy.free_sync.set = true;
     },
     {}},

    {"all of it: what failed comes first",
     [](Process& p) {
       mixed(p);
       p.ledger().refused_by_cap.add();
       p.ledger().held_back_ns.add(2'000'000'000);
       p.ipc = {3, 0, 0, 0};
     },
     {{"limit", "refused 1"}, {"ipc", "3 IPC"}}},
};

}  // namespace

TEST_CASE("a run gets the hints that its figures call for, two at most", "[advice]") {
  for (const Case& it : kCases) {
    INFO(it.what);
    auto process = std::make_unique<Process>();
    it.happened(*process);
    const Advice advice = advice_for(*process);
    REQUIRE(advice.list().size() == it.hints.size());
    for (size_t i = 0; i < it.hints.size(); ++i) {
      const std::string text = advice.list()[i].text;
      CHECK(advice.list()[i].about == it.hints[i].first);
      CHECK_THAT(text, Catch::Contains(it.hints[i].second));
      CHECK(text.size() < sizeof advice.list()[i].text - 1);
      CHECK(text.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("a framework is named where Cistern serves half of the requests or fewer", "[advice]") {
  auto process = std::make_unique<Process>();
  process->loaded.add(config::framework_of("/lib/libc10_cuda.so"));
  process->loaded.add(config::framework_of("/lib/libc10_cuda.so"));
  process->devices[1]->report.allocations = 10;
  const auto named = [&] { return advice_for(*process).frameworks.list().size(); };
  SECTION("none at all") {
    process->devices[1]->report.allocations = 0;
    CHECK(named() == 1);
  }
  SECTION("all that there are, and none on another device") { CHECK(named() == 0); }
  SECTION("half") {
    process->requests(1000);
    process->ledger().obtained.add(500);
    CHECK(named() == 1);
  }
  SECTION("most, on each device") {
    process->requests(1000);
    process->ledger().obtained.add(499);
    CHECK(named() == 0);
  }
  SECTION("it needs no other policy") {
    mixed(*process);
    process->chunks(3000, 2000, 0);
    CHECK(named() == 1);
    CHECK(advice_for(*process).list().empty());
    process->loaded = {};
    CHECK(advice_for(*process).list().size() == 1);
  }
}

TEST_CASE("a framework is known by its file, and by what switches its pool off", "[advice]") {
  const struct {
    const char *path, *name, *off, *on;
  } cases[] = {
      {"/venv/lib/torch/lib/libc10_cuda.so", "PyTorch", "", nullptr},
      {"/p/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "JAX", "Platform", "cuda_async"},
      {"libtensorflow_framework.so.2", "TensorFlow", "cuda_malloc", "cuda_malloc_async"},
      {"/p/cupy_backends/cuda/api/driver.cpython-311-x86_64-linux-gnu.so", "CuPy", nullptr,
       nullptr},
      {"/p/librmm/lib64/librmm.so", "RMM", nullptr, "anything"},
      {"/p/mylibrmm.so", nullptr, nullptr, nullptr},
      {"/p/my_cupy_backends/x.so", nullptr, nullptr, nullptr},
      {"", nullptr, nullptr, nullptr},
  };
  for (const auto& it : cases) {
    INFO(it.path);
    const config::Framework* framework = config::framework_of(it.path);
    REQUIRE((framework != nullptr) == (it.name != nullptr));
    if (framework == nullptr) continue;
    CHECK(framework->name == std::string(it.name));
    CHECK(config::pools_itself(*framework, it.on));
    CHECK(config::pools_itself(*framework, nullptr));
    if (it.off != nullptr) CHECK_FALSE(config::pools_itself(*framework, it.off));
    char text[200];
    config::describe_framework(*framework, text, sizeof text);
    CHECK(std::string(text).find(framework->setting) != std::string::npos);
  }
}
