// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/tool.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "allocator/plan/plan_file.h"
#include "allocator/record/freed_map.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::plan {
namespace {

struct Call {
  uint64_t time;
  bool allocates;
  uint32_t block;

  bool operator<(const Call& other) const {
    if (time != other.time) return time < other.time;
    return allocates != other.allocates ? !allocates : block < other.block;
  }
};

// The calls of the blocks that are planned. In a table each block has its free.
std::vector<Call> calls_of(const Input& input) {
  std::vector<Call> calls;
  for (uint32_t i = 0; i < input.lives.size(); ++i) {
    const Lifetime& life = input.lives[i];
    calls.push_back({.time = life.from, .allocates = true, .block = i});
    const bool is_freed = !input.counts_calls || life.to != input.calls;
    if (is_freed) calls.push_back({.time = life.to, .allocates = false, .block = i});
  }
  return calls;
}

// Numbers all calls by time.
uint32_t number_calls(const Input& input, std::vector<PlannedRequest>& requests) {
  std::vector<Call> calls = calls_of(input);
  for (uint32_t i = 0; i < input.outside.size(); ++i) {
    const auto number = static_cast<uint32_t>(input.lives.size() + i);
    calls.push_back({.time = input.outside[i].from, .allocates = true, .block = number});
  }
  std::sort(calls.begin(), calls.end());
  const auto count = static_cast<uint32_t>(calls.size());
  for (PlannedRequest& request : requests) request.freed = count;
  for (uint32_t i = 0; i < count; ++i) {
    PlannedRequest& request = requests[calls[i].block];
    (calls[i].allocates ? request.allocated : request.freed) = i;
  }
  return count;
}

uint64_t stream_of(const Input& input, size_t request) {
  if (request >= input.lives.size()) return input.outside[request - input.lives.size()].stream;
  return input.streams.empty() ? 0 : input.streams[request];
}

std::string name_of(const Input& input, uint32_t request) {
  if (input.origins.empty()) return "request " + std::to_string(request);
  return tool::printable(input.known[input.origins[request]].text);
}

}  // namespace

std::string plan_text(const Result& result) {
  const Input& input = result.input;
  std::vector<PlannedRequest> requests;
  for (size_t i = 0; i < input.lives.size(); ++i) {
    PlannedRequest& request = requests.emplace_back(PlannedRequest{});
    request.bytes = input.lives[i].bytes;
    request.offset = result.offsets[i];
  }
  for (const Outside& outside : input.outside) {
    PlannedRequest& request = requests.emplace_back(PlannedRequest{});
    request.bytes = outside.bytes;
    request.outside = 1;
  }
  PlanHead head{};
  head.calls = number_calls(input, requests);
  head.device = input.device;
  head.period = input.of_thread   ? Period::thread
                : input.iteration ? Period::iteration
                                  : Period::run;
  head.before = input.before;
  head.bytes = result.bytes;
  head.lower_bound = result.problem.lower_bound();
  head.alignment = result.alignment;
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return requests[a].allocated < requests[b].allocated; });
  std::vector<PlannedRequest> ordered;
  std::unordered_map<uint64_t, uint32_t> numbers;
  for (const uint32_t i : order) {
    ordered.push_back(requests[i]);
    const uint64_t stream = stream_of(input, i);
    if (stream == 0) continue;
    const auto number = static_cast<uint32_t>(numbers.size() + 1);
    ordered.back().stream = numbers.try_emplace(stream, number).first->second;
  }
  finish_head(head, ordered);
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(reinterpret_cast<const char*>(ordered.data()), ordered.size() * sizeof ordered[0]);
  return text;
}

std::string table_text(const Result& result) {
  std::string text = "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < result.input.lives.size(); ++i) {
    const Lifetime& life = result.input.lives[i];
    text += result.input.ids.empty() ? std::to_string(i) : result.input.ids[i];
    for (const uint64_t number : {life.from, life.to, life.bytes, result.offsets[i]}) {
      text += ',' + std::to_string(number);
    }
    text += '\n';
  }
  return text;
}

std::string reuse_text(const Result& result) {
  using ull = unsigned long long;
  const Input& input = result.input;
  std::vector<Call> calls = calls_of(input);
  std::sort(calls.begin(), calls.end());
  FreedMap freed;
  std::string text;
  ull number = 0, asked = 0, all_saved = 0;
  for (const Call& call : calls) {
    const uint64_t bytes = input.lives[call.block].bytes, offset = result.offsets[call.block];
    if (!call.allocates) {
      freed.add(offset, bytes, call.block);
      continue;
    }
    asked += bytes;
    uint64_t saved = 0, most = 0;
    uint32_t former = 0;  // the block that leaves it most
    freed.cut(offset, bytes, [&](const FreedBlock& block, uint64_t left) {
      saved += left;
      if (left > most) most = left, former = block.site;
    });
    if (saved == 0) continue;
    all_saved += saved;
    text += "reuse " + std::to_string(++number) + ": " + std::to_string(bytes) + " bytes for " +
            name_of(input, call.block) + "; of a block of " +
            std::to_string(input.lives[former].bytes) + " bytes of " + name_of(input, former) +
            "; " + std::to_string(saved) + " saved\n";
  }
  tool::append(
      text,
      "reuse        %llu of %zu requests take over another's memory; %llu bytes requested, "
      "%llu planned, %llu saved\n",
      number, input.lives.size(), asked, static_cast<ull>(result.bytes), all_saved);
  return text;
}

std::string picture_text(const Result& result) {
  constexpr double kWidth = 1200, kHeight = 800;
  const std::span<const Block> blocks = result.problem.blocks();
  const double across = kWidth / static_cast<double>(result.problem.live().size());
  const double up = kHeight / static_cast<double>(result.bytes);
  std::string text = tool::begin_picture(kWidth, kHeight);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const double height = static_cast<double>(blocks[i].bytes) * up;
    const double top = kHeight - static_cast<double>(result.offsets[i]) * up - height;
    tool::append(text, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ",
                 blocks[i].first * across, top, (blocks[i].last - blocks[i].first + 1) * across,
                 height);
    tool::append(text, "fill=\"hsl(%zu,60%%,70%%)\" stroke=\"black\" stroke-width=\"0.1\"/>\n",
                 i * 137 % 360);
  }
  const double bound = kHeight - static_cast<double>(result.problem.lower_bound()) * up;
  tool::append(text, "<path d=\"M0 %.2fH%g\" stroke=\"red\"/>\n", bound, kWidth);
  tool::append(text,
               "<text x=\"4\" y=\"%.2f\" fill=\"red\">lower bound %llu bytes</text>\n</svg>\n",
               bound + 14, static_cast<unsigned long long>(result.problem.lower_bound()));
  return text;
}

}  // namespace cistern::alloc::plan
