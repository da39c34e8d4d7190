#include "wire/remote_write.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep::remote_write {
namespace {

using protobuf::kBytes;
using protobuf::kFixed64;
using protobuf::kVarint;
using protobuf::tag_of;
using protobuf::WireError;
using protobuf::WireReader;

constexpr uint32_t kLabelTag = tag_of(1, kBytes);
constexpr uint64_t kStaleBits = 0x7FF0000000000002;  // Prometheus' marker
constexpr size_t kMetadataTextBytesMax = 4096;
constexpr char kTooLong = 'L';  // after kUnreadableLabels

const char* type_text(uint64_t type) {
  static constexpr const char* kTypes[] = {"unknown",        "counter", "gauge", "histogram",
                                           "gaugehistogram", "summary", "info",  "stateset"};
  return type < std::size(kTypes) ? kTypes[type] : kTypes[0];
}

struct LabelView {
  std::string_view name;
  std::string_view value;
};

LabelView read_label(WireReader in) {
  LabelView label;
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      label.name = in.bytes();
    } else if (in.tag() == tag_of(2, kBytes)) {
      label.value = in.bytes();
    } else {
      in.skip();
    }
  }
  return label;
}

// Repeated numbers come packed or one by one. true: the field was one of these.
template <typename Take>
bool packed(WireReader& in, uint32_t field, protobuf::WireType type, Take&& take) {
  if (in.tag() == tag_of(field, kBytes)) {
    WireReader values = in.message();
    while (!values.at_end()) {
      if (in.take_memory(16)) take(values);
    }
    return true;
  }
  if (in.tag() != tag_of(field, type)) return false;
  if (in.take_memory(16)) take(in);
  return true;
}

HistogramSpan read_span(WireReader in) {
  HistogramSpan span;
  while (in.next()) {
    if (in.tag() == tag_of(1, kVarint)) {
      span.offset = static_cast<int32_t>(protobuf::zigzag_decode(static_cast<uint32_t>(in.varint())));
    } else if (in.tag() == tag_of(2, kVarint)) {
      span.length = static_cast<uint32_t>(in.varint());
    } else {
      in.skip();
    }
  }
  return span;
}

// Absolute counts from differences; nullptr, or what is wrong. *total: their sum.
const char* undo_deltas(const std::vector<int64_t>& deltas, std::vector<double>& counts, uint64_t* total) {
  uint64_t count = 0;
  for (int64_t delta : deltas) {
    count += static_cast<uint64_t>(delta);
    if (count > INT64_MAX) return "a bucket with a negative count";
    counts.push_back(static_cast<double>(count));
    *total += count;
  }
  return nullptr;
}

const char* check_side(const std::vector<HistogramSpan>& spans, const std::vector<double>& counts) {
  uint64_t buckets = 0;
  int64_t index = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i > 0 && spans[i].offset < 0) return "a span that goes back";
    index += spans[i].offset;
    index += spans[i].length;
    buckets += spans[i].length;
    if (index > INT32_MAX || index < INT32_MIN) return "a bucket beyond any number";
  }
  if (counts.size() > kHistogramBucketsMax || spans.size() > kHistogramBucketsMax)
    return "more buckets than are taken (65536)";
  if (buckets != counts.size()) return "spans that do not add up to the buckets";
  for (double count : counts) {
    if (!(count >= 0)) return "a bucket with a negative count";
  }
  return nullptr;
}

