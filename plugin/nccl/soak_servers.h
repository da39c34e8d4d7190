// The threads of NCCL that serve operations, for plugin_soak: proxy threads, the profiler's thread for kernels, and the
// network's. Each does one thing of one of its operations at a time, in random order.
//
// Thread rule: put() Thread-safe; serve() and serve_network() are a thread's own, until its inbox is closed.
// On error:    fail() says one line and ends the process.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plugin/nccl/soak_calls.h"

namespace lockstep::nccl {

template <typename V>
class SoakServers : protected SoakCalls<V> {
 protected:
  using Base = SoakCalls<V>;
  using Base::kUnderStep, Base::start, Base::stop, Base::stop_unless_null, Base::state, Base::bury, Base::dig_up,
      Base::play_foreign, Base::play_trap, Base::settings_, Base::reported_, Base::proxies_, Base::kernels_,
      Base::network_;
  using typename Base::Comm;
  using typename Base::Descriptor;
  using typename Base::KernelEvent;
  using typename Base::Library;
  using typename Base::ProxyEvent;
  using typename Base::Work;

  SoakServers(const SoakSettings& settings, SoakReported& reported) : Base(settings, reported) {}

  static void put(Inbox<Work>& inbox, Work work) {
    work.comm->pending.fetch_add(1);
    inbox.put(std::move(work));
  }

  void serve(Inbox<Work>& inbox, Random random) {
    std::vector<Work> works;
    for (;;) {
      if (!inbox.take(works, works.empty()) && works.empty()) return;
      for (int i = 0; i < 64 && !works.empty(); ++i) {
        Work& work = works[random.below(std::min<size_t>(works.size(), 24))];
        if (!advance(random, work)) continue;
        work.comm->pending.fetch_sub(1);
        std::swap(work, works.back());
        works.pop_back();
      }
      if (V::kNumber >= 4 && random.once_in(64)) play_trap(random);
    }
  }

  void serve_all(Random& random) {
    for (auto* inboxes : {&proxies_, &kernels_}) {
      std::vector<Work> works;
      inboxes->front()->take(works, false);
      for (Work& work : works) {
        while (!advance(random, work)) {
        }
        work.comm->pending.fetch_sub(1);
      }
    }
  }

  // One thing of one of the events. True: all of it is over.
  bool advance(Random& random, Work& work) {
    const size_t count = work.proxies.size() + work.kernels.size();
    if (count == 0) return true;
    const size_t i = random.below(count);
    if (i < work.proxies.size()) {
      if (advance_proxy(random, work, work.proxies[i])) {
        std::swap(work.proxies[i], work.proxies.back());
        work.proxies.pop_back();
      }
    } else if constexpr (V::kKernelEvents) {
      auto& kernel = work.kernels[i - work.proxies.size()];
      if (advance_kernel(random, work, kernel)) {
        std::swap(kernel, work.kernels.back());
        work.kernels.pop_back();
      }
    }
    return work.proxies.empty() && work.kernels.empty();
  }

  bool leave_open(Random& random, uint64_t times) {
    if (settings_.steady || !random.once_in(times)) return false;
    reported_.left_open.add();
    return true;
  }

