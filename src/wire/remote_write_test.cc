#include "wire/remote_write.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "model/series_labels.h"

namespace lockstep::remote_write {
namespace {

using protobuf::WireWriter;

const Labels kPower = {{"__name__", "gpu_power"}, {"gpu", "3"}, {"host", "n1"}};

std::string series_bytes(const Labels& labels, std::vector<int64_t> times, std::vector<double> values) {
  std::string request;
  const std::string raw = raw_labels_of(labels);
  append_series(request, {.raw_labels = raw, .times_ms = times, .values = values});
  return request;
}

std::string message(uint32_t field, const std::function<void(WireWriter&)>& write) {
  std::string bytes;
  WireWriter out(bytes);
  size_t began = out.begin(field);
  write(out);
  out.end(began);
  return bytes;
}

TEST(RemoteWrite1, GivesSamplesAndLabelsAsTheyCame) {
  const std::string bytes = series_bytes(kPower, {1700000000000, 1700000010000}, {640.25, -0.0}) +
                            series_bytes({{"__name__", "up"}}, {0}, {0});
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  ASSERT_EQ(walk.series().size(), 2u);
  EXPECT_EQ(walk.series()[0].raw_labels, raw_labels_of(kPower));
  EXPECT_EQ(walk.series()[0].times_ms[1], 1700000010000);
  EXPECT_EQ(walk.series()[0].values[0], 640.25);
  EXPECT_TRUE(std::signbit(walk.series()[0].values[1]));
  EXPECT_EQ(*walk.labels(0), kPower);
  EXPECT_EQ(walk.series()[1].times_ms[0], 0);
  EXPECT_EQ(walk.counts().samples, 3u);
  EXPECT_EQ(Walk::find_label(walk.series()[0].raw_labels, "host"), "n1");
  EXPECT_EQ(Walk::find_label(walk.series()[0].raw_labels, "rack"), "");
}

TEST(RemoteWrite1, KeepsEveryBitOfAValue) {
  std::vector<uint64_t> bits = {0x7FF0000000000002, 0x7FF8000000000001, 0xFFF0000000000000, 1, 0x8000000000000000};
  std::vector<double> values;
  std::vector<int64_t> times;
  for (uint64_t one : bits) {
    values.push_back(std::bit_cast<double>(one));
    times.push_back(1700000000000 + static_cast<int64_t>(times.size()));
  }
  const std::string bytes = series_bytes(kPower, times, values);
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(std::bit_cast<uint64_t>(walk.series()[0].values[i]), bits[i]);
}

TEST(RemoteWrite1, LabelsInPiecesAreOneKey) {
  const std::string label_a = raw_labels_of({{"__name__", "a"}});
  const std::string label_b = raw_labels_of({{"host", "n1"}});
  std::string bytes = message(1, [&](WireWriter& out) {
    out.bytes(1, label_a.substr(2));
    out.bytes(2, std::string("\x10\x05", 2));
    out.bytes(1, label_b.substr(2));
  });
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  EXPECT_EQ(walk.series()[0].raw_labels, label_a + label_b);
}

TEST(RemoteWrite1, SortsLabelsAndLeavesEmptyOnesOut) {
  const std::string bytes = series_bytes({{"host", "n1"}, {"empty", ""}, {"__name__", "a"}}, {1}, {1});
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  EXPECT_EQ(*walk.labels(0), (Labels{{"__name__", "a"}, {"host", "n1"}}));
}

TEST(RemoteWrite1, SaysWhatIsWrongWithLabels) {
  const std::pair<Labels, const char*> kCases[] = {
      {{{"host", "n1"}}, "no label __name__"},
      {{{"__name__", "a"}, {"host", "1"}, {"host", "2"}}, "label \"host\" twice"},
      {{{"__name__", "a"}, {"host", "\xFF"}}, "\"host\" is not UTF-8"},
      {{{"__name__", "a"}, {"", "x"}}, "without a name"},
      {{{"__name__", "a"}, {"host", std::string(kLabelValueBytesMax + 1, 'x')}}, "over 4096 bytes"},
      {{{"__name__", "a"}, {std::string(kLabelNameBytesMax + 1, 'x'), "1"}}, "257 bytes (limit 256)"},
  };
  for (const auto& [labels, why] : kCases) {
    Result<Labels> read = Walk::labels_of(raw_labels_of(labels));
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_NE(read.error().find(why), std::string::npos) << read.error();
  }
  EXPECT_NE(Walk::labels_of("\x0a\x02\x0a\x05").error().find("malformed"), std::string::npos);
}

TEST(RemoteWrite1, ReadsMetadataAndExemplars) {
  const std::string raw = raw_labels_of(kPower);
  const std::vector<int64_t> times = {5};
  const std::vector<double> values = {1.5};
  const std::vector<PushedExemplar> exemplars = {{{{"trace_id", "abc"}}, 1.25, 4}};
  std::string bytes;
  append_series(bytes, {.raw_labels = raw, .times_ms = times, .values = values, .exemplars = exemplars});
  bytes += message(3, [](WireWriter& out) {
    out.varint(1, 1);
    out.bytes(2, "requests_total");
    out.bytes(4, "All of them.");
    out.bytes(5, "1");
  });
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  ASSERT_EQ(walk.series()[0].exemplars.size(), 1u);
  EXPECT_EQ(walk.series()[0].exemplars[0].labels, exemplars[0].labels);
  EXPECT_EQ(walk.series()[0].exemplars[0].value, 1.25);
  ASSERT_EQ(walk.metadata().size(), 1u);
  EXPECT_EQ(walk.metadata()[0].name, "requests_total");
  EXPECT_STREQ(walk.metadata()[0].type, "counter");
}

NativeHistogram some_histogram() {
  NativeHistogram histogram;
  histogram.schema = 3;
  histogram.zero_threshold = 1e-9;
  histogram.zero_count = 2;
  histogram.count = 12;
  histogram.sum = 33.5;
  histogram.positive_spans = {{-2, 2}, {3, 1}};
  histogram.positive = {1, 4, 2};
  histogram.negative_spans = {{0, 1}};
  histogram.negative = {3};
  return histogram;
}

TEST(RemoteWrite1, ReadsHistogramsOfRealCountsBackAsTheyWere) {
  NativeHistogram custom;
  custom.schema = NativeHistogram::kCustomBounds;
  custom.custom_bounds = {0.1, 1, 10};
  custom.positive_spans = {{0, 4}};
  custom.positive = {1, 2, 3, 4.5};
  custom.count = 10.5;
  custom.sum = std::nan("");
  const std::vector<NativeHistogram> histograms = {some_histogram(), custom};
  const std::vector<int64_t> times = {10, 20};
  const std::string raw = raw_labels_of(kPower);
  std::string bytes;
  append_series(bytes, {.raw_labels = raw, .times_ms = times, .histograms = histograms});
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  ASSERT_EQ(walk.series().size(), 1u);
  EXPECT_TRUE(walk.series()[0].values.empty());
  EXPECT_EQ(walk.series()[0].histograms[0], histograms[0]);
  EXPECT_EQ(walk.series()[0].histograms[1].custom_bounds, custom.custom_bounds);
  EXPECT_EQ(walk.series()[0].times_ms[1], 20);
}

// What a walk says of one histogram; empty: taken.
std::string problem_with(const NativeHistogram& histogram) {
  const std::string raw = raw_labels_of(kPower);
  const std::vector<int64_t> times = {1};
  const std::vector<NativeHistogram> histograms = {histogram};
  std::string bytes;
  append_series(bytes, {.raw_labels = raw, .times_ms = times, .histograms = histograms});
  Walk walk;
  EXPECT_TRUE(walk.walk(Version::k1, bytes).ok());
  EXPECT_EQ(walk.counts().histograms + walk.counts().bad_histograms, 1u);
  EXPECT_EQ(walk.series().size(), walk.counts().histograms);
  return walk.counts().first_problem;
}

TEST(RemoteWrite1, SaysWhatIsWrongWithAHistogramAndTakesWhatIsJustRight) {
  using Change = std::function<void(NativeHistogram&)>;
  const auto changed = [](NativeHistogram histogram, const Change& change) {
    change(histogram);
    return problem_with(histogram);
  };
  NativeHistogram bounds;
  bounds.schema = NativeHistogram::kCustomBounds;
  bounds.custom_bounds = {0.1, 1, 10};
  bounds.positive_spans = {{0, 4}};
  bounds.positive = {1, 2, 3, 4};
  bounds.count = 10;
  const std::pair<Change, const char*> kOfSchema[] = {
      {[](NativeHistogram& h) { h.schema = -5; }, "a schema that is not known"},
      {[](NativeHistogram& h) { h.schema = 9; }, "a schema that is not known"},
      {[](NativeHistogram& h) { h.positive_spans[1].offset = -1; }, "a span that goes back"},
      {[](NativeHistogram& h) { h.positive_spans[0].offset = INT32_MAX; }, "a bucket beyond any number"},
      {[](NativeHistogram& h) { h.positive.push_back(1); }, "spans that do not add up to the buckets"},
      {[](NativeHistogram& h) { h.negative_spans[0].length = 2; }, "spans that do not add up to the buckets"},
      {[](NativeHistogram& h) { h.positive[1] = -1; }, "a bucket with a negative count"},
      {[](NativeHistogram& h) { h.negative[0] = std::nan(""); }, "a bucket with a negative count"},
      {[](NativeHistogram& h) { h.count = -1; }, "a negative count"},
      {[](NativeHistogram& h) { h.zero_count = -1; }, "a negative count"},
      {[](NativeHistogram& h) { h.zero_threshold = -1; }, "a negative zero threshold"},
      {[](NativeHistogram& h) { h.custom_bounds = {1}; }, "bounds of its own beside a schema"},
      {[](NativeHistogram& h) { h.schema = -4; }, ""},
      {[](NativeHistogram& h) { h.schema = 8; }, ""},
      {[](NativeHistogram& h) { h.positive_spans[1].offset = 0; }, ""},
      {[](NativeHistogram& h) { h.positive[1] = 0; }, ""},
      {[](NativeHistogram& h) { h.count = h.zero_count = h.zero_threshold = 0; }, ""},
  };
  const std::pair<Change, const char*> kOfBounds[] = {
      {[](NativeHistogram& h) { h.zero_count = 1; }, "negative or zero buckets beside bounds"},
      {[](NativeHistogram& h) {
         h.negative_spans = {{0, 1}};
         h.negative = {1};
       },
       "negative or zero buckets beside bounds"},
      {[](NativeHistogram& h) { h.custom_bounds[2] = HUGE_VAL; }, "a bound that is not finite"},
      {[](NativeHistogram& h) { h.custom_bounds[1] = 0.1; }, "bounds that do not ascend"},
      {[](NativeHistogram& h) {
         h.positive_spans = {{-1, 4}};
       },
       "a bucket before the first"},
      {[](NativeHistogram& h) {
         h.positive_spans = {{1, 4}};
       },
       "a bucket beyond the last bound"},
      {[](NativeHistogram& h) { h.custom_bounds.pop_back(); }, "a bucket beyond the last bound"},
      {[](NativeHistogram&) {}, ""},
  };
  for (const auto& [change, why] : kOfSchema) {
    const std::string problem = changed(some_histogram(), change);
    EXPECT_TRUE(*why == '\0' ? problem.empty() : problem.find(why) != std::string::npos) << why << ": " << problem;
  }
  for (const auto& [change, why] : kOfBounds) {
    const std::string problem = changed(bounds, change);
    EXPECT_TRUE(*why == '\0' ? problem.empty() : problem.find(why) != std::string::npos) << why << ": " << problem;
  }
}

std::string integer_histogram(uint64_t count) {
  return message(4, [&](WireWriter& out) {
    out.varint(1, count);
    out.real(3, 8);
    out.varint(6, 1);
    size_t span = out.begin(11);
    out.varint(1, protobuf::zigzag_encode(-1));
    out.varint(2, 3);
    out.end(span);
    size_t deltas = out.begin(12);
    for (int64_t delta : {2, -1, 3}) out.raw_varint(protobuf::zigzag_encode(delta));
    out.end(deltas);
    out.varint(15, 77);
  });
}

TEST(RemoteWrite1, UndoesTheDifferencesOfIntegerHistograms) {
  const std::string bytes = message(1, [&](WireWriter& out) {
    out.bytes(1, raw_labels_of({{"__name__", "a"}}).substr(2));
    std::string field = integer_histogram(1 + 2 + 1 + 4);
    out.bytes(4, std::string_view(field).substr(2));
  });
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  ASSERT_EQ(walk.series().size(), 1u) << walk.counts().first_problem;
  EXPECT_EQ(walk.series()[0].histograms[0].positive, (std::vector<double>{2, 1, 4}));
  EXPECT_EQ(walk.series()[0].histograms[0].count, 8);
  EXPECT_EQ(walk.series()[0].histograms[0].zero_count, 1);
  EXPECT_EQ(walk.series()[0].times_ms[0], 77);
}

TEST(RemoteWrite1, LeavesOutHistogramsThatContradictThemselvesAndKeepsTheRest) {
  const std::string bytes = message(1, [&](WireWriter& out) {
    out.bytes(1, raw_labels_of({{"__name__", "a"}}).substr(2));
    out.bytes(4, std::string_view(integer_histogram(9)).substr(2));
    out.bytes(4, std::string_view(integer_histogram(8)).substr(2));
    out.bytes(2, std::string("\x10\x05", 2));
  });
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, bytes).ok());
  EXPECT_EQ(walk.counts().bad_histograms, 1u);
  EXPECT_NE(walk.counts().first_problem.find("do not add up"), std::string::npos) << walk.counts().first_problem;
  ASSERT_EQ(walk.series().size(), 2u);  // one of floats, one of histograms
  EXPECT_EQ(walk.series()[0].values.size(), 1u);
  EXPECT_EQ(walk.series()[1].histograms.size(), 1u);
  EXPECT_EQ(*walk.labels(1), (Labels{{"__name__", "a"}}));
}

