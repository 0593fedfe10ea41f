// SPDX-License-Identifier: Apache-2.0
// Which functions are called when something happens to the process or to one of its contexts. Lower
// folders may not include higher ones, so they call them through these two tables
// (process/settings.h, order/contexts/context.h).
#include "shim/host/host_memory.h"
#include "shim/ipc/exporter.h"
#include "shim/ipc/protocol.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/imported.h"
#include "shim/kinds/stream_ordered/memory_pools.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/kinds/unpooled.h"
#include "shim/nvtx/ranges.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/shared.h"
#include "shim/pooled/selection.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/report_figures.h"
#include "shim/process/settings.h"
#include "shim/record/record.h"
#include "shim/sites/sites.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

// Bytes of all pools that lie in no block of any kind.
uint64_t lost_to_rounding(const ProcessReport& process) {
  uint64_t lost = 0;
  DeviceReport device;
  for (int i = 0; process.next_device(i, &device); i = device.ordinal + 1) {
    const alloc::Usage& u = device.usage;
    const uint64_t held = u.live + u.idle + u.waiting + u.parked + u.garbage + u.quarantined;
    const uint64_t reserved = device.ledger->reserved.get();
    if (reserved > held) lost += reserved - held;
  }
  return lost;
}

void tell_at_exit() {
  ProcessReport process = describe_process();
  process.holders = holders_report();
  process.site_entry = chosen_sites_entry;
  process.ipc = {tokens_made(), tokens_answered(), blocks_imported(), imports_unanswered()};
  process.driver_pools = kept_pools_report();
  if (watching(kWatchReuse)) log_reuse_summary(lost_to_rounding(process));
  write_report(process);
}

const Part kParts[] = {
    {.at_load = open_log, .without_pools = true},
    {.at_load = open_watch,
     .at_start = start_watch,
     .in_child = stop_watching,
     .without_pools = true},
    {.at_start = start_host_memory,
     .at_bad_start = tell_bad_settings_at_first_block,
     .at_cuda_start = start_releasing_idle_host_memory},
    {.at_load = open_report, .at_exit_without_cuda = tell_that_no_cuda_was_used},
    {.at_load = open_chosen_sites},
    {.at_load = watch_unknown_functions},
    {.in_child = reset_sites_after_fork},
    {.in_child = [] { capture_gate().reset_after_fork(); }},
    {.in_child = reset_graphs_after_fork},
    {.in_child = reset_graph_contexts_after_fork},
    {.in_child = reset_contexts_after_fork, .before_driver_ends = pay_debts_at_exit},
    {.at_load = open_scratch, .in_child = reset_scratch_after_fork},
    {.at_load = open_charges, .in_child = reset_charges_after_fork},
    {.in_child = reset_memory_pools_after_fork},
    {.in_child = reset_kept_pools_after_fork},
    {.in_child = reset_physical_after_fork},
    {.at_start = [](const config::Policy&) { close_what_children_get(); }, .without_pools = true},
    {.in_child = reset_service_after_fork, .at_exit = stop_service},
    {.in_child = reset_exports_after_fork},
    {.in_child = reset_background_after_fork,
     .before_driver_ends = stop_background,
     .at_exit = stop_background,
     .without_pools = true},
    {.at_exit = close_recording, .without_pools = true},
    {.at_exit = tell_at_exit},
};

// A Moving makes a thread that finds no memory meanwhile try again.
bool give_back_left_units() {
  const alloc::Movers::Moving moving(shared().movers);
  return shared().left_units.try_again();
}

constexpr ContextClient kContextClients[] = {
    {.closing = scratch_close,
     .reopened = scratch_reopen,
     .gone = [](const Context& context, CUcontext handle,
                uint64_t) { scratch_drop(context, handle); },
     .before_synchronise = scratch_before_synchronise,
     .synchronised = scratch_synchronised,
     .release_idle_memory = scratch_release_idle},
    {.reopened = [](const Context&) { give_back_left_units(); },
     .release_idle_memory = [](CUdevice) { return give_back_left_units(); },
     .before_free_is_told = [](CUdevice) { give_back_left_units(); }},
    {.release_idle_memory = trim_default_pools},
    {.closing = kept_pools_close,
     .release_idle_memory = trim_kept_pools,
     .before_free_is_told = give_back_kept},
    {.gone = [](const Context&, CUcontext handle, uint64_t) { context_charges_gone(handle); }},
    {.gone = [](const Context&, CUcontext handle, uint64_t) { end_exports_of(handle); }},
    {.reopened = [](const Context&) { unmap_imports_of_gone(); },
     .gone = [](const Context&, CUcontext handle, uint64_t) { imports_of_context_gone(handle); }},
    {.gone = [](const Context&, CUcontext handle,
                uint64_t held) { watch_context_end(handle, held); }},
};

}  // namespace

std::span<const Part> parts() { return kParts; }

std::span<const ContextClient> context_clients() { return kContextClients; }

}  // namespace cistern::shim
