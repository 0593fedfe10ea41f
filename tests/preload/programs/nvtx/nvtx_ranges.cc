// SPDX-License-Identifier: Apache-2.0
// Names what it does by NVTX, in the ways that there are; the argument says which.
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nvtx3/nvtx3.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

struct trainer {
  static constexpr char const* name{"trainer"};
};

struct forward_message {
  static constexpr char const* message{"forward"};
};

nvtxEventAttributes_t event(int32_t type) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = type;
  return attributes;
}

void domain_push(nvtxDomainHandle_t domain, const char* message) {
  nvtxEventAttributes_t attributes = event(NVTX_MESSAGE_TYPE_ASCII);
  attributes.message.ascii = message;
  nvtxDomainRangePushEx(domain, &attributes);
}

void nested() {
  nvtxRangePushA("outer");
  nvtxRangePushW(L"inn\u00e9r \u2713 \U0001F600");
  nvtxRangePop();
  nvtxRangePushA(nullptr);
  nvtxRangePop();
  nvtxRangePop();
  nvtxRangePop();  // of nothing
}

void domains() {
  const nvtxDomainHandle_t one = nvtxDomainCreateA("one");
  const nvtxDomainHandle_t two = nvtxDomainCreateW(L"two");
  domain_push(one, "a");
  domain_push(two, "b");
  nvtxEventAttributes_t attributes = event(NVTX_MESSAGE_TYPE_REGISTERED);
  attributes.message.registered = nvtxDomainRegisterStringA(one, "registered");
  nvtxDomainRangePushEx(one, &attributes);
  nvtxDomainRangePop(two);
  nvtxDomainRangePop(one);
  nvtxDomainRangePop(one);
  attributes.message.registered = nvtxDomainRegisterStringW(two, L"w\u00efde");
  const nvtxRangeId_t id = nvtxDomainRangeStartEx(two, &attributes);
  nvtxDomainRangeEnd(two, id);
  nvtxDomainRangePushEx(one, nullptr);
  nvtxDomainDestroy(one);  // the last one is open
  nvtxRangePushA("after");
  nvtxRangePop();
}

void started() {
  const nvtxRangeId_t first = nvtxRangeStartA("first");
  nvtxRangePushA("pushed");
  const nvtxRangeId_t second = nvtxRangeStartW(L"second");
  nvtxRangeEnd(first);
  nvtxRangeEnd(first);  // once more
  nvtxRangePop();
  std::thread([second] { nvtxRangeEnd(second); }).join();
  nvtxRangePushA("alone");
  nvtxRangePop();
  nvtxRangeId_t of_dead = 0;
  std::thread([&of_dead] {
    of_dead = nvtxRangeStartA("dead");
    nvtxRangePushA("dies inside");
  }).join();
  nvtxRangeEnd(of_dead);
}

void cpp() {
  const nvtx3::scoped_range_in<trainer> step{"step"};
  const nvtx3::scoped_range_in<trainer> forward{
      nvtx3::registered_string_in<trainer>::get<forward_message>()};
  NVTX3_FUNC_RANGE();
}

// Each of 64 threads does the same; the ranges of one are not those of another.
void threads() {
  nvtxInitialize(nullptr);  // threads that do it at once race in NVTX itself
  std::vector<std::thread> all;
  all.reserve(64);
  for (int i = 0; i < 64; ++i) {
    all.emplace_back([i] {
      const std::string own = "thread " + std::to_string(i);
      for (int round = 0; round < 100; ++round) {
        nvtxRangePushA(own.c_str());
        nvtxRangePushA("inside");
        nvtxRangePop();
        nvtxRangePop();
      }
      nvtxRangePushA("left open");
    });
  }
  for (std::thread& thread : all) thread.join();
}

void forks() {
  nvtxRangePushA("parent");
  const pid_t child = fork();
  if (child == 0) {
    nvtxRangePushA("child");
    nvtxRangePop();
    nvtxRangePop();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  nvtxRangePop();
  std::printf("child: %d\n", status);
}

void deep() {
  for (int i = 0; i < 1000; ++i) nvtxRangePushA("deep");
  for (int i = 0; i < 1000; ++i) nvtxRangePop();
  nvtxRangePushA("shallow");
  nvtxRangePop();
}

// What a tool answers is what the program gets.
void tool() {
  nvtxMarkA("here");
  std::printf("push %d\n", nvtxRangePushA("outer"));
  const nvtxRangeId_t id = nvtxRangeStartA("started");
  std::printf("start %llu\n", static_cast<unsigned long long>(id));
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
  const nvtxStringHandle_t string = nvtxDomainRegisterStringA(domain, "string");
  std::printf("handles %d %d\n", domain != nullptr, string != nullptr);
  nvtxEventAttributes_t attributes = event(NVTX_MESSAGE_TYPE_REGISTERED);
  attributes.message.registered = string;
  if (string != nullptr) std::printf("push %d\n", nvtxDomainRangePushEx(domain, &attributes));
  if (string != nullptr) std::printf("pop %d\n", nvtxDomainRangePop(domain));
  nvtxRangeEnd(id);
  std::printf("pop %d\n", nvtxRangePop());
  if (domain != nullptr) nvtxDomainDestroy(domain);
}

void levels() {
  std::printf("%d ", nvtxRangePushA("a"));
  std::printf("%d ", nvtxRangePushA("b"));
  std::printf("%d ", nvtxRangePop());
  std::printf("%d ", nvtxRangePop());
  std::printf("%d\n", nvtxRangePop());
}

// Nanoseconds for each pair of a push and a pop.
void bench() {
  constexpr int kPairs = 1'000'000;
  nvtxRangePushA("outer");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kPairs; ++i) {
    nvtxRangePushA("forward pass");
    nvtxRangePop();
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.1f\n", took.count() / kPairs);
  nvtxRangePop();
}

}  // namespace

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*function)();
  } ways[] = {{"nested", nested},   {"domains", domains}, {"started", started}, {"cpp", cpp},
              {"threads", threads}, {"forks", forks},     {"deep", deep},       {"tool", tool},
              {"levels", levels},   {"bench", bench}};
  for (const auto& way : ways) {
    if (argc > 1 && std::strcmp(argv[1], way.name) == 0) {
      way.function();
      return EXIT_SUCCESS;
    }
  }
  return EXIT_FAILURE;
}