TEST(RemoteWrite1, RefusesWhatIsCutShort) {
  const std::string bytes = series_bytes(kPower, {1700000000000}, {1});
  Walk walk;
  for (size_t size = 1; size < bytes.size(); ++size) {
    Result<void> read = walk.walk(Version::k1, std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(read.ok()) << size;
    EXPECT_TRUE(walk.series().empty());
    EXPECT_NE(read.error().find("prometheus.WriteRequest"), std::string::npos) << read.error();
  }
}

TEST(RemoteWrite1, DoesNotLetAFewBytesBecomeGigabytes) {
  std::string bytes;
  for (int i = 0; i < 8'000'000; ++i) bytes += std::string("\x0a\x02\x12\x00", 4);  // a series of one empty sample
  Walk walk;
  Result<void> read = walk.walk(Version::k1, bytes);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().find("too many elements"), std::string::npos) << read.error();
}

class Request2 {
 public:
  Request2() { symbol(""); }
  uint32_t symbol(std::string_view text) {
    for (size_t i = 0; i < symbols_.size(); ++i) {
      if (symbols_[i] == text) return static_cast<uint32_t>(i);
    }
    symbols_.emplace_back(text);
    return static_cast<uint32_t>(symbols_.size() - 1);
  }
  void series(const std::vector<uint32_t>& refs, const std::function<void(WireWriter&)>& rest) {
    series_ += message(5, [&](WireWriter& out) {
      size_t packed = out.begin(1);
      for (uint32_t ref : refs) out.raw_varint(ref);
      out.end(packed);
      rest(out);
    });
  }
  std::vector<uint32_t> refs(const Labels& labels) {
    std::vector<uint32_t> refs;
    for (const auto& [name, value] : labels) {
      refs.push_back(symbol(name));
      refs.push_back(symbol(value));
    }
    return refs;
  }
  static void sample(WireWriter& out, double value, uint64_t time_ms) {
    size_t began = out.begin(2);
    out.real(1, value);
    out.varint(2, time_ms);
    out.varint(3, 99);  // started
    out.end(began);
  }
  std::string bytes(bool symbols_last = false) const {
    std::string symbols;
    WireWriter out(symbols);
    for (const std::string& symbol : symbols_) out.bytes(4, symbol);
    return symbols_last ? series_ + symbols : symbols + series_;
  }

