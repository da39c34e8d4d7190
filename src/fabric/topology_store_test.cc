#include "fabric/topology_store.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "fabric/job_places.h"
#include "fabric/testing/fleet.h"
#include "testing/fake_clock.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class TopologyStoreTest : public ::testing::Test {
 protected:
  void report(TopologyStore& store, int32_t host, const std::vector<MetricPoint>& points) {
    store.on_metrics({{"host.name", fleet_host(host)}}, points, clock_.unix_ns());
  }
  // The adapter of rail 0 on another leaf, as an agent tells it: the new row, and the end of the old one.
  std::vector<MetricPoint> moved(int32_t host, const std::string& leaf) {
    std::vector<MetricPoint> points = fleet_points(shape_, host);
    MetricPoint old = points[16], now = points[16];
    EXPECT_EQ(old.name, "lockstep_nic_info");
    old.flags = MetricPoint::kNoRecordedValue;
    for (Attribute& each : now.attributes)
      if (each.key == "leaf") each.value = Value(leaf);
    return {old, now};
  }
  std::string uplink(const Topology& topology, const std::string& nic) {
    const std::optional<NodeIndex> node = topology.find(nic);
    if (!node) return "no " + nic;
    const std::optional<LinkIndex> link = topology.uplink_of(*node);
    return link ? topology.port_name(*link, topology.other_end(*link, *node)) : "";
  }

  const FleetShape shape_{};
  testing::FakeClock clock_;
};

TEST_F(TopologyStoreTest, BuildsWhatAgentsReport) {
  TopologyStore store(fleet_switches(shape_), clock_);
  for (int32_t host = 0; host < shape_.hosts; ++host) report(store, host, fleet_points(shape_, host));
  const std::shared_ptr<const Topology> topology = store.topology();
  EXPECT_EQ(topology->count(NodeKind::kGpu), 32u);
  EXPECT_EQ(topology->count(NodeKind::kNic), 32u);
  EXPECT_EQ(topology->count(NodeKind::kNvlink), 4u);
  EXPECT_EQ(topology->count(NodeKind::kLeaf), 16u);
  EXPECT_EQ(topology->count(NodeKind::kSpine), 4u);
  EXPECT_EQ(uplink(*topology, "node-0003:mlx5_2"), "leaf-10:Ethernet1/2");
  EXPECT_EQ(topology->find("node-0003:gpu2"), topology->find(fleet_gpu(3, 2)));
  EXPECT_EQ(topology->find("node-0003:ens12np0"), topology->find("node-0003:mlx5_2"));
  const std::optional<Topology::Adapter> adapter = topology->adapter_of(*topology->find(fleet_gpu(3, 2)));
  ASSERT_TRUE(adapter);
  EXPECT_EQ(topology->name(adapter->nic), "node-0003:mlx5_2");
  EXPECT_EQ(known_by_text(topology->nodes()[*topology->find("leaf-10")].known), "LLDP and file");
  EXPECT_EQ(store.change_count(), 0u) << "how things were found is no change";
}

// As agents send them: the GPU stands in the resource, once for all its points.
TEST_F(TopologyStoreTest, TakesTheGpuFromTheResource) {
  TopologyStore store({}, clock_);
  for (int32_t gpu = 0; gpu < 2; ++gpu) {
    std::vector<MetricPoint> points;
    for (MetricPoint& point : fleet_points(shape_, 0)) {
      if (find_string(point.attributes, "gpu_uuid") != fleet_gpu(0, gpu)) continue;
      std::erase_if(point.attributes, [](const Attribute& each) { return each.key == "gpu_uuid"; });
      points.push_back(point);
    }
    store.on_metrics({{"host.name", fleet_host(0)}, {"lockstep.gpu_uuid", fleet_gpu(0, gpu)}}, points,
                     clock_.unix_ns());
  }
  const std::shared_ptr<const Topology> topology = store.topology();
  const std::optional<NodeIndex> gpu = topology->find(fleet_gpu(0, 1));
  ASSERT_TRUE(gpu && topology->adapter_of(*gpu));
  EXPECT_EQ(topology->name(topology->adapter_of(*gpu)->nic), "node-0000:mlx5_1");
  EXPECT_TRUE(topology->nvlink_of(*gpu));
}

