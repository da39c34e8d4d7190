// The small containers of the stores, each held against the plain one of the standard library that it stands for.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "store/columns/byte_codec.h"
#include "store/columns/text_table.h"
#include "store/metrics/chunked_array.h"
#include "store/metrics/label_hash.h"
#include "store/metrics/label_sets.h"
#include "store/metrics/postings.h"
#include "store/metrics/run_array.h"
#include "store/metrics/symbols.h"
#include "store/spans/bloom.h"
#include "store/spans/key_set.h"

namespace lockstep {
namespace {

std::set<uint32_t> members(const metrics::SeriesSet& set) {
  std::set<uint32_t> all;
  set.visit([&](uint32_t id) { EXPECT_TRUE(all.insert(id).second); });
  EXPECT_EQ(all.size(), set.count());
  for (size_t id = 0; id < set.size(); ++id) EXPECT_EQ(set.has(id), all.contains(static_cast<uint32_t>(id))) << id;
  return all;
}

std::set<uint32_t> numbers(uint32_t begin, uint32_t end, uint32_t stride = 1) {
  std::set<uint32_t> all;
  for (uint32_t id = begin; id < end; id += stride) all.insert(id);
  return all;
}

TEST(SeriesSet, HoldsExactlyWhatWasAddedAtEveryEdgeOfAWord) {
  for (const size_t size : {1, 63, 64, 65, 128, 200}) {
    EXPECT_EQ(members(metrics::SeriesSet(size, true)), numbers(0, static_cast<uint32_t>(size)));
    EXPECT_TRUE(members(metrics::SeriesSet(size)).empty());
    EXPECT_EQ(metrics::SeriesSet(size).size(), size);
    for (size_t start = 0; start < size; start += 9) {
      for (size_t count = 1; start + count <= size; count += 7) {
        metrics::SeriesSet set(size);
        set.add_run(start, count, 1);
        ASSERT_EQ(members(set), numbers(static_cast<uint32_t>(start), static_cast<uint32_t>(start + count)));
      }
    }
  }
  metrics::SeriesSet set(200);
  set.add_run(5, 4, 50);
  EXPECT_EQ(members(set), (std::set<uint32_t>{5, 55, 105, 155}));
  set.remove(55);
  set.add(64);
  EXPECT_EQ(members(set), (std::set<uint32_t>{5, 64, 105, 155}));
  metrics::SeriesSet shorter(100, true);
  shorter.remove(64);
  metrics::SeriesSet kept = set;
  kept.keep(shorter);
  EXPECT_EQ(members(kept), (std::set<uint32_t>{5}));
  set.keep_out(shorter);
  EXPECT_EQ(members(set), (std::set<uint32_t>{64, 105, 155}));
}

TEST(Postings, GiveBackTheirSeriesFromMemoryAndFromBytes) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    metrics::Postings postings;
    std::set<uint32_t> expected;
    for (uint32_t id = static_cast<uint32_t>(random() % 3); id < 500;) {
      const uint32_t stride = 1 + static_cast<uint32_t>(random() % 40);
      for (uint32_t i = static_cast<uint32_t>(random() % 6) + 1; i > 0 && id < 500; --i, id += stride) {
        postings.add(id);
        expected.insert(id);
      }
    }
    EXPECT_EQ(postings.count(), expected.size());
    metrics::SeriesSet from_memory(500), from_bytes(500), too_small(*expected.rbegin());
    postings.add_to(from_memory);
    EXPECT_EQ(members(from_memory), expected);
    std::string bytes;
    postings.encode(bytes);
    columns::ByteReader in(bytes);
    ASSERT_TRUE(metrics::Postings::decode(in, from_bytes));
    EXPECT_TRUE(in.at_end());
    EXPECT_EQ(members(from_bytes), expected);
    columns::ByteReader again(bytes), torn(std::string_view(bytes).substr(0, bytes.size() - 1));
    EXPECT_FALSE(metrics::Postings::decode(again, too_small)) << "a number beyond the set";
    metrics::SeriesSet enough(500);
    EXPECT_FALSE(metrics::Postings::decode(torn, enough));
  }
}