const char* check_histogram(const NativeHistogram& histogram) {
  const bool is_custom = histogram.schema == NativeHistogram::kCustomBounds;
  if (!is_custom && (histogram.schema < -4 || histogram.schema > 8)) return "a schema that is not known (-4..8, -53)";
  if (const char* problem = check_side(histogram.positive_spans, histogram.positive)) return problem;
  if (const char* problem = check_side(histogram.negative_spans, histogram.negative)) return problem;
  if (!(histogram.count >= 0) || !(histogram.zero_count >= 0)) return "a negative count";
  if (!(histogram.zero_threshold >= 0)) return "a negative zero threshold";
  if (!is_custom) return histogram.custom_bounds.empty() ? nullptr : "bounds of its own beside a schema";
  if (histogram.custom_bounds.size() > kHistogramBucketsMax) return "more bounds than are taken (65536)";
  if (!histogram.negative.empty() || histogram.zero_count != 0) return "negative or zero buckets beside bounds";
  for (size_t i = 0; i < histogram.custom_bounds.size(); ++i) {
    if (!std::isfinite(histogram.custom_bounds[i])) return "a bound that is not finite";
    if (i > 0 && !(histogram.custom_bounds[i] > histogram.custom_bounds[i - 1])) return "bounds that do not ascend";
  }
  int64_t end = 0;
  for (const HistogramSpan& span : histogram.positive_spans) end += int64_t{span.offset} + span.length;
  if (!histogram.positive_spans.empty() && histogram.positive_spans[0].offset < 0) return "a bucket before the first";
  return end <= static_cast<int64_t>(histogram.custom_bounds.size()) + 1 ? nullptr : "a bucket beyond the last bound";
}

void reset(NativeHistogram& histogram) {
  histogram.schema = 0;
  histogram.reset = CounterReset::kUnknown;
  histogram.zero_threshold = histogram.zero_count = histogram.count = histogram.sum = 0;
  histogram.positive_spans.clear();
  histogram.negative_spans.clear();
  histogram.positive.clear();
  histogram.negative.clear();
  histogram.custom_bounds.clear();
}

bool good_exemplar(const PushedExemplar& exemplar) {
  return exemplar.labels.size() <= kLabelsMax && label_bytes(exemplar.labels) <= kExemplarBytesMax &&
         std::all_of(exemplar.labels.begin(), exemplar.labels.end(), [](const auto& label) {
           return label.first.size() <= kLabelNameBytesMax && label.second.size() <= kLabelValueBytesMax &&
                  is_utf8(label.first) && is_utf8(label.second);
         });
}

char* put_varint(char* at, size_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<char>(value | 0x80);
  *at++ = static_cast<char>(value);
  return at;
}
size_t varint_size(size_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}
char* put_text(char* at, char tag, std::string_view text) {
  *at++ = tag;
  at = put_varint(at, text.size());
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

}  // namespace

void Walk::clear() {
  entries_.clear();
  series_count_ = 0;
  times_.clear();
  values_.clear();
  histogram_times_.clear();
  histogram_count_ = 0;
  exemplars_.clear();
  metadata_.clear();
  symbols_.clear();
  name_symbol_ = UINT32_MAX;
  spelled_refs_.clear();
  raw_.clear();
  counts_ = {};
}

Result<void> Walk::walk(Version version, std::string_view bytes, MemoryLease* lease) {
  clear();
  version_ = version;
  WireError error;
  error.lease = lease;
  WireReader in(bytes, error);
  if (version == Version::k1) {
    while (in.next()) {
      if (in.tag() == tag_of(1, kBytes)) {
        series_1(in.message());
      } else if (in.tag() == tag_of(3, kBytes)) {
        metadata_1(in.message());
      } else {
        in.skip();
      }
    }
  } else {
    // Symbols may stand anywhere, so they are collected first.
    while (in.next()) {
      if (in.tag() == tag_of(4, kBytes)) {
        if (!in.take_memory(sizeof(std::string_view))) break;
        symbols_.push_back(in.bytes());
        if (symbols_.back() == kMetricNameLabel) name_symbol_ = static_cast<uint32_t>(symbols_.size() - 1);
      } else {
        in.skip();
      }
    }
    for (WireReader again(bytes, error); again.next();) {
      if (again.tag() == tag_of(5, kBytes)) {
        series_2(again.message());
      } else {
        again.skip();
      }
    }
  }
  if (error.what != nullptr) {
    clear();
    return Error{format("not a %s request: %s at byte %zu of %zu",
                        version == Version::k1 ? "prometheus.WriteRequest" : "io.prometheus.write.v2.Request",
                        error.what, static_cast<size_t>(error.at - bytes.data()), bytes.size())};
  }
  give_out();
  return {};
}