 private:
  std::vector<std::string> symbols_;
  std::string series_;
};

TEST(RemoteWrite2, SpellsReferencesOutToTheKeyOfRemoteWrite1) {
  Request2 request;
  request.series(request.refs(kPower), [](WireWriter& out) { Request2::sample(out, 5.5, 1700000000000); });
  for (bool symbols_last : {false, true}) {
    const std::string bytes = request.bytes(symbols_last);
    Walk walk;
    ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
    ASSERT_EQ(walk.series().size(), 1u);
    EXPECT_EQ(walk.series()[0].raw_labels, raw_labels_of(kPower));
    EXPECT_EQ(*walk.labels(0), kPower);
    EXPECT_EQ(walk.series()[0].values[0], 5.5);
  }
}

TEST(RemoteWrite2, ReadsMetadataExemplarsAndHistograms) {
  Request2 request;
  const uint32_t help = request.symbol("Board power."), unit = request.symbol("W");
  const uint32_t trace = request.symbol("trace_id"), id = request.symbol("abc");
  request.series(request.refs(kPower), [&](WireWriter& out) {
    out.bytes(3, std::string_view(integer_histogram(8)).substr(2));
    size_t exemplar = out.begin(4);
    out.varint(1, trace);  // unpacked
    out.varint(1, id);
    out.real(2, 7);
    out.varint(3, 70);
    out.end(exemplar);
    size_t metadata = out.begin(5);
    out.varint(1, 3);
    out.varint(3, help);
    out.varint(4, unit);
    out.end(metadata);
  });
  const std::string bytes = request.bytes();
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
  ASSERT_EQ(walk.series().size(), 1u);
  EXPECT_EQ(walk.series()[0].histograms[0].count, 8);
  ASSERT_EQ(walk.series()[0].exemplars.size(), 1u);
  EXPECT_EQ(walk.series()[0].exemplars[0].labels, (Labels{{"trace_id", "abc"}}));
  ASSERT_EQ(walk.metadata().size(), 1u);
  EXPECT_EQ(walk.metadata()[0].name, "gpu_power");
  EXPECT_STREQ(walk.metadata()[0].type, "histogram");
  EXPECT_EQ(walk.metadata()[0].help, "Board power.");
  EXPECT_EQ(walk.metadata()[0].unit, "W");
}

