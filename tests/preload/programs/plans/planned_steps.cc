// SPDX-License-Identifier: Apache-2.0
// A training loop: in each step the same requests, and blocks that stay for all steps.
//
//   planned_steps until         until the log tells of a plan, and ten steps more; then all again
//                               with other sizes
//   planned_steps STEPS [ODD]   ODD, what is different in the third step:
//     more      one more request
//     less      half of the step is left out
//     late      a block is freed in the step after it
//     early     blocks are freed in another order
//     captured  a request is made while a stream captures, which refuses it
//   planned_steps STEPS both      each step on device 0, then on device 1
//
// Blocks are checked: filled.h.

#include <algorithm>
#include <cstring>
#include <vector>

#include "filled.h"
#include "tests/hangs.h"

namespace {

size_t g_least = 300;  // KiB of an activation

void refused_in_capture() {
  CUstream stream;
  CUgraph graph;
  CUdeviceptr none = 0;
  expect(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  expect(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::printf("in a capture: %d\n", cuMemAlloc(&none, 4 * kMiB));
  cuStreamEndCapture(stream, &graph);
  expect(cuStreamDestroy(stream));
}

struct Late {
  Block block{};
  bool held = false;
  void end() {
    if (held) give_back(block);
    held = false;
  }
};

// Layers forward, each with a workspace for itself, then backward, with a gradient for each.
void step(const char* odd, Late* late) {
  constexpr int kLayers = 12;
  const auto is = [=](const char* name) { return std::strcmp(odd, name) == 0; };
  const auto bytes_of = [](int layer) {
    return (g_least + 97 * static_cast<size_t>(layer)) * 1024;
  };
  std::vector<Block> activations;
  if (is("more")) give_back(get(7 * kMiB));
  if (is("captured")) refused_in_capture();
  for (int layer = 0; layer < kLayers; ++layer) {
    const Block workspace = get(2 * bytes_of(kLayers - layer));
    activations.push_back(get(bytes_of(layer)));
    const Block small = get(4 * static_cast<size_t>(layer + 1));
    give_back(workspace);
    give_back(small);
  }
  late->end();
  if (is("early")) std::reverse(activations.begin(), activations.end());
  while (!activations.empty()) {
    const Block gradient = is("less") ? activations.back() : get(activations.back().bytes + 512);
    if (is("late") && activations.size() == kLayers / 2) {
      *late = {activations.back(), true};
    } else if (!is("less")) {
      give_back(activations.back());
    }
    give_back(gradient);
    activations.pop_back();
  }
}

void until_planned() {
  Late late;
  for (int plans = 1; plans <= 2; ++plans) {
    comes_true([&] {
      step("", &late);
      return plans_told() >= plans;
    });
    for (int i = 0; i < 10; ++i) step("", &late);
    g_least = 700;
  }
}

}  // namespace

int main(int count, char** words) {
  const bool until = count > 1 && std::strcmp(words[1], "until") == 0;
  const int steps = count > 1 ? std::atoi(words[1]) : 1;
  const char* odd = count > 2 ? words[2] : "";
  use_device(0);
  std::vector<Block> weights;
  for (size_t i = 0; i < 10; ++i) weights.push_back(get((1 + i % 3) * kMiB));
  Late late;
  if (until) until_planned();
  const bool both = std::strcmp(odd, "both") == 0;
  for (int i = 0; i < steps; ++i) {
    step(i == 2 ? odd : "", &late);
    if (!both) continue;
    use_device(1);
    step("", &late);
    use_device(0);
  }
  late.end();
  for (const Block& weight : weights) give_back(weight);
  if (!until) std::printf("%u blocks, ", g_number.load());
  std::printf("wrong: %d\n", g_wrong.load());
  return g_wrong != 0;
}