// A series may become two entries.
inline std::optional<Walk::Entry> Walk::begin_series(WireReader& in) {
  if (!in.take_memory(2 * (sizeof(Entry) + sizeof(PushedSeries)))) return std::nullopt;
  return Entry{.raw_at = static_cast<uint32_t>(raw_.size()),
               .first = static_cast<uint32_t>(times_.size()),
               .first_exemplar = static_cast<uint32_t>(exemplars_.size())};
}

inline void Walk::end_series(Entry& entry, size_t first_histogram) {
  entry.count = static_cast<uint32_t>(times_.size() - entry.first);
  entry.exemplars = static_cast<uint32_t>(exemplars_.size() - entry.first_exemplar);
  const size_t histograms = histogram_count_ - first_histogram;
  if (entry.count > 0 || (histograms == 0 && entry.exemplars > 0)) {
    entries_.push_back(entry);
    entry.exemplars = 0;  // once
  }
  if (histograms > 0) {
    entry.first = static_cast<uint32_t>(first_histogram);
    entry.count = static_cast<uint32_t>(histograms);
    entry.is_histogram = true;
    entries_.push_back(entry);
  }
}

void Walk::series_1(WireReader in) {
  std::optional<Entry> begun = begin_series(in);
  if (!begun) return;
  Entry& entry = *begun;
  const size_t first_histogram = histogram_count_;
  std::string_view raw = in.short_run(static_cast<uint8_t>(kLabelTag));
  bool in_pieces = false;
  for (const char* began = in.position(); in.next(); began = in.position()) {
    switch (in.tag()) {
      case kLabelTag: {
        in.bytes();
        const std::string_view field(began, static_cast<size_t>(in.position() - began));
        if (!in_pieces && (raw.empty() || raw.data() + raw.size() == began)) {
          raw = {raw.empty() ? began : raw.data(), raw.size() + field.size()};
        } else {  // put together
          if (!in.take_memory(2 * (raw.size() + field.size()))) break;
          raw_.append(raw).append(field);
          raw = {};
          in_pieces = true;
        }
        break;
      }
      case tag_of(2, kBytes):
        sample(in);
        break;
      case tag_of(3, kBytes):
        exemplar_1(in.message());
        break;
      case tag_of(4, kBytes):
        histogram(in.message());
        break;
      default:
        in.skip();
    }
  }
  if (!in_pieces) entry.raw_in_request = raw.data();
  entry.raw_size = static_cast<uint32_t>(in_pieces ? raw_.size() - entry.raw_at : raw.size());
  end_series(entry, first_histogram);
}

// In pieces: the last of each field counts.
inline void Walk::MetadataRefs::read(WireReader in) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kVarint)) {
      type = static_cast<uint32_t>(in.varint());
    } else if (in.tag() == tag_of(3, kVarint)) {
      help = static_cast<uint32_t>(in.varint());
    } else if (in.tag() == tag_of(4, kVarint)) {
      unit = static_cast<uint32_t>(in.varint());
    } else {
      in.skip();
    }
  }
}

void Walk::series_2(WireReader in) {
  std::optional<Entry> begun = begin_series(in);
  if (!begun) return;
  Entry& entry = *begun;
  const size_t first_histogram = histogram_count_;
  const uint64_t bad_before = counts_.bad_histograms;
  MetadataRefs metadata;
  refs_.clear();
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes) || in.tag() == tag_of(1, kVarint)) {
      read_refs(in, refs_);
      continue;
    }
    switch (in.tag()) {
      case tag_of(2, kBytes):
        sample(in);
        break;
      case tag_of(3, kBytes):
        histogram(in.message());
        break;
      case tag_of(4, kBytes):
        exemplar_2(in.message());
        break;
      case tag_of(5, kBytes):
        metadata.read(in.message());
        break;
      default:
        in.skip();
    }
  }
  if (times_.size() == entry.first && histogram_count_ == first_histogram) return drop_empty(entry, bad_before);
  const std::string_view name = spell_out(in);
  if (metadata.says_anything() && !name.empty()) {
    if (metadata.help < std::max<size_t>(1, symbols_.size()) && metadata.unit < std::max<size_t>(1, symbols_.size())) {
      add_metadata(name, metadata.type, symbols_.empty() ? "" : symbols_[metadata.help],
                   symbols_.empty() ? "" : symbols_[metadata.unit]);
    } else {
      ++counts_.bad_metadata;
      if (counts_.first_problem.empty()) counts_.first_problem = "metadata that refers past the symbols";
    }
  }
  entry.raw_size = static_cast<uint32_t>(raw_.size() - entry.raw_at);
  end_series(entry, first_histogram);
}

