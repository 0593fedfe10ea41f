// SPDX-License-Identifier: Apache-2.0
// A plan is made, while a program runs, for steps that repeat, and for no others.
//
//   planned_shapes marked    each step is in a graph, marked by calls, and others of ever new sizes
//                            lie between
//   planned_shapes ranges    the same, in NVTX ranges
//   planned_shapes back      a shape, then another, then the first again
//   planned_shapes common    a shape, then another that begins and ends with the same requests
//   planned_shapes overlap   blocks of a step are freed in the next one
//   planned_shapes streams   two streams, whose blocks are of one size
//   planned_shapes never     ever new sizes
//
// Until the log tells of a plan, and ten steps more. Blocks are checked: filled.h.
#include <cstring>
#include <random>
#include <vector>

#include "../graph_arena/graph.h"
#include "filled.h"
#include "tests/hangs.h"

namespace {

std::mt19937 g_random(7);
CUstream g_streams[2];
std::vector<Block> g_kept;

size_t new_size() { return 4 * (1000 + g_random() % 1000000); }

// Layers forward and backward, with a workspace each.
void layers(size_t first_kib) {
  std::vector<Block> activations;
  for (size_t i = 0; i < 8; ++i) {
    const Block workspace = get((2 * first_kib + 31 * i) * 1024);
    activations.push_back(get((first_kib + 17 * i) * 1024));
    give_back(workspace);
  }
  for (; !activations.empty(); activations.pop_back()) {
    const Block gradient = get(activations.back().bytes + 512);
    give_back(activations.back());
    give_back(gradient);
  }
}

// As a step of training does where the batch has another size, and the weights have not.
void with_common_ends(size_t first_kib) {
  const Block input = get(3 * kMiB);
  layers(first_kib);
  for (size_t i = 1; i <= 5; ++i) give_back(get(i * kMiB));
  give_back(input);
}

void in_graph(const char* how) {
  {
    const Graph graph(how, "step");
    layers(300);
  }
  for (auto more = 1 + g_random() % 3; more > 0; --more) give_back(get(new_size()));
}

void overlapping() {
  std::vector<Block> before;
  before.swap(g_kept);
  for (size_t i = 0; i < 8; ++i) {
    const Block own = get((100 + 40 * i) * 1024);
    g_kept.push_back(get((200 + 40 * i) * 1024));
    if (i % 2 == 0 && !before.empty()) {
      give_back(before.back());
      before.pop_back();
    }
    give_back(own);
  }
  for (const Block& block : before) give_back(block);
}

void on_two_streams() {
  std::vector<Block> blocks;
  for (size_t i = 0; i < 6; ++i) {
    blocks.push_back(get(500 * 1024, g_streams[i % 2]));
    blocks.push_back(get(500 * 1024, g_streams[(i + 1) % 2]));
    if (i % 3 == 2) {
      expect(cuCtxSynchronize());
      give_back(blocks[i - 1]);
      blocks.erase(blocks.begin() + static_cast<long>(i - 1));
    }
  }
  expect(cuCtxSynchronize());
  for (const Block& block : blocks) give_back(block);
}

template <typename Step>
void until_plans(int plans, Step step) {
  comes_true([&] {
    step();
    return plans_told() >= plans;
  });
  for (int i = 0; i < 10; ++i) step();
}

void run(const char* mode) {
  const auto is = [=](const char* name) { return std::strcmp(mode, name) == 0; };
  if (is("marked") || is("ranges")) until_plans(1, [=] { in_graph(mode); });
  if (is("overlap")) until_plans(1, overlapping);
  if (is("streams")) until_plans(1, on_two_streams);
  if (is("common")) {
    until_plans(1, [] { with_common_ends(300); });
    until_plans(2, [] { with_common_ends(700); });
  }
  if (is("back")) {
    const size_t shapes[] = {300, 700, 300};
    for (int i = 0; i < 3; ++i) until_plans(i + 1, [&] { layers(shapes[i]); });
  }
  if (is("never")) {
    for (int i = 0; i < 3000; ++i) give_back(get(new_size()));
  }
}

}  // namespace

int main(int count, char** words) {
  use_device(0);
  for (CUstream& stream : g_streams) expect(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  run(count > 1 ? words[1] : "");
  for (const Block& block : g_kept) give_back(block);
  std::printf("wrong: %d\n", g_wrong.load());
  return g_wrong != 0;
}
