// Prometheus remote write, 1.0 (prometheus.WriteRequest) and 2.0 (io.prometheus.write.v2.Request), walked once and
// handed on as views (model/pushed_series.h), without an allocation per series: the walk's arrays are used again.
//
// Takes what libprotobuf takes of these messages (remote_write_oracle_fuzz.cc compares), within kDecodedBytesMax.
// Labels of 2.0 over kLabelsBytesMax are not spelled out: labels() says so.
// Raw labels are the label fields of 1.0 as they came; 2.0's references mean something only beside their request's
// symbols, so they are spelled out in the form of 1.0. Text is checked by labels(), which the store asks for only where
// the bytes are new.
// A series with samples and histograms is two entries. One with neither is left out, and counted where 2.0 forbids it.
// A label message that is no protobuf refuses its series, not the request: labels() says so.
// Start timestamps are read over: the store has no place for them.
// Refused here, and counted: native histograms that contradict themselves (spans and buckets, negative counts, bounds
// that do not ascend, schemas other than -4..8 and -53).
// Hot path: snappy and this at most 0.08 CPU-s per million samples (remote_write_bench.cc).
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/protobuf_wire.h"
#include "base/result.h"
#include "model/pushed_series.h"

namespace lockstep::remote_write {

enum class Version { k1, k2 };

// Views into the request. type: as in MetricWriter::set_metadata().
struct Metadata {
  std::string_view name;
  const char* type;
  std::string_view help;
  std::string_view unit;
  bool operator==(const Metadata&) const = default;
};

struct Counts {
  uint64_t samples = 0;
  uint64_t histograms = 0;
  uint64_t exemplars = 0;
  // Left out here, and not among the above.
  uint64_t bad_histograms = 0;
  uint64_t bad_exemplars = 0;  // text that is too long or not UTF-8, references past the symbols
  uint64_t bad_metadata = 0;   // likewise
  uint64_t empty_series = 0;   // of 2.0
  std::string first_problem;   // in words; empty: none
};

class Walk {
 public:
  // What is given out below is valid until the next walk(), as long as `bytes` are.
  // On error: nothing is given out. lease: where the memory for it is taken from.
  Result<void> walk(Version version, std::string_view bytes, MemoryLease* lease = nullptr);

  std::span<const PushedSeries> series() const { return {series_.data(), series_count_}; }
  const Counts& counts() const { return counts_; }
  std::span<const Metadata> metadata() const { return metadata_; }
  // Sorted and checked (model/series_labels.h), of the k-th series.
  Result<Labels> labels(size_t k) const { return labels_of(series_[k].raw_labels); }
  static Result<Labels> labels_of(std::string_view raw_labels);
  // One label's value as it came; empty where it is not there.
  static std::string_view find_label(std::string_view raw_labels, std::string_view name);

  // What this holds on to for the next request.
  size_t memory_bytes() const;

 private:
  // Places in the arrays below, which move while they grow. Small: a request has thousands of them.
  struct Entry {
    const char* raw_in_request = nullptr;  // nullptr: at raw_at of raw_
    uint32_t raw_at = 0;
    uint32_t raw_size = 0;
    uint32_t first = 0;  // sample, or histogram and its time
    uint32_t count = 0;
    uint32_t first_exemplar = 0;
    uint32_t exemplars = 0;
    bool is_histogram = false;
  };
  using WireReader = protobuf::WireReader;
  // Of a native histogram, beside its buckets: whole numbers or doubles, by what came last.
  struct HistogramCounts {
    bool is_float = false;
    bool zero_is_float = false;
    uint64_t count = 0;
    uint64_t zero_count = 0;
    int64_t time_ms = 0;
  };
  struct MetadataRefs {
    uint64_t type = 0;
    uint32_t help = 0;
    uint32_t unit = 0;

    bool says_anything() const { return type != 0 || help != 0 || unit != 0; }
    void read(WireReader in);
  };

  void clear();
  void series_1(WireReader in);
  void series_2(WireReader in);
  void metadata_1(WireReader in);
  // True where the message is a value and a time as nearly all are; then it has been taken.
  bool short_sample(std::string_view bytes);
  void sample(WireReader& around);
  void histogram(WireReader in);
  HistogramCounts read_histogram(WireReader& in, NativeHistogram& out);
  const char* take_whole_numbers(const HistogramCounts& counts, NativeHistogram& out);
  void drop_empty(const Entry& entry, uint64_t bad_before);
  void exemplar_1(WireReader in);
  void exemplar_2(WireReader in);
  void read_refs(WireReader& in, std::vector<uint32_t>& refs);
  void keep_exemplar(PushedExemplar exemplar);
  void add_metadata(std::string_view name, uint64_t type, std::string_view help, std::string_view unit);
  std::string_view spell_out(WireReader& in);
  std::optional<Entry> begin_series(WireReader& in);
  void end_series(Entry& entry, size_t first_histogram);
  void give_out();

  Version version_ = Version::k1;
  std::vector<Entry> entries_;
  std::vector<PushedSeries> series_;  // the first series_count_ are of this request
  size_t series_count_ = 0;
  std::vector<int64_t> times_;
  std::vector<double> values_;
  std::vector<int64_t> histogram_times_;
  std::vector<NativeHistogram> histograms_;  // the first histogram_count_ are of this request
  size_t histogram_count_ = 0;
  std::vector<PushedExemplar> exemplars_;
  std::vector<Metadata> metadata_;
  std::vector<std::string_view> symbols_;
  std::vector<uint32_t> refs_;
  std::vector<uint32_t> spelled_refs_;  // of the series spelled out last, and where in raw_ each of its labels ends
  std::vector<uint32_t> spelled_ends_;
  std::vector<uint32_t> ends_;
  uint32_t spelled_at_ = 0;
  uint32_t name_symbol_ = UINT32_MAX;  // "__name__"
  std::vector<uint32_t> exemplar_refs_;
  std::vector<int64_t> positive_deltas_;  // of one histogram
  std::vector<int64_t> negative_deltas_;
  std::string raw_;
  Counts counts_;
};

// The other way, in 1.0: labels as they stand in a series, and a series appended to a request.
std::string raw_labels_of(const Labels& labels);
void append_series(std::string& request, const PushedSeries& series);

}  // namespace lockstep::remote_write
