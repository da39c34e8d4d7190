#include "sources/nccl/link_fit.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

constexpr CommId kComm{0xC0};
constexpr int32_t kPeer = 4;

// A link with this latency and bandwidth, used one transfer after the other.
struct Link {
  double latency_ns = 5'000;
  double bytes_per_ns = 25;  // 25 GB/s
  int64_t now_ns = 1'000'000'000;

  void send(LinkFits& fits, uint32_t bytes, double times = 1) {
    int64_t post_ns = now_ns;
    now_ns += static_cast<int64_t>(times * (latency_ns + bytes / bytes_per_ns));
    fits.add(kComm, kPeer, 0, post_ns, now_ns, bytes);
    now_ns += 1000;  // idle
  }
};

LinkFit only(const LinkFits& fits) {
  auto all = fits.fits();
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? LinkFit{} : all.at(kComm).at(kPeer);
}

TEST(LinkFits, FindsLatencyAndBandwidth) {
  LinkFits fits;
  Link link;
  for (int i = 0; i < 100; ++i) {
    for (uint32_t bytes : {16'384u, 65'536u, 262'144u, 1'048'576u}) link.send(fits, bytes);
  }
  LinkFit fit = only(fits);
  EXPECT_EQ(fit.sizes, 4u);
  EXPECT_EQ(fit.samples, 4 * LinkFits::kKept);
  EXPECT_NEAR(fit.bytes_per_s, 25e9, 0.01e9);
  ASSERT_TRUE(fit.latency_ns);
  EXPECT_NEAR(*fit.latency_ns, 5'000, 10);
}

TEST(LinkFits, StandsThirtyPercentOfWildValues) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> wild(10, 1000), chance(0, 1), noise(0.97, 1.03);
    LinkFits fits;
    Link link;
    for (int i = 0; i < 100; ++i) {
      for (uint32_t bytes : {32'768u, 65'536u, 131'072u, 262'144u, 524'288u, 1'048'576u})
        link.send(fits, bytes, chance(random) < 0.3 ? wild(random) : noise(random));
    }
    LinkFit fit = only(fits);
    EXPECT_NEAR(fit.bytes_per_s, 25e9, 3e9) << "seed " << seed;
    ASSERT_TRUE(fit.latency_ns) << "seed " << seed;
    EXPECT_NEAR(*fit.latency_ns, 5'000, 1'500) << "seed " << seed;
  }
}

TEST(LinkFits, StandsOneSizeThatIsAllWrong) {
  LinkFits fits;
  Link link;
  for (int i = 0; i < 40; ++i) {
    for (uint32_t bytes : {32'768u, 65'536u, 131'072u, 262'144u, 524'288u, 1'048'576u})
      link.send(fits, bytes, bytes == 131'072 ? 50 : 1);
  }
  EXPECT_NEAR(only(fits).bytes_per_s, 25e9, 2.5e9);
}

TEST(LinkFits, OfOneSizeOnlyTheBandwidthIsTold) {
  LinkFits fits;
  Link link;
  for (int i = 0; i < 10; ++i) link.send(fits, 1'000'000);
  LinkFit fit = only(fits);
  EXPECT_EQ(fit.sizes, 1u);
  EXPECT_EQ(fit.samples, 10u);
  EXPECT_FALSE(fit.latency_ns);
  EXPECT_NEAR(fit.bytes_per_s, 1e6 / 45'000 * 1e9, 1e6);
}

TEST(LinkFits, OfSizesTooCloseTogetherOnlyTheBandwidthOfTheLargestIsTold) {
  LinkFits fits;
  Link link;
  for (int i = 0; i < 10; ++i) {
    for (uint32_t bytes : {400'000u, 600'000u, 1'000'000u}) link.send(fits, bytes);
  }
  EXPECT_EQ(only(fits).sizes, 3u);
  EXPECT_FALSE(only(fits).latency_ns);
  EXPECT_NEAR(only(fits).bytes_per_s, 1e6 / 45'000 * 1e9, 1e6);
}

TEST(LinkFits, TimeThatDoesNotGrowWithSizeGivesNoLatencyAndNoNegativeBandwidth) {
  LinkFits fits;
  Link link{.latency_ns = 50'000, .bytes_per_ns = 1e12};
  for (int i = 0; i < 10; ++i) {
    for (uint32_t bytes : {1'000u, 8'000u, 64'000u}) link.send(fits, bytes, 100'000.0 / (50'000 + bytes));
  }
  EXPECT_FALSE(only(fits).latency_ns);
  EXPECT_GT(only(fits).bytes_per_s, 0);
}

TEST(LinkFits, ANegativeLatencyIsNone) {
  LinkFits fits;
  Link link{.latency_ns = -500};
  for (int i = 0; i < 10; ++i) {
    for (uint32_t bytes : {65'536u, 262'144u, 1'048'576u}) link.send(fits, bytes);
  }
  EXPECT_EQ(only(fits).latency_ns, 0);
}

TEST(LinkFits, PipelinedTransfersDoNotCountTwice) {
  // Four are posted together; each is done 40 us after the one before.
  LinkFits fits;
  int64_t now = 1'000'000'000;
  for (int round = 0; round < 10; ++round) {
    for (int i = 1; i <= 4; ++i) fits.add(kComm, kPeer, 0, now, now + i * 40'000, 1'000'000);
    now += 1'000'000;
  }
  EXPECT_NEAR(only(fits).bytes_per_s, 25e9, 1e6);
}

TEST(LinkFits, ChannelsArePipelinesOfTheirOwn) {
  LinkFits fits;
  int64_t now = 1'000'000'000;
  for (int i = 0; i < 10; ++i) {
    for (uint8_t channel = 0; channel < 4; ++channel) fits.add(kComm, kPeer, channel, now, now + 40'000, 1'000'000);
    now += 100'000;
  }
  EXPECT_NEAR(only(fits).bytes_per_s, 25e9, 1e6);
  EXPECT_EQ(only(fits).samples, LinkFits::kKept);
}

TEST(LinkFits, WhatCannotBeTimedIsLeftOut) {
  LinkFits fits;
  fits.add(kComm, kPeer, 0, 100, 200, 0);              // nothing was sent
  fits.add(kComm, kPeer, 0, 300, 200, 10);             // done before it was posted
  fits.add(kComm, kPeer, 0, 0, int64_t{1} << 40, 10);  // minutes
  fits.add(kComm, kPeer, 0, 500, 600, 10);             // out of order
  EXPECT_TRUE(fits.fits().empty());
  for (int i = 0; i < 2; ++i) fits.add(kComm, 5, 0, 1000 * i, 1000 * i + 10, 10);
  EXPECT_TRUE(fits.fits().empty());  // two are too few
}

TEST(LinkFits, FollowsALinkThatHasBecomeSlow) {
  LinkFits fits;
  Link link;
  for (int i = 0; i < 1000; ++i) link.send(fits, 1'000'000);
  link.bytes_per_ns = 2.5;
  for (size_t i = 0; i < LinkFits::kKept; ++i) link.send(fits, 1'000'000);
  EXPECT_NEAR(only(fits).bytes_per_s, 1e6 / 405'000 * 1e9, 1e6);
}

TEST(LinkFits, HasALimitAndForgets) {
  LinkFits fits;
  for (int32_t peer = 0; peer <= static_cast<int32_t>(LinkFits::kLinksMax); ++peer) {
    for (int i = 0; i < 3; ++i) fits.add(kComm, peer, 0, 1000 * i, 1000 * i + 10, 10);
  }
  EXPECT_EQ(fits.refused(), 3u);
  EXPECT_EQ(fits.fits().at(kComm).size(), LinkFits::kLinksMax);
  fits.forget(kComm);
  EXPECT_TRUE(fits.fits().empty());
}

}  // namespace
}  // namespace lockstep
