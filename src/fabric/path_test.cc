#include "fabric/path.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "fabric/flows/flow_ends.h"
#include "fabric/graph.h"
#include "fabric/hop_state.h"
#include "fabric/job_places.h"
#include "fabric/testing/fleet.h"
#include "fabric/topology_store.h"
#include "model/roce.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"

namespace lockstep::fabric {
namespace {

struct SeenPorts final : FlowObserver {
  std::vector<ObservedPort> ports;
  mutable FlowKey asked;
  std::vector<ObservedPort> observed_ports(const FlowKey& flow, int64_t, int64_t) const override {
    asked = flow;
    return ports;
  }
};

class PathTest : public ::testing::Test {
 protected:
  void SetUp() override { build(fleet_switches(shape_)); }
  void build(Declared declared) {
    store_.emplace(std::move(declared), clock_);
    for (int32_t host = 0; host < shape_.hosts; ++host)
      store_->on_metrics({{"host.name", fleet_host(host)}}, fleet_points(shape_, host), clock_.unix_ns());
    topology_ = store_->topology();
  }
  NodeIndex gpu(int32_t host, int32_t index) { return *topology_->find(fleet_gpu(host, index)); }
  FabricPath path(NodeIndex a, NodeIndex b, const FlowObserver* observer = nullptr) {
    return find_path(*topology_, {.a = a, .b = b}, observer);
  }
  // "node-0000:mlx5_0", or a link as "a - b"; with the share of those that are not all of it.
  std::vector<std::string> names(const FabricPath& path) {
    std::vector<std::string> all;
    for (const Hop& hop : path.hops) {
      std::string name = topology_->name(hop.node);
      if (hop.link != kNone)
        name = topology_->port_name(hop.link, hop.node) + " - " +
               topology_->port_name(hop.link, topology_->other_end(hop.link, hop.node));
      all.push_back(hop.share < 0.9999 ? format("%.2f ", hop.share) + name : name);
    }
    return all;
  }
  void place(const std::string& job, int32_t ranks, int32_t first_host = 0) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t host = first_host + rank / shape_.gpus_per_host, local = rank % shape_.gpus_per_host;
      places_.on_rank_started({job, 0, Rank{rank}, ranks, local, fleet_host(host), fleet_gpu(host, local)},
                              clock_.unix_ns());
    }
  }
  std::string end_error(std::string_view job, std::string_view text) {
    const Result<PathEnd> end = find_path_end(*topology_, places_, job, text, clock_.unix_ns());
    return end.ok() ? "" : end.error();
  }

  FleetShape shape_;
  testing::FakeClock clock_;
  std::optional<TopologyStore> store_;
  std::shared_ptr<const Topology> topology_;
  JobPlaces places_;
};

TEST_F(PathTest, StaysOnNvlinkWithinAHost) {
  EXPECT_EQ(path(gpu(0, 1), gpu(0, 1)).kind, PathKind::kSameGpu);
  const FabricPath found = path(gpu(0, 1), gpu(0, 5));
  EXPECT_EQ(found.kind, PathKind::kNvlink);
  ASSERT_EQ(found.hops.size(), 5u);
  EXPECT_EQ(topology_->name(found.hops[2].node), "node-0000:nvlink");
}

TEST_F(PathTest, GoesThroughOneLeafOnTheSameRailOfAPod) {
  const FabricPath found = path(gpu(0, 3), gpu(1, 3));
  EXPECT_EQ(found.kind, PathKind::kNetwork);
  EXPECT_EQ(found.equal_paths, 1u);
  EXPECT_TRUE(found.notes.empty());
  EXPECT_EQ(names(found),
            (std::vector<std::string>{fleet_gpu(0, 3), fleet_gpu(0, 3) + " - node-0000:mlx5_3", "node-0000:mlx5_3",
                                      "node-0000:mlx5_3 - leaf-3:Ethernet1/1", "leaf-3",
                                      "leaf-3:Ethernet1/2 - node-0001:mlx5_3", "node-0001:mlx5_3",
                                      "node-0001:mlx5_3 - " + fleet_gpu(1, 3), fleet_gpu(1, 3)}));
  for (const Hop& hop : found.hops) EXPECT_EQ(hop.sure, Certainty::kReported);
}