TEST(RemoteWrite2, MetadataRefersToSymbolsThatAreThereOrToNone) {
  struct Case {
    uint32_t help, unit;
    bool good;
  };
  // Symbols: "", __name__, m, then nothing.
  for (const Case& test :
       {Case{0, 0, true}, Case{2, 0, true}, Case{0, 2, true}, Case{3, 0, false}, Case{0, 3, false}}) {
    Request2 request;
    request.series(request.refs({{"__name__", "m"}}), [&](WireWriter& out) {
      Request2::sample(out, 1, 1700000000000);
      size_t metadata = out.begin(5);
      out.varint(1, 2);
      if (test.help > 0) out.varint(3, test.help);
      if (test.unit > 0) out.varint(4, test.unit);
      out.end(metadata);
    });
    const std::string bytes = request.bytes();
    Walk walk;
    ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
    EXPECT_EQ(walk.series().size(), 1u);
    EXPECT_EQ(walk.counts().bad_metadata, test.good ? 0u : 1u);
    EXPECT_EQ(walk.counts().first_problem, test.good ? "" : "metadata that refers past the symbols");
    ASSERT_EQ(walk.metadata().size(), test.good ? 1u : 0u);
    if (!test.good) continue;
    EXPECT_STREQ(walk.metadata()[0].type, "gauge");
    EXPECT_EQ(walk.metadata()[0].help, test.help == 2 ? "m" : "");
    EXPECT_EQ(walk.metadata()[0].unit, test.unit == 2 ? "m" : "");
  }
}

