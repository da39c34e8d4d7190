// Many spans as numbers: a row for each, a cell for each attribute, and tables of what repeats (texts, traces, sources,
// shapes). What a receiver decodes a request into, what the head of the span store is made of, and what a row group of
// a file is read back into; every query runs on this.
//
// A *shape* is the list of a span's attribute keys with the types of their values: spans of one kind share it, and a
// span is then its shape and its cells. A cell is an integer, a flag, the bits of a double, or the number of a text
// (kOther: the text is the value encoded by value_codec.h). A *source* is a resource with a scope.
//
// Every span comes back as it was given: to_span().
// Thread rule: Confined while it is filled, Immutable once it is shared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/events.h"
#include "model/span_view.h"
#include "model/step_detail.h"
#include "model/telemetry.h"
#include "store/columns/text_table.h"

namespace lockstep::spans {

using columns::TextTable;

// Attributes of our own spans (model/step_detail.h), found without comparing texts. As find_int() and its like do it:
// of the first attribute with that key, and only where its value has the type it should have.
enum class OwnKey : uint8_t {
  kKind,
  kStep,
  kCommId,
  kCommSize,
  kRankInComm,
  kSeq,
  kOrdinal,
  kBytes,
  kDatatype,
  kQueueNs,
  kPeer,
  kUntimed,
  kPhase,
  kSampled,
  kInferred,
  kLeftOut,
};
inline constexpr size_t kOwnKeys = 16;

struct SpanSource {
  std::shared_ptr<const Attributes> resource;
  std::string scope_name;
  std::string scope_version;
  std::string key;  // all of it as bytes: two sources are the same where this is
  // Read from the resource.
  std::string service;
  std::string job_id;
  int64_t attempt = 0;
  std::optional<Identity> identity;  // where it names a rank
};
std::shared_ptr<const SpanSource> make_source(Attributes resource, std::string scope_name, std::string scope_version);

struct SpanShape {
  struct Key {
    uint32_t key;  // text
    CellType type;
    bool operator==(const Key&) const = default;
  };
  std::vector<Key> keys;
  std::array<int32_t, kOwnKeys> own;  // which cell; -1: none
};

struct SpanRow {
  SpanId span_id;
  SpanId parent_span_id;
  int64_t start_unix_ns;
  int64_t duration_ns;  // end = start + duration, wrapping
  uint32_t source;
  uint32_t trace;
  uint32_t shape;
  uint32_t name;     // text
  uint32_t cells;    // where its first cell is
  uint32_t arrival;  // order in which they came
  int32_t kind;
  int32_t status_code;
  uint32_t trace_state;     // text
  uint32_t status_message;  // text
  uint32_t extra;           // text: encode_extra()
};

struct SpanColumns {
  TextTable texts;
  std::vector<TraceId> traces;
  std::vector<std::shared_ptr<const SpanSource>> sources;
  std::vector<SpanShape> shapes;
  std::vector<SpanRow> rows;
  std::vector<int64_t> cells;

  size_t size() const { return rows.size(); }
  size_t memory_bytes() const;

  int64_t end_unix_ns(const SpanRow& row) const {
    return static_cast<int64_t>(static_cast<uint64_t>(row.start_unix_ns) + static_cast<uint64_t>(row.duration_ns));
  }
  // Cells of our own keys: nullptr where the span has none.
  const int64_t* own(const SpanRow& row, OwnKey key) const {
    const int32_t at = shapes[row.shape].own[static_cast<size_t>(key)];
    return at < 0 ? nullptr : &cells[row.cells + static_cast<uint32_t>(at)];
  }
  int64_t own_int(const SpanRow& row, OwnKey key, int64_t fallback) const {
    const int64_t* cell = own(row, key);
    return cell ? *cell : fallback;
  }
  std::string_view own_text(const SpanRow& row, OwnKey key) const {
    const int64_t* cell = own(row, key);
    return cell ? texts[static_cast<uint32_t>(*cell)] : std::string_view();
  }

  Value value_of(CellType type, int64_t cell) const;
  Span to_span(const SpanRow& row) const;
  // The same as part_of(to_span(row)), without making the span where it can be told from the cells.
  std::optional<StepSpanPart> part_of(const SpanRow& row) const;

  // Leaves only the rows that `keep` says; dictionaries stay.
  void keep_rows(const std::vector<bool>& keep);
};

// Spans back as groups of one source each, in the order they came.
Batch to_batch(const SpanColumns& columns);

// Finds a number by a hash; what is found is compared, so that a hash is never trusted alone.
class IdIndex {
 public:
  // The id for which `same` holds, else what `make` gives.
  template <typename Same, typename Make>
  uint32_t find_or(uint64_t hash, const Same& same, const Make& make) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.id == kFree) {
        ++count_;
        const uint32_t id = make();
        slot = {hash, id};
        return id;
      }
      if (slot.hash == hash && same(slot.id)) return slot.id;
    }
  }

 private:
  static constexpr uint32_t kFree = ~uint32_t{0};
  struct Slot {
    uint64_t hash;
    uint32_t id;
  };
  void grow();
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Fills columns. begin_source() comes before the spans that belong to it.
class SpanColumnsBuilder {
 public:
  void reserve(size_t rows, size_t cells) {
    columns_.rows.reserve(rows);
    columns_.cells.reserve(cells);
  }
  void begin_source(Attributes resource, std::string scope_name, std::string scope_version);
  void begin_source(std::shared_ptr<const SpanSource> source);
  void add(const SpanView& span);
  void add(const Span& span);

  size_t size() const { return columns_.rows.size(); }
  // The latest start or end, as unsigned as OTLP has it: whether any span is ahead of its time.
  uint64_t latest_unix_ns() const { return latest_; }
  SpanColumns take() { return std::move(columns_); }

 private:
  uint32_t trace_of(const TraceId& id);
  uint32_t shape_of(std::span<const AttributeView> attributes);
  bool is_shape(uint32_t shape, std::span<const AttributeView> attributes) const;

  SpanColumns columns_;
  uint64_t latest_ = 0;
  uint32_t source_ = 0;
  uint32_t last_trace_ = 0;
  uint32_t last_shape_ = 0;
  std::vector<uint32_t> last_cells_;  // of the last span of each shape
  IdIndex trace_index_;
  IdIndex shape_index_;
  IdIndex source_index_;
  std::vector<AttributeView> views_;  // of add(Span), kept for its memory
  std::vector<std::string> encoded_;
};

// A row of one of several columns.
struct RowRef {
  uint32_t part;
  uint32_t row;
};
// New columns of these rows in this order, with tables that hold only what they use. `arrivals` is added to the rows'
// arrival, by part.
SpanColumns gather(std::span<const SpanColumns* const> parts, std::span<const RowRef> order,
                   std::span<const uint32_t> arrivals);

// Works out a shape's `own` from its keys.
void find_own_keys(SpanShape& shape, const TextTable& texts);

}  // namespace lockstep::spans
