// The real kernel: a pair of virtual interfaces in a network namespace of the test's own. Needs root; else skipped.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "sources/nic/nic_source.h"
#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::tick_at;
using nic_testing::value_of;

constexpr int kCannot = 77;

bool make_pair(const std::string& name, const std::string& peer_name) {
  ifinfomsg header{};
  NetlinkPayload peer;
  peer.append(&header, sizeof header);
  peer.attribute_text(IFLA_IFNAME, peer_name);
  NetlinkPayload data;
  data.nested(VETH_INFO_PEER, peer);
  NetlinkPayload info;
  info.attribute_text(IFLA_INFO_KIND, "veth");
  info.nested(IFLA_INFO_DATA, data);
  NetlinkPayload body;
  body.append(&header, sizeof header);
  body.attribute_text(IFLA_IFNAME, name);
  body.nested(IFLA_LINKINFO, info);

  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  nlmsghdr message{};
  message.nlmsg_len = static_cast<uint32_t>(sizeof message + body.bytes().size());
  message.nlmsg_type = RTM_NEWLINK;
  message.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
  std::string request(reinterpret_cast<const char*>(&message), sizeof message);
  request.append(reinterpret_cast<const char*>(body.bytes().data()), body.bytes().size());
  if (send(fd.get(), request.data(), request.size(), 0) < 0) return false;
  struct {
    nlmsghdr header;
    nlmsgerr error;
    char more[1024];
  } answer{};
  if (recv(fd.get(), &answer, sizeof answer, 0) < 0) return false;
  return answer.header.nlmsg_type == NLMSG_ERROR && answer.error.error == 0;
}

void set_up(const char* name, bool up) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  strcpy(request.ifr_name, name);
  ASSERT_EQ(ioctl(fd.get(), SIOCGIFFLAGS, &request), 0) << strerror(errno);
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  ASSERT_EQ(ioctl(fd.get(), SIOCSIFFLAGS, &request), 0) << strerror(errno);
}

void send_frame(const char* name, const std::string& frame) {
  UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = static_cast<int>(if_nametoindex(name));
  to.sll_halen = 6;
  ASSERT_EQ(sendto(fd.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
            static_cast<ssize_t>(frame.size()))
      << strerror(errno);
}

// Runs the body in a process with namespaces of its own; what it expects in vain is a failure here.
void in_own_network(const std::function<void()>& body) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make network namespaces";
  fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("sysfs", "/sys", "sysfs", MS_RDONLY, nullptr) != 0 || !make_pair("lockstep0", "lockstep1")) {
      _exit(kCannot);
    }
    body();
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) {
    GTEST_SKIP() << "no network namespaces or virtual interfaces here";
  }
  EXPECT_EQ(status, 0);
}

NodeReadings read(NicSource& source, double seconds, bool slow = false) {
  NodeReadings out;
  source.read(tick_at(seconds, slow), out);
  nic_testing::expect_well_formed(out);
  return out;
}

const NodeEvent* event_of(const NodeReadings& readings, const std::string& name, const std::string& device) {
  for (const NodeEvent& event : readings.events) {
    if (event.name == name && event.device == device) return &event;
  }
  return nullptr;
}

