// SPDX-License-Identifier: Apache-2.0
// RMM's resources, from its headers: each serves the same requests of changing sizes, whose bytes
// are checked when they are freed, is asked for more than there is, and prints what came of it.

#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

namespace {

using Resource = rmm::mr::device_memory_resource;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Held {
  void* memory;
  std::size_t bytes;
  int value;
};

bool as_written(const Held& held, rmm::cuda_stream_view stream) {
  std::vector<unsigned char> back(held.bytes);
  RMM_CUDA_TRY(cudaMemcpyAsync(back.data(), held.memory, held.bytes, cudaMemcpyDefault, stream));
  stream.synchronize();
  for (const unsigned char byte : back) {
    if (byte != held.value) return false;
  }
  return true;
}

// Sizes from 1 byte to the largest, small ones as often as large ones. Answers how many were wrong.
int churn(Resource& resource, rmm::cuda_stream_view stream, unsigned seed, std::size_t largest) {
  std::mt19937_64 drawn(seed);
  std::vector<Held> all;
  int wrong = 0;
  const auto give_back = [&](std::size_t index) {
    wrong += as_written(all[index], stream) ? 0 : 1;
    resource.deallocate(all[index].memory, all[index].bytes, stream);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (int step = 0; step < 400; ++step) {
    const double power = std::uniform_real_distribution(0.0, std::log2(largest))(drawn);
    const Held held{nullptr, static_cast<std::size_t>(std::exp2(power)), step % 256};
    all.push_back(held);
    all.back().memory = resource.allocate(held.bytes, stream);
    RMM_CUDA_TRY(cudaMemsetAsync(all.back().memory, held.value, held.bytes, stream));
    if (all.size() > 30) give_back(drawn() % all.size());
  }
  while (!all.empty()) give_back(all.size() - 1);
  return wrong;
}

const char* refused(Resource& resource, std::size_t bytes) {
  try {
    resource.deallocate(resource.allocate(bytes), bytes);
    return "served";
  } catch (const rmm::out_of_memory&) {
    return "out of memory";
  } catch (const rmm::bad_alloc&) {
    return "bad_alloc";
  }
}

void judge(const char* name, Resource& resource, std::size_t largest = 8 * kMiB) {
  rmm::cuda_stream stream;
  const int wrong = churn(resource, stream, 1, largest);
  std::printf("%s: wrong %d, 1 PiB %s\n", name, wrong, refused(resource, std::size_t{1} << 50));
}

void streams_and_threads(Resource& resource) {
  rmm::cuda_stream_pool streams(4);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      RMM_CUDA_TRY(cudaSetDevice(0));
      wrong[i] = churn(resource, streams.get_stream(i), i + 10, 2 * kMiB);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("four threads on four streams: wrong %d\n",
              wrong[0] + wrong[1] + wrong[2] + wrong[3]);
}

void buffers(Resource& resource) {
  rmm::cuda_stream stream;
  const std::vector<char> text(100'000, 'x');
  rmm::device_buffer first(text.data(), text.size(), stream, &resource);
  first.resize(3 * kMiB, stream);
  rmm::device_buffer second(first, stream, &resource);
  second.resize(text.size(), stream);
  second.shrink_to_fit(stream);
  std::printf("buffers: %zu %zu, as written %d\n", first.size(), second.capacity(),
              as_written({second.data(), second.size(), 'x'}, stream) ? 1 : 0);
  rmm::device_uvector<int> numbers(1000, stream, &resource);
  numbers.set_element(999, 7, stream);
  std::printf("uvector: %d\n", numbers.element(999, stream));
}

// How much of the device there is, in blocks that no pool splits.
void until_it_is_out(Resource& resource) {
  std::vector<void*> all;
  try {
    while (true) all.push_back(resource.allocate(128 * kMiB));
  } catch (const rmm::out_of_memory&) {
  }
  const auto [free, total] = rmm::available_device_memory();
  std::printf("out after %zu, %zu of %zu MiB are free\n", all.size(), free / kMiB, total / kMiB);
  for (void* memory : all) resource.deallocate(memory, 128 * kMiB);
}

}  // namespace

int main() {
  rmm::mr::cuda_memory_resource cuda;
  judge("cuda", cuda);
  streams_and_threads(cuda);
  until_it_is_out(cuda);
  {
    rmm::mr::pool_memory_resource pool(&cuda, 64 * kMiB, 1024 * kMiB);
    judge("pool", pool);
    streams_and_threads(pool);
    buffers(pool);
    std::printf("pool: %zu MiB\n", pool.pool_size() / kMiB);
  }
  {
    rmm::mr::pool_memory_resource pool(&cuda, rmm::percent_of_free_device_memory(50));
    std::printf("half the device: %zu MiB\n", pool.pool_size() / kMiB);
    judge("half the device", pool);
  }
  {
    rmm::mr::arena_memory_resource arena(&cuda, 512 * kMiB);
    judge("arena", arena);
    streams_and_threads(arena);
  }
  {
    rmm::mr::cuda_async_memory_resource async;
    judge("async", async);
    streams_and_threads(async);
  }
  {
    rmm::mr::managed_memory_resource managed;
    judge("managed", managed);
  }
  {
    rmm::mr::fixed_size_memory_resource fixed(&cuda, 64 * 1024, 16);
    judge("fixed", fixed, 64 * 1024);
    rmm::mr::binning_memory_resource bins(&cuda, 12, 20);
    judge("bins", bins);
  }
  {
    rmm::mr::limiting_resource_adaptor limited(&cuda, 256 * kMiB);
    judge("limited", limited);
    std::printf("limited: 200 MiB %s, 300 MiB %s\n", refused(limited, 200 * kMiB),
                refused(limited, 300 * kMiB));
    rmm::mr::statistics_resource_adaptor counted(&limited);
    judge("counted", counted);
    const auto bytes = counted.get_bytes_counter();
    std::printf("counted: now %ld, most %ld, in all %ld\n", static_cast<long>(bytes.value),
                static_cast<long>(bytes.peak), static_cast<long>(bytes.total));
    rmm::mr::tracking_resource_adaptor tracked(&cuda);
    judge("tracked", tracked);
    std::printf("tracked: %zu live\n", tracked.get_outstanding_allocations().size());
  }
  {
    rmm::mr::pinned_host_memory_resource pinned;
    void* memory = pinned.allocate(5 * kMiB);
    std::printf("pinned: %d\n", memory != nullptr ? 1 : 0);
    pinned.deallocate(memory, 5 * kMiB);
  }
  const auto [free, total] = rmm::available_device_memory();
  std::printf("at the end: all is free %d\n", free == total ? 1 : 0);
}