// A series without samples; bad_before: histograms that were refused before it.
void Walk::drop_empty(const Entry& entry, uint64_t bad_before) {
  const uint64_t dropped = exemplars_.size() - entry.first_exemplar;
  counts_.exemplars -= dropped;
  counts_.bad_exemplars += dropped;
  exemplars_.resize(entry.first_exemplar);
  if (counts_.bad_histograms > bad_before) return;  // it had some
  ++counts_.empty_series;
  if (counts_.first_problem.empty()) counts_.first_problem = "a series without samples";
}

// Appends the labels of refs_ in the form of 1.0, and gives the metric's name. Neighbours share most of their labels:
// those are copied in one piece from the series before.
std::string_view Walk::spell_out(WireReader& in) {
  size_t text_bytes = 0;
  bool good = refs_.size() % 2 == 0 && !refs_.empty();
  for (uint32_t ref : refs_) {
    if (ref >= symbols_.size()) {
      good = false;
      break;
    }
    text_bytes += symbols_[ref].size();
  }
  // A few bytes of references may stand for any number of bytes of text. More than the store takes are not spelled out.
  const bool too_long = text_bytes > kLabelsBytesMax || refs_.size() > 2 * (kLabelsMax + 1);
  if (!good || too_long) {
    raw_.push_back(kUnreadableLabels);
    if (good) raw_.push_back(kTooLong);
    spelled_refs_.clear();
    return {};
  }
  const size_t bytes = 1 + text_bytes + 12 * refs_.size();  // two tags and lengths of at most five bytes each
  if (!in.take_memory(2 * bytes)) return {};                // it grows by doubling
  const size_t at = raw_.size();
  if (raw_.capacity() < at + bytes) raw_.reserve(2 * (at + bytes));
  raw_.resize(at + bytes);
  char* const base = raw_.data();
  char* out = base + at;
  std::string_view metric;
  const size_t alike_max = std::min(refs_.size(), spelled_refs_.size());
  ends_.clear();
  for (size_t i = 0; i < refs_.size();) {
    size_t alike = i;
    while (alike < alike_max && refs_[alike] == spelled_refs_[alike] && refs_[alike + 1] == spelled_refs_[alike + 1]) {
      if (refs_[alike] == name_symbol_) metric = symbols_[refs_[alike + 1]];
      alike += 2;
    }
    if (alike > i) {
      const uint32_t from = i == 0 ? spelled_at_ : spelled_ends_[i / 2 - 1];
      const uint32_t size = spelled_ends_[alike / 2 - 1] - from;
      std::memcpy(out, base + from, size);
      const uint32_t now = static_cast<uint32_t>(out - base);
      for (; i < alike; i += 2) ends_.push_back(spelled_ends_[i / 2] - from + now);
      out += size;
      continue;
    }
    const std::string_view name = symbols_[refs_[i]];
    const std::string_view value = symbols_[refs_[i + 1]];
    if (refs_[i] == name_symbol_) metric = value;
    *out++ = static_cast<char>(kLabelTag);
    out = put_varint(out, 2 + varint_size(name.size()) + name.size() + varint_size(value.size()) + value.size());
    out = put_text(out, static_cast<char>(tag_of(1, kBytes)), name);
    out = put_text(out, static_cast<char>(tag_of(2, kBytes)), value);
    ends_.push_back(static_cast<uint32_t>(out - base));
    i += 2;
  }
  raw_.resize(static_cast<size_t>(out - base));
  spelled_at_ = static_cast<uint32_t>(at);
  spelled_refs_.swap(refs_);
  spelled_ends_.swap(ends_);
  return metric;
}

