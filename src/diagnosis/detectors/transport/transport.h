// Transport: a job whose hosts have RDMA adapters and whose data goes over TCP instead.
//
// The idea: this has no beginning that could be seen in steps, since it is so from the first one on. The adapters say
// it: nothing is sent by RDMA while their interfaces carry the job's bytes, on most of its hosts. What it costs cannot
// be measured without a run over RDMA; the finding gives the bound, the time that communication keeps GPUs waiting.
//
// Thread rule: Thread-safe (the book is).
#pragma once

#include <cstdint>
#include <optional>

#include "diagnosis/finding.h"
#include "diagnosis/signals/signal_store.h"
#include "diagnosis/window.h"

namespace lockstep {

std::optional<Finding> find_tcp_instead_of_rdma(const JobWindow& window, const SignalStore& signals,
                                                int64_t now_unix_ns);

}  // namespace lockstep
