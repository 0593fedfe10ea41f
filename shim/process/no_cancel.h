// SPDX-License-Identifier: Apache-2.0
// For a scope, the calling thread is not cancelled (pthread_cancel): a driver call, or a write to
// the log, may be a cancellation point, and a thread that ended there would leave what Cistern
// counts in and holds meanwhile as it was. The request stays pending. Any thread.
#pragma once

#include <pthread.h>

namespace cistern::shim {

class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace cistern::shim
