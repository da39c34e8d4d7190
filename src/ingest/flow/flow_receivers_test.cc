#include "ingest/flow/flow_receivers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "ingest/counters_table.h"
#include "testing/eventually.h"
#include "wire/sflow_testing.h"

namespace lockstep {
namespace {

using namespace lockstep::test;

// A switch's side: sends from 127.0.0.1.
class Sender {
 public:
  explicit Sender(const std::string& address) : fd_(::socket(AF_INET, SOCK_DGRAM, 0)) {
    const ListenAddress to = *parse_listen_address(address);
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(to.port);
    inet_pton(AF_INET, to.host.c_str(), &target.sin_addr);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  }
  void send(const std::string& datagram) {
    EXPECT_EQ(::send(fd_.get(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
  }

 private:
  UniqueFd fd_;
};

struct Recorder final : FlowSubscriber {
  void on_flows(const FlowReport& report, int64_t) override {
    MutexLock lock(mutex);
    // Held until the test lets it go on.
    while (is_held) changed.wait(mutex);
    flows += report.flows.size();
    ports += report.ports.size();
    if (throws) throw std::runtime_error("no memory");
  }
  void hold(bool now) {
    MutexLock lock(mutex);
    is_held = now;
    changed.notify_all();
  }
  Mutex mutex;
  ConditionVariable changed;
  bool is_held = false, throws = false;
  size_t flows = 0, ports = 0;
};

struct World {
  explicit World(FlowReceiversOptions options = {}) {
    options.sflow = {{"127.0.0.1", 0}};
    options.ipfix = {{"127.0.0.1", 0}, {"127.0.0.1", 0}};
    auto started = FlowReceivers::start(std::move(options), recorder, clock, counters);
    EXPECT_TRUE(started.ok()) << started.error();
    receivers = std::move(*started);
  }
  int64_t count(const char* name, const std::string& labels) { return counters.value(name, labels); }
  bool comes_to(const char* name, const std::string& labels, int64_t value) {
    return testing::eventually([&] { return count(name, labels) >= value; });
  }
  // received = decoded + refused + dropped, once the queue is empty.
  void expect_all_counted() {
    receivers->stop();
    for (const char* receiver : {"sflow", "ipfix"}) {
      const std::string who = "receiver=\"" + std::string(receiver) + "\"";
      int64_t refused = 0;
      for (const char* reason : {"exporter", "malformed", "limit", "failed"})
        refused += count("lockstep_flow_datagrams_refused_total", who + ",reason=\"" + reason + "\"");
      EXPECT_EQ(count("lockstep_flow_datagrams_total", who), count("lockstep_flow_datagrams_decoded_total", who) +
                                                                 refused +
                                                                 count("lockstep_flow_datagrams_dropped_total", who))
          << receiver;
    }
  }

  SystemClock clock;
  Counters counters{kServerCounters};
  Recorder recorder;
  std::unique_ptr<FlowReceivers> receivers;
};

std::string one_flow(uint32_t sequence) {
  return sflow_datagram(sequence, {flow_sample({.records = {raw_header(roce_packet(7))}})});
}

TEST(FlowReceivers, HandOnWhatSwitchesSend) {
  World world;
  Sender sender(world.receivers->sflow_addresses().at(0));
  for (uint32_t i = 0; i < 300; ++i) sender.send(one_flow(i));
  sender.send(sflow_datagram(305, {counter_sample(17, {generic_counters(17, 1, 2)})}));
  ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_decoded_total", "receiver=\"sflow\"", 301));
  world.expect_all_counted();
  EXPECT_EQ(world.recorder.flows, 300u);
  EXPECT_EQ(world.recorder.ports, 1u);
  EXPECT_EQ(world.count("lockstep_flow_samples_total", "receiver=\"sflow\",what=\"flows\""), 300);
  EXPECT_EQ(world.count("lockstep_flow_lost_total", "receiver=\"sflow\",what=\"datagrams\""), 5);
  EXPECT_EQ(world.count("lockstep_flow_exporters", "receiver=\"sflow\""), 1);
}

TEST(FlowReceivers, TakeTemplatesAndRecordsOnEverySocketOfTheSameReceiver) {
  World world;
  ASSERT_EQ(world.receivers->ipfix_addresses().size(), 2u);
  Sender first(world.receivers->ipfix_addresses()[0]), second(world.receivers->ipfix_addresses()[1]);
  NetworkBytes sets;
  sets.u16(2).u16(4 + 4 + 8).u16(300).u16(2).u16(8).u16(4).u16(1).u16(4);
  first.send(NetworkBytes().u16(10).u16(16 + 16).u32(1).u32(0).u32(1).text(sets.bytes()).bytes());
  ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_decoded_total", "receiver=\"ipfix\"", 1));
  EXPECT_EQ(world.count("lockstep_flow_templates", ""), 1);
  second.send(NetworkBytes().u16(10).u16(16 + 12).u32(1).u32(0).u32(1).u16(300).u16(12).u32(0x0a000001).u32(9).bytes());
  second.send(NetworkBytes().u16(10).u16(16 + 12).u32(1).u32(1).u32(1).u16(999).u16(12).u32(0x0a000001).u32(9).bytes());
  ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_decoded_total", "receiver=\"ipfix\"", 3));
  world.expect_all_counted();
  EXPECT_EQ(world.recorder.flows, 1u);
  EXPECT_EQ(world.count("lockstep_flow_sets_without_template_total", ""), 1);
}