void Walk::read_refs(WireReader& in, std::vector<uint32_t>& refs) {
  if (in.tag() == tag_of(1, kBytes)) {
    WireReader values = in.message();
    if (!in.take_memory(values.left() * sizeof(uint32_t))) return;
    while (!values.at_end()) refs.push_back(static_cast<uint32_t>(values.varint()));
    return;
  }
  packed(in, 1, kVarint, [&](WireReader& values) { refs.push_back(static_cast<uint32_t>(values.varint())); });
}

bool Walk::short_sample(std::string_view bytes) {
  // A value and a time of 2005 to 2109 in milliseconds: six bytes of varint.
  if (bytes.size() != 16 || bytes[0] != tag_of(1, kFixed64) || bytes[9] != tag_of(2, kVarint)) return false;
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  if ((at[10] & at[11] & at[12] & at[13] & at[14] & 0x80) == 0 || at[15] >= 0x80) return false;
  double value;
  std::memcpy(&value, at + 1, sizeof value);
  uint64_t time = 0;
  for (int i = 0; i < 6; ++i) time |= static_cast<uint64_t>(at[10 + i] & 0x7F) << (7 * i);
  times_.push_back(static_cast<int64_t>(time));
  values_.push_back(value);
  return true;
}

void Walk::sample(WireReader& around) {
  if (!around.take_memory(sizeof(int64_t) + sizeof(double))) return;
  ++counts_.samples;
  const std::string_view bytes = around.bytes();
  if (short_sample(bytes)) return;
  double value = 0;
  int64_t time = 0;
  WireReader in = around.part(bytes);
  while (in.next()) {
    if (in.tag() == tag_of(1, kFixed64)) {
      value = in.real();
    } else if (in.tag() == tag_of(2, kVarint)) {
      time = static_cast<int64_t>(in.varint());
    } else {
      in.skip();
    }
  }
  times_.push_back(time);
  values_.push_back(value);
}

inline Walk::HistogramCounts Walk::read_histogram(WireReader& in, NativeHistogram& out) {
  HistogramCounts counts;
  auto delta_to = [](std::vector<int64_t>& list) {
    return [&list](WireReader& values) { list.push_back(protobuf::zigzag_decode(values.varint())); };
  };
  auto real_to = [](std::vector<double>& list) {
    return [&list](WireReader& values) { list.push_back(values.real()); };
  };
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kVarint):
        counts.count = in.varint();
        counts.is_float = false;
        continue;
      case tag_of(2, kFixed64):
        out.count = in.real();
        counts.is_float = true;
        continue;
      case tag_of(3, kFixed64):
        out.sum = in.real();
        continue;
      case tag_of(4, kVarint):
        out.schema = static_cast<int32_t>(protobuf::zigzag_decode(static_cast<uint32_t>(in.varint())));
        continue;
      case tag_of(5, kFixed64):
        out.zero_threshold = in.real();
        continue;
      case tag_of(6, kVarint):
        counts.zero_count = in.varint();
        counts.zero_is_float = false;
        continue;
      case tag_of(7, kFixed64):
        out.zero_count = in.real();
        counts.zero_is_float = true;
        continue;
      case tag_of(8, kBytes):
        if (in.take_memory(sizeof(HistogramSpan))) out.negative_spans.push_back(read_span(in.message()));
        continue;
      case tag_of(11, kBytes):
        if (in.take_memory(sizeof(HistogramSpan))) out.positive_spans.push_back(read_span(in.message()));
        continue;
      case tag_of(14, kVarint): {
        const uint64_t hint = static_cast<uint32_t>(in.varint());
        out.reset = hint <= 3 ? static_cast<CounterReset>(hint) : CounterReset::kUnknown;
        continue;
      }
      case tag_of(15, kVarint):
        counts.time_ms = static_cast<int64_t>(in.varint());
        continue;
    }
    if (packed(in, 9, kVarint, delta_to(negative_deltas_)) || packed(in, 12, kVarint, delta_to(positive_deltas_)) ||
        packed(in, 10, kFixed64, real_to(out.negative)) || packed(in, 13, kFixed64, real_to(out.positive)) ||
        packed(in, 16, kFixed64, real_to(out.custom_bounds))) {
      continue;
    }
    in.skip();
  }
  return counts;
}