TEST_F(TopologyStoreTest, KnowsHowItWasBeforeAChange) {
  TopologyStore store(fleet_switches(shape_), clock_);
  report(store, 0, fleet_points(shape_, 0));
  const int64_t before = clock_.unix_ns();
  clock_.advance(600 * kSecond);
  report(store, 0, moved(0, "leaf-9"));
  EXPECT_EQ(uplink(*store.topology(), "node-0000:mlx5_0"), "leaf-9:Ethernet1/1");
  EXPECT_EQ(uplink(*store.topology_at(before).topology, "node-0000:mlx5_0"), "leaf-0:Ethernet1/1");
  EXPECT_EQ(uplink(*store.topology_at(before).topology, "node-0000:mlx5_0"), "leaf-0:Ethernet1/1");
  EXPECT_EQ(uplink(*store.topology(), "node-0000:mlx5_0"), "leaf-9:Ethernet1/1") << "what was undone is done again";
  const std::vector<TopologyChange> changes = store.changes(10);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].subject, "node-0000:mlx5_0");
  EXPECT_EQ(changes[0].before, "leaf-0:Ethernet1/1");
  EXPECT_EQ(changes[0].after, "leaf-9:Ethernet1/1");
}

TEST_F(TopologyStoreTest, ForgetsTheOldestChangesAndSaysSo) {
  TopologyStore store({}, clock_);
  report(store, 0, fleet_points(shape_, 0));
  const int64_t before = clock_.unix_ns();
  const std::vector<MetricPoint> there[] = {{moved(0, "leaf-100").back()}, {moved(0, "leaf-101").back()}};
  for (size_t i = 0; i <= TopologyStore::kChangesMax; ++i) {
    clock_.advance(kSecond);
    report(store, 0, there[i % 2]);
  }
  EXPECT_EQ(store.changes(100'000).size(), TopologyStore::kChangesMax);
  EXPECT_EQ(store.change_count(), TopologyStore::kChangesMax + 1);
  EXPECT_TRUE(store.topology_at(before).is_too_old);
}

TEST_F(TopologyStoreTest, ForgetsAHostThatIsSilentForADay) {
  TopologyStore store({}, clock_);
  report(store, 0, fleet_points(shape_, 0));
  clock_.advance(TopologyStore::kForgottenNs + kSecond);
  report(store, 1, fleet_points(shape_, 1));
  store.tick();
  EXPECT_FALSE(store.topology()->find(fleet_gpu(0, 0)));
  EXPECT_TRUE(store.topology()->find(fleet_gpu(1, 0)));
}

TEST_F(TopologyStoreTest, ThePastHasNoHostThatIsForgotten) {
  TopologyStore store({}, clock_);
  for (const int32_t host : {0, 1}) report(store, host, fleet_points(shape_, host));
  clock_.advance(600 * kSecond);
  report(store, 0, moved(0, "leaf-9"));
  clock_.advance(kSecond);
  const int64_t between = clock_.unix_ns();
  clock_.advance(kSecond);
  report(store, 1, moved(1, "leaf-9"));
  EXPECT_TRUE(store.topology_at(between).topology->find(fleet_gpu(0, 0)));
  clock_.advance(TopologyStore::kForgottenNs / 2);
  report(store, 1, {fleet_points(shape_, 1)[0]});
  clock_.advance(TopologyStore::kForgottenNs / 2);
  store.tick();
  const TopologyStore::AsOf then = store.topology_at(between);
  EXPECT_FALSE(then.topology->find(fleet_gpu(0, 0)));
  EXPECT_EQ(uplink(*then.topology, "node-0001:mlx5_0"), "leaf-0:Ethernet1/2");
  EXPECT_FALSE(then.is_too_old);
  EXPECT_EQ(store.changes(10).at(0).subject, "node-0001:mlx5_0") << "names are told apart from those that went";
}

TEST_F(TopologyStoreTest, AHostThatIsForgottenMakesRoom) {
  TopologyStore store({}, clock_);
  const std::vector<MetricPoint> gpu = {fleet_points(shape_, 0)[0]};
  for (size_t i = 0; i < TopologyStore::kHostsMax; ++i)
    store.on_metrics({{"host.name", format("pod-%zu", i)}}, gpu, clock_.unix_ns());
  report(store, 1, fleet_points(shape_, 1));
  EXPECT_EQ(store.refused_count(), 1u);
  clock_.advance(TopologyStore::kForgottenNs + kSecond);
  store.tick();
  report(store, 1, fleet_points(shape_, 1));
  EXPECT_EQ(store.refused_count(), 1u);
  EXPECT_TRUE(store.topology()->find(fleet_gpu(1, 0)));
  EXPECT_EQ(store.topology()->count(NodeKind::kHost), 1u);
}

// Fresh labels with every report: nothing has them any more, so they make room.
TEST_F(TopologyStoreTest, NamesThatNothingHasAnyMoreMakeRoom) {
  TopologyStore store({}, clock_, 64 << 10);
  report(store, 0, fleet_points(shape_, 0));
  for (int i = 0; i < 2'000; ++i) {
    MetricPoint point;
    point.name = "lockstep_storage_operations_total";
    point.attributes = {{"mount", format("filer-%d:/%s", i, std::string(100, 'x').c_str())}};
    report(store, 0, {point});
    point.flags = MetricPoint::kNoRecordedValue;
    report(store, 0, {point});
  }
  report(store, 1, fleet_points(shape_, 1));
  EXPECT_EQ(store.refused_count(), 0u);
  EXPECT_TRUE(store.topology()->find(fleet_gpu(0, 0)));
  EXPECT_TRUE(store.topology()->find(fleet_gpu(1, 0)));
}

TEST_F(TopologyStoreTest, WhereNoNameHasRoomThoseThatAreKnownStay) {
  TopologyStore store({}, clock_, 8 << 10);
  for (int32_t host = 0; store.refused_count() == 0; ++host) report(store, host, fleet_points(shape_, host));
  ASSERT_TRUE(store.topology()->find(fleet_gpu(1, 7)));
  for (int half_day = 0; half_day < 3; ++half_day) {
    clock_.advance(TopologyStore::kForgottenNs / 2 + kSecond);
    report(store, 0, fleet_points(shape_, 0));
    store.tick();
  }
  EXPECT_TRUE(store.topology()->find(fleet_gpu(0, 0))) << "it reports";
  EXPECT_EQ(store.topology()->count(NodeKind::kHost), 1u);
  const uint64_t refused = store.refused_count();
  report(store, 1, fleet_points(shape_, 1));
  EXPECT_EQ(store.refused_count(), refused) << "those that are forgotten made room";
  // What ended goes, and a row that never was known ends nothing.
  MetricPoint ended = fleet_points(shape_, 0)[16];
  ended.flags = MetricPoint::kNoRecordedValue;
  MetricPoint unknown = ended;
  for (Attribute& each : unknown.attributes)
    if (each.key == "leaf") each.value = Value("leaf-unknown");
  report(store, 0, {unknown});
  EXPECT_TRUE(store.topology()->find("node-0000:mlx5_0"));
  report(store, 0, {ended});
  EXPECT_FALSE(store.topology()->find("node-0000:mlx5_0"));
}

TEST_F(TopologyStoreTest, TellsWhereFileAndFabricDiffer) {
  Declared declared = fleet_switches(shape_);
  declared.nodes.push_back({.name = "node-0000.cluster.local", .kind = NodeKind::kHost});
  declared.nodes.push_back({.name = "node-0009", .kind = NodeKind::kHost});
  declared.links.push_back({{"node-0000.cluster.local", "mlx5_0"}, {"leaf-0", "Ethernet1/1"}});  // as seen
  declared.links.push_back({{"node-0000.cluster.local", "ens11np0"}, {"leaf-1", "Ethernet1/7"}});
  declared.links.push_back({{"node-0009", "mlx5_0"}, {"leaf-0", "Ethernet1/9"}});
  TopologyStore store(std::move(declared), clock_);
  std::vector<MetricPoint> points = fleet_points(shape_, 0);
  points.resize(19);  // three adapters
  report(store, 0, points);
  const std::shared_ptr<const Topology> topology = store.topology();
  std::vector<std::string> lines;
  for (const Difference& one : topology->differences())
    lines.push_back(
        format("%s %s: %s, %s", to_text(one.kind), one.subject.c_str(), one.expected.c_str(), one.seen.c_str()));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "other_port node-0000.cluster.local:mlx5_1: leaf-1:Ethernet1/7, leaf-1:Ethernet1/1",
                       "not_seen node-0009:mlx5_0: leaf-0:Ethernet1/9, ",
                       "not_declared node-0000.cluster.local:mlx5_2: , leaf-2:Ethernet1/1"}));
  EXPECT_EQ(uplink(*topology, "node-0000.cluster.local:mlx5_1"), "leaf-1:Ethernet1/1") << "what was seen counts";
}

