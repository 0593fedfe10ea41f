// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include <atomic>
#include <functional>

#include "tests/catch.h"

namespace cistern::shim {
namespace {

// A context whose end goes on between any two reads of a visitor.
struct EndingContext {
  struct Handle {
    EndingContext* context;
    CUcontext value;
    CUcontext load() const {
      CUcontext seen = value;
      context->between();
      return seen;
    }
  } handle{this, reinterpret_cast<CUcontext>(0x10)};
  struct Source {
    EndingContext* context;
    bool now;
    bool closing() const {
      const bool seen = now;
      context->between();
      return seen;
    }
  } source{this, false};
  std::atomic<int> visitors{0};
  std::function<void()> step;

  void between() {
    if (step) step();
  }
  void end() {
    handle.value = nullptr;
    source.now = false;
  }
};

using VisitOfEnding = VisitOf<EndingContext>;

TEST_CASE("a visit is counted as long as it lasts, whatever it finds", "[contexts]") {
  EndingContext context;
  {
    const VisitOfEnding visit(context);
    CHECK(visit.open());
    CHECK_FALSE(visit.closing());
    CHECK(context.visitors == 1);
    const VisitOfEnding inner(context);
    CHECK(context.visitors == 2);
  }
  context.end();
  const VisitOfEnding visit(context);
  CHECK(visit.handle() == nullptr);
  CHECK_FALSE(visit.open());
  CHECK_FALSE(visit.closing());
  CHECK(context.visitors == 1);
}

// Its end had waited for visitors before this one came.
TEST_CASE("a context that is closing is not open, also if it is gone a moment later",
          "[contexts]") {
  EndingContext context;
  context.source.now = true;
  SECTION("it stays") {
    const VisitOfEnding visit(context);
    CHECK(visit.closing());
    CHECK_FALSE(visit.open());
  }
  SECTION("it is gone between the two reads") {
    context.step = [&] { context.end(); };
    const VisitOfEnding visit(context);
    CHECK_FALSE(visit.open());
  }
}

// An end that begins then waits for this visitor.
TEST_CASE("a context that begins to close between the two reads is open", "[contexts]") {
  EndingContext context;
  context.step = [&] {
    CHECK(context.visitors == 1);
    context.source.now = true;
  };
  const VisitOfEnding visit(context);
  CHECK(visit.open());
}

}  // namespace
}  // namespace cistern::shim
