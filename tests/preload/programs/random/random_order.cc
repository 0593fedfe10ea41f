// SPDX-License-Identifier: Apache-2.0
// Whatever a program does, its work is in the order that the driver alone would make, and no other.
// Threads write, read and copy blocks on any stream, record events, wait and ask at random, and
// free blocks in between. They race with each other and with themselves, and nobody looks at what
// comes out: the simulated device's oracle compares the order of all work with what the driver
// would have made (expectations with SIMCUDA_ORDER). The arguments are name=number:
//
//   seed, operations, threads, devices   operations are a thread's
//   peers      whether the devices reach each other's memory
//   visible    of a hundred operations, how many the host sees: work on pinned memory, functions
//   waits      of a hundred operations, how many wait or ask
//   graphs     of a hundred operations, how many launch a new graph
//   early      of a hundred operations, how many do not wait their turn in their stream: kernels
//   that
//              may begin before the one in front has ended, batches, sources read out of order
//   abroad     of a hundred events that a stream waits for, how many may be of another context
//   frees      of a hundred operations, how many free a block and ask for another one

#include <semaphore.h>

#include <array>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "../timed_code.h"
#include "settings.h"

namespace {

using random_work::Random;

struct Numbers {
  uint64_t seed = 1, operations = 400, threads = 1, devices = 1, peers = 0, visible = 0, waits = 10,
           graphs = 0, early = 0, abroad = 0, frees = 20;

  bool read(const std::string& argument) {
    const std::pair<const char*, uint64_t*> known[] = {
        {"seed", &seed},       {"operations", &operations},
        {"threads", &threads}, {"devices", &devices},
        {"peers", &peers},     {"visible", &visible},
        {"waits", &waits},     {"graphs", &graphs},
        {"early", &early},     {"abroad", &abroad},
        {"frees", &frees}};
    for (const auto& [name, value] : known) {
      const std::string start = std::string(name) + '=';
      if (!argument.starts_with(start)) continue;
      *value = std::stoull(argument.substr(start.size()));
      return true;
    }
    return false;
  }
};

constexpr size_t kWords = 64;  // that a kernel touches

struct Place {
  CUdevice device;
  CUcontext context = nullptr;
  timed::Kernels* kernels = nullptr;
  std::vector<CUdeviceptr> shared{};  // blocks that all threads use, and nobody frees
};

struct Post {  // blocks on their way to a thread
  sem_t some{};
  std::mutex mutex{};
  std::vector<std::pair<Place*, CUdeviceptr>> blocks{};
};

struct World {
  Numbers numbers;
  std::vector<Place> places;
  std::deque<Post> posts;
  // Held while a stream captures, and alone to wait for a context, which the driver refuses
  // meanwhile.
  std::shared_mutex captures;
};

void CUDA_CB nothing(void* /*data*/) {}

// What a thread has in one context.
struct Station {
  Place* place;
  std::array<CUstream, 7> streams{};
  std::array<CUevent, 5> events{};
  std::vector<CUdeviceptr> blocks{};
  std::array<void*, 3> pinned{};
};

class Worker {
 public:
  Worker(World& world, uint64_t number)
      : world_(world), number_(number), random_(world.numbers.seed * 1009 + number) {
    for (Place& place : world.places) arrive(place);
  }

  void run() {
    const Numbers& n = world_.numbers;
    for (uint64_t i = 0; i < n.operations; ++i) {
      Station& at = enter(stations_[random_.below(stations_.size())]);
      const uint64_t drawn = random_.below(100);
      if (drawn < n.frees) {
        replace(at);
      } else if (drawn < n.frees + n.waits) {
        wait_or_ask(at);
      } else if (drawn < n.frees + n.waits + n.visible) {
        show(at);
      } else if (drawn < n.frees + n.waits + n.visible + n.graphs) {
        launch_graph(at);
      } else if (drawn < n.frees + n.waits + n.visible + n.graphs + n.early) {
        work_out_of_turn(at);
      } else {
        work(at, stream(at));
      }
      take_post();
    }
  }

  void finish() {
    for (Station& at : stations_) {
      enter(at);
      wait_for_context();
      for (CUdeviceptr block : at.blocks) MUST(cuMemFree(block));
      for (void* page : at.pinned) MUST(cuMemFreeHost(page));
    }
  }

  void take_post() {
    Post& own = world_.posts[number_];
    while (sem_trywait(&own.some) == 0) {
      own.mutex.lock();
      const auto [place, block] = own.blocks.back();
      own.blocks.pop_back();
      own.mutex.unlock();
      for (Station& at : stations_) {
        if (at.place != place) continue;
        enter(at);
        MUST(cuMemsetD8Async(block, 1, kWords, at.streams[2]));
        MUST(cuMemFree(block));
      }
    }
  }

