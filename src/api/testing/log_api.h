// The API over log records on disk. Requests go straight into answer(): no sockets.
//
// Thread rule: Confined.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "api/routes.h"
#include "api/testing/no_diagnosis.h"
#include "store/logs/columnar_log_store.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {

class LogApiTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;
  static constexpr int64_t kNow = 1'700'000'000 * kSecond;

  void SetUp() override {
    auto state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    auto logs = ColumnarLogStore::open({.folder = folder_.path() + "/logs", .background = false}, clock_, counters_);
    ASSERT_TRUE(state.ok() && logs.ok());
    state_ = std::move(*state);
    logs_ = std::move(*logs);
  }
  HttpResponse ask(ServerRequest request) {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    context.logs = logs_.get();
    request.is_gone = is_gone_;
    return answer(context, request);
  }
  HttpResponse get(const std::string& path, const std::string& query) {
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    return ask(std::move(request));
  }

  // In this order: the log store uses what stands before it to its end.
  TemporaryFolder folder_;
  FakeClock clock_{kNow};
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<ColumnarLogStore> logs_;
  AgentRegistry agents_;
  NoDiagnosis diagnosis_;
  std::atomic<bool> ready_{true};
  std::function<bool()> is_gone_;  // of the requests from now on
};

}  // namespace lockstep::testing
