#include "fabric/topology_file.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::fabric {
namespace {

constexpr const char* kYaml = R"(version: 1
switches:
  - {name: leaf-1, tier: leaf}
  - {name: leaf-2, tier: leaf}
  - spine-1
hosts:
  - name: node-01
    gpus: 2
    nvlink: true
    nics:
      - {device: mlx5_0, gpu: 0, address: 10.0.0.1}
      - {device: mlx5_1, gpu: 1, rail: 1}
  - node-02
storage: [nfs-1]
nvlink_domains:
  - {name: rack-1, hosts: [node-01, node-02]}
links:
  - [node-01:mlx5_0, "leaf-1:Ethernet1/1"]
  - {a: "leaf-1:Ethernet49", b: "spine-1:Ethernet1", gbit: 400}
  - ["leaf-2:Ethernet49", "spine-1:Ethernet2"]
)";

constexpr const char* kIbnetdiscover = R"(#
# Topology file: generated on Tue Nov 17 17:00:00 2026
#
# Initiated from node 7cfe900300a1b2c0 port 7cfe900300a1b2c0

vendid=0x2c9
devid=0xcf08
sysimgguid=0x7cfe9003009ce5b0
switchguid=0x7cfe9003009ce5b0(7cfe9003009ce5b0)
Switch	36 "S-7cfe9003009ce5b0"		# "MF0;ib-leaf-1:MSB7700/U1" enhanced port 0 lid 5 lmc 0
[1]	"H-7cfe900300a1b2c0"[1](7cfe900300a1b2c0) 		# "node-01 mlx5_0" lid 12 4xNDR
[19]	"S-7cfe9003009ce5c0"[2]		# "MF0;ib-spine-1:MSB7700/U1" lid 3 4xNDR

switchguid=0x7cfe9003009ce5c0(7cfe9003009ce5c0)
Switch	36 "S-7cfe9003009ce5c0"		# "MF0;ib-spine-1:MSB7700/U1" enhanced port 0 lid 3 lmc 0
[2]	"S-7cfe9003009ce5b0"[19]		# "MF0;ib-leaf-1:MSB7700/U1" lid 5 4xNDR

vendid=0x2c9
caguid=0x7cfe900300a1b2c0
Ca	1 "H-7cfe900300a1b2c0"		# "node-01 HCA-1"
[1](7cfe900300a1b2c0) 	"S-7cfe9003009ce5b0"[1]		# lid 12 lmc 0 "MF0;ib-leaf-1:MSB7700/U1" lid 5 4xNDR
)";

constexpr const char* kForwarding =
    R"(Unicast lids [0x0-0xc] of switch Lid 5 guid 0x7cfe9003009ce5b0 (MF0;ib-leaf-1:MSB7700/U1):
  Lid  Out   Destination
       Port     Info
0x0003 019 : (Switch portguid 0x7cfe9003009ce5c0: 'MF0;ib-spine-1:MSB7700/U1')
0x000c 001 : (Channel Adapter portguid 0x7cfe900300a1b2c0: 'node-01 mlx5_0')
2 valid lids dumped
)";

constexpr const char* kLldp = R"({
  "lldp": {
    "interface": [
      {"ens1f0": {"via": "LLDP", "rid": "1",
        "chassis": {"leaf-1": {"id": {"type": "mac", "value": "00:11:22:33:44:55"}}},
        "port": {"id": {"type": "ifname", "value": "Ethernet1/1"}, "ttl": "120"}}},
      {"ens2f0": {"chassis": {"id": {"type": "mac", "value": "00:11:22:33:44:66"}},
        "port": {"id": {"type": "mac", "value": "00:11:22:33:44:67"}, "descr": "swp7"}}}
    ]
  }
})";

Declared parsed(std::string_view text, std::string_view file = "f.yaml") {
  Declared declared;
  const Result<void> done = parse_topology(text, file, declared);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error());
  return declared;
}

std::string error_of(std::string_view text, const TopologyFileLimits& limits = {}) {
  Declared declared;
  const Result<void> done = parse_topology(text, "dir/f", declared, limits);
  EXPECT_TRUE(declared.empty());
  return done.ok() ? "" : done.error();
}

