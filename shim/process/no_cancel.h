// SPDX-License-Identifier: Apache-2.0
// While a NoCancel exists, the calling thread is not cancelled (pthread_cancel); a request stays
// pending. A driver call or a write to the log may be a cancellation point. A thread that ended
// there would never release the locks and counts that Cistern holds during the call. Any thread. It
// is a file of its own, because thread.h relies on the settings, these on the log, and the log on
// this.
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