 private:
  void wait_for_context() {
    const std::lock_guard lock(world_.captures);
    MUST(cuCtxSynchronize());
  }

  static Station& enter(Station& at) {
    MUST(cuCtxSetCurrent(at.place->context));
    return at;
  }

  void arrive(Place& place) {
    Station& at = enter(stations_.emplace_back(Station{&place}));
    at.streams[1] = CU_STREAM_PER_THREAD;
    for (size_t i = 2; i < at.streams.size(); ++i) make_stream(at, i);
    for (CUevent& event : at.events) MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 8; ++i) at.blocks.push_back(new_block());
    for (void*& page : at.pinned) MUST(cuMemHostAlloc(&page, kWords * sizeof(uint32_t), 0));
  }

  static void make_stream(Station& at, size_t index) {
    const unsigned flags = index < 4 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    MUST(cuStreamCreate(&at.streams[index], flags));
  }

  CUdeviceptr new_block() {
    constexpr size_t kSizes[] = {256, 256, 1000, 100'000, size_t{3} << 20};
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, kSizes[random_.below(std::size(kSizes))]));
    return block;
  }

  CUstream stream(Station& at) { return at.streams[random_.below(at.streams.size())]; }
  CUevent event(Station& at) { return at.events[random_.below(at.events.size())]; }
  void* page(Station& at) { return at.pinned[random_.below(at.pinned.size())]; }

  CUdeviceptr block(Station& at) {
    const std::vector<CUdeviceptr>& shared = at.place->shared;
    return random_.percent(25) ? shared[random_.below(shared.size())]
                               : at.blocks[random_.below(at.blocks.size())];
  }
  // One that a kernel of `at` may touch.
  CUdeviceptr within_reach(Station& at) {
    const bool peers = world_.numbers.peers != 0;
    return block(peers ? stations_[random_.below(stations_.size())] : at);
  }
  uint32_t delay_us() {
    return random_.percent(60) ? 0 : static_cast<uint32_t>(random_.below(200));
  }

  // Which the host does not see.
  void work(Station& at, CUstream on) {
    const timed::Kernels& kernels = *at.place->kernels;
    switch (random_.below(6)) {
      case 0:
        return MUST(timed::sum_words(kernels, on, within_reach(at), kWords - 4, within_reach(at),
                                     delay_us()));
      case 1:
        return MUST(cuMemsetD8Async(block(at), 1, kWords, on));
      case 2: {
        Station& from = stations_[random_.below(stations_.size())];
        return MUST(cuMemcpyPeerAsync(block(at), at.place->context, block(from),
                                      from.place->context, kWords, on));
      }
      default:
        return MUST(timed::fill_words(kernels, on, within_reach(at), kWords, 1, delay_us()));
    }
  }

  void work_out_of_turn(Station& at) {
    CUstream on =
        at.streams[1 + random_.below(at.streams.size() - 1)];  // no batch on the first one
    if (random_.percent(40)) return copy_batch(at, on);
    // There has to be a kernel in front of it.
    const timed::Kernels& kernels = *at.place->kernels;
    MUST(timed::fill_words(kernels, on, within_reach(at), kWords, 1, delay_us()));
    for (uint64_t more = 1 + random_.below(2); more > 0; --more) {
      MUST(timed::fill_words_early(kernels, on, within_reach(at), kWords, 1, delay_us()));
    }
  }

  void copy_batch(Station& at, CUstream on) {
    constexpr size_t kMost = 3;
    CUdeviceptr to[kMost], from[kMost];
    size_t bytes[kMost], first = 0;
    const size_t count = 1 + random_.below(kMost);
    for (size_t i = 0; i < count; ++i) {
      to[i] = block(at);
      from[i] = block(stations_[random_.below(stations_.size())]);
      bytes[i] = kWords;
    }
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(1 + random_.below(3));
    MUST(cuMemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1, on));
  }

  void replace(Station& at) {
    CUdeviceptr& old = at.blocks[random_.below(at.blocks.size())];
    if (random_.percent(5)) return renew_stream(at);
    if (random_.percent(5)) return renew_pinned(at);
    if (world_.numbers.threads > 1 && random_.percent(20)) {
      hand_over(at, old);
    } else {
      MUST(cuMemFree(old));
    }
    if (random_.percent(30)) work_elsewhere(at, &old);
    old = new_block();
  }

  // Between the free and the next request.
  void work_elsewhere(Station& at, const CUdeviceptr* freed) {
    if (freed != &at.blocks[0]) {
      MUST(timed::fill_words(*at.place->kernels, stream(at), at.blocks[0], kWords, 1, delay_us()));
    }
  }

  void hand_over(Station& at, CUdeviceptr block) {
    const uint64_t others = world_.numbers.threads - 1;
    Post& heir = world_.posts[(number_ + 1 + random_.below(others)) % world_.numbers.threads];
    heir.mutex.lock();
    heir.blocks.emplace_back(at.place, block);
    heir.mutex.unlock();
    sem_post(&heir.some);
  }

  // The new one may have the handle of the old one.
  void renew_stream(Station& at) {
    const size_t index = 2 + random_.below(at.streams.size() - 2);
    work(at, at.streams[index]);
    MUST(cuStreamDestroy(at.streams[index]));
    make_stream(at, index);
    work(at, at.streams[index]);
  }

  void renew_pinned(Station& at) {
    void*& old = at.pinned[random_.below(at.pinned.size())];
    MUST(cuMemFreeHost(old));
    MUST(cuMemHostAlloc(&old, kWords * sizeof(uint32_t), 0));
  }

  void wait_or_ask(Station& at) {
    switch (random_.below(20)) {
      case 0:
        return MUST(cuStreamSynchronize(stream(at)));
      case 1:
        return MUST(cuEventSynchronize(event(at)));
      case 2:
        return random_.percent(20) ? wait_for_context() : void();
      case 3:
      case 4:
        return static_cast<void>(cuStreamQuery(stream(at)));
      case 5:
      case 6:
      case 7:
        return static_cast<void>(cuEventQuery(event(at)));
      case 8:
      case 9:
      case 10:
      case 11:
        return wait_for_event(at);
      default:
        return MUST(cuEventRecord(event(at), stream(at)));
    }
  }

  void wait_for_event(Station& at) {
    const uint64_t abroad = world_.numbers.abroad;
    const bool of_any = abroad != 0 && random_.percent(abroad);
    Station& of = of_any ? stations_[random_.below(stations_.size())] : at;
    MUST(cuStreamWaitEvent(stream(at), event(of), 0));
  }

  // The host sees this.
  void show(Station& at) {
    const auto page_on_device = reinterpret_cast<CUdeviceptr>(page(at));
    switch (random_.below(5)) {
      case 0:
        return MUST(cuMemcpyHtoDAsync(block(at), page(at), kWords, stream(at)));
      case 1:
        return MUST(cuLaunchHostFunc(stream(at), nothing, nullptr));
      case 2:
        return MUST(timed::fill_words(*at.place->kernels, stream(at), page_on_device, kWords, 1,
                                      delay_us()));
      default:
        return MUST(cuMemcpyDtoHAsync(page(at), block(at), kWords, stream(at)));
    }
  }

  void launch_graph(Station& at) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUstream captured = at.streams[4];
    world_.captures.lock_shared();
    MUST(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (uint64_t nodes = 1 + random_.below(3); nodes > 0; --nodes) work(at, captured);
    MUST(cuStreamEndCapture(captured, &graph));
    world_.captures.unlock_shared();
    MUST(cuGraphInstantiate(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, stream(at)));
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
  }

  World& world_;
  const uint64_t number_;
  Random random_;
  std::deque<Station> stations_;
};