TEST(FlowReceivers, RefuseGarbageAndGoOn) {
  World world;
  Sender sender(world.receivers->sflow_addresses().at(0));
  for (size_t bytes : {0, 1, 27, 1400, 60'000}) sender.send(std::string(bytes, '\xff'));
  sender.send(one_flow(1));
  ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_decoded_total", "receiver=\"sflow\"", 1));
  EXPECT_EQ(world.count("lockstep_flow_datagrams_refused_total", "receiver=\"sflow\",reason=\"malformed\""), 5);
  world.expect_all_counted();
}

TEST(FlowReceivers, RefuseWhoIsNoExporter) {
  World world({.exporters = *parse_flow_exporters("10.0.0.0/8,fd00::/8")});
  Sender sender(world.receivers->sflow_addresses().at(0));
  sender.send(one_flow(1));
  EXPECT_TRUE(world.comes_to("lockstep_flow_datagrams_refused_total", "receiver=\"sflow\",reason=\"exporter\"", 1));
  world.expect_all_counted();
  EXPECT_EQ(world.recorder.flows, 0u);
}

TEST(FlowReceivers, DropAndCountWhatTheQueueDoesNotHold) {
  World world({.queue_bytes_max = 2000});
  world.recorder.hold(true);
  Sender sender(world.receivers->sflow_addresses().at(0));
  for (uint32_t i = 0; i < 100; ++i) {
    sender.send(one_flow(i));
    // One batch each, so that the queue fills by them.
    ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_total", "receiver=\"sflow\"", i + 1));
  }
  world.recorder.hold(false);
  EXPECT_TRUE(world.comes_to("lockstep_flow_datagrams_dropped_total", "receiver=\"sflow\"", 80));
  world.expect_all_counted();
  EXPECT_LT(world.recorder.flows, 20u);
}

TEST(FlowReceivers, TinyDatagramsFillTheQueueByWhatTheyCostUs) {
  World world({.queue_bytes_max = 20'000});
  world.recorder.hold(true);
  Sender sender(world.receivers->sflow_addresses().at(0));
  for (uint32_t i = 0; i < 500; ++i) {
    sender.send(i == 0 ? one_flow(i) : "x");
    ASSERT_TRUE(world.comes_to("lockstep_flow_datagrams_total", "receiver=\"sflow\"", i + 1));
  }
  world.recorder.hold(false);
  EXPECT_TRUE(world.comes_to("lockstep_flow_datagrams_dropped_total", "receiver=\"sflow\"", 200));
  world.expect_all_counted();
}

TEST(FlowReceivers, SurviveASubscriberThatThrows) {
  World world;
  world.recorder.throws = true;
  Sender sender(world.receivers->sflow_addresses().at(0));
  sender.send(one_flow(1));
  EXPECT_TRUE(world.comes_to("lockstep_flow_datagrams_refused_total", "receiver=\"sflow\",reason=\"failed\"", 1));
  world.expect_all_counted();
}

TEST(FlowReceivers, SayInOneLineWhatIsWrongWithTheirOptions) {
  World world;
  FlowReceiversOptions taken;
  taken.sflow = {*parse_listen_address(world.receivers->sflow_addresses()[0])};
  const auto refused = FlowReceivers::start(std::move(taken), world.recorder, world.clock, world.counters);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("--sflow-listen"), std::string::npos) << refused.error();
  EXPECT_FALSE(parse_flow_exporters("10.0.0.0/8,nonsense").ok());
  EXPECT_EQ(parse_flow_exporters("")->size(), default_flow_exporters().size());
  const std::vector<IpPrefix> usual = default_flow_exporters();
  auto is_taken = [&](const char* address) {
    return std::any_of(usual.begin(), usual.end(),
                       [&](const IpPrefix& prefix) { return prefix.contains(*parse_ip(address)); });
  };
  EXPECT_TRUE(is_taken("127.0.0.1") && is_taken("10.3.4.5") && is_taken("192.168.1.1") && is_taken("fd00::1"));
  EXPECT_FALSE(is_taken("8.8.8.8") || is_taken("2001:db8::1"));
}

}  // namespace
}  // namespace lockstep