TEST_F(PathTest, SpreadsEvenlyOverEqualPathsThatNobodyObserved) {
  const FabricPath found = path(gpu(0, 3), gpu(2, 3));
  EXPECT_EQ(found.equal_paths, 4u);
  const std::vector<std::string> all = names(found);
  EXPECT_EQ(std::count(all.begin(), all.end(), "0.25 spine-2"), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), "0.25 leaf-3:up2 - spine-2:down3"), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), "0.25 spine-2:down11 - leaf-11:up2"), 1);
  double share = 0;
  for (const Hop& hop : found.hops) {
    if (hop.share < 0.9999) {
      EXPECT_EQ(hop.sure, Certainty::kPossible);
    }
    if (hop.link == kNone && topology_->nodes()[hop.node].kind == NodeKind::kSpine) share += hop.share;
  }
  EXPECT_DOUBLE_EQ(share, 1);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_EQ(found.notes[0], "4 equal paths, none observed: each switch is taken to spread evenly");
}

TEST_F(PathTest, TakesTheWayThatPacketsWereSeenOn) {
  Declared declared = fleet_switches(shape_);
  for (const int32_t host : {0, 2}) {
    declared.nodes.push_back({.name = fleet_host(host), .kind = NodeKind::kHost, .gpus = 8});
    declared.nics.push_back({.nic = {fleet_host(host), "mlx5_3"}, .address = format("10.0.3.%d", host)});
  }
  build(std::move(declared));
  SeenPorts seen;
  seen.ports = {{"leaf-3", "up2", true, 17}};
  const FabricPath found = path(gpu(0, 3), gpu(2, 3), &seen);
  EXPECT_EQ(to_text(seen.asked.source), "10.0.3.0");
  EXPECT_EQ(to_text(seen.asked.destination), "10.0.3.2");
  EXPECT_EQ(found.equal_paths, 1u);
  for (const Hop& hop : found.hops) {
    EXPECT_DOUBLE_EQ(hop.share, 1);
    if (hop.link != kNone && topology_->port_name(hop.link, hop.node) == "leaf-3:up2") {
      EXPECT_EQ(hop.sure, Certainty::kObserved);
      EXPECT_EQ(hop.packets, 17u);
    }
  }
  const std::vector<std::string> all = names(found);
  EXPECT_EQ(std::count(all.begin(), all.end(), "spine-2"), 1) << "seen on the way to it, so it is the one";
  EXPECT_EQ(std::count(all.begin(), all.end(), "spine-2:down11 - leaf-11:up2"), 1);
}

TEST_F(PathTest, JoinsSwitchesThatAreCalledOtherwiseAndCountsPacketsThatWentThisWay) {
  Declared declared = fleet_switches(shape_);
  for (const int32_t host : {0, 2}) {
    declared.nodes.push_back({.name = fleet_host(host), .kind = NodeKind::kHost, .gpus = 8});
    declared.nics.push_back({.nic = {fleet_host(host), "mlx5_3"}, .address = format("10.0.3.%d", host)});
  }
  build(std::move(declared));
  EXPECT_EQ(topology_->find_switch("leaf-3.dc1.example"), topology_->find("leaf-3"));
  EXPECT_FALSE(topology_->find_switch("node-0000"));
  EXPECT_FALSE(topology_->find_switch("leaf"));
  SeenPorts seen;
  // Of spine-0 they are seen as they come in from above: another way than ours.
  seen.ports = {{"leaf-3.dc1.example", "up2", true, 17}, {"leaf-3", "up0", false, 40}};
  const std::vector<std::string> all = names(path(gpu(0, 3), gpu(2, 3), &seen));
  EXPECT_EQ(std::count(all.begin(), all.end(), "spine-2"), 1);
}