// One of type, help and unit is enough, also where it is the first there is.
TEST(RemoteWrite2, MetadataMaySayOneThingAlone) {
  for (const uint32_t field : {1u, 3u, 4u}) {
    Request2 request;
    request.symbol("text");
    request.series(request.refs({{"__name__", "m"}}), [&](WireWriter& out) {
      Request2::sample(out, 1, 1700000000000);
      size_t metadata = out.begin(5);
      out.varint(field, 1);
      out.end(metadata);
    });
    const std::string bytes = request.bytes();
    Walk walk;
    ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
    ASSERT_EQ(walk.metadata().size(), 1u) << field;
    EXPECT_STREQ(walk.metadata()[0].type, field == 1 ? "counter" : "unknown");
    EXPECT_EQ(walk.metadata()[0].help, field == 3 ? "text" : "");
    EXPECT_EQ(walk.metadata()[0].unit, field == 4 ? "text" : "");
  }
}

TEST(RemoteWrite1, SaysWhatItHoldsForTheNextRequest) {
  const std::string raw = raw_labels_of(kPower);
  const std::vector<int64_t> times = {5};
  const std::vector<double> values = {1.5};
  const std::vector<PushedExemplar> exemplars(3, PushedExemplar{{}, 1.25, 4});
  std::string one, many;
  append_series(one,
                {.raw_labels = raw, .times_ms = times, .values = values, .histograms = {}, .exemplars = exemplars});
  for (int i = 0; i < 1000; ++i) many += one;
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k1, many).ok());
  const size_t held = 3000 * sizeof(PushedExemplar) + 1000 * (sizeof(PushedSeries) + sizeof(int64_t) + sizeof(double));
  EXPECT_GE(walk.memory_bytes(), held);
  EXPECT_LE(walk.memory_bytes(), 4 * held);
}

