// SPDX-License-Identifier: Apache-2.0
// Device memory is the race watcher's to look after: ThreadSanitizer (GCC's) would only see this
// process's stand-in for it, and take the threads that stand for streams for ones that must
// synchronise.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace simcuda {

// While it lives, what this thread reads and writes is not looked at.
class UnseenByTsan {
 public:
#if defined(__SANITIZE_THREAD__)
  UnseenByTsan() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~UnseenByTsan() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  // NOLINTBEGIN(modernize-use-equals-default): else its variables would count as unused
  UnseenByTsan() {}
  ~UnseenByTsan() {}
  // NOLINTEND(modernize-use-equals-default)
#endif
  UnseenByTsan(const UnseenByTsan&) = delete;
  UnseenByTsan& operator=(const UnseenByTsan&) = delete;
};

}  // namespace simcuda