void open(World& world) {
  MUST(cuInit(0));
  for (uint64_t i = 0; i < world.numbers.devices; ++i) {
    Place& place = world.places.emplace_back(Place{static_cast<CUdevice>(i)});
    MUST(cuDevicePrimaryCtxRetain(&place.context, place.device));
    MUST(cuCtxSetCurrent(place.context));
    place.kernels = new timed::Kernels;
    place.shared.resize(4);
    for (CUdeviceptr& block : place.shared) MUST(cuMemAlloc(&block, 256));
  }
  for (Place& from : world.places) {
    MUST(cuCtxSetCurrent(from.context));
    for (const Place& to : world.places) {
      if (world.numbers.peers != 0 && &from != &to) MUST(cuCtxEnablePeerAccess(to.context, 0));
    }
  }
  world.posts.resize(world.numbers.threads);
  for (Post& post : world.posts) sem_init(&post.some, 0, 0);
}

void play(World& world) {
  std::vector<std::thread> threads;
  const auto work = [&](uint64_t number) {
    Worker worker(world, number);
    worker.run();
    worker.finish();
  };
  for (uint64_t i = 1; i < world.numbers.threads; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  Worker heir(world, 0);
  for (Post& post : world.posts) {
    for (const auto& [place, block] : post.blocks) {
      MUST(cuCtxSetCurrent(place->context));
      MUST(cuMemFree(block));
    }
  }
  heir.finish();
  for (Place& place : world.places) {
    MUST(cuCtxSetCurrent(place.context));
    for (CUdeviceptr block : place.shared) MUST(cuMemFree(block));
  }
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  for (int i = 1; i < argc; ++i) {
    if (world.numbers.read(argv[i])) continue;
    std::printf("not understood: %s\n", argv[i]);
    return 2;
  }
  open(world);
  play(world);
  std::printf("operations %llu\n",
              static_cast<unsigned long long>(world.numbers.operations * world.numbers.threads));
  return 0;
}
