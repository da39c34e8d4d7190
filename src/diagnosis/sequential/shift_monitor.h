// The statistical core of diagnosis: which of many streams has become larger than it was, or than the others are, and
// how sure is that?
//
// A stream is one quantity of one rank, flow or job, with one value a step: for instance a rank's own time minus its
// peers', as a share of the step. The monitor learns how streams vary while all is well, and adds up evidence, in nats,
// for each one that it has shifted upwards. Detectors measure; here it is decided; what crosses a threshold that
// follows from a stated rate of false alarms (threshold_nats) is told.
//
// Noise model. value = level + noise. The level is the stream's own, from its past, with bounded influence of each value
// and a memory of kMemorySteps, so that slow drift is followed. Noise is AR(1) with one coefficient for all streams (from
// neighbours around their level, each with bounded influence). What is left has a body, a Student t whose scale comes
// from clipped successive differences (which a shift hardly touches), pooled over streams and sharpened by each one's
// own, and whose degrees of freedom come from how heavy the shoulders are; and an upper tail with the share of values
// that was seen there and the heaviest power law that has no mean. In an odd step, where all spread more than usual, the
// spread of that step counts.
//
// Test. Shiryaev-Roberts, R <- (1 + R) * f1(value) / f0(value), for shifts of several sizes side by side, for one
// whose size is learned from the steps since it began, and for a level above what healthy streams may differ by. f0 is
// the predictive density if nothing has changed: it includes what is not known of the level and goes on learning, so
// that a young baseline gives little evidence and no bias. The evidence is the logarithm of the mean of these R. Under
// f0, R minus the number of steps is a martingale: a stream without a shift takes at least e^threshold steps on average
// to a false alarm, whatever the sizes looked for.
//
// Slow waves (load that is routed now here, now there) hide below the noise of single steps, but not in sums over many:
// by as much as these vary more than the model has it, all evidence is worth less.
//
// The first steps. Before a stream has a past there are its siblings: how far these are apart in a step is the noise of
// that step, and a level that is the same in one step after the other, above what healthy streams may differ by, is
// evidence without any history. A fault that is there from the start is as likely as one that begins in any of the
// `head_start` values after it, so the sum begins with that many (Shiryaev-Roberts with a head start: the mean time to a
// false alarm becomes shorter by just so many values).
//
// Assumptions: streams are compared inside a step before they come here (what all share is gone). Trouble that comes in
// bursts on one stream is told as a shift if a burst lasts.
// How well the promise holds, on data of many kinds: bench/results/sequential.md. Why so: docs/decisions/0015.
//
// Hot path: add_step, some 0.1 us a value; allocates only when there are more streams than ever before.
// Memory: kStreamBytes a stream.
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"

namespace lockstep {

// The evidence at which something is told, so that a job in which all is well has on average `alarms_per_hour` false
// alarms, where so many streams (over all monitors that share the rate) get so many values an hour.
double threshold_nats(double alarms_per_hour, double streams, double steps_per_hour);

// What was promised: over all ranks and detectors of a job.
inline constexpr double kConfirmedPerJobHour = 1.0 / 1000;
inline constexpr double kSuspectedPerJobHour = 1.0 / 10;

struct ShiftEstimate {
  double size = 0;                  // in units of the values
  double error = 0;                 // standard error of that
  StepNumber begin_step = kNoStep;  // the first step that belongs to it
  int64_t steps = 0;                // values since
  bool lasting = false;             // it was never otherwise: the size is against zero, and there is no begin
};

class ShiftMonitor {
 public:
  struct Options {
    // Shifts much below this are nobody's concern: half of it is never told.
    double least_shift = 0.01;
    // Healthy streams may differ for good, by at most this. One that is above, though it always was, is told all the
    // same.
    double lasting_max = 0.05;
    // Up to this share of a shift may show in others, up or down: who waits for a slow one is measured as other than it
    // is. While one stands out the others get that much allowance, and their levels do not learn. 0: streams do not
    // touch each other.
    double shadow = 0;
  };
  struct Noise {
    double correlation = 0;  // from step to step
    double scale = 0;        // of what is left after that
    int freedom = 0;         // degrees of freedom of the body, a Student t,
    double t_scale = 1;      // and its scale, in units of the other
    double tail_share = 0;   // of values further out than the body tells
    bool known = false;      // enough was seen to judge by
    double long_run = 1;     // by how much more sums of values vary than they would if that were all
  };

