// SPDX-License-Identifier: Apache-2.0
//
// What processes share of an event made with CU_EVENT_INTERPROCESS: a page with the number of its
// last record and of the last one that was reached. Its handle names the process that made the
// event and the file behind the page; opening it needs that process, and one user for both. A wait
// for a record of a process that ended is over. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda.h"

namespace simcuda {

class SharedEvent {
 public:
  // Null when the system has no file or memory left.
  static std::shared_ptr<SharedEvent> make();
  static CUresult open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* out);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // Only of an event made here.
  bool get_handle(CUipcEventHandle* out) const;

  uint64_t begin_record();
  void reach(uint64_t record);
  uint64_t last_record() const;
  bool has_reached(uint64_t record) const;
  void await(uint64_t record) const;

 private:
  struct Page;
  SharedEvent(int file, Page* page) : file_(file), page_(page) {}
  static std::shared_ptr<SharedEvent> map(int file, bool keep_file);

  int file_;  // -1: another process's
  Page* page_;
};

}  // namespace simcuda