// Buckets and counts of whole numbers as those of a histogram of doubles. What is wrong with them; nullptr: nothing.
inline const char* Walk::take_whole_numbers(const HistogramCounts& counts, NativeHistogram& out) {
  out.count = static_cast<double>(counts.count);
  out.zero_count = counts.zero_is_float ? 0 : static_cast<double>(counts.zero_count);
  out.positive.clear();
  out.negative.clear();
  uint64_t total = counts.zero_is_float ? 0 : counts.zero_count;
  if (const char* problem = undo_deltas(positive_deltas_, out.positive, &total)) return problem;
  if (const char* problem = undo_deltas(negative_deltas_, out.negative, &total)) return problem;
  const bool is_stale = std::bit_cast<uint64_t>(out.sum) == kStaleBits;
  // What was NaN when it was observed is in the count but in no bucket; the sum is then NaN.
  if (!is_stale && (std::isnan(out.sum) ? total > counts.count : total != counts.count))
    return "buckets that do not add up to the count";
  return nullptr;
}

void Walk::histogram(WireReader in) {
  if (!in.take_memory(sizeof(NativeHistogram) + sizeof(int64_t))) return;
  if (histograms_.size() == histogram_count_) histograms_.emplace_back();
  NativeHistogram& out = histograms_[histogram_count_];
  reset(out);
  negative_deltas_.clear();
  positive_deltas_.clear();
  const HistogramCounts counts = read_histogram(in, out);
  const char* problem = nullptr;
  if (!counts.is_float) {
    problem = take_whole_numbers(counts, out);
  } else if (!counts.zero_is_float) {
    out.zero_count = 0;
  }
  if (problem == nullptr) problem = check_histogram(out);
  if (problem != nullptr) {
    ++counts_.bad_histograms;
    if (counts_.first_problem.empty()) counts_.first_problem = std::string("a native histogram with ") + problem;
    return;
  }
  ++counts_.histograms;
  ++histogram_count_;
  histogram_times_.push_back(counts.time_ms);
}

void Walk::keep_exemplar(PushedExemplar exemplar) {
  if (!good_exemplar(exemplar)) {
    ++counts_.bad_exemplars;
    return;
  }
  ++counts_.exemplars;
  exemplars_.push_back(std::move(exemplar));
}

void Walk::exemplar_1(WireReader in) {
  if (!in.take_memory(sizeof(PushedExemplar))) return;
  PushedExemplar exemplar;
  while (in.next()) {
    if (in.tag() == kLabelTag) {
      const LabelView label = read_label(in.message());
      if (!in.take_memory(2 * sizeof(std::string) + label.name.size() + label.value.size())) return;
      exemplar.labels.emplace_back(label.name, label.value);
    } else if (in.tag() == tag_of(2, kFixed64)) {
      exemplar.value = in.real();
    } else if (in.tag() == tag_of(3, kVarint)) {
      exemplar.time_ms = static_cast<int64_t>(in.varint());
    } else {
      in.skip();
    }
  }
  keep_exemplar(std::move(exemplar));
}

void Walk::exemplar_2(WireReader in) {
  if (!in.take_memory(sizeof(PushedExemplar))) return;
  PushedExemplar exemplar;
  exemplar_refs_.clear();
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes) || in.tag() == tag_of(1, kVarint)) {
      read_refs(in, exemplar_refs_);
    } else if (in.tag() == tag_of(2, kFixed64)) {
      exemplar.value = in.real();
    } else if (in.tag() == tag_of(3, kVarint)) {
      exemplar.time_ms = static_cast<int64_t>(in.varint());
    } else {
      in.skip();
    }
  }
  const bool good =
      exemplar_refs_.size() % 2 == 0 && exemplar_refs_.size() <= 2 * kLabelsMax &&
      std::all_of(exemplar_refs_.begin(), exemplar_refs_.end(), [&](uint32_t ref) { return ref < symbols_.size(); });
  if (!good) {
    ++counts_.bad_exemplars;
    return;
  }
  for (size_t i = 0; i < exemplar_refs_.size(); i += 2) {
    const std::string_view name = symbols_[exemplar_refs_[i]];
    const std::string_view value = symbols_[exemplar_refs_[i + 1]];
    if (!in.take_memory(2 * sizeof(std::string) + name.size() + value.size())) return;
    exemplar.labels.emplace_back(name, value);
  }
  keep_exemplar(std::move(exemplar));
}