// References to labels cost four bytes each, also those of a series that has more labels than are stored.
TEST(RemoteWrite2, SaysWhatItHoldsOfReferencesForTheNextRequest) {
  constexpr size_t kMany = 100'000, kNeed = kMany * sizeof(uint32_t);
  const auto held_after = [&](std::initializer_list<size_t> labels, size_t exemplar_labels) {
    Request2 request;
    const std::vector<uint32_t> one = request.refs({{"__name__", "m"}});
    for (const size_t count : labels) {
      std::vector<uint32_t> refs;
      for (size_t i = 0; i < count; ++i) refs.insert(refs.end(), one.begin(), one.end());
      request.series(refs, [&](WireWriter& out) {
        Request2::sample(out, 1, 1700000000000);
        const size_t exemplar = out.begin(4);
        const size_t names = out.begin(1);
        for (size_t i = 0; i < 2 * exemplar_labels; ++i) out.raw_varint(1);
        out.end(names);
        out.end(exemplar);
      });
    }
    const std::string bytes = request.bytes();
    Walk walk;
    EXPECT_TRUE(walk.walk(Version::k2, bytes).ok());
    return walk.memory_bytes();
  };
  EXPECT_LT(held_after({1, 1}, 0), kNeed);
  const size_t alone = held_after({kMany}, 0), before_another = held_after({kMany, 1}, 0),
               both = held_after({kMany, 1, kMany}, 0), of_exemplar = held_after({1}, kMany);
  for (const size_t held : {alone, before_another, of_exemplar}) {
    EXPECT_GE(held, 2 * kNeed);
    EXPECT_LT(held, 4 * kNeed);
  }
  EXPECT_GE(both, 4 * kNeed);
}

// What a series shares with the one before it is copied from there, wherever it stands.
TEST(RemoteWrite2, SeriesThatAreAlikeInAnyPartAreEachSpelledOutWhole) {
  std::mt19937 random(2);
  Request2 request;
  const uint32_t help = request.symbol("help");
  std::vector<Labels> sent;
  Labels labels;
  for (int i = 0; i < 300; ++i) {
    if (i % 10 == 0) labels.assign(1 + random() % 6, {});
    for (auto& [name, value] : labels) {
      if (!name.empty() && random() % 3 != 0) continue;
      name = random() % 4 == 0 ? "__name__" : "label" + std::to_string(random() % 9);
      value = std::string(random() % 3 == 0 ? 130 : 1 + random() % 4, static_cast<char>('a' + random() % 26));
    }
    sent.push_back(labels);
    request.series(request.refs(labels), [&](WireWriter& out) {
      Request2::sample(out, i, 1700000000000);
      size_t metadata = out.begin(5);
      out.varint(1, 1);
      out.varint(3, help);
      out.end(metadata);
    });
  }
  const std::string bytes = request.bytes();
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
  ASSERT_EQ(walk.series().size(), sent.size());
  std::vector<std::string> names, given;
  for (size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(walk.series()[i].raw_labels, raw_labels_of(sent[i])) << i;
    std::string name;
    for (const auto& label : sent[i]) {
      if (label.first == "__name__") name = label.second;
    }
    if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(name);
  }
  for (const Metadata& one : walk.metadata()) {
    if (!one.name.empty() && (given.empty() || given.back() != one.name)) given.emplace_back(one.name);
  }
  EXPECT_EQ(given, names);
}

TEST(RemoteWrite2, RefusesASeriesThatRefersPastTheSymbolsAndKeepsTheRest) {
  Request2 request;
  request.series({1000, 1001}, [](WireWriter& out) { Request2::sample(out, 1, 1); });
  request.series(request.refs(kPower), [](WireWriter& out) { Request2::sample(out, 2, 2); });
  request.series(request.refs(kPower), [](WireWriter&) {});
  const std::string bytes = request.bytes();
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k2, bytes).ok());
  ASSERT_EQ(walk.series().size(), 2u);
  EXPECT_FALSE(walk.labels(0).ok());
  EXPECT_EQ(*walk.labels(1), kPower);
  EXPECT_EQ(walk.counts().empty_series, 1u);
}