TEST(Postings, OfARegularSenderAreOneRun) {
  metrics::Postings every_98th;
  for (uint32_t id = 3; id < 100'000; id += 98) every_98th.add(id);
  std::string bytes;
  every_98th.encode(bytes);
  EXPECT_LE(bytes.size(), 6u);
}

TEST(Postings, RefuseRunsThatNoneCouldHaveWritten) {
  struct Case {
    const char* what;
    std::vector<uint64_t> numbers;
    bool good;
  };
  for (const Case& test :
       {Case{"the last of a set", {1, 9, 1}, true}, Case{"one beyond it", {1, 10, 1}, false},
        Case{"a run of all", {1, 0, 10, 1}, true}, Case{"a run of one more", {1, 0, 11, 1}, false},
        Case{"a run of nothing", {1, 0, 0}, false}, Case{"a stride of nothing", {1, 0, 2, 0}, false},
        Case{"a stride to the last", {1, 0, 2, 9}, true}, Case{"a stride beyond", {1, 0, 2, 10}, false},
        Case{"a stride that wraps", {1, 0, 2, UINT64_MAX}, false},
        Case{"a start that wraps", {2, 1, 1, UINT64_MAX, 1}, false}, Case{"more runs than bytes", {3, 0, 1}, false},
        Case{"none", {0}, true}}) {
    std::string bytes;
    for (uint64_t number : test.numbers) columns::put_varint(bytes, number);
    columns::ByteReader in(bytes);
    metrics::SeriesSet set(10);
    EXPECT_EQ(metrics::Postings::decode(in, set), test.good) << test.what;
  }
}

TEST(RunArray, AnswersEveryPlaceInAnyOrder) {
  std::mt19937_64 random(3);
  metrics::RunArray runs;
  std::vector<uint64_t> plain;
  while (plain.size() < 1000) {
    uint64_t value = random() % 5 == 0 ? random() : random() % 100;
    for (uint64_t count = 1 + random() % 7; count > 0; --count) {
      runs.push_back(value);
      plain.push_back(value++);
    }
  }
  ASSERT_EQ(runs.size(), plain.size());
  metrics::RunArray::Walk forwards(runs), anyhow(runs);
  for (size_t place = 0; place < plain.size(); ++place) {
    ASSERT_EQ(runs[place], plain[place]) << place;
    ASSERT_EQ(forwards[place], plain[place]) << place;
    const size_t other = random() % plain.size();
    ASSERT_EQ(anyhow[other], plain[other]) << other;
  }
  metrics::RunArray one_run;
  for (uint64_t value = 0; value < 100'000; ++value) one_run.push_back(value + (uint64_t{1} << 40));
  EXPECT_LE(one_run.memory_bytes(), 100u);
  EXPECT_EQ(one_run[99'999], 99'999 + (uint64_t{1} << 40));
}

TEST(ChunkedArray, KeepsRunsTogetherAndGrowsByTheBlock) {
  metrics::ChunkedArray<uint32_t, 3> array;  // blocks of eight
  EXPECT_EQ(array.memory_bytes(), 0u);
  for (uint32_t i = 0; i < 5; ++i) array.push_back(i);
  EXPECT_EQ(array.memory_bytes(), 8 * sizeof(uint32_t));
  const uint32_t three[] = {10, 11, 12}, again[] = {20, 21, 22}, eight[] = {30, 31, 32, 33, 34, 35, 36, 37};
  EXPECT_EQ(array.run_place(3), 5u);
  EXPECT_EQ(array.add_run(three), 5u) << "just fits";
  EXPECT_EQ(array.memory_bytes(), 8 * sizeof(uint32_t));
  EXPECT_EQ(array.add_run(again), 8u);
  EXPECT_EQ(array.run_place(6), 16u) << "would cross a block";
  EXPECT_EQ(array.add_run(eight), 16u);
  EXPECT_EQ(array.size(), 24u);
  array.push_back(99);
  EXPECT_EQ(array.memory_bytes(), 4 * 8 * sizeof(uint32_t));
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(array[i], i);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(array[5 + i], 10 + i);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(array[8 + i], 20 + i);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(array[16 + i], 30 + i);
  EXPECT_EQ(array[24], 99u);
}

TEST(LabelSets, GiveEverySetOneNumber) {
  std::mt19937 random(9);
  metrics::LabelSets sets;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, uint32_t> plain;
  EXPECT_EQ(sets.find({}), UINT32_MAX);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<LabelSymbols> labels(random() % 4);
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (LabelSymbols& label : labels) {
      label.name = static_cast<uint32_t>(random() % 5);
      label.value = static_cast<uint32_t>(random() % 60);
      key.emplace_back(label.name, label.value);
    }
    const auto [known, is_new] = plain.emplace(key, static_cast<uint32_t>(plain.size()));
    ASSERT_EQ(sets.find(labels), is_new ? UINT32_MAX : known->second);
    ASSERT_EQ(sets.add(labels), known->second);
    ASSERT_EQ(sets.find(labels), known->second);
  }
  ASSERT_EQ(sets.size(), plain.size());
  metrics::LabelSets again;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (i % 2 == 0) {
      again.append(sets[i]);
    } else {
      std::copy(sets[i].begin(), sets[i].end(), again.append_room(sets[i].size()));
    }
  }
  again.index();
  for (const auto& [key, number] : plain) {
    std::vector<LabelSymbols> labels;
    for (const auto& [name, value] : key) labels.push_back({name, value});
    ASSERT_EQ(again.find(labels), number);
    ASSERT_EQ(again.add(labels), number);
    ASSERT_EQ(sets[number].size(), key.size());
  }
}

TEST(LabelHash, TellsTextsOfEveryLengthApartAndStreamsToo) {
  const metrics::LabelHash hash(7), same(7), other(8);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t size = 0; size <= 100; ++size) {
    std::string text(size, 'a');
    for (size_t at = 0; at <= size; ++at) {
      if (at < size) ++text[at];
      const metrics::Hash128 found = hash(text);
      EXPECT_TRUE(seen.emplace(found.a, found.b).second) << size << " " << at;
      EXPECT_EQ(found, same(text));
      EXPECT_NE(found, other(text));
      EXPECT_NE(found, hash(text, {1, 0}));
      EXPECT_NE(hash(text, {0, 1}), hash(text, {1, 0}));
      if (at < size) --text[at];
    }
  }
}

