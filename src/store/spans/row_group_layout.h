// What writing and reading a row group have in common: for row_group.cc, row_group_writer.cc and row_group_reader.cc
// alone.
//
// How columns become small. Spans of steps lie rank after rank within their step, so that
//  - source, trace, shape and name repeat or follow a pattern that zstd sees from rank to rank;
//  - starts are differences within the rank's step, whose own start is apart (no jump back in the column);
//  - the ids of our own spans follow from trace, rank and place: the place alone is kept, after checking that it gives
//    exactly this id; ids that it does not give, and those of other services, are kept as they are.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "store/spans/row_group.h"

namespace lockstep::spans::layout {

// Beyond these (key, type) pairs, by frequency, cells of all others share one column.
inline constexpr size_t kCellColumnsMax = 200;
inline constexpr int64_t kNoPlace = -1;
enum ParentKind : int64_t { kNoParent = 0, kStepIsParent = 1, kOtherParent = 2 };

inline bool is_step_span(const SpanColumns& columns, const SpanRow& row) {
  return columns.shapes[row.shape].own[static_cast<size_t>(OwnKey::kKind)] >= 0 &&
         columns.shapes[row.shape].own[static_cast<size_t>(OwnKey::kStep)] >= 0 &&
         columns.sources[row.source]->identity.has_value();
}

// What a span of a step is, by the text of its kind: looked up once for each text, not for each row.
enum class Place : uint8_t { kNone, kStep, kPhase, kOp };
class Kinds {
 public:
  explicit Kinds(const SpanColumns& columns) : columns_(columns), of_text_(columns.texts.size(), Place::kNone) {
    for (uint32_t id = 1; id < columns.texts.size(); ++id) {
      std::string_view kind = columns.texts[id];
      of_text_[id] = kind == "collective" || kind == "p2p" ? Place::kOp
                     : kind == "phase"                     ? Place::kPhase
                     : kind == "step"                      ? Place::kStep
                                                           : Place::kNone;
    }
  }
  Place of(const SpanRow& row) const {
    const int64_t* kind = columns_.own(row, OwnKey::kKind);
    return kind == nullptr ? Place::kNone : of_text_[static_cast<size_t>(*kind)];
  }
  // Whether part_of() has something to say of it.
  bool is_part(const SpanRow& row) const {
    const Place place = of(row);
    if (place == Place::kNone || columns_.own_int(row, OwnKey::kStep, -1) < 0 ||
        columns_.end_unix_ns(row) < row.start_unix_ns)
      return false;
    if (place != Place::kPhase) return true;
    std::string_view phase = columns_.own_text(row, OwnKey::kPhase);
    for (size_t i = 0; i < kPhaseCount; ++i) {
      if (phase == to_text(static_cast<Phase>(i))) return true;
    }
    return false;
  }

 private:
  const SpanColumns& columns_;
  std::vector<Place> of_text_;
};

// Compared in one go: in places of every row.
inline uint64_t number_of(const SpanId& id) {
  uint64_t number;
  std::memcpy(&number, id.data(), sizeof number);
  return number;
}
inline bool same(const SpanId& a, const SpanId& b) {
  return number_of(a) == number_of(b);
}

inline SpanId id_at(const StepSpanIds& ids, Place place, size_t index) {
  switch (place) {
    case Place::kPhase:
      return ids.phase(index);
    case Place::kOp:
      return ids.op(index);
    default:
      return ids.step();
  }
}

// A step of a rank: neighbours with one trace and one source.
struct Group {
  size_t begin;
  size_t end;
};
template <typename Visit>
void each_group(const std::vector<SpanRow>& rows, const Visit& visit) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end].trace == rows[begin].trace && rows[end].source == rows[begin].source) ++end;
    visit(Group{begin, end});
    begin = end;
  }
}

// Which cells go to columns of their own.
struct CellColumns {
  std::vector<SpanShape::Key> keys;
  static constexpr int32_t kRest = -1;
  // For each shape, for each cell: which column.
  std::vector<std::vector<int32_t>> of_shapes;

  void assign(const std::vector<SpanShape>& shapes) {
    std::map<std::pair<uint32_t, CellType>, int32_t> index;
    for (size_t i = 0; i < keys.size(); ++i) index[{keys[i].key, keys[i].type}] = static_cast<int32_t>(i);
    of_shapes.clear();
    for (const SpanShape& shape : shapes) {
      std::vector<int32_t>& of_shape = of_shapes.emplace_back();
      for (const SpanShape::Key& key : shape.keys) {
        auto found = index.find({key.key, key.type});
        of_shape.push_back(found == index.end() ? kRest : found->second);
      }
    }
  }
};

}  // namespace lockstep::spans::layout