  bool advance_proxy(Random& random, Work& work, ProxyEvent& proxy) {
    Comm& comm = *work.comm;
    if (!proxy.started) {
      proxy.started = true;
      if (random.once_in(64)) play_foreign(random);
      // Without a parent it is the context that counts, and that may be on its way out.
      if (work.op == nullptr) (comm.context == nullptr ? reported_.unfollowed : reported_.unfollowed_maybe).add();
      Descriptor descriptor = Library::proxy_op(work.op, proxy.channel, comm.rank + 1, proxy.send, proxy.steps);
      descriptor.proxyOp.chunkSize = static_cast<int>(comm.number);
      proxy.handle = start(comm.context, descriptor, dig_up(random));
      if (V::kIdentityInInit && proxy.handle != nullptr) state(proxy.handle, kStateProxyOpInProgress);
      return false;
    }
    if (proxy.step != nullptr) {
      advance_step(random, comm, proxy);
      return false;
    }
    const bool steps_reported = (work.latched & kUnderStep) != 0 && (V::kApiEvents || proxy.handle != nullptr);
    if (steps_reported && proxy.next_step < proxy.steps) {
      void* parent = random.once_in(64) ? nullptr : proxy.handle;
      proxy.step = start(comm.context, Library::proxy_step(parent, proxy.next_step++));
      proxy.stage = 0;
      return false;
    }
    if (proxy.handle == nullptr || leave_open(random, 500)) return true;
    stop(proxy.handle);
    reported_.proxy_ops.add();
    if (random.once_in(32)) stop(proxy.handle);
    if (random.once_in(32)) state(proxy.handle, kStateProxyOpInProgress);
    bury(random, proxy.handle);
    return true;
  }

  void advance_step(Random& random, const Comm& comm, ProxyEvent& proxy) {
    static constexpr int kSend[] = {kStateStepSendGpuWait, kStateStepSendPeerWait, kStateStepSendWait};
    static constexpr int kReceive[] = {kStateStepRecvWait, kStateStepRecvFlushWait, kStateStepRecvGpuWait};
    if (proxy.stage < 3) {
      const int number = (proxy.send ? kSend : kReceive)[proxy.stage];
      state(proxy.step, number, comm.number);
      if (number != kStateStepSendPeerWait || random.once_in(3)) ++proxy.stage;  // this one NCCL repeats
      if (V::kKernelEvents && random.once_in(16)) network_.put(proxy.step);
      return;
    }
    void* step = std::exchange(proxy.step, nullptr);
    if (leave_open(random, 300)) return;
    stop(step);
    reported_.proxy_steps.add();
    if (random.once_in(32)) stop(step);
    if (random.once_in(32)) state(step, kStateStepSendWait, 1);
    bury(random, step);
  }

  bool advance_kernel(Random& random, Work& work, KernelEvent& kernel) requires(V::kKernelEvents) {
    void* context = work.comm->context;
    if (!kernel.started) {
      kernel.started = true;
      kernel.handle = start(context, Library::kernel(work.op, kernel.channel, kernel.gpu_start_ns), dig_up(random));
      return kernel.handle == nullptr;
    }
    const uint64_t gpu_stop_ns = kernel.gpu_start_ns + tag::gpu_length(kernel.channel);
    if constexpr (V::kKernelPhase) {
      for (uint8_t phase = 0; (work.latched & kEventKernelPhase) != 0 && phase < 3; ++phase) {
        void* handle = start(context, Library::kernel_phase(kernel.handle, kernel.channel, phase, gpu_stop_ns));
        if (handle != nullptr) state(handle, kStateKernelPhaseStop, gpu_stop_ns);
        stop_unless_null(handle);
      }
    }
    if (leave_open(random, 300)) return true;
    if constexpr (V::kGpuTimes) {
      if (!random.once_in(100)) state(kernel.handle, kStateKernelChStop, gpu_stop_ns);
    }
    stop(kernel.handle);
    reported_.kernels.add();
    if (work.captured) reported_.captured_kernels.add();
    if (random.once_in(32)) state(kernel.handle, kStateKernelChStop, 1);
    if (random.once_in(32)) stop(kernel.handle);
    bury(random, kernel.handle);
    return true;
  }

  void serve_network() {
    std::vector<void*> steps;
    while (network_.take(steps, true)) {
      for (void* step : steps) {
        if constexpr (V::kKernelEvents) {
          Descriptor descriptor = Library::of(kEventNetPlugin, step);
          descriptor.netPlugin.id = 1 << 16 | 1;
          descriptor.netPlugin.data = this;
          void* handle = start(nullptr, descriptor);
          if (handle != nullptr) state(handle, kStateNetPluginUpdate);
          stop_unless_null(handle);
        }
      }
      steps.clear();
    }
  }
};

}  // namespace lockstep::nccl
