// What a receiver hands to the store: one series of a push with its samples, as views into what was read from the wire.
//
// raw_labels stand for the labels without being them: equal bytes are the same series, whichever receiver they came
// through, so the first byte tells the form: 0x0A or 0x8A fields of a remote write request, 'O' OTLP, 'T' exposition
// text, 'J' numbers of jobs, 'F' ports of switches, kUnreadableLabels alone labels that cannot be read.
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/metric_descriptor.h"
#include "model/native_histogram.h"

namespace lockstep {

inline constexpr char kUnreadableLabels = '\xFF';

struct PushedExemplar {
  Labels labels;
  double value = 0;
  int64_t time_ms = 0;
};

// Valid while what it was read from is, and during MetricWriter::push() only.
struct PushedSeries {
  std::string_view raw_labels;
  std::span<const int64_t> times_ms;
  std::span<const double> values;               // as long as times_ms, or empty where histograms are given
  std::span<const NativeHistogram> histograms;  // as long as times_ms, or empty
  std::span<const PushedExemplar> exemplars;
};

}  // namespace lockstep