TEST_F(PathTest, AddressesAsNamesAreNotCutToADomain) {
  EXPECT_EQ(short_name_of("leaf-1.dc1.example"), "leaf-1");
  EXPECT_EQ(short_name_of("10.0.0.1"), "10.0.0.1");
  Declared declared;
  declared.nodes.push_back({.name = "10.0.0.1", .kind = NodeKind::kHost});
  store_.emplace(std::move(declared), clock_);
  store_->on_metrics({{"host.name", "10.0.0.2"}}, fleet_points(shape_, 0), clock_.unix_ns());
  EXPECT_EQ(store_->topology()->count(NodeKind::kHost), 2u);
}

TEST_F(PathTest, ShowsTheLargestSharesOfManyHops) {
  shape_.spines = 300;
  build(fleet_switches(shape_));
  const FabricPath found = path(gpu(0, 3), gpu(2, 3));
  EXPECT_EQ(found.hops.size(), kHopsMax);
  EXPECT_EQ(found.hops.size() + found.hops_left_out, 10u + 3 * 300u);
  uint32_t position = 0;
  for (const Hop& hop : found.hops) {
    EXPECT_LE(hop.position - position, 1u) << "no position is left without a hop";
    position = hop.position;
  }
}

TEST_F(PathTest, FollowsTheForwardingTablesOfInfiniband) {
  Declared declared;
  const char* discovered = R"(switchguid=0x1(1)
Switch	4 "S-1"		# "MF0;ib-a:X/U1" lid 1
switchguid=0x2(2)
Switch	4 "S-2"		# "MF0;ib-b:X/U1" lid 2
switchguid=0x3(3)
Switch	4 "S-3"		# "MF0;ib-s1:X/U1" lid 3
[1]	"S-1"[3]	# lid 1 4xNDR
[2]	"S-2"[3]	# lid 2 4xNDR
switchguid=0x4(4)
Switch	4 "S-4"		# "MF0;ib-s2:X/U1" lid 4
[1]	"S-1"[4]	# lid 1 4xNDR
[2]	"S-2"[4]	# lid 2 4xNDR
caguid=0x11
Ca	1 "H-11"		# "hostx mlx5_0"
[1](11) 	"S-1"[1]		# lid 11 lmc 0 "a" lid 1 4xNDR
caguid=0x12
Ca	1 "H-12"		# "hosty mlx5_0"
[1](12) 	"S-2"[1]		# lid 12 lmc 0 "b" lid 2 4xNDR
)";
  ASSERT_TRUE(parse_topology(discovered, "ib", declared).ok());
  ASSERT_TRUE(parse_topology(
                  "Unicast lids [0x0-0xc] of switch Lid 1 guid 0x1 (x):\n0x000c 004 : (Channel Adapter portguid 0x12: "
                  "'hosty mlx5_0')\nUnicast lids [0x0-0xc] of switch Lid 4 guid 0x4 (x):\n0x000c 002 : \n",
                  "lft", declared)
                  .ok());
  ASSERT_TRUE(parse_topology("hosts:\n- {name: hostx, gpus: 1, nics: [{device: mlx5_0, gpu: 0}]}\n"
                             "- {name: hosty, gpus: 1, nics: [{device: mlx5_0, gpu: 0}]}\n",
                             "y", declared)
                  .ok());
  build(std::move(declared));
  const FabricPath found = path(*topology_->find("hostx:gpu0"), *topology_->find("hosty:gpu0"));
  EXPECT_EQ(names(found), (std::vector<std::string>{"hostx:gpu0", "hostx:gpu0 - hostx:mlx5_0", "hostx:mlx5_0",
                                                    "hostx:mlx5_0 - ib-a:1", "ib-a", "ib-a:4 - ib-s2:1", "ib-s2",
                                                    "ib-s2:2 - ib-b:4", "ib-b", "ib-b:1 - hosty:mlx5_0", "hosty:mlx5_0",
                                                    "hosty:mlx5_0 - hosty:gpu0", "hosty:gpu0"}));
  EXPECT_EQ(found.hops[5].sure, Certainty::kRouted);
  EXPECT_EQ(topology_->nodes()[*topology_->find("ib-s2")].kind, NodeKind::kSpine)
      << "what nobody said of it, its links do";
}