TEST_F(TopologyStoreTest, KnowsWhichStorageAHostMounts) {
  Declared declared;
  declared.nodes.push_back({.name = "filer", .kind = NodeKind::kStorage, .address = "10.0.9.1"});
  TopologyStore store(std::move(declared), clock_);
  auto mounts = [&](const char* mount, bool is_over) {
    MetricPoint point;
    point.name = "lockstep_storage_operations_total";
    point.attributes = {{"mount", mount}, {"op", "read"}};
    point.flags = is_over ? MetricPoint::kNoRecordedValue : 0;
    report(store, 0, {point, point});
    std::string text;
    const std::shared_ptr<const Topology> topology = store.topology();
    for (const Link& link : topology->links())
      if (link.kind == LinkKind::kMount)
        text += topology->name(link.a) + " " +
                topology->port_name(static_cast<LinkIndex>(&link - topology->links().data()), link.b) + "; ";
    return text;
  };
  EXPECT_EQ(mounts("10.0.9.1:/data", false), "node-0000 filer:/data; ") << "by the address that the file has";
  EXPECT_EQ(mounts("scratch", false), "node-0000 filer:/data; node-0000 scratch; ") << "Lustre";
  EXPECT_EQ(mounts("[fd00::1]:/home", false), "node-0000 filer:/data; node-0000 scratch; node-0000 fd00::1:/home; ");
  EXPECT_EQ(mounts("10.0.9.1:/data", true), "node-0000 scratch; node-0000 fd00::1:/home; ");
  EXPECT_EQ(store.topology()->count(NodeKind::kStorage), 3u);
  for (size_t i = 0; i < TopologyStore::kPartsMax + 1; ++i) mounts(format("nfs:/%zu", i).c_str(), false);
  EXPECT_EQ(store.refused_count(), 6u) << "two points each";
}

