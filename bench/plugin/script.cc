#include "bench/plugin/script.h"

#include <unistd.h>

namespace lockstep::plugin_bench {
namespace {

using replay::CallLine;
using replay::kNone;

constexpr uint64_t kStepBytes = 512 << 10;
constexpr uint64_t kKernelNs = 150'000;

// Writes down a script in the order of the calls.
class Writer {
 public:
  Writer(Host& host, Script& script, uint32_t& objects) : host_(host), script_(script), objects_(objects) {}

  uint32_t start(const CallLine& line, uint32_t parent = kNone, uint32_t group = kNone) {
    return start(line, parent, group, objects_++, ::getpid());
  }
  uint32_t start(const CallLine& line, uint32_t parent, uint32_t group, uint32_t object, int our_pid) {
    Step step;
    step.type = line.type;
    step.value = line.type == nccl::kEventColl ? line.seq : line.gpu_time_ns;
    step.descriptor = static_cast<uint32_t>(script_.descriptors.size());
    step.object = object;
    // Before v5 an operation's parent is its group.
    step.parent = host_.version() < 5 && group != kNone ? group : parent;
    step.group_offset = host_.group_offset(line.type);
    step.group = step.group_offset != 0 ? group : kNone;
    step.row = row_of(line.type, Verb::kStart);
    script_.descriptors.push_back(host_.describe(line, our_pid));
    script_.steps.push_back(step);
    return step.object;
  }
  void state(uint64_t type, uint32_t object, int state, uint64_t value = 0, bool repeat = false) {
    Step step;
    step.type = type;
    step.value = value;
    step.object = object;
    step.state = state;
    step.verb = Verb::kState;
    step.row = row_of(type, Verb::kState, repeat);
    script_.steps.push_back(step);
  }
  void stop(uint64_t type, uint32_t object) {
    Step step;
    step.type = type;
    step.object = object;
    step.verb = Verb::kStop;
    step.row = row_of(type, Verb::kStop);
    script_.steps.push_back(step);
  }