TEST(NicLive, TellsLinksThatComeAndGo) {
  in_own_network([] {
    set_up("lockstep0", true);
    set_up("lockstep1", true);
    NicSource source({.virtual_interfaces = true});
    NodeReadings first = read(source, 0, true);
    EXPECT_EQ(value_of(first, "lockstep_nic_carrier", {{"device", "lockstep0"}}), 1);
    EXPECT_TRUE(first.events.empty());
    EXPECT_EQ(first.failures, 0) << (first.notes.empty() ? "" : first.notes[0]);

    set_up("lockstep1", false);
    NodeReadings down = read(source, 1);
    const NodeEvent* event = event_of(down, "link.down", "lockstep0");
    ASSERT_TRUE(event);
    EXPECT_EQ(event->count, 1);
    EXPECT_EQ(value_of(down, "lockstep_nic_carrier", {{"device", "lockstep0"}}), 0);

    for (int i = 0; i < 3; ++i) {  // between two readings: up, down, up, down, up
      set_up("lockstep1", true);
      if (i < 2) set_up("lockstep1", false);
    }
    NodeReadings flapped = read(source, 2);
    ASSERT_TRUE(event_of(flapped, "link.down", "lockstep0"));
    EXPECT_EQ(event_of(flapped, "link.down", "lockstep0")->count, 2);
    ASSERT_TRUE(event_of(flapped, "link.up", "lockstep0"));
    EXPECT_EQ(event_of(flapped, "link.up", "lockstep0")->count, 3);
    EXPECT_EQ(value_of(flapped, "lockstep_nic_carrier", {{"device", "lockstep0"}}), 1);

    set_up("lockstep0", false);
    NodeReadings off = read(source, 3);
    ASSERT_TRUE(event_of(off, "link.down", "lockstep0"));
    EXPECT_EQ(event_of(off, "link.down", "lockstep0")->severity, EventSeverity::kWarn)
        << "nobody has to look for a cable";
    EXPECT_EQ(event_of(off, "link.down", "lockstep1")->severity, EventSeverity::kCritical);
  });
}

TEST(NicLive, HearsTheNeighbourFromTheWire) {
  in_own_network([] {
    set_up("lockstep0", true);
    set_up("lockstep1", true);
    NicSource source({.virtual_interfaces = true});
    read(source, 0, true);
    auto frame = [](const std::string& name, char ttl) {
      return std::string("\x01\x80\xc2\x00\x00\x0e\x02\x11\x22\x33\x44\x55\x88\xcc", 14) +
             std::string("\x02\x07\x07", 3) + name + std::string("\x04\x05\x05swp7", 7) +
             std::string("\x06\x02\x00", 3) + ttl + std::string(2, '\0');
    };
    send_frame("lockstep1", frame("leaf-1", 120));
    read(source, 1);
    ASSERT_TRUE(source.neighbour("lockstep0"));
    EXPECT_EQ(source.neighbour("lockstep0")->leaf(), "leaf-1");
    EXPECT_EQ(source.neighbour("lockstep0")->leaf_port(), "swp7");
    EXPECT_FALSE(source.neighbour("lockstep1")) << "what is sent from here is not a neighbour";

    read(source, 100);
    EXPECT_TRUE(source.neighbour("lockstep0"));
    read(source, 122);
    EXPECT_FALSE(source.neighbour("lockstep0")) << "its time to live is over";

    send_frame("lockstep1", frame("leaf-2", 120));
    send_frame("lockstep1", frame("leaf-2", 0));
    NodeReadings out = read(source, 123);
    EXPECT_FALSE(source.neighbour("lockstep0")) << "it said goodbye";
    send_frame("lockstep1", std::string("\x01\x80\xc2\x00\x00\x0e\x02\x11\x22\x33\x44\x55\x88\xcc\xff", 15));
    EXPECT_EQ(read(source, 124).failures, 1);
  });
}

TEST(NicLive, TellsAnInterfaceThatAppears) {
  in_own_network([] {
    NicSource source({.virtual_interfaces = true});
    read(source, 0, true);
    ASSERT_TRUE(make_pair("late0", "late1"));
    EXPECT_TRUE(event_of(read(source, 10, true), "nic.appeared", "late0"));
  });
}

TEST(NicLive, ReadsThisMachine) {
  NicSource source({});
  NodeReadings out;
  source.read(tick_at(0, true), out);
  source.read(tick_at(1), out);
  for (const SourceCheck& check : source.check()) {
    EXPECT_EQ(check.works, check.todo.empty()) << check.what;
    EXPECT_FALSE(check.found.empty()) << check.what;
  }
}

}  // namespace
}  // namespace lockstep