TEST(KeySet, KnowsEveryKeyOnceHoweverManyThereAre) {
  for (const size_t expected : {0, 10, 5000}) {
    spans::KeySet set(expected);
    auto key = [](uint32_t number) {
      spans::SpanKey one{};
      one.trace_id[0] = static_cast<uint8_t>(number);
      one.trace_id[15] = static_cast<uint8_t>(number >> 8);
      one.span_id[number % 8] = static_cast<uint8_t>(number >> 4 | 1);
      one.start_unix_ns = number % 7;
      return one;
    };
    EXPECT_FALSE(set.has(key(1)));
    std::set<std::tuple<TraceId, SpanId, int64_t>> plain;
    for (uint32_t i = 0; i < 5000; ++i) {
      const spans::SpanKey one = key(i);
      set.prepare(one);
      const bool is_new = plain.emplace(one.trace_id, one.span_id, one.start_unix_ns).second;
      ASSERT_EQ(set.has(one), !is_new) << i;
      ASSERT_EQ(set.insert(one), is_new) << i;
      ASSERT_TRUE(set.has(one));
    }
    EXPECT_EQ(set.size(), plain.size());
    EXPECT_LE(set.memory_bytes(), 16'384 * sizeof(spans::SpanKey)) << expected;
    EXPECT_GE(set.memory_bytes(), plain.size() * sizeof(spans::SpanKey));
  }
}

TEST(TraceBloom, HasEveryIdAndFewOthers) {
  std::mt19937_64 random(4);
  auto draw = [&] {
    TraceId id{};
    const uint64_t half = random();  // some tracers draw only one half
    std::memcpy(id.data() + (half % 2 == 0 ? 8 : 0), &half, 8);
    return id;
  };
  std::vector<TraceId> ids(1000);
  for (TraceId& id : ids) id = draw();
  const spans::TraceBloom bloom(ids);
  EXPECT_EQ(bloom.bits().size(), 1251u);
  const spans::TraceBloom read_back(bloom.bits());
  for (const TraceId& id : ids) EXPECT_TRUE(bloom.may_have(id) && read_back.may_have(id));
  int wrong = 0;
  for (int i = 0; i < 20'000; ++i) wrong += bloom.may_have(draw());
  EXPECT_LT(wrong, 400);
  EXPECT_GT(wrong, 50);
  EXPECT_TRUE(spans::TraceBloom().may_have(ids[0])) << "no filter: anything may be there";
}

TEST(TextTable, GivesEveryTextOneNumberAndBack) {
  columns::TextTable table;
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.intern(""), 0u);
  std::map<std::string, uint32_t> plain;
  std::mt19937 random(6);
  for (int round = 0; round < 5000; ++round) {
    std::string text(1 + random() % 20, 'a');
    text[random() % text.size()] = static_cast<char>('a' + random() % 4);
    const auto [known, is_new] = plain.emplace(text, static_cast<uint32_t>(plain.size() + 1));
    if (is_new) {
      ASSERT_EQ(table.find(text), std::nullopt);
    }
    ASSERT_EQ(table.intern(text), known->second);
    ASSERT_EQ(table[known->second], text);
    ASSERT_EQ(table.find(text), known->second);
    const auto likely = static_cast<uint32_t>(random() % (plain.size() + 1));
    ASSERT_EQ(table.intern_like(likely, text), known->second);
  }
  EXPECT_EQ(table.size(), plain.size() + 1);
  EXPECT_EQ(table.find(""), 0u);
  EXPECT_EQ(table[0], "");
}

TEST(Symbols, GiveEveryTextOneNumberAndBack) {
  metrics::Symbols symbols;
  EXPECT_EQ(symbols.find(""), std::nullopt);
  std::map<std::string, uint32_t> plain;
  std::mt19937 random(8);
  for (int round = 0; round < 6000; ++round) {
    std::string text = std::to_string(random() % 4000);
    if (round % 500 == 0) text = std::string(round * 50, 'l');  // longer than what is taken at a time, and empty
    const auto [known, is_new] = plain.emplace(text, static_cast<uint32_t>(plain.size()));
    ASSERT_EQ(symbols.find(text), is_new ? std::nullopt : std::optional(known->second));
    ASSERT_EQ(symbols.intern(text), known->second);
    ASSERT_EQ(symbols.find(text), known->second);
  }
  ASSERT_EQ(symbols.size(), plain.size());
  size_t bytes = 0;
  for (const auto& [text, number] : plain) {
    ASSERT_EQ(symbols.text(number), text);
    bytes += text.size();
  }
  EXPECT_EQ(symbols.text(static_cast<uint32_t>(plain.size())), "");
  EXPECT_GE(symbols.memory_bytes(), bytes + plain.size() * sizeof(uint32_t));
  EXPECT_LE(symbols.memory_bytes(), 2 * bytes + (1u << 20));
}

TEST(SameText, ComparesEveryByteOfEveryLength) {
  for (size_t size = 0; size < 40; ++size) {
    const std::string text(size, 'x');
    EXPECT_TRUE(columns::same_text(text, std::string(size, 'x')));
    EXPECT_FALSE(columns::same_text(text, text + "x"));
    for (size_t at = 0; at < size; ++at) {
      std::string other = text;
      other[at] = 'y';
      EXPECT_FALSE(columns::same_text(text, other)) << size << " " << at;
    }
  }
}

TEST(ByteReader, ReadsWhatWasPutAndNothingBeyond) {
  const uint64_t kNumbers[] = {0, 1, 127, 128, 16'383, 16'384, UINT32_MAX, uint64_t{1} << 63, UINT64_MAX};
  std::string bytes;
  for (uint64_t number : kNumbers) columns::put_varint(bytes, number);
  for (uint64_t number : kNumbers) columns::put_signed(bytes, static_cast<int64_t>(number));
  columns::put_bytes(bytes, "text");
  columns::put_fixed(bytes, uint32_t{0x04030201});
  EXPECT_TRUE(bytes.ends_with("\x01\x02\x03\x04"));
  columns::ByteReader in(bytes);
  for (uint64_t number : kNumbers) EXPECT_EQ(in.varint(), number);
  for (uint64_t number : kNumbers) EXPECT_EQ(in.signed_varint(), static_cast<int64_t>(number));
  EXPECT_EQ(in.bytes(), "text");
  EXPECT_EQ(in.left(), 4u);
  EXPECT_EQ(in.fixed<uint32_t>(), 0x04030201u);
  EXPECT_TRUE(in.ok() && in.at_end());
  EXPECT_EQ(in.fixed<uint8_t>(), 0);
  EXPECT_FALSE(in.ok());

  struct Case {
    const char* what;
    std::string bytes;
    size_t bytes_each;
    size_t count;
    bool good;
  };
  for (const Case& test :
       {Case{"as many as there are bytes", "\x03xyz", 1, 3, true}, Case{"one more", "\x04xyz", 1, 0, false},
        Case{"two bytes each", "\x02wxyz", 2, 2, true}, Case{"a byte is missing", "\x02xyz", 2, 0, false},
        Case{"nothing at all", "", 1, 0, false}, Case{"a number without an end", std::string(11, '\x80'), 1, 0, false},
        Case{"none", std::string(1, '\0'), 1, 0, true}}) {
    columns::ByteReader reader(test.bytes);
    EXPECT_EQ(reader.count(test.bytes_each), test.count) << test.what;
    EXPECT_EQ(reader.ok(), test.good) << test.what;
    if (!test.good) {
      EXPECT_EQ(reader.left(), 0u) << test.what;
    }
  }
  columns::ByteReader raw("abc");
  EXPECT_EQ(raw.raw(2), "ab");
  EXPECT_EQ(raw.raw(1), "c");
  EXPECT_TRUE(raw.ok());
  EXPECT_EQ(raw.raw(1), "");
  EXPECT_FALSE(raw.ok());
}

}  // namespace
}  // namespace lockstep
