// What decoding network telemetry costs on one core: sFlow datagrams as switches send them (1,400 bytes, seven flow
// samples with 128 bytes of a RoCEv2 packet each, now and then counters of ports), of 1,000 switches in turn, and IPFIX
// messages of 25 records; and what the table of flows and the series of ports cost on top. Checks what comes out: fast and
// wrong fails.
//
//   flows_bench [SECONDS]    each part for so long (default 5), a table in Markdown on standard output
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "fabric/flows/flow_telemetry.h"
#include "wire/ipfix.h"
#include "wire/sflow.h"
#include "wire/sflow_testing.h"

namespace {

using namespace lockstep;
using namespace lockstep::test;

constexpr CounterDescriptor kCounterRows[] = {
    {"lockstep_port_samples_dropped_total", "counter", Severity::kDataLoss, "x"},
    {"lockstep_flow_switches_left_out_total", "counter", Severity::kDataLoss, "x"},
    {"lockstep_flow_rows", "gauge", Severity::kInfo, "x"},
    {"lockstep_flow_rows_replaced_total", "counter", Severity::kInfo, "x"},
    {"lockstep_flow_ports", "gauge", Severity::kInfo, "x"},
};
constexpr size_t kSwitches = 1000, kSamples = 7, kRounds = 16, kRecords = 25;

std::vector<std::string> sflow_datagrams() {
  std::vector<std::string> datagrams;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t device = 0; device < kSwitches; ++device) {
      std::vector<std::string> samples;
      for (uint32_t i = 0; i < kSamples; ++i) {
        const auto source_port = static_cast<uint16_t>(49152 + (device * kSamples + i) % 16384);
        const std::string packet =
            roce_packet(device * 64 + i, i % 8 == 0 ? 3 : 0, 0x2a, source_port, static_cast<uint8_t>(device));
        samples.push_back(flow_sample({.rate = 10'000,
                                       .in = 1 + i,
                                       .out = 33 + device % 32,
                                       .source = 1 + i,
                                       .records = {raw_header(packet), record(1001, std::string(16, '\0'))}}));
      }
      if (round == 0) {
        samples.resize(kSamples - 2);
        samples.push_back(counter_sample(7, {generic_counters(7, 1, 2), port_name("Ethernet7")}));
      }
      datagrams.push_back(sflow_datagram(round + 1, samples, 60'000, 0x0a010000 + device));
    }
  }
  return datagrams;
}

std::vector<std::string> ipfix_datagrams() {
  const uint16_t fields[][2] = {{8, 4},  {12, 4}, {7, 2}, {11, 2}, {4, 1},   {5, 1},
                                {10, 4}, {14, 4}, {1, 8}, {2, 8},  {152, 8}, {153, 8}};
  NetworkBytes layout;
  layout.u16(300).u16(std::size(fields));
  for (const auto& field : fields) layout.u16(field[0]).u16(field[1]);
  std::vector<std::string> datagrams;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t domain = 0; domain < kSwitches; ++domain) {
      NetworkBytes sets;
      if (round == 0) sets.u16(2).u16(4 + layout.bytes().size()).text(layout.bytes());
      NetworkBytes records;
      for (uint32_t i = 0; i < kRecords; ++i) {
        records.u32(0x0a000001 + i)
            .u32(0x0a000002)
            .u16(1000 + i)
            .u16(4791)
            .u8(17)
            .u8(2)
            .u32(1)
            .u32(2)
            .u64(1'000'000)
            .u64(100);
        records.u64(1'700'000'000'000).u64(1'700'000'001'000);
      }
      sets.u16(300).u16(4 + records.bytes().size()).text(records.bytes());
      datagrams.push_back(NetworkBytes()
                              .u16(10)
                              .u16(16 + sets.bytes().size())
                              .u32(1'700'000'000)
                              .u32(round * kRecords)
                              .u32(domain)
                              .text(sets.bytes())
                              .bytes());
    }
  }
  return datagrams;
}

// Samples that all datagrams hold, decoded again and again for so long.
void measure(const char* name, const char* unit, double seconds, const std::vector<std::string>& datagrams,
             const std::function<uint64_t(const std::string&)>& decode, uint64_t expected) {
  uint64_t bytes = 0, samples = 0, rounds = 0;
  const std::clock_t begin = std::clock();  // of the processor: the machine may have other things to do
  double took = 0;
  do {
    uint64_t in_round = 0;
    for (const std::string& datagram : datagrams) {
      in_round += decode(datagram);
      bytes += datagram.size();
    }
    if (in_round != expected) {
      std::fprintf(stderr, "%s: %llu samples, expected %llu\n", name, static_cast<unsigned long long>(in_round),
                   static_cast<unsigned long long>(expected));
      std::exit(1);
    }
    samples += in_round;
    ++rounds;
    took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  } while (took < seconds);
  const double count = static_cast<double>(samples);
  std::printf("| %s | %.2f M %s/s | %.0f ns | %.0f MB/s |\n", name, count / took / 1e6, unit, took / count * 1e9,
              static_cast<double>(bytes) / took / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  std::printf("| what | on one core | each | of datagrams |\n|---|---|---|---|\n");
  FlowReport report;
  SflowDecoder sflow;
  int64_t now_ns = 0;
  measure(
      "sFlow, 7 samples a datagram", "samples", seconds, sflow_datagrams(),
      [&](const std::string& datagram) -> uint64_t {
        if (!sflow.decode(datagram, ++now_ns, report).ok()) return 0;
        for (const FlowSample& flow : report.flows) {
          if (!flow.has_key || flow.key.queue_pair == kNoQueuePair) return 0;
        }
        return report.flows.size() + report.ports.size();
      },
      kSwitches*((kRounds - 1) * kSamples + kSamples - 1));
  {
    SflowDecoder decoder;
    Counters counters(kCounterRows);
    uint64_t pushed = 0;
    FlowTelemetry telemetry(
        {},
        [&](std::string_view, std::span<const PushedSeries> series, const auto&) {
          pushed += series.size();
          return Result<PushOutcome>(PushOutcome{});
        },
        counters);
    int64_t unix_ns = 1'700'000'000'000'000'000;
    uint64_t datagrams = 0;
    measure(
        "the same, with table of flows and series of ports", "samples", seconds, sflow_datagrams(),
        [&](const std::string& datagram) -> uint64_t {
          unix_ns += 7'000;  // a million samples a second
          if (!decoder.decode(datagram, ++now_ns, report).ok()) return 0;
          telemetry.on_flows(report, unix_ns);
          if (++datagrams % 36'000 == 0) telemetry.tick(unix_ns);  // four times a second
          return report.flows.size() + report.ports.size();
        },
        kSwitches*((kRounds - 1) * kSamples + kSamples - 1));
    if (pushed == 0 || telemetry.flows().rows() == 0) return 1;
  }
  IpfixDecoder ipfix;
  const IpAddress from = *parse_ip("10.0.0.1");
  measure(
      "IPFIX, 25 records a message", "records", seconds, ipfix_datagrams(),
      [&](const std::string& datagram) -> uint64_t {
        return ipfix.decode(from, datagram, ++now_ns, report).ok() ? report.flows.size() : 0;
      },
      kSwitches* kRounds* kRecords);
  return 0;
}