void Walk::metadata_1(WireReader in) {
  if (!in.take_memory(sizeof(Metadata))) return;
  uint64_t type = 0;
  std::string_view name, help, unit;
  while (in.next()) {
    if (in.tag() == tag_of(1, kVarint)) {
      type = static_cast<uint32_t>(in.varint());
    } else if (in.tag() == tag_of(2, kBytes)) {
      name = in.bytes();
    } else if (in.tag() == tag_of(4, kBytes)) {
      help = in.bytes();
    } else if (in.tag() == tag_of(5, kBytes)) {
      unit = in.bytes();
    } else {
      in.skip();
    }
  }
  add_metadata(name, type, help, unit);
}

void Walk::add_metadata(std::string_view name, uint64_t type, std::string_view help, std::string_view unit) {
  const Metadata reported{name, type_text(type), help, unit};
  if (!metadata_.empty() && metadata_.back() == reported) return;  // 2.0 says it again with every series
  const bool good = !name.empty() && name.size() <= kLabelValueBytesMax && help.size() <= kMetadataTextBytesMax &&
                    unit.size() <= kLabelNameBytesMax && is_utf8(name) && is_utf8(help) && is_utf8(unit);
  if (!good) {
    ++counts_.bad_metadata;
    if (counts_.first_problem.empty()) counts_.first_problem = "metadata that is not UTF-8 or too long";
    return;
  }
  metadata_.push_back(reported);
}

void Walk::give_out() {
  if (series_.size() < entries_.size()) series_.resize(entries_.size());
  series_count_ = entries_.size();
  for (size_t k = 0; k < entries_.size(); ++k) {
    const Entry& entry = entries_[k];
    PushedSeries& out = series_[k];
    out.raw_labels = {entry.raw_in_request != nullptr ? entry.raw_in_request : raw_.data() + entry.raw_at,
                      entry.raw_size};
    const std::span<const int64_t> times(entry.is_histogram ? histogram_times_ : times_);
    out.times_ms = times.subspan(entry.first, entry.count);
    out.values = {};
    out.histograms = {};
    if (entry.is_histogram) {
      out.histograms = std::span<const NativeHistogram>(histograms_).subspan(entry.first, entry.count);
    } else {
      out.values = std::span<const double>(values_).subspan(entry.first, entry.count);
    }
    out.exemplars = std::span<const PushedExemplar>(exemplars_).subspan(entry.first_exemplar, entry.exemplars);
  }
}

Result<Labels> Walk::labels_of(std::string_view raw_labels) {
  if (raw_labels.starts_with(kUnreadableLabels)) {
    if (raw_labels.ends_with(kTooLong))
      return Error{format("more than %zu labels, or over %zu bytes of them", kLabelsMax, kLabelsBytesMax)};
    return Error{"label references past the symbols, or an odd number"};
  }
  Labels labels;
  size_t bytes = 0;
  WireError error;
  WireReader in(raw_labels, error);
  while (in.next()) {
    const LabelView label = read_label(in.message());
    bytes += label.name.size() + label.value.size();
    if (labels.size() > kLabelsMax || label.value.size() > kLabelValueBytesMax || bytes > kLabelsBytesMax) {
      return Error{format("more than %zu labels, or a value over %zu bytes, or over %zu bytes in all", kLabelsMax,
                          kLabelValueBytesMax, kLabelsBytesMax)};
    }
    labels.emplace_back(label.name, label.value);
  }
  if (error.what != nullptr) return Error{format("malformed labels: %s", error.what)};
  return canonical_labels(std::move(labels));
}

