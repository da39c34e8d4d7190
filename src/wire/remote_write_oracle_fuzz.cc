// The walk over remote write against libprotobuf: what one refuses the other refuses, and what both accept means the
// same. The walk may leave out native histograms and exemplars that contradict themselves, never change or add one, and
// says how many. The input is tried as it is, and as a recipe for a request.
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "model/series_labels.h"
#include "wire/protobuf_fuzzing.h"
#include "wire/protobuf_oracle.h"
#include "wire/remote_write.h"

namespace lockstep::remote_write {
namespace {

using protobuf_fuzzing::RequestBuilder;
using protobuf_fuzzing::View;
using Lines = std::vector<std::string>;

void put(std::string& line, std::string_view text) {
  line += std::to_string(text.size()) + ":" + std::string(text) + " ";
}
void put(std::string& line, double number) {
  line += std::to_string(std::bit_cast<uint64_t>(number)) + " ";
}
void put(std::string& line, int64_t number) {
  line += std::to_string(number) + " ";
}

struct Meaning {
  Lines samples, histograms, exemplars, metadata;
};

std::string text_of(const NativeHistogram& histogram) {
  std::string line;
  for (double number : {histogram.count, histogram.sum, histogram.zero_count, histogram.zero_threshold}) {
    put(line, number);
  }
  put(line, int64_t{histogram.schema});
  put(line, static_cast<int64_t>(histogram.reset));
  for (const auto* spans : {&histogram.negative_spans, &histogram.positive_spans}) {
    for (const HistogramSpan& span : *spans) {
      put(line, int64_t{span.offset});
      put(line, int64_t{span.length});
    }
    line += "| ";
  }
  for (const auto* counts : {&histogram.negative, &histogram.positive, &histogram.custom_bounds}) {
    for (double count : *counts) put(line, count);
    line += "| ";
  }
  return line;
}

// Labels as they came, in order.
std::string labels_text(std::string_view raw) {
  if (raw.starts_with(kUnreadableLabels)) return "unreadable ";
  std::string line;
  protobuf::WireError error;
  protobuf::WireReader in(raw, error);
  while (in.next()) {
    std::string_view name, value;
    for (protobuf::WireReader label = in.message(); label.next();) {
      if (label.tag() == 0x0a) {
        name = label.bytes();
      } else if (label.tag() == 0x12) {
        value = label.bytes();
      } else {
        label.skip();
      }
    }
    put(line, name);
    put(line, value);
  }
  return line;
}

Meaning ours_of(const Walk& walk) {
  Meaning meaning;
  for (const PushedSeries& series : walk.series()) {
    const std::string labels = labels_text(series.raw_labels);
    if (series.values.size() + series.histograms.size() != series.times_ms.size()) std::abort();
    for (size_t i = 0; i < series.times_ms.size(); ++i) {
      std::string line = labels;
      put(line, series.times_ms[i]);
      if (series.values.empty()) {
        meaning.histograms.push_back(line + text_of(series.histograms[i]));
      } else {
        put(line, series.values[i]);
        meaning.samples.push_back(line);
      }
    }
    for (const PushedExemplar& exemplar : series.exemplars) {
      std::string line = labels;
      put(line, exemplar.value);
      put(line, exemplar.time_ms);
      for (const auto& label : exemplar.labels) {
        put(line, label.first);
        put(line, label.second);
      }
      meaning.exemplars.push_back(line);
    }
  }
  for (const Metadata& metadata : walk.metadata()) {
    std::string line;
    for (std::string_view text : {metadata.name, std::string_view(metadata.type), metadata.help, metadata.unit}) {
      put(line, text);
    }
    meaning.metadata.push_back(line);
  }
  return meaning;
}

NativeHistogram histogram_of(const View& view) {
  NativeHistogram histogram;
  const bool is_float = view.has("count_real");
  histogram.count = is_float ? view.real("count_real") : static_cast<double>(view.uint64("count_int"));
  histogram.sum = view.real("sum");
  histogram.schema = view.int32("schema");
  histogram.zero_threshold = view.real("zero_threshold");
  histogram.zero_count = is_float ? view.real("zero_real") : static_cast<double>(view.uint64("zero_int"));
  const int32_t reset = view.int32("reset");
  if (reset >= 0 && reset <= 3) histogram.reset = static_cast<CounterReset>(reset);
  view.each("negative_spans", [&](const View& span) {
    histogram.negative_spans.push_back({span.int32("offset"), span.uint32("length")});
  });
  view.each("positive_spans", [&](const View& span) {
    histogram.positive_spans.push_back({span.int32("offset"), span.uint32("length")});
  });
  histogram.custom_bounds = view.reals("bounds");
  if (is_float) {
    histogram.negative = view.reals("negative_counts");
    histogram.positive = view.reals("positive_counts");
    return histogram;
  }
  for (auto [name, counts] :
       {std::pair("negative_deltas", &histogram.negative), std::pair("positive_deltas", &histogram.positive)}) {
    uint64_t count = 0;
    for (int64_t delta : view.int64s(name)) {
      count += static_cast<uint64_t>(delta);
      counts->push_back(static_cast<double>(count));
    }
  }
  return histogram;
}

void add_points(const View& series, const std::string& labels, Meaning& meaning) {
  series.each("samples", [&](const View& sample) {
    std::string line = labels;
    put(line, sample.int64("time"));
    put(line, sample.real("value"));
    meaning.samples.push_back(line);
  });
  series.each("histograms", [&](const View& histogram) {
    std::string line = labels;
    put(line, histogram.int64("time"));
    meaning.histograms.push_back(line + text_of(histogram_of(histogram)));
  });
}

const char* type_name(int32_t type) {
  static constexpr const char* kNames[] = {"unknown",        "counter", "gauge", "histogram",
                                           "gaugehistogram", "summary", "info",  "stateset"};
  return type >= 0 && type < 8 ? kNames[type] : "unknown";
}

Meaning theirs_of_1(const View& request) {
  Meaning meaning;
  request.each("series", [&](const View& series) {
    std::string labels;
    series.each("labels", [&](const View& label) {
      put(labels, label.text("name"));
      put(labels, label.text("value"));
    });
    add_points(series, labels, meaning);
    series.each("exemplars", [&](const View& exemplar) {
      std::string line = labels;
      put(line, exemplar.real("value"));
      put(line, exemplar.int64("time"));
      exemplar.each("labels", [&](const View& label) {
        put(line, label.text("name"));
        put(line, label.text("value"));
      });
      meaning.exemplars.push_back(line);
    });
  });
  request.each("families", [&](const View& family) {
    std::string line;
    for (const std::string& text : {family.text("name"), std::string(type_name(family.int32("type"))),
                                    family.text("help"), family.text("unit")}) {
      put(line, text);
    }
    meaning.metadata.push_back(line);
  });
  return meaning;
}

Meaning theirs_of_2(const View& request) {
  Meaning meaning;
  const std::vector<std::string> symbols = request.texts("symbols");
  auto spelled = [&](const std::vector<uint32_t>& refs, std::string& line) {
    bool good = refs.size() % 2 == 0;
    for (uint32_t ref : refs) good = good && ref < symbols.size();
    if (!good) return false;
    for (uint32_t ref : refs) put(line, symbols[ref]);
    return true;
  };
  auto too_long = [&](const std::vector<uint32_t>& refs) {
    size_t bytes = 0;
    for (uint32_t ref : refs) bytes += symbols[ref].size();
    return bytes > kLabelsBytesMax || refs.size() > 2 * (kLabelsMax + 1);
  };
  request.each("series", [&](const View& series) {
    std::string labels;
    const std::vector<uint32_t> refs = series.uint32s("refs");
    if (refs.empty() || !spelled(refs, labels) || too_long(refs)) labels = "unreadable ";
    add_points(series, labels, meaning);
    series.each("exemplars", [&](const View& exemplar) {
      std::string line = labels;
      put(line, exemplar.real("value"));
      put(line, exemplar.int64("time"));
      if (spelled(exemplar.uint32s("refs"), line)) meaning.exemplars.push_back(line);
    });
    const View metadata = series.message("metadata");
    std::string name;
    for (size_t i = 0; i + 1 < refs.size() && labels != "unreadable "; i += 2) {
      if (symbols[refs[i]] == "__name__") name = symbols[refs[i + 1]];
    }
    const uint32_t help = metadata.uint32("help"), unit = metadata.uint32("unit");
    if (name.empty() || help >= symbols.size() || unit >= symbols.size()) return;
    std::string line;
    for (const std::string& text :
         {name, std::string(type_name(metadata.int32("type"))), symbols[help], symbols[unit]}) {
      put(line, text);
    }
    meaning.metadata.push_back(line);
  });
  return meaning;
}

// Each of `some`, in order, is in `all`.
bool is_part(const Lines& some, const Lines& all) {
  size_t at = 0;
  for (const std::string& line : all) {
    if (at < some.size() && some[at] == line) ++at;
  }
  return at == some.size();
}

[[noreturn]] void differ(const char* what, const google::protobuf::Message& message) {
  std::fprintf(stderr, "remote write: %s read differently\n%s\n", what, message.DebugString().c_str());
  std::abort();
}

void compare(ProtobufOracle& oracle, Version version, std::string_view bytes) {
  static Walk walk;  // used again, as in the product
  const Result<void> ours = walk.walk(version, bytes);
  if (!ours.ok() && ours.error().find("too many elements") != std::string::npos) return;
  const bool theirs_ok =
      oracle.parse(oracle.type(version == Version::k1 ? "LooseRequest1" : "Request2"), bytes) != nullptr;
  if (ours.ok() != theirs_ok) {
    std::fprintf(stderr, "remote write %d: we say %s, libprotobuf %s\n", version == Version::k1 ? 1 : 2,
                 ours.ok() ? "yes" : ours.error().c_str(), theirs_ok ? "yes" : "no");
    std::abort();
  }
  if (!ours.ok()) return;
  for (size_t k = 0; k < walk.series().size(); ++k) {
    Result<Labels> labels = walk.labels(k);
    if (!labels.ok() && (labels.error().empty() || labels.error().find('\n') != std::string::npos)) std::abort();
    if (labels.ok() && *Walk::labels_of(raw_labels_of(*labels)) != *labels) std::abort();
    if (labels.ok() && Walk::find_label(walk.series()[k].raw_labels, "__name__").empty()) {
      bool is_twice = false;  // an empty __name__ before the real one
      for (const auto& label : *labels) is_twice |= label.first == "__name__";
      if (!is_twice) std::abort();
    }
  }
  std::unique_ptr<google::protobuf::Message> theirs =
      oracle.parse(oracle.type(version == Version::k1 ? "Request1" : "Request2"), bytes);
  if (theirs == nullptr) return;  // labels that are no messages
  const Meaning mine = ours_of(walk);
  const Meaning other = version == Version::k1 ? theirs_of_1(View(*theirs)) : theirs_of_2(View(*theirs));
  const Counts& counts = walk.counts();
  if (mine.samples != other.samples || counts.samples != mine.samples.size()) differ("samples", *theirs);
  if (!is_part(mine.histograms, other.histograms) || counts.histograms != mine.histograms.size() ||
      counts.histograms + counts.bad_histograms != other.histograms.size()) {
    differ("histograms", *theirs);
  }
  if (!is_part(mine.exemplars, other.exemplars) || counts.exemplars != mine.exemplars.size()) {
    differ("exemplars", *theirs);
  }
  if (!is_part(mine.metadata, other.metadata)) differ("metadata", *theirs);
}

// What append_series() writes, the walk reads as it was.
void round_trip(std::string_view bytes) {
  Walk first;
  if (!first.walk(Version::k1, bytes).ok()) return;
  std::string again;
  for (const PushedSeries& series : first.series()) append_series(again, series);
  Walk second;
  if (!second.walk(Version::k1, again).ok()) std::abort();
  const Meaning a = ours_of(first), b = ours_of(second);
  if (a.samples != b.samples || a.histograms != b.histograms || a.exemplars != b.exemplars) std::abort();
}

}  // namespace
}  // namespace lockstep::remote_write

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using remote_write::Version;
  static ProtobufOracle oracle(REMOTE_WRITE_SUBSET_DESCRIPTOR);
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (Version version : {Version::k1, Version::k2}) {
    remote_write::compare(oracle, version, bytes);
    protobuf_fuzzing::RequestBuilder builder(data, size);
    const std::string built = builder.message(oracle.type(version == Version::k1 ? "Request1" : "Request2"), 0);
    remote_write::compare(oracle, version, built);
    if (version == Version::k1) remote_write::round_trip(built);
  }
  return 0;
}