TEST(RemoteWrite2, DoesNotSpellOutLabelsThatNoStoreTakes) {
  Request2 request;
  const uint32_t name = request.symbol("__name__"), value = request.symbol(std::string(1 << 20, 'x'));
  for (int i = 0; i < 1000; ++i) {
    request.series({name, value}, [](WireWriter& out) { Request2::sample(out, 1, 1); });
  }
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k2, request.bytes()).ok());
  EXPECT_LT(walk.memory_bytes(), 1u << 20);
  ASSERT_EQ(walk.series().size(), 1000u);
  ASSERT_FALSE(walk.labels(0).ok());
  EXPECT_NE(walk.labels(0).error().find("16384 bytes"), std::string::npos) << walk.labels(0).error();
}

// 2 GB once came of 10 kB: the reader that had no memory left ended, and those beside it went on.
TEST(RemoteWrite2, StopsWhereMemoryIsRefusedAndHoldsNoMore) {
  Request2 request;
  const uint32_t name = request.symbol("__name__"), value = request.symbol(std::string(4000, 'x'));
  std::vector<uint32_t> refs;
  for (int i = 0; i < 4; ++i) refs.insert(refs.end(), {name, value});
  for (int i = 0; i < 20'000; ++i) request.series(refs, [](WireWriter& out) { Request2::sample(out, 1, 1); });
  MemoryBudget budget(32u << 20, [] { return 0; });
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  Walk walk;
  const Result<void> read = walk.walk(Version::k2, request.bytes(), &lease);
  ASSERT_FALSE(read.ok());
  EXPECT_TRUE(lease.was_refused());
  EXPECT_NE(read.error().find("--memory-max"), std::string::npos) << read.error();
  EXPECT_LE(lease.bytes(), 16u << 20);
  EXPECT_LT(walk.memory_bytes(), 20u << 20);
  release_memory(walk);
  EXPECT_EQ(walk.memory_bytes(), 0u + std::string().capacity()) << "a text keeps its memory where {} is assigned";
}

TEST(RemoteWrite2, RefusesHistogramsOfMoreBucketsThanAnybodyMakes) {
  Request2 request;
  request.series(request.refs(kPower), [](WireWriter& out) {
    const size_t histogram = out.begin(3);
    const size_t span = out.begin(11);
    out.varint(2, kHistogramBucketsMax + 1);
    out.end(span);
    const size_t deltas = out.begin(12);
    for (size_t i = 0; i <= kHistogramBucketsMax; ++i) out.raw_varint(0);
    out.end(deltas);
    out.end(histogram);
  });
  Walk walk;
  ASSERT_TRUE(walk.walk(Version::k2, request.bytes()).ok());
  EXPECT_EQ(walk.counts().bad_histograms, 1u);
  EXPECT_NE(walk.counts().first_problem.find("65536"), std::string::npos) << walk.counts().first_problem;
}

TEST(RemoteWrite2, PackedNumbersEndWhereMemoryIsRefused) {
  Request2 request;
  request.series(request.refs(kPower), [](WireWriter& out) {
    const size_t histogram = out.begin(3);
    const size_t deltas = out.begin(12);
    for (int i = 0; i < 4'000'000; ++i) out.raw_varint(0);
    out.end(deltas);
    out.end(histogram);
  });
  MemoryBudget budget(8u << 20, [] { return 0; });
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  Walk walk;
  ASSERT_FALSE(walk.walk(Version::k2, request.bytes(), &lease).ok());
  EXPECT_TRUE(lease.was_refused());
  EXPECT_LT(walk.memory_bytes(), 8u << 20);
}

// What reading a request takes of the server's memory, where there is enough.
uint64_t taken_by(Version version, std::string_view bytes) {
  MemoryBudget budget(8ull << 30, [] { return 0; });
  MemoryLease lease(&budget, MemoryUse::kDecoding);
  Walk walk;
  const Result<void> read = walk.walk(version, bytes, &lease);
  EXPECT_TRUE(read.ok()) << read.error();
  return lease.bytes();
}

// As much as its parts are in memory; besides, what is taken ahead.
void expect_taken(uint64_t taken, uint64_t need) {
  EXPECT_GE(taken, need);
  EXPECT_LE(taken, need + need / 2 + (32u << 20));
}

TEST(RemoteWriteMemory, EverySampleAndEverySeriesIsPaidFor) {
  constexpr size_t kSamples = 2'000'000, kSeries = 200'000;
  expect_taken(taken_by(Version::k1, series_bytes(kPower, std::vector<int64_t>(kSamples, 1700000000000),
                                                  std::vector<double>(kSamples, 1))),
               kSamples * (sizeof(int64_t) + sizeof(double)));
  std::string many;
  const std::string one = series_bytes(kPower, {1700000000000}, {1});
  for (size_t i = 0; i < kSeries; ++i) many += one;
  expect_taken(taken_by(Version::k1, many), kSeries * (2 * sizeof(PushedSeries) + sizeof(int64_t) + sizeof(double)));
}

TEST(RemoteWriteMemory, LabelsAreAsLongAsTheyAre) {
  constexpr size_t kSeries = 4000, kText = 2000;
  // In pieces, so that they are put together; the sample stands between them.
  std::string label;
  WireWriter(label).bytes(1, "name");
  WireWriter(label).bytes(2, std::string(kText, 'v'));
  std::string many;
  const std::string one = message(1, [&](WireWriter& out) {
    for (int i = 0; i < 2; ++i) {
      out.bytes(1, label);
      out.bytes(2, std::string("\x10\x05", 2));
    }
  });
  for (size_t i = 0; i < kSeries; ++i) many += one;
  expect_taken(taken_by(Version::k1, many), kSeries * 2 * 2 * kText);

  Request2 request;
  std::vector<uint32_t> refs = {request.symbol("__name__"), request.symbol("a")};
  for (int i = 0; i < 4; ++i) {
    refs.push_back(request.symbol("label" + std::to_string(i)));
    refs.push_back(request.symbol(std::string(kText, static_cast<char>('a' + i))));
  }
  for (size_t i = 0; i < kSeries; ++i) request.series(refs, [](WireWriter& out) { Request2::sample(out, 1, 1); });
  expect_taken(taken_by(Version::k2, request.bytes()), kSeries * 2 * 4 * kText);
}

TEST(RemoteWriteMemory, ExemplarsArePaidForWithTheirLabels) {
  constexpr size_t kExemplars = 100'000, kText = 60;
  const std::string raw = raw_labels_of(kPower);
  const std::vector<PushedExemplar> exemplars(
      kExemplars, PushedExemplar{{{std::string(kText, 'n'), std::string(kText, 'v')}}, 1, 1});
  std::string bytes;
  append_series(bytes, {.raw_labels = raw, .exemplars = exemplars});
  constexpr size_t kNeed = kExemplars * (sizeof(PushedExemplar) + 2 * sizeof(std::string) + 2 * kText);
  expect_taken(taken_by(Version::k1, bytes), kNeed);

  Request2 request;
  const uint32_t name = request.symbol(std::string(kText, 'n')), value = request.symbol(std::string(kText, 'v'));
  request.series(request.refs(kPower), [&](WireWriter& out) {
    for (size_t i = 0; i < kExemplars; ++i) {
      const size_t exemplar = out.begin(4);
      const size_t refs = out.begin(1);
      out.raw_varint(name);
      out.raw_varint(value);
      out.end(refs);
      out.end(exemplar);
    }
  });
  expect_taken(taken_by(Version::k2, request.bytes()), kNeed);
}

TEST(RemoteWriteMemory, HistogramsSymbolsAndMetadataArePaidFor) {
  constexpr size_t kHistograms = 100'000, kSymbols = 2'000'000, kMetadata = 300'000;
  const std::string raw = raw_labels_of(kPower);
  const std::vector<int64_t> times(kHistograms, 1);
  const std::vector<NativeHistogram> histograms(kHistograms, some_histogram());
  std::string bytes;
  append_series(bytes, {.raw_labels = raw, .times_ms = times, .histograms = histograms});
  expect_taken(taken_by(Version::k1, bytes),
               kHistograms * (sizeof(NativeHistogram) + sizeof(int64_t) + 3 * sizeof(HistogramSpan) + 4 * 16));
  std::string symbols;
  for (size_t i = 0; i < kSymbols; ++i) symbols += std::string("\x22\x00", 2);
  expect_taken(taken_by(Version::k2, symbols), kSymbols * sizeof(std::string_view));
  const std::string one = message(3, [](WireWriter& out) { out.bytes(2, "a"); });
  std::string metadata;
  for (size_t i = 0; i < kMetadata; ++i) metadata += one;
  expect_taken(taken_by(Version::k1, metadata), kMetadata * sizeof(Metadata));
}

}  // namespace
}  // namespace lockstep::remote_write