std::string_view Walk::find_label(std::string_view raw_labels, std::string_view name) {
  if (raw_labels.starts_with(kUnreadableLabels)) return {};
  WireError error;
  WireReader in(raw_labels, error);
  while (in.next()) {
    const LabelView label = read_label(in.message());
    if (label.name == name) return label.value;
  }
  return {};
}

size_t Walk::memory_bytes() const {
  size_t bytes = entries_.capacity() * sizeof(Entry) + series_.capacity() * sizeof(PushedSeries) +
                 (times_.capacity() + values_.capacity() + histogram_times_.capacity()) * 8 +
                 exemplars_.capacity() * sizeof(PushedExemplar) + symbols_.capacity() * sizeof(std::string_view) +
                 metadata_.capacity() * sizeof(Metadata) + raw_.capacity() +
                 (refs_.capacity() + spelled_refs_.capacity() + spelled_ends_.capacity() + ends_.capacity() +
                  exemplar_refs_.capacity()) *
                     sizeof(uint32_t) +
                 (positive_deltas_.capacity() + negative_deltas_.capacity()) * sizeof(int64_t) +
                 histograms_.capacity() * sizeof(NativeHistogram);
  for (const NativeHistogram& histogram : histograms_) {
    bytes += (histogram.positive_spans.capacity() + histogram.negative_spans.capacity()) * sizeof(HistogramSpan) +
             (histogram.positive.capacity() + histogram.negative.capacity() + histogram.custom_bounds.capacity()) * 8;
  }
  return bytes;
}

std::string raw_labels_of(const Labels& labels) {
  std::string raw;
  protobuf::WireWriter out(raw);
  for (const auto& [name, value] : labels) {
    const size_t began = out.begin(1);
    out.bytes(1, name);
    out.bytes(2, value);
    out.end(began);
  }
  return raw;
}

namespace {

void append_histogram(protobuf::WireWriter& out, int64_t time_ms, const NativeHistogram& histogram) {
  const size_t began = out.begin(4);
  out.real(2, histogram.count);
  out.real(3, histogram.sum);
  out.varint(4, protobuf::zigzag_encode(histogram.schema));
  out.real(5, histogram.zero_threshold);
  out.real(7, histogram.zero_count);
  auto side = [&](uint32_t spans_field, const auto& spans, uint32_t counts_field, const auto& counts) {
    for (const HistogramSpan& span : spans) {
      const size_t span_began = out.begin(spans_field);
      out.varint(1, protobuf::zigzag_encode(span.offset));
      out.varint(2, span.length);
      out.end(span_began);
    }
    for (double count : counts) out.real(counts_field, count);
  };
  side(8, histogram.negative_spans, 10, histogram.negative);
  side(11, histogram.positive_spans, 13, histogram.positive);
  out.varint(14, static_cast<uint64_t>(histogram.reset));
  out.varint(15, static_cast<uint64_t>(time_ms));
  for (double bound : histogram.custom_bounds) out.real(16, bound);
  out.end(began);
}

}  // namespace

void append_series(std::string& request, const PushedSeries& series) {
  protobuf::WireWriter out(request);
  const size_t began = out.begin(1);
  request += series.raw_labels;
  for (size_t i = 0; i < series.values.size(); ++i) {
    const size_t sample_began = out.begin(2);
    out.real(1, series.values[i]);
    out.varint(2, static_cast<uint64_t>(series.times_ms[i]));
    out.end(sample_began);
  }
  for (const PushedExemplar& exemplar : series.exemplars) {
    const size_t exemplar_began = out.begin(3);
    request += raw_labels_of(exemplar.labels);
    out.real(2, exemplar.value);
    out.varint(3, static_cast<uint64_t>(exemplar.time_ms));
    out.end(exemplar_began);
  }
  for (size_t i = 0; i < series.histograms.size(); ++i) {
    append_histogram(out, series.times_ms[i], series.histograms[i]);
  }
  out.end(began);
}

}  // namespace lockstep::remote_write