TEST_F(TopologyStoreTest, RefusesWhatIsTooMuch) {
  TopologyStore store({}, clock_);
  std::vector<MetricPoint> points;
  for (size_t i = 0; i <= TopologyStore::kPartsMax; ++i) {
    MetricPoint& point = points.emplace_back();
    point.name = "lockstep_nic_info";
    point.attributes = {{"device", format("eth%zu", i)}};
  }
  MetricPoint& odd = points.emplace_back();
  odd.name = "lockstep_nic_info";
  odd.attributes = {{"device", std::string("a\nb")}};
  report(store, 0, points);
  EXPECT_EQ(store.topology()->count(NodeKind::kNic), TopologyStore::kPartsMax);
  EXPECT_EQ(store.refused_count(), 2u);
}

TEST(JobPlaces, KnowsWhereARankWasInAnEarlierAttempt) {
  JobPlaces places;
  Identity identity{"llama", 0, Rank{1}, 2, 1, "node-1", "GPU-a"};
  places.on_rank_started(identity, 100);
  identity.attempt = 1;
  identity.host = "node-2";
  places.on_rank_started(identity, 200);
  EXPECT_EQ(places.find("llama", 1_rank, 150)->host, "node-1");
  EXPECT_EQ(places.find("llama", 1_rank, 250)->host, "node-2");
  EXPECT_FALSE(places.find("llama", 0_rank, 250));
  EXPECT_EQ(places.rank_count("llama", 250), 2);
  identity.rank = Rank{2'000'000'000};
  places.on_rank_started(identity, 260);
  EXPECT_EQ(places.rank_count("llama", 300), 2) << "beyond the world's size";
  places.on_attempt_back("llama", 0);
  EXPECT_EQ(places.find("llama", 1_rank, 250)->host, "node-1");
}

TEST(JobPlaces, VisitsWithoutItsLock) {
  JobPlaces places;
  places.on_rank_started({"llama", 0, Rank{1}, 2, 1, "node-1", "GPU-a"}, 100);
  std::string seen;
  places.visit("", 200, [&](const JobPlaces::View& view) {
    places.on_rank_started({"llama", 0, Rank{0}, 2, 1, "node-0", "GPU-b"}, 150);
    seen += format("%.*s on %.*s ", static_cast<int>(view.job.size()), view.job.data(),
                   static_cast<int>(view.host.size()), view.host.data());
  });
  EXPECT_EQ(seen, "llama on node-1 ");
  EXPECT_EQ(places.find("llama", 0_rank, 200)->host, "node-0");
}

TEST(JobPlaces, NamesThatNoRankNeedsMakeRoom) {
  JobPlaces places(64 << 10);
  for (int64_t attempt = 0; attempt < 5000; ++attempt)
    places.on_rank_started({"llama", attempt, Rank{0}, 1, 0, format("pod-%05d", static_cast<int>(attempt)), "GPU-a"},
                           100 + attempt);
  EXPECT_EQ(places.find("llama", 0_rank, 6000)->host, "pod-04999");
  EXPECT_EQ(places.find("llama", 0_rank, 100 + 4997)->host, "pod-04997");
}

TEST(JobPlaces, NamesThatWereAllNeededMakeRoomWhenTheirRanksAreForgotten) {
  JobPlaces places(64 << 10);
  constexpr int32_t kWorld = 4000;
  for (int32_t rank = 0; rank < kWorld; ++rank)
    places.on_rank_started({"llama", 0, Rank{rank}, kWorld, 0, format("pod-%05d", rank), "GPU-a"}, 100);
  EXPECT_FALSE(places.find("llama", Rank{kWorld - 1}, 100)) << "no room for its name";
  for (int64_t attempt = 1; attempt < 100; ++attempt)
    places.on_rank_started({"llama", attempt, Rank{0}, 1, 0, "pod-again", "GPU-a"}, 100 + attempt);
  ASSERT_TRUE(places.find("llama", 0_rank, 300));
  EXPECT_EQ(places.find("llama", 0_rank, 300)->host, "pod-again");
}

}  // namespace
}  // namespace lockstep::fabric