 private:
  Host& host_;
  Script& script_;
  uint32_t& objects_;
};

CallLine line_of(uint64_t type) {
  CallLine line;
  line.kind = replay::CallKind::kStart;
  line.type = type;
  return line;
}
CallLine all_reduce(uint64_t type, int channels) {
  CallLine line = line_of(type);
  line.rank = type == nccl::kEventColl ? 3 : 0;
  line.function = "AllReduce";
  line.datatype = "ncclFloat32";
  line.algorithm = "RING";
  line.protocol = "SIMPLE";
  line.count = 16 << 20;
  line.stream = 0x5000;
  line.channel = static_cast<uint8_t>(channels);
  line.warps = 16;
  return line;
}
CallLine proxy_op(int channel, bool send, int steps) {
  CallLine line = line_of(nccl::kEventProxyOp);
  line.rank = 3;
  line.pid = ::getpid();
  line.channel = static_cast<uint8_t>(channel);
  line.root_or_peer = send ? 4 : 2;
  line.step_count = steps;
  line.chunk_bytes = static_cast<int32_t>(kStepBytes);
  line.flag = send;
  return line;
}
CallLine proxy_step(int number) {
  CallLine line = line_of(nccl::kEventProxyStep);
  line.rank = 3;
  line.number = number;
  return line;
}
CallLine kernel(int channel) {
  CallLine line = line_of(nccl::kEventKernelCh);
  line.channel = static_cast<uint8_t>(channel);
  line.gpu_time_ns = static_cast<uint64_t>(channel);
  return line;
}

void write_step(Writer& proxy, uint32_t operation, int number, bool send, int polls) {
  const uint64_t type = nccl::kEventProxyStep;
  const uint32_t step = proxy.start(proxy_step(number), operation);
  if (send) {
    proxy.state(type, step, nccl::kStateStepSendGpuWait);
    proxy.state(type, step, nccl::kStateStepSendPeerWait);
    for (int i = 0; i < polls; ++i) proxy.state(type, step, nccl::kStateStepSendPeerWait, 0, true);
    proxy.state(type, step, nccl::kStateStepSendWait, kStepBytes);
  } else {
    proxy.state(type, step, nccl::kStateStepRecvWait);
    proxy.state(type, step, nccl::kStateStepRecvFlushWait, kStepBytes);
    proxy.state(type, step, nccl::kStateStepRecvGpuWait);
  }
  proxy.stop(type, step);
}

}  // namespace

Collective make_collective(Host& host, int channels, int steps, int polls) {
  using namespace nccl;
  Collective collective;
  Writer api(host, collective.enqueue, collective.objects);
  CallLine depth = line_of(kEventGroupApi);
  depth.number = 1;
  const uint32_t group_api = api.start(depth);
  api.state(kEventGroupApi, group_api, kStateGroupStartApiStop);
  const uint32_t coll_api = api.start(all_reduce(kEventCollApi, channels), group_api);
  api.stop(kEventCollApi, coll_api);
  api.state(kEventGroupApi, group_api, kStateGroupEndApiStart);
  const uint32_t launch = api.start(line_of(kEventKernelLaunch), group_api);
  api.stop(kEventKernelLaunch, launch);
  const uint32_t group = api.start(line_of(kEventGroup));
  const uint32_t coll = api.start(all_reduce(kEventColl, channels), coll_api, group);
  api.stop(kEventColl, coll);
  api.stop(kEventGroup, group);
  api.stop(kEventGroupApi, group_api);

  Writer proxy(host, collective.proxy, collective.objects);
  std::vector<uint32_t> operations, kernels;
  for (int i = 0; steps > 0 && i < 2 * channels; ++i) {
    operations.push_back(proxy.start(proxy_op(i / 2, i % 2 == 0, steps), coll));
    proxy.state(kEventProxyOp, operations.back(), kStateProxyOpInProgress);
  }
  for (int i = 0; i < channels; ++i) kernels.push_back(proxy.start(kernel(i), coll));
  for (int number = 0; number < steps; ++number) {
    for (size_t i = 0; i < operations.size(); ++i) write_step(proxy, operations[i], number, i % 2 == 0, polls);
  }
  for (const uint32_t operation : operations) proxy.stop(kEventProxyOp, operation);
  for (const uint32_t channel : kernels) {
    proxy.state(kEventKernelCh, channel, kStateKernelChStop, kKernelNs);
    proxy.stop(kEventKernelCh, channel);
  }
  return collective;
}

Batches make_batches(Host& host, int operations, int channels) {
  using namespace nccl;
  Batches batches;
  const auto batch = [&](auto body) {
    Writer writer(host, batches.scripts.emplace_back(), batches.objects);
    body(writer);
  };
  const auto starts = [&](int count, const CallLine& line, const std::vector<uint32_t>& parents) {
    std::vector<uint32_t> made;
    batch([&](Writer& writer) {
      for (int i = 0; i < count; ++i) {
        CallLine one = line;
        if (line.type == kEventColl) one.seq = static_cast<uint64_t>(i);
        if (line.type == kEventProxyOp || line.type == kEventKernelCh) one.channel = static_cast<uint8_t>(i % channels);
        const size_t parent = static_cast<size_t>(i) * parents.size() / static_cast<size_t>(count);
        made.push_back(writer.start(one, parents.empty() ? kNone : parents[parent]));
      }
    });
    return made;
  };
  const auto states = [&](uint64_t type, const std::vector<uint32_t>& objects, int state, bool repeat = false) {
    batch([&](Writer& writer) {
      for (const uint32_t object : objects) writer.state(type, object, state, kKernelNs, repeat);
    });
  };
  const auto stops = [&](uint64_t type, const std::vector<uint32_t>& objects) {
    batch([&](Writer& writer) {
      for (const uint32_t object : objects) writer.stop(type, object);
    });
  };

  const int children = operations * channels;
  const auto group_apis = starts(operations, line_of(kEventGroupApi), {});
  states(kEventGroupApi, group_apis, kStateGroupStartApiStop);
  const auto coll_apis = starts(operations, all_reduce(kEventCollApi, channels), group_apis);
  stops(kEventCollApi, coll_apis);
  const auto launches = starts(operations, line_of(kEventKernelLaunch), group_apis);
  stops(kEventKernelLaunch, launches);
  const auto groups = starts(operations, line_of(kEventGroup), {});
  const auto colls = starts(operations, all_reduce(kEventColl, channels), coll_apis);
  stops(kEventColl, colls);
  stops(kEventGroup, groups);
  stops(kEventGroupApi, group_apis);
  const auto transfers = starts(children, proxy_op(0, true, 1), colls);
  states(kEventProxyOp, transfers, kStateProxyOpInProgress);
  const auto kernels = starts(children, kernel(0), colls);
  const auto steps = starts(children, proxy_step(0), transfers);
  states(kEventProxyStep, steps, kStateStepSendPeerWait);
  states(kEventProxyStep, steps, kStateStepSendPeerWait, true);
  stops(kEventProxyStep, steps);
  stops(kEventProxyOp, transfers);
  states(kEventKernelCh, kernels, kStateKernelChStop);
  stops(kEventKernelCh, kernels);
  return batches;
}

Script make_script(Host& host, const replay::RankCalls& calls, uint32_t& objects) {
  struct Wrapped {  // what was put back around an operation
    uint32_t group = kNone;
    uint32_t group_api = kNone;
  };
  Script script;
  objects = calls.object_count;
  Writer writer(host, script, objects);
  std::vector<uint64_t> types(calls.object_count);
  std::vector<int32_t> states(calls.object_count);
  std::vector<Wrapped> wrapped(calls.object_count);
  const auto wrap = [&](const CallLine& line, uint32_t& parent, uint32_t& group) {
    using namespace nccl;
    const uint32_t group_api = writer.start(line_of(kEventGroupApi));
    writer.state(kEventGroupApi, group_api, kStateGroupStartApiStop);
    CallLine api = line;
    api.type = line.type == kEventColl ? kEventCollApi : kEventP2pApi;
    parent = writer.start(api, group_api);
    writer.stop(api.type, parent);
    writer.state(kEventGroupApi, group_api, kStateGroupEndApiStart);
    writer.stop(kEventKernelLaunch, writer.start(line_of(kEventKernelLaunch), group_api));
    group = writer.start(line_of(kEventGroup));
    return Wrapped{group, group_api};
  };
  for (const replay::Call& call : calls.calls) {
    if (call.object == kNone) continue;  // init, finalize
    const size_t from = script.steps.size();
    switch (call.kind) {
      case replay::CallKind::kStart: {
        const CallLine& line = calls.starts[call.start];
        types[call.object] = line.type;
        uint32_t parent = call.parent, group = call.group;
        const bool operation = line.type == nccl::kEventColl || line.type == nccl::kEventP2p;
        if (operation && parent == kNone && group == kNone) wrapped[call.object] = wrap(line, parent, group);
        writer.start(line, parent, group, call.object, calls.who.pid);
        break;
      }
      case replay::CallKind::kState: {
        const bool repeat = states[call.object] == call.state && types[call.object] == nccl::kEventProxyStep;
        states[call.object] = call.state;
        writer.state(types[call.object], call.object, call.state, call.value, repeat);
        break;
      }
      case replay::CallKind::kStop: {
        writer.stop(types[call.object], call.object);
        const Wrapped& around = wrapped[call.object];
        if (around.group == kNone) break;
        writer.stop(nccl::kEventGroup, around.group);
        writer.stop(nccl::kEventGroupApi, around.group_api);
        break;
      }
      default:
        break;
    }
    for (size_t i = from; i < script.steps.size(); ++i) script.steps[i].context = call.context;
  }
  return script;
}

void Meter::merge(const Meter& other) {
  for (size_t i = 0; i < kCallRows; ++i) {
    rows[i].merge(other.rows[i]);
    declined[i] += other.declined[i];
  }
  slow += other.slow;
  slow_sum += other.slow_sum;
}

Histogram Meter::all() const {
  Histogram all;
  for (const Histogram& row : rows) all.merge(row);
  return all;
}

template <bool kTimed>
void play(const Host& host, Script& script, void* const* contexts, void** handles, Moment moment, const Timer& timer,
          Meter* meter) {
  const auto timed = [&](const Step& step, auto call) {
    if constexpr (!kTimed) {
      call();
    } else {
      const uint64_t begin = ticks_begin();
      call();
      const uint64_t ticks = timer.between(begin, ticks_end());
      meter->rows[static_cast<size_t>(step.row)].add(ticks);
      if (ticks > meter->slow_ticks) [[unlikely]] {
        meter->slow += 1;
        meter->slow_sum += ticks;
      }
    }
  };
  const uint64_t wanted = host.wanted();
  for (const Step& step : script.steps) {
    if (step.verb == Verb::kStart) {
      handles[step.object] = nullptr;
      if ((wanted & step.type) == 0) continue;
      Descriptor& descriptor = script.descriptors[step.descriptor];
      descriptor.set_parent(step.parent == kNone ? nullptr : handles[step.parent]);
      if (step.group_offset != 0) {
        descriptor.set_group(step.group_offset, step.group == kNone ? nullptr : handles[step.group]);
      }
      if (step.type == nccl::kEventColl) descriptor.set_sequence(step.value + moment.sequence);
      if (step.type == nccl::kEventKernelCh) descriptor.set_gpu_ns(step.value + moment.gpu_ns);
      void* const context = contexts[step.context];
      void* handle = nullptr;
      timed(step, [&] { handle = host.start(context, descriptor); });
      if constexpr (kTimed) meter->declined[static_cast<size_t>(step.row)] += handle == nullptr ? 1 : 0;
      handles[step.object] = handle;
      continue;
    }
    void* const handle = handles[step.object];
    if (handle == nullptr) continue;
    if (step.verb == Verb::kStop) {
      timed(step, [&] { host.stop(handle); });
      continue;
    }
    nccl::EventStateArgs arguments{};
    arguments.kernelCh.pTimer = step.type == nccl::kEventKernelCh ? step.value + moment.gpu_ns : step.value;
    void* const given = step.type == nccl::kEventGroupApi ? nullptr : &arguments;
    timed(step, [&] { host.state(handle, step.state, given); });
  }
}

template void play<true>(const Host&, Script&, void* const*, void**, Moment, const Timer&, Meter*);
template void play<false>(const Host&, Script&, void* const*, void**, Moment, const Timer&, Meter*);

}  // namespace lockstep::plugin_bench
