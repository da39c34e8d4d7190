// Up to kRowGroupRows spans as columns on disk, and back (docs/formats/span-blocks.md). A row group stands alone: it
// has its own tables of texts, traces, sources and shapes. What queries look at before they read it is its
// RowGroupMeta, which is kept in memory.
//
// On error: reading takes nothing on trust. Bytes that are no row group are an error of one line, never a crash, and
// never more memory than the rows they claim, which are bounded.
// Thread rule: Thread-safe (no state); RowGroupMeta is Immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/columns/byte_codec.h"
#include "store/columns/sealed_file.h"
#include "store/spans/bloom.h"
#include "store/spans/span_columns.h"

namespace lockstep::spans {

using columns::ByteReader;
using columns::Range;
using columns::SectionPlace;
using columns::SectionSource;

inline constexpr size_t kRowGroupRows = 65'536;
// Names and keys that a row group keeps in memory for pruning and listing; with more it has to be read.
inline constexpr size_t kCatalogueMax = 512;

// What a section holds; the number is part of the format. Columns of attributes follow from kAttributes on.
enum class Section : uint32_t {
  kTexts = 1,
  kTraces = 2,
  kSources = 3,
  kShapes = 4,
  kTraceSummaries = 5,
  kSteps = 6,
  kSource = 10,
  kTrace = 11,
  kShape = 12,
  kName = 13,
  kGroupStart = 14,
  kStartDelta = 15,
  kDuration = 16,
  kKind = 17,
  kStatusCode = 18,
  kTraceState = 19,
  kStatusMessage = 20,
  kExtra = 21,
  kArrival = 22,
  kSpanIdPlace = 23,
  kSpanId = 24,
  kParentKind = 25,
  kParentId = 26,
  kRestCells = 27,
  kAttributes = 1000,
};

struct JobSteps {
  std::string job_id;
  int64_t attempt = 0;
  Range<int64_t> steps;
  Range<int32_t> ranks;
};

struct RowGroupMeta {
  uint32_t rows = 0;
  Range<int64_t> starts;
  Range<int64_t> durations;
  bool has_errors = false;  // any span with status ERROR
  TraceBloom traces;
  std::vector<JobSteps> jobs;  // of spans of steps
  // Empty where there are more than kCatalogueMax of them (`is_listed` false).
  bool is_listed = true;
  std::map<std::string, uint32_t, std::less<>> services;   // rows of each
  std::vector<std::pair<std::string, std::string>> names;  // service, name; sorted
  std::vector<std::string> resource_keys;                  // sorted
  std::vector<std::string> span_keys;                      // sorted
  std::vector<SectionPlace> sections;
};

// A trace, as far as this row group has it.
struct TraceInGroup {
  uint32_t spans = 0;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  // The span that comes first of (those without a parent, then the others) by start.
  bool root_has_parent = false;
  int64_t root_start_unix_ns = 0;
  uint32_t root_row = 0;
  uint32_t root_name = 0;  // text
  uint32_t root_source = 0;
};
std::vector<TraceInGroup> summarise_traces(const SpanColumns& columns);

struct StepInGroup {
  std::string job_id;
  int64_t attempt = 0;
  StepNumber step;
  int64_t start_unix_ns = 0;
  uint32_t ranks = 0;
  uint32_t spans = 0;
};
std::vector<StepInGroup> summarise_steps(const SpanColumns& columns);

// The order on disk: spans of steps by (job, attempt, step, rank, start), then the others by start.
std::vector<RowRef> disk_order(std::span<const SpanColumns* const> parts);

// What makes the metadata of rows that are not on disk: no sections in it.
RowGroupMeta describe(const SpanColumns& columns);
// Rows in the order given; sections go to the end of `file`.
RowGroupMeta write_row_group(const SpanColumns& columns, std::string& file);

void encode_meta(std::string& out, const RowGroupMeta& meta);
bool decode_meta(ByteReader& in, RowGroupMeta& meta);

struct Wanted {
  bool ids = true;         // span and parent ids; they need attributes too
  bool attributes = true;  // cells; without them `shapes` and `cells` are empty
  bool all_fields = true;  // false: kind, trace state, status message, extra and arrival are left out
  // Cells of these keys alone, the others are zero; empty: all.
  std::vector<std::string_view> keys = {};
};
Result<SpanColumns> read_row_group(const SectionSource& file, const RowGroupMeta& meta, Wanted wanted = {});
// Parts of it that answer some questions alone.
Result<std::vector<TraceId>> read_traces(const SectionSource& file, const RowGroupMeta& meta);
Result<std::vector<TraceInGroup>> read_trace_summaries(const SectionSource& file, const RowGroupMeta& meta,
                                                       size_t traces);
Result<std::vector<StepInGroup>> read_steps(const SectionSource& file, const RowGroupMeta& meta);

}  // namespace lockstep::spans
