// SPDX-License-Identifier: Apache-2.0
// No request waits for its planned place longer than the driver's free of that memory would have.
//
//   planned_in_flight US          a block is freed while a kernel of that time uses it. One more is
//                                 asked for beside the kernel, and one once it is done
//   planned_in_flight US device   the same beside work of another device that does not end
//   planned_in_flight US stream   the same beside such work of another stream, from before the free
//   planned_in_flight US later    such work begins on another stream after the free. The next
//                                 block is asked for once the kernel is done
//   planned_in_flight US short    the same, but beside the kernel, and there is no other memory
//
// The clock stands (test_clock.h), and so do kernels, until this program moves it. Whatever waits
// for work that does not end hangs.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr size_t kBytes = 12 * kMiB;
constexpr int kRounds = 6;

uint64_t now_ns() { return test_clock::find<uint64_t()>("cistern_clock_now_ns")(); }

// Moves the clock while the thread that made it waits for something.
class Mover {
 public:
  explicit Mover(uint64_t step_ns)
      : thread_([this, step_ns] {
          for (await_sleep(here_); !over_; await_sleep(here_)) test_clock::move_ns(step_ns);
        }) {}
  ~Mover() {
    over_ = true;
    thread_.join();
  }

 private:
  const std::atomic<pid_t> here_{gettid()};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

struct Program {
  uint64_t us;
  std::string_view beside;
  timed::Worker worker{use_device(0)};
  CUstream other = timed::new_stream(), endless = timed::new_stream();
  CUevent before_endless = new_event();
  uint64_t longest_ns = 0;

  bool is(std::string_view mode) const { return beside == mode; }

  static CUdeviceptr get() {
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, kBytes));
    return block;
  }
  void use(CUstream stream, CUdeviceptr block, uint64_t for_us) const {
    MUST(timed::fill_words(worker.kernels, stream, block, 64, 1, static_cast<uint32_t>(for_us)));
  }

  // All but what does not end.
  void finish() const {
    test_clock::move_ns(us * 1000);
    MUST(cuStreamSynchronize(worker.stream));
    MUST(cuStreamSynchronize(other));
  }
  timed::Held hold() const {
    MUST(cuEventRecord(before_endless, endless));
    return {worker.kernels, endless};
  }

  void round() {
    const CUdeviceptr first = get();
    use(worker.stream, first, us);
    if (us == 0) MUST(cuStreamSynchronize(worker.stream));
    std::optional<timed::Held> held;
    CUdeviceptr next = 0;
    uint64_t start_ns = 0, took_ns = 0;
    {
      const Mover mover(us * 1000 / 5);
      start_ns = now_ns();
      MUST(cuMemFree(first));
      took_ns = now_ns() - start_ns;
      if (is("later") || is("short")) held = hold();
      if (is("later")) {
        finish();
        MUST(cuEventSynchronize(before_endless));
      }
      start_ns = now_ns();
      next = get();
      took_ns += now_ns() - start_ns;
    }
    longest_ns = std::max(longest_ns, took_ns);
    // An order with the kernel would hide from the race watcher that the block came too early.
    use(other, next, 0);
    if (held) held->end();
    finish();
    if (!is("stream")) MUST(cuCtxSynchronize());
    MUST(cuMemFree(next));
    const CUdeviceptr last = get();
    use(other, last, 0);
    finish();
    MUST(cuMemFree(last));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  test_clock::stop();
  std::optional<timed::Worker> far;
  Program program{.us = std::strtoull(argv[1], nullptr, 10), .beside = argc > 2 ? argv[2] : ""};
  std::optional<timed::Held> held;
  if (program.is("device")) {
    far.emplace(use_device(1));
    held.emplace(far->kernels, far->stream);
    program.worker.use();
  } else if (program.is("stream")) {
    held = program.hold();
  }
  for (int i = 0; i < kRounds; ++i) program.round();
  if (held) held->end();
  std::printf("longest %llu us\n", static_cast<unsigned long long>(program.longest_ns / 1000));
  return 0;
}
