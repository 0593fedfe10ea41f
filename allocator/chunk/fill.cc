// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/fill.h"

namespace cistern::alloc {

FillMode fill_mode(const config::Policy& policy) {
  if (policy.fill_byte() < 0) return FillMode::off;
  const bool separate = policy.atomic_clean_policy.value == config::CleanPolicy::kSeparate;
  return separate ? FillMode::separate : FillMode::gathered;
}

int Filler::fill_ranges(const FillRange* ranges, int count) {
  const int code = source_->fill(ranges, count);
  if (code != kSuccess) return code;
  ledger_->fill_waits.add();
  for (int i = 0; i < count; ++i) {
    ledger_->fills.add();
    ledger_->fill_bytes.add(ranges[i].bytes);
  }
  return code;
}

void Filler::fill(uint64_t address, uint64_t bytes) {
  const FillRange range{address, bytes};
  const int code = fill_ranges(&range, 1);
  if (code != kSuccess) (code == kNotNow ? ledger_->fills_skipped : ledger_->fills_failed).add();
}

bool Filler::fill_ahead(const FillRange* ranges, int count) {
  return fill_ranges(ranges, count) == kSuccess;
}

}  // namespace cistern::alloc