TEST(TopologyFile, ReadsOurYaml) {
  const Declared declared = parsed(kYaml);
  ASSERT_EQ(declared.nodes.size(), 6u);
  EXPECT_EQ(declared.nodes[2].kind, NodeKind::kSwitch);
  EXPECT_EQ(declared.nodes[3].gpus, 2);
  EXPECT_TRUE(declared.nodes[3].nvlink);
  ASSERT_EQ(declared.nics.size(), 2u);
  EXPECT_EQ(declared.nics[0].address, "10.0.0.1");
  ASSERT_EQ(declared.links.size(), 3u);
  EXPECT_EQ(declared.links[0].b, (Endpoint{"leaf-1", "Ethernet1/1"}));
  EXPECT_EQ(declared.links[1].gbit_s, 400);
  EXPECT_EQ(declared.nvlink_domains[0].hosts.size(), 2u);
}

TEST(TopologyFile, NamesTheLineOfAMistake) {
  EXPECT_EQ(error_of("switches:\n  - {name: a}\n  - {nam: b}\n"),
            "dir/f:3: \"nam\" is not known here; known: name, tier");
  EXPECT_EQ(error_of("switches: [a, b]\nlinks:\n  - [a:1, c:1]\n"),
            "dir/f:3: \"c\" is no switch, host or storage of this file");
  EXPECT_EQ(error_of("switches: [a, a]\n"), "dir/f:1: a is there twice");
  EXPECT_EQ(error_of("links: [[a, b]]\nswitches: [a, b]\n"), "dir/f:1: \"a\": NODE:PORT was expected");
  EXPECT_EQ(error_of("switches: [a]\nhosts:\n- {name: h, gpus: -1}\n"),
            "dir/f:3: gpus: a number from 0 to 1024 was expected");
  EXPECT_EQ(error_of("a: [\n"), "dir/f:2: not YAML: end of sequence flow not found");
  EXPECT_EQ(error_of(""), "dir/f:1: the file is empty");
  EXPECT_EQ(error_of("42"), "dir/f:1: a topology is a mapping (switches, hosts, links)");
}

TEST(TopologyFile, KeepsItsLimits) {
  EXPECT_NE(error_of("switches: [a, b, c]\n", {.nodes_max = 2}).find("more than 2 nodes"), std::string::npos);
  EXPECT_NE(error_of("switches: [a, b]\nlinks: [[a:1, b:1], [a:2, b:2]]\n", {.links_max = 1}).find("more than 1 links"),
            std::string::npos);
  EXPECT_NE(error_of(kYaml, {.bytes_max = 10}).find("too many"), std::string::npos);
  EXPECT_NE(error_of(kForwarding, {.forwarding_entries_max = 5}).find("more than 5 entries"), std::string::npos);
  EXPECT_EQ(error_of("hosts:\n- {name: a, gpus: 3}\n- {name: b, gpus: 3}\n", {.nodes_max = 4}),
            "dir/f:3: more than 4 GPUs");
  EXPECT_EQ(error_of("hosts: &all [a, b, c]\nnvlink_domains:\n- {name: x, hosts: *all}\n- {name: y, hosts: *all}\n",
                     {.nodes_max = 5}),
            "dir/f:1: more than 5 hosts in domains")
      << "aliases make many of few bytes";
  EXPECT_EQ(error_of(R"({"a": {"lldp": {}}, "b": {"lldp": {}}})", {.nodes_max = 1}), "dir/f:1: more than 1 nodes");
  Declared declared;
  const TopologyFileLimits three{.nodes_max = 3};
  EXPECT_TRUE(parse_topology("switches: [a, b]\n", "f", declared, three).ok());
  EXPECT_EQ(parse_topology("switches: [c, d]\n", "g", declared, three).error(),
            "g:1: with this file there are more than 3 nodes");
  EXPECT_EQ(declared.nodes.size(), 2u) << "nothing of that file counts";
}