TEST_F(PathTest, SaysWhatIsNotKnown) {
  build({});  // no links between switches
  const FabricPath cross = path(gpu(0, 0), gpu(2, 1));
  EXPECT_EQ(cross.equal_paths, 0u);
  ASSERT_EQ(cross.notes.size(), 2u);
  EXPECT_EQ(cross.notes[0], "rails differ (0 and 1): NCCL may first go over NVLink to the GPU on rail 1 (PXN)");
  EXPECT_EQ(cross.notes[1],
            "no way from leaf-0 to leaf-9 is known: give the links between switches in a topology file");
}

TEST_F(PathTest, NamesWhatIsMeantInstead) {
  place("llama", 16);
  EXPECT_EQ(find_path_end(*topology_, places_, "llama", "9", clock_.unix_ns())->gpu, gpu(1, 1));
  EXPECT_EQ(find_path_end(*topology_, places_, "", "node-0001:gpu1", clock_.unix_ns())->gpu, gpu(1, 1));
  EXPECT_EQ(end_error("llama", "16"), "job llama has no rank 16 (16 ranks)");
  EXPECT_EQ(end_error("lama", "1"), "no job \"lama\". Did you mean llama?");
  EXPECT_EQ(end_error("", "1"), "\"1\" is a rank: of which job? (--job JOB)");
  EXPECT_EQ(end_error("", "node-0001:gpu9"), "node-0001 has no \"gpu9\"");
  EXPECT_EQ(end_error("", "node-001:gpu1"),
            "no GPU \"node-001:gpu1\". Did you mean node-0001? (RANK with --job, HOST:gpuN, or a GPU's UUID)");
  EXPECT_EQ(end_error("", "leaf-1"), "leaf-1 is a leaf, not a GPU: RANK, HOST:gpuN or a GPU's UUID");
}

