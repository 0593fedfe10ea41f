// SPDX-License-Identifier: Apache-2.0
#include "memory/taken.h"

#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/faults.h"
#include "exec/context.h"
#include "memory/device.h"

namespace simcuda {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<const Context*, std::vector<std::weak_ptr<Taken>>> of;
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

}  // namespace

void Taken::give_back() { device_.refund(bytes_.exchange(0)); }

CUresult take_for(Call call, Context& context, TakenRef* taken) {
  const uint64_t bytes = planted_taking(call);
  if (bytes == 0) return CUDA_SUCCESS;
  if (!context.device().charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *taken = std::make_shared<Taken>(context.device(), bytes);
  const std::lock_guard lock(registry().mutex);
  auto& all = registry().of[&context];
  std::erase_if(all, [](const std::weak_ptr<Taken>& one) { return one.expired(); });
  all.push_back(*taken);
  return CUDA_SUCCESS;
}

void give_back_all(const Context& context) {
  std::vector<std::weak_ptr<Taken>> all;
  {
    const std::lock_guard lock(registry().mutex);
    all = std::move(registry().of[&context]);
    registry().of.erase(&context);
  }
  for (const auto& one : all) {
    if (const TakenRef taken = one.lock()) taken->give_back();
  }
}

}  // namespace simcuda
