// Latency and bandwidth towards each peer, fitted over the transfers a job makes anyway.
//
// The model is service time = latency + bytes / bandwidth. Transfers of a channel are pipelined: one that was posted
// while its predecessor was still on the wire is served only when that is done, so its service begins there. The
// network of a real job is full of disturbances; therefore each size is represented by the median of its newest service
// times, and the line goes through these medians by Theil and Sen's method (median of all slopes, then median of what
// is left), which stands wild values in more than a quarter of its points.
//
// What is measured is one channel: channels share a link, so a link carries more than one of them sees.
//
// Limits: kLinksMax peers over all communicators; transfers to others are counted and left out. O(1) a transfer; the
// fit is made only when asked for.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "model/ids.h"

namespace lockstep {

struct LinkFit {
  std::optional<double> latency_ns;  // not known where the sizes do not differ enough
  double bytes_per_s = 0;            // 0: not known
  uint32_t sizes = 0;                // classes of size (four to a power of two) that had enough transfers
  uint64_t samples = 0;              // transfers behind the fit
};

class LinkFits {
 public:
  static constexpr size_t kLinksMax = 4096;
  static constexpr size_t kKept = 32;        // newest transfers of a size
  static constexpr size_t kSamplesMin = 3;   // of a size, to be a point of the line
  static constexpr size_t kSizesMin = 3;     // for a line
  static constexpr double kSizesSpan = 4.0;  // largest over smallest, for a line

  // A send: handed to the network at `post_ns`, reported done at `done_ns`. Transfers of one channel come in the order
  // they were done; one that did not cannot be timed and is left out.
  void add(CommId comm_id, int32_t peer, uint8_t channel, int64_t post_ns, int64_t done_ns, uint32_t bytes);

  // By communicator, then by peer (rank in it). Peers of whom too little is known are left out.
  std::map<CommId, std::map<int32_t, LinkFit>> fits() const;
  void forget(CommId comm_id);
  uint64_t refused() const { return refused_; }

 private:
  struct Size {
    std::array<uint32_t, kKept> bytes{};
    std::array<uint32_t, kKept> service_ns{};
    uint64_t seen = 0;
    size_t kept() const { return seen < kKept ? static_cast<size_t>(seen) : kKept; }
  };
  struct Link {
    std::map<uint8_t, Size> sizes;         // by class, at most 128
    std::map<uint8_t, int64_t> last_done;  // by channel
  };
  static LinkFit fit(const Link& link);

  std::map<std::pair<CommId, int32_t>, Link> links_;
  uint64_t refused_ = 0;
};

}  // namespace lockstep