TEST_F(PathTest, ComparesAnAdapterWithItsSiblings) {
  MemoryMetricReader metrics;
  const int64_t now_ms = clock_.unix_ms();
  for (const auto& [host, rate] : {std::pair(0, 5000.0), {1, 10.0}}) {
    for (int64_t ago = 120'000; ago >= 0; ago -= 10'000)
      metrics.add({{"__name__", "lockstep_nic_np_ecn_marked_roce_packets_total"},
                   {"host", fleet_host(host)},
                   {"device", "mlx5_3"},
                   {"port", "1"}},
                  now_ms - ago, rate * static_cast<double>(120'000 - ago) / 1000);
  }
  const HopStates states(metrics, *topology_, clock_.unix_ns());
  std::vector<HopStates::Values> nics =
      states.of_nics(std::vector{*topology_->find("node-0000:mlx5_3"), *topology_->find("node-0001:mlx5_3")});
  HopStates::Values& values = nics[0];
  ASSERT_EQ(values.size(), 1u);
  EXPECT_NEAR(values[0].value, 5000, 1);
  EXPECT_NEAR(*values[0].siblings, 10, 1);
  EXPECT_FALSE(values[0].is_odd) << "one sibling is no comparison";
  HopStates::compare(values, std::vector<const HopStates::Values*>{&nics[1], &nics[1]});
  EXPECT_TRUE(values[0].is_odd);
}

TEST_F(PathTest, ReadsWhatASwitchReportsOfItsPorts) {
  MemoryMetricReader metrics;
  const int64_t now_ms = clock_.unix_ms();
  auto add = [&](const char* name, const char* switch_name, const char* direction, double per_second, double value) {
    for (int64_t ago = 120'000; ago >= 0; ago -= 10'000)
      metrics.add({{"__name__", name}, {"switch", switch_name}, {"port", "up2"}, {"direction", direction}},
                  now_ms - ago, value + per_second * static_cast<double>(120'000 - ago) / 1000);
  };
  add("lockstep_port_bytes_total", "leaf-3.dc1.example", "out", 5e9, 0);
  add("lockstep_port_flow_bytes_total", "leaf-3.dc1.example", "out", 4e9, 0);
  add("lockstep_port_up", "leaf-3", "", 0, 1);
  add("lockstep_port_discards_total", "leaf-3", "in", 3, 0);
  add("lockstep_port_discards_total", "leaf-30", "in", 3, 0);
  const NodeIndex leaf = *topology_->find("leaf-3");
  LinkIndex up = kNone;
  for (const LinkIndex link : topology_->links_of(leaf))
    if (topology_->port_name(link, leaf) == "leaf-3:up2") up = link;
  ASSERT_NE(up, kNone);
  const HopStates states(metrics, *topology_, clock_.unix_ns());
  const std::vector<HopStates::Values> ends =
      states.of_ports(std::vector<HopStates::PortEnd>{{up, leaf}, {up, topology_->other_end(up, leaf)}});
  std::vector<std::string> lines;
  for (const HopValue& one : ends[0])
    lines.push_back(format("%s %s %s %.3g", one.metric.c_str(), one.meaning.c_str(), one.direction.c_str(), one.value));
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines,
            (std::vector<std::string>{"lockstep_port_bytes_total load transmit 5e+09",
                                      "lockstep_port_discards_total drops receive 3", "lockstep_port_up up  1"}));
  EXPECT_TRUE(ends[1].empty());
}

TEST_F(PathTest, GraphGrowsFromAFocusAndPutsTheIllFirst) {
  place("llama", 32);
  const Result<Graph> graph = find_graph(*topology_, places_, {{"rank:llama/31", "Rank 31 is slow."}},
                                         {.focus = "job:llama", .depth = 2, .nodes_max = 20});
  ASSERT_TRUE(graph.ok()) << graph.error();
  ASSERT_EQ(graph->nodes.size(), 20u);
  EXPECT_EQ(graph->nodes[0].id, "job:llama");
  EXPECT_EQ(graph->nodes[0].left_out, 13u);
  EXPECT_EQ(graph->nodes[1].id, "rank:llama/31");
  EXPECT_EQ(graph->nodes[1].trouble, "Rank 31 is slow.");
  EXPECT_STREQ(graph->edges[0].kind, "member-of");
  EXPECT_EQ(graph->edges[0].to, 0u);
  const Result<Graph> of_leaf = find_graph(*topology_, places_, {}, {.focus = "leaf-3", .depth = 1});
  ASSERT_TRUE(of_leaf.ok());
  EXPECT_EQ(of_leaf->nodes.size(), 1u + 2 + 4);  // adapters, spines
  EXPECT_EQ(find_graph(*topology_, places_, {}, {.focus = "leef-3"}).error(),
            "no component \"leef-3\". Did you mean leaf-3?");
}

// "rank:llama/1 waits-for rank:llama/5 12"
std::vector<std::string> edges_of(const Result<Graph>& graph, std::string_view kind) {
  std::vector<std::string> all;
  for (const GraphEdge& edge : graph.ok() ? graph->edges : std::vector<GraphEdge>{})
    if (edge.kind == kind)
      all.push_back(format("%s %s %.3g %s", graph->nodes[edge.from].id.c_str(), graph->nodes[edge.to].id.c_str(),
                           edge.weight, edge.label.c_str()));
  return all;
}

TEST_F(PathTest, TheGraphSaysWhoWaitedForWhomAndHowLong) {
  place("llama", 32);
  WaitStore waits;
  std::vector<RankWait> all;
  for (const Rank rank : all_ranks(32))
    if (rank != 5_rank) all.push_back({rank, 5_rank, rank == 9_rank ? 30 : 0.5});
  all.push_back({5_rank, 3_rank, 2});
  all.push_back({3_rank, 77_rank, 9});  // not of this job any more
  waits.add("llama", all, clock_.unix_ns());
  const auto ask = [&](std::string focus, uint32_t depth, int64_t from_unix_ns) {
    return find_graph(*topology_, places_, {},
                      {.focus = std::move(focus), .depth = depth, .at_unix_ns = clock_.unix_ns()},
                      {.waits = &waits, .waits_from_unix_ns = from_unix_ns});
  };
  const Result<Graph> of_culprit = ask("rank:llama/5", 1, clock_.unix_ns());
  const std::vector<std::string> edges = edges_of(of_culprit, "waits-for");
  ASSERT_EQ(edges.size(), kWaitsShown + 1);
  EXPECT_EQ(edges[0], "rank:llama/9 rank:llama/5 30 ");
  EXPECT_EQ(edges[1], "rank:llama/5 rank:llama/3 2 ");
  EXPECT_EQ(of_culprit->nodes[0].left_out, 31 - kWaitsShown) << "who waited less is counted";
  EXPECT_EQ(edges_of(ask("rank:llama/3", 1, clock_.unix_ns()), "waits-for").size(), 2u) << "both ways";
  EXPECT_EQ(ask("job:llama", 1, clock_.unix_ns())->nodes[1].id, "rank:llama/5")
      << "for whom most was waited comes first";
  EXPECT_TRUE(edges_of(ask("rank:llama/5", 1, clock_.unix_ns() + WaitStore::kMinuteNs), "waits-for").empty());
}

TEST_F(PathTest, TheGraphSaysWhatChangedAndWhoElseChanged) {
  place("llama", 32);
  const std::vector<Change> changes = {{900, "host:node-0001", "driver", "550.90", "570.20"},
                                       {800, "host:node-0000", "driver", "550.90", "570.20"},
                                       {700, "host:node-0000", "driver", "540.10", "550.90"},
                                       {600, "job:llama", "code", "v1", "v2"},
                                       {500, "nic:node-0000:mlx5_3", "link", "leaf-9:Ethernet1/1", ""},
                                       {400, "host:gone", "driver", "550.90", "570.20"}};
  const auto ask = [&](const char* focus, std::span<const Change> known) {
    return find_graph(*topology_, places_, {}, {.focus = focus, .depth = 1, .at_unix_ns = clock_.unix_ns()},
                      {.changes = known});
  };
  const Result<Graph> of_host = ask("node-0000", changes);
  EXPECT_EQ(edges_of(of_host, "changed-at"),
            (std::vector<std::string>{"host:node-0000 version:driver 570.20 1 was 550.90",
                                      "host:node-0000 version:driver 550.90 1 was 540.10"}));
  const Result<Graph> of_version = ask("version:driver 570.20", changes);
  EXPECT_EQ(edges_of(of_version, "changed-at"),
            (std::vector<std::string>{"host:node-0001 version:driver 570.20 1 was 550.90",
                                      "host:node-0000 version:driver 570.20 1 was 550.90"}));
  ASSERT_TRUE(of_version.ok());
  EXPECT_EQ(of_version->edges[0].at_unix_ns, 900);
  EXPECT_EQ(of_version->nodes[0].left_out, 1u) << "a host that is not in the topology";
  EXPECT_EQ(edges_of(ask("job:llama", changes), "changed-at"),
            std::vector<std::string>{"job:llama version:code v2 1 was v1"});
  EXPECT_EQ(edges_of(ask("nic:node-0000:mlx5_3", changes), "changed-at"),
            std::vector<std::string>{"nic:node-0000:mlx5_3 version:link gone 1 was leaf-9:Ethernet1/1"});
  EXPECT_EQ(ask("version:driver 570", changes).error(), "nothing has changed to \"driver 570\" in that time");
  // A host that flaps between many versions.
  std::vector<Change> many;
  for (int i = 0; i < 1'000; ++i) many.push_back({1'000 - i, "host:node-0000", "driver", "a", format("b%d", i)});
  const Result<Graph> flapping = ask("node-0000", many);
  EXPECT_EQ(edges_of(flapping, "changed-at").size(), kChangesShown);
  EXPECT_EQ(flapping->nodes[0].left_out, 1'000 - kChangesShown);
}

TEST_F(PathTest, JobsOnOneLeafShareIt) {
  place("llama", 8, 0);
  place("qwen", 8, 1);
  const Result<Graph> graph = find_graph(*topology_, places_, {}, {.focus = "qwen", .depth = 1});
  ASSERT_TRUE(graph.ok());
  const auto shared = std::find_if(graph->edges.begin(), graph->edges.end(),
                                   [](const GraphEdge& edge) { return std::string(edge.kind) == "shares"; });
  ASSERT_NE(shared, graph->edges.end());
  EXPECT_EQ(graph->nodes[shared->to].id, "job:llama");
  EXPECT_EQ(shared->weight, 8);
}

TEST_F(PathTest, SaysWhoElseSuffers) {
  place("llama", 32);
  place("alone", 8, 1);
  const Result<Affected> leaf = find_affected(*topology_, places_, "leaf:leaf-3", clock_.unix_ns());
  ASSERT_TRUE(leaf.ok());
  ASSERT_EQ(leaf->jobs.size(), 2u);
  EXPECT_EQ(leaf->jobs[0].job, "llama");
  EXPECT_EQ(leaf->jobs[0].first_ranks, (std::vector<Rank>{3_rank, 11_rank}));
  EXPECT_EQ(leaf->jobs[0].share, 1);
  const Result<Affected> spine = find_affected(*topology_, places_, "spine-1", clock_.unix_ns());
  ASSERT_TRUE(spine.ok());
  EXPECT_EQ(spine->jobs[0].ranks_hit, 32);
  EXPECT_DOUBLE_EQ(spine->jobs[0].share, 0.25);
  const Result<Affected> uplink = find_affected(*topology_, places_, "link:leaf-3:up1", clock_.unix_ns());
  ASSERT_TRUE(uplink.ok());
  EXPECT_EQ(uplink->component, "leaf-3:up1 - spine-1:down3");
  EXPECT_EQ(uplink->jobs[0].first_ranks, (std::vector<Rank>{3_rank, 11_rank}));
  EXPECT_DOUBLE_EQ(uplink->jobs[0].share, 0.25);
  const Result<Affected> same = find_affected(*topology_, places_, "link:" + uplink->component, clock_.unix_ns());
  ASSERT_TRUE(same.ok()) << "by the name that answers have: " << same.error();
  EXPECT_EQ(same->component, uplink->component);
  const Result<Graph> graph =
      find_graph(*topology_, places_, {{"link:leaf-3:up1", "It drops."}}, {.focus = "link:leaf-3:up1", .depth = 1});
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->nodes[0].id, "link:" + uplink->component);
  EXPECT_EQ(graph->nodes[0].trouble, "It drops.") << "a verdict names one of its ports";
  const Result<Affected> host = find_affected(*topology_, places_, "node-0001", clock_.unix_ns());
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host->gpus, 8u);
  EXPECT_EQ(host->jobs.size(), 2u);
}

TEST_F(PathTest, JoinsAddressesOfFlowsWithRanks) {
  Declared declared = fleet_switches(shape_);
  declared.nodes.push_back({.name = fleet_host(0), .kind = NodeKind::kHost, .gpus = 8});
  declared.nodes.push_back({.name = fleet_host(1), .kind = NodeKind::kHost, .gpus = 8});
  declared.nodes.push_back({.name = "nfs-1", .kind = NodeKind::kStorage, .address = "10.0.9.1"});
  declared.nics = {{.nic = {fleet_host(0), "mlx5_3"}, .address = "10.0.3.0"},
                   {.nic = {fleet_host(0), "eth0"}, .address = "10.1.0.0"},
                   {.nic = {fleet_host(1), "mlx5_3"}, .address = "10.0.3.1"},
                   {.nic = {fleet_host(0), "mlx5_4"}, .address = "10.0.4.0"},
                   {.nic = {fleet_host(1), "mlx5_4"}, .address = "10.0.4.0"}};
  build(std::move(declared));
  place("llama", 8);
  place("other", 2, 1);
  const FlowEnds ends(*topology_, places_, clock_.unix_ns());
  auto whose = [&](const char* address) {
    const NodeIndex node = ends.find(*parse_ip(address));
    if (node == kNone) return std::string("nobody");
    std::string text = topology_->name(node);
    for (const FlowEnds::JobRanks& job : ends.ranks_behind(node)) {
      text += " " + std::string(job.job);
      for (const Rank rank : job.ranks) text += format(" %d", rank.value());
    }
    return text;
  };
  EXPECT_EQ(whose("10.0.3.0"), "node-0000:mlx5_3 llama 3");
  EXPECT_EQ(whose("10.1.0.0"), "node-0000:eth0 llama 0 1 2 3 4 5 6 7") << "no GPU's own: any rank of the host";
  EXPECT_EQ(whose("10.0.3.1"), "node-0001:mlx5_3 other 0 1") << "of other, whose GPUs have others, any";
  EXPECT_EQ(whose("10.0.9.1"), "nfs-1");
  EXPECT_EQ(whose("10.0.4.0"), "nobody") << "two have it";
  EXPECT_EQ(whose("10.0.0.77"), "nobody");
  std::vector<std::string> addresses;
  for (const IpAddress& address : ends.addresses_of("llama")) addresses.push_back(to_text(address));
  EXPECT_EQ(addresses, (std::vector<std::string>{"10.0.3.0", "10.1.0.0"}));
  EXPECT_TRUE(ends.addresses_of("nobody").empty());
}

TEST_F(PathTest, JobsDependOnTheStorageTheirHostsMount) {
  MetricPoint mount;
  mount.name = "lockstep_storage_operations_total";
  mount.attributes = {{"mount", "nfs-1.dc1.example:/data"}, {"op", "read"}};
  Declared declared = fleet_switches(shape_);
  declared.nodes.push_back({.name = "nfs-1", .kind = NodeKind::kStorage});
  build(std::move(declared));
  store_->on_metrics({{"host.name", fleet_host(1)}}, std::vector{mount}, clock_.unix_ns());
  topology_ = store_->topology();
  place("llama", 16);
  const Result<Affected> affected = find_affected(*topology_, places_, "storage:nfs-1", clock_.unix_ns());
  ASSERT_TRUE(affected.ok()) << affected.error();
  ASSERT_EQ(affected->jobs.size(), 1u);
  EXPECT_EQ(affected->jobs[0].ranks_hit, 8);
  EXPECT_EQ(affected->jobs[0].first_ranks.front(), 8_rank);
  EXPECT_EQ(affected->hosts, 1u);
  const Result<Graph> graph = find_graph(*topology_, places_, {}, {.focus = "nfs-1", .depth = 1});
  ASSERT_TRUE(graph.ok() && graph->edges.size() == 1);
  EXPECT_EQ(graph->nodes[graph->edges[0].from].id, "host:node-0001");
  EXPECT_STREQ(graph->edges[0].kind, "mounts");
  EXPECT_EQ(graph->edges[0].label, "/data");
}

TEST(RoceSourcePort, IsTheSameFromBothEnds) {
  EXPECT_EQ(roce_udp_source_port(101, 202), roce_udp_source_port(202, 101));
  EXPECT_GE(roce_udp_source_port(1, 1), 0xC000);
}

}  // namespace
}  // namespace lockstep::fabric