TEST(TopologyFile, ReadsContainerlab) {
  const Declared declared = parsed(R"(name: lab
topology:
  kinds: {ceos: {image: ceos}}
  nodes:
    leaf1: {kind: ceos, group: leaf}
    spine1: {kind: ceos, group: spine}
    host1: {kind: linux, image: debian}
  links:
    - endpoints: ["leaf1:eth1", "spine1:eth1"]
    - endpoints: ["host1:eth1", "leaf1:eth2"]
)");
  ASSERT_EQ(declared.nodes.size(), 3u);
  EXPECT_EQ(declared.nodes[0].kind, NodeKind::kLeaf);
  EXPECT_EQ(declared.nodes[2].kind, NodeKind::kHost);
  ASSERT_EQ(declared.links.size(), 2u);
  EXPECT_EQ(declared.links[1].a, (Endpoint{"host1", "eth1"}));
}

TEST(TopologyFile, ReadsIbnetdiscoverAndForwardingTables) {
  Declared declared = parsed(kIbnetdiscover);
  ASSERT_EQ(declared.nodes.size(), 3u);
  EXPECT_EQ(declared.links.size(), 4u);  // each cable from both ends
  const auto uplink = std::find_if(declared.links.begin(), declared.links.end(),
                                   [](const DeclaredLink& link) { return link.a.node == "node-01"; });
  ASSERT_NE(uplink, declared.links.end());
  EXPECT_EQ(uplink->a.port, "mlx5_0");
  EXPECT_EQ(uplink->b, (Endpoint{"ib-leaf-1", "1"}));
  EXPECT_EQ(uplink->gbit_s, 400);
  ASSERT_EQ(declared.lids.size(), 1u);
  EXPECT_EQ(declared.lids[0].second, 12);
  ASSERT_TRUE(parse_topology(kForwarding, "lfts", declared).ok());
  EXPECT_EQ(declared.forwarding.at("ib-leaf-1").at(3), 19);
  EXPECT_EQ(declared.forwarding.at("ib-leaf-1").at(12), 1);

  EXPECT_EQ(error_of("switchguid=1\n[1] \"S-1\"[2]\n"), "dir/f:2: a port before any node");
  EXPECT_EQ(error_of("caguid=1\nCa 1 \"H-1\"\n[1] \"S-9\"[1]\n"),
            "dir/f:3: a port leads to \"S-9\", which the file does not have");
  EXPECT_EQ(error_of("Unicast lids [0x0-0x1] of switch Lid 1 guid 0x12 (a):\n0xc000 001 : x\n"),
            "dir/f:2: an entry is LID PORT : what it is");
}

TEST(TopologyFile, ReadsLldpctl) {
  const Declared declared = parsed(kLldp, "/etc/lldp/node-01.json");
  EXPECT_EQ(declared.nodes[0].name, "node-01");
  ASSERT_EQ(declared.links.size(), 2u);
  EXPECT_EQ(declared.links[0].a, (Endpoint{"node-01", "ens1f0"}));
  EXPECT_EQ(declared.links[0].b, (Endpoint{"leaf-1", "Ethernet1/1"}));
  EXPECT_EQ(declared.links[1].b, (Endpoint{"00-11-22-33-44-66", "swp7"}));
  const Declared many = parsed("{\"node-07\": " + std::string(kLldp) + "}", "all.json");
  EXPECT_EQ(many.nodes[0].name, "node-07");
  EXPECT_EQ(error_of("{\n\"lldp\": {\n"), "dir/f:3: JSON: byte 12: a key is wanted here");
}

// Whatever of a file is missing: an answer, no crash, and nothing half read.
TEST(TopologyFile, SurvivesBeingCutAndChanged) {
  for (const char* text : {kYaml, kIbnetdiscover, kForwarding, kLldp}) {
    const std::string whole = text;
    for (size_t cut = 0; cut < whole.size(); cut += 7) {
      Declared declared;
      const bool ok = parse_topology(whole.substr(0, cut), "f", declared).ok();
      EXPECT_TRUE(ok || declared.empty());
      std::string changed = whole;
      changed[cut] = static_cast<char>(changed[cut] ^ 0x55);
      Declared other;
      (void)parse_topology(changed, "f", other);
    }
  }
}

}  // namespace
}  // namespace lockstep::fabric