  static constexpr size_t kStreamBytes = 88;
  static constexpr int kMemorySteps = 128;
  static constexpr int kFirstValues = 5;  // of a stream: no evidence before

  explicit ShiftMonitor(Options options) : options_(options) {}

  // The values of one step, by stream; NaN: not known. Steps come in order; some may be missing.
  void add_step(StepNumber step, std::span<const float> values);
  // The same of a step before those, in which all is different still (compilation, caches): it tells who stands apart
  // from its siblings, and nothing of the noise that is to come.
  void add_warm_up(std::span<const float> values);
  // Values after the first ones in which a fault is as likely to begin as to have been there from the start.
  void set_head_start(double values) { head_start_ = static_cast<float>(values); }
  // From this evidence on (nats) a stream's level no longer learns: what it would learn is the shift. Evidence grows
  // little further.
  void hold_at(double nats);

  size_t streams() const { return streams_.size(); }
  // In favour of a shift that lasts until now; grows by the step and falls when it is over.
  double evidence_nats(size_t stream) const;
  // Of the stretch that the evidence is about, against the stream's own level before it.
  ShiftEstimate estimate(size_t stream) const;
  double baseline(size_t stream) const;
  // The standard deviation of one value of this stream around its level, as far as the body of the noise goes.
  double scale(size_t stream) const;
  Noise noise() const;
  // Takes back all evidence for a stream, as if what it has now had always been.
  void forget(size_t stream);

 private:
  static constexpr int kSizes = 6;           // fixed shift sizes
  static constexpr int kLearned = kSizes;    // the size learned since it began
  static constexpr int kLevel = kSizes + 1;  // above lasting_max
  static constexpr int kHypotheses = kSizes + 2;

  struct Stream {
    float level = 0;         // the baseline
    float level_before = 0;  // as it was when the stretch began
    float values = 0;        // that the level is made of, at most kMemorySteps; 0: there is none yet
    float spread = 1;        // own squared scale over the pooled one
    float last = 0, last_but_one = 0;
    float run_excess = 0;  // sum over the stretch, above level_before; of the first values, above zero
    float run_ratio = 1;   // likelihood ratio of the stretch; 1: there is none
    int32_t run_values = 0;
    int32_t seen = 0;
    StepNumber begin_step;
    float block_sum = 0;  // of what was left of the last values, in scales
    int32_t block_values = 0;
    float ratio[kHypotheses] = {};
  };
  struct StepModel;
  static_assert(sizeof(Stream) == kStreamBytes);

  static double mean_ratio(const Stream& stream);
  static float sure_spread(const Stream& stream);
  static void begin(Stream& stream, float value);
  float beside_others(size_t stream, float value, const StepModel& model) const;
  void compare(Stream& stream, float value, const StepModel& model) const;
  void make_room(size_t streams);
  void find_siblings(std::span<const float> values, StepModel& model);
  double correlation() const;
  void learn_long_run(double wide, double blocks, double memory);
  StepModel model_of(std::span<const float> values);
  static float tail_density(const StepModel& model, float scales);
  template <int kFreedom>
  void update(StepNumber step, std::span<const float> values, const StepModel& model);
  void learn(std::span<const float> values, const StepModel& model);

  Options options_;
  std::vector<Stream> streams_;
  std::vector<float> scratch_;
  double hold_ratio_ = 0;  // 0: never
  float ratio_max_ = 1e30f;
  float head_start_ = 0;
  float siblings_scale_ = 0;  // of the newest of the first steps
  // Pooled over streams.
  double variance_ = 0;  // of whitened values, by clipped differences
  double differences_ = 0;
  double neighbour_product_ = 0, neighbour_square_ = 0, neighbours_ = 0;  // means, around the level, of values in a row
  double excess_share_ = 0, excess_of_ = 0;                               // of values beyond kExcessFrom scales
  double log_excess_ = 0, excesses_ = 0;                                  // mean of the logarithm of how far beyond
  double tail_share_ = 0, tail_of_ = 0;                                   // the same beyond kTailFrom
  double wide_share_ = 0, wide_of_ = 0;  // of sums over blocks further out than independent values' scale
  double long_run_ = 1;                  // what that says
};

}  // namespace lockstep
