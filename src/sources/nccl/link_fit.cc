#include "sources/nccl/link_fit.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "base/median.h"

namespace lockstep {
namespace {

struct Point {
  double bytes = 0;
  double ns = 0;
};

// Four classes to a power of two: 4 to 5, 5 to 6, ... times a power of two.
uint8_t class_of(uint32_t bytes) {
  int power = std::bit_width(bytes) - 1;
  uint32_t quarter = power >= 2 ? (bytes >> (power - 2)) & 3 : 0;
  return static_cast<uint8_t>(power * 4 + static_cast<int>(quarter));
}

// Slope (ns per byte) and intercept of Theil and Sen; the points are at different sizes.
std::pair<double, double> line_through(const std::vector<Point>& points) {
  std::vector<double> slopes, rests;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j)
      slopes.push_back((points[j].ns - points[i].ns) / (points[j].bytes - points[i].bytes));
  }
  double slope = median_of(slopes);
  for (const Point& point : points) rests.push_back(point.ns - slope * point.bytes);
  return {slope, median_of(rests)};
}

}  // namespace

void LinkFits::add(CommId comm_id, int32_t peer, uint8_t channel, int64_t post_ns, int64_t done_ns, uint32_t bytes) {
  auto found = links_.find({comm_id, peer});
  if (found == links_.end()) {
    if (links_.size() >= kLinksMax) {
      ++refused_;
      return;
    }
    found = links_.try_emplace({comm_id, peer}).first;
  }
  Link& link = found->second;
  int64_t& last_done = link.last_done[channel];
  int64_t service = done_ns - std::max(post_ns, last_done);
  last_done = std::max(last_done, done_ns);
  if (bytes == 0 || service <= 0 || service > std::numeric_limits<uint32_t>::max()) return;
  Size& size = link.sizes[class_of(bytes)];
  size_t at = static_cast<size_t>(size.seen++ % kKept);
  size.bytes[at] = bytes;
  size.service_ns[at] = static_cast<uint32_t>(service);
}

LinkFit LinkFits::fit(const Link& link) {
  LinkFit fit;
  std::vector<Point> points;  // by size, which is the order of the classes
  for (const auto& [number, size] : link.sizes) {
    auto kept = static_cast<std::ptrdiff_t>(size.kept());
    if (size.kept() < kSamplesMin) continue;
    points.push_back({median_of(std::vector<uint32_t>(size.bytes.begin(), size.bytes.begin() + kept)),
                      median_of(std::vector<uint32_t>(size.service_ns.begin(), size.service_ns.begin() + kept))});
    fit.samples += size.kept();
  }
  fit.sizes = static_cast<uint32_t>(points.size());
  if (points.empty()) return fit;
  // Where the sizes draw no line: of the largest transfers the latency is the smallest part.
  fit.bytes_per_s = points.back().bytes / points.back().ns * 1e9;
  if (points.size() < kSizesMin || points.back().bytes < kSizesSpan * points.front().bytes) return fit;
  auto [slope, intercept] = line_through(points);
  if (slope <= 0) return fit;  // time does not grow with size: what there is, is latency, but no bandwidth to be told
  fit.bytes_per_s = 1e9 / slope;
  fit.latency_ns = std::max(0.0, intercept);
  return fit;
}

std::map<CommId, std::map<int32_t, LinkFit>> LinkFits::fits() const {
  std::map<CommId, std::map<int32_t, LinkFit>> all;
  for (const auto& [key, link] : links_) {
    LinkFit one = fit(link);
    if (one.sizes > 0) all[key.first][key.second] = one;
  }
  return all;
}

void LinkFits::forget(CommId comm_id) {
  links_.erase(links_.lower_bound({comm_id, std::numeric_limits<int32_t>::min()}),
               links_.upper_bound({comm_id, std::numeric_limits<int32_t>::max()}));
}

}  // namespace lockstep
