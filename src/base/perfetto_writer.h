// Packets of a Perfetto trace: processes, tracks, slices, arrows and notes, with interned strings. Written by hand over
// base/protobuf_wire.h: no object per event.
//
// Everything that is written goes to the end of one string; between two calls of done(), process() or track() its owner
// may hand on what is there and clear it.
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/protobuf_wire.h"

namespace lockstep::perfetto {

using protobuf::WireWriter;

// Field numbers of Perfetto's messages, as its public schema has them.
namespace packet {
inline constexpr uint32_t kClockSnapshot = 6, kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                          kSequenceFlags = 13, kTrackDescriptor = 60, kFirstOnSequence = 87;
inline constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace descriptor {
inline constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kChildOrdering = 11, kSiblingOrder = 12;
inline constexpr uint64_t kExplicitOrder = 3;
}  // namespace descriptor
namespace event {
inline constexpr uint32_t kCategoryIds = 3, kAnnotations = 4, kType = 9, kNameId = 10, kTrack = 11, kFlows = 47,
                          kEndingFlows = 48;
enum Type : uint64_t { kBegin = 1, kEnd = 2, kInstant = 3 };
}  // namespace event
namespace interned {
inline constexpr uint32_t kCategories = 1, kNames = 2, kAnnotationNames = 3, kAnnotationTexts = 29;
}
namespace annotation {
inline constexpr uint32_t kNameId = 1, kBool = 2, kInt = 4, kTextId = 17;
}
inline constexpr uint64_t kBoottime = 6, kRealtime = 1;

// Perfetto takes process 0 for the idle task, and shows the number beside the name: the rank can be read in it.
inline constexpr int64_t kFirstPid = 1'000'000;

// Strings that events refer to by number.
class Interned {
 public:
  explicit Interned(uint32_t field) : field_(field) {}
  // Appends the entry to `fresh` where it is new.
  uint64_t id(std::string_view text, std::string& fresh) {
    scratch_.assign(text);
    auto [found, is_new] = ids_.try_emplace(scratch_, ids_.size() + 1);
    if (is_new) {
      WireWriter writer(fresh);
      const size_t began = writer.begin(field_);
      writer.varint(1, found->second);
      writer.bytes(2, text);
      writer.end(began);
    }
    return found->second;
  }

 private:
  uint32_t field_;
  std::string scratch_;
  std::unordered_map<std::string, uint64_t> ids_;
};

// One event, built before its packet, because the strings it is the first to use stand before it there.
class TraceWriter {
 public:
  explicit TraceWriter(std::string& out) : writer_(out) {}

  // The first packet. clock_at: a moment on which trace time and wall time agree; 0: none is told.
  void begin(int64_t clock_at) {
    const size_t began = writer_.begin(1);
    writer_.varint(packet::kSequenceId, 1);
    writer_.varint(packet::kSequenceFlags, packet::kStateCleared | packet::kNeedsState);
    writer_.varint(packet::kFirstOnSequence, 1);
    writer_.end(began);
    if (clock_at <= 0) return;
    const size_t snapshot = writer_.begin(1);
    const size_t clocks = writer_.begin(packet::kClockSnapshot);
    for (uint64_t clock : {kBoottime, kRealtime}) {
      const size_t one = writer_.begin(1);
      writer_.varint(1, clock);
      writer_.varint(2, static_cast<uint64_t>(clock_at));
      writer_.end(one);
    }
    writer_.varint(2, kBoottime);  // primary_trace_clock
    writer_.end(clocks);
    writer_.varint(packet::kSequenceId, 2);
    writer_.end(snapshot);
  }

  void process(uint64_t uuid, int64_t pid, const std::string& name) {
    const size_t began = begin_descriptor(uuid);
    const size_t process = writer_.begin(descriptor::kProcess);
    writer_.varint(1, static_cast<uint64_t>(pid));
    writer_.bytes(6, name);
    writer_.end(process);
    writer_.varint(descriptor::kChildOrdering, descriptor::kExplicitOrder);
    end_descriptor(began);
  }
  void track(uint64_t uuid, uint64_t parent, std::string_view name, uint64_t order) {
    const size_t began = begin_descriptor(uuid);
    writer_.bytes(descriptor::kName, name);
    writer_.varint(descriptor::kParent, parent);
    writer_.varint(descriptor::kSiblingOrder, order);
    end_descriptor(began);
  }

  void slice_begin(uint64_t track, std::string_view category, std::string_view name) {
    begin_event(event::kBegin, track, category, name);
  }
  void slice_end(uint64_t track) {
    event_.clear();
    fresh_.clear();
    WireWriter event(event_);
    event.varint(event::kType, event::kEnd);
    event.varint(event::kTrack, track);
  }
  void instant(uint64_t track, std::string_view category, std::string_view name) {
    begin_event(event::kInstant, track, category, name);
  }
  void flow(uint64_t id, bool ends = false) {
    WireWriter(event_).fixed64(ends ? event::kEndingFlows : event::kFlows, id);
  }
  void note(std::string_view name, int64_t value) {
    WireWriter event(event_);
    const size_t began = begin_note(event, name);
    event.varint(annotation::kInt, static_cast<uint64_t>(value));
    event.end(began);
  }
  void flag(std::string_view name) {
    WireWriter event(event_);
    const size_t began = begin_note(event, name);
    event.varint(annotation::kBool, 1);
    event.end(began);
  }
  void note(std::string_view name, std::string_view text) {
    const uint64_t text_id = texts_.id(text, fresh_);
    WireWriter event(event_);
    const size_t began = begin_note(event, name);
    event.varint(annotation::kTextId, text_id);
    event.end(began);
  }
  // Writes what slice_begin(), slice_end() or instant() has begun.
  void done(int64_t time_ns) {
    const size_t began = writer_.begin(1);
    writer_.varint(packet::kTimestamp, static_cast<uint64_t>(std::max<int64_t>(time_ns, 0)));
    writer_.varint(packet::kSequenceId, 1);
    writer_.bytes(packet::kTrackEvent, event_);
    if (!fresh_.empty()) writer_.bytes(packet::kInternedData, fresh_);
    writer_.varint(packet::kSequenceFlags, packet::kNeedsState);
    writer_.end(began);
  }

 private:
  void begin_event(event::Type type, uint64_t track, std::string_view category, std::string_view name) {
    event_.clear();
    fresh_.clear();
    const uint64_t category_id = categories_.id(category, fresh_);
    const uint64_t name_id = names_.id(name, fresh_);
    WireWriter event(event_);
    event.varint(event::kCategoryIds, category_id);
    event.varint(event::kType, type);
    event.varint(event::kNameId, name_id);
    event.varint(event::kTrack, track);
  }
  size_t begin_note(WireWriter& event, std::string_view name) {
    const uint64_t name_id = note_names_.id(name, fresh_);
    const size_t began = event.begin(event::kAnnotations);
    event.varint(annotation::kNameId, name_id);
    return began;
  }
  size_t begin_descriptor(uint64_t uuid) {
    packet_began_ = writer_.begin(1);
    writer_.varint(packet::kSequenceId, 1);
    const size_t began = writer_.begin(packet::kTrackDescriptor);
    writer_.varint(descriptor::kUuid, uuid);
    return began;
  }
  void end_descriptor(size_t began) {
    writer_.end(began);
    writer_.end(packet_began_);
  }

  WireWriter writer_;
  std::string event_;
  std::string fresh_;  // interned strings this event is the first to use
  size_t packet_began_ = 0;
  Interned categories_{interned::kCategories};
  Interned names_{interned::kNames};
  Interned note_names_{interned::kAnnotationNames};
  Interned texts_{interned::kAnnotationTexts};
};

// Operations that overlap get lanes of their own; of the free ones the first is taken.
class Lanes {
 public:
  size_t take(int64_t start, int64_t end) {
    while (!busy_.empty() && busy_.top().first <= start) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    size_t lane = count_;
    if (free_.empty()) {
      ++count_;
    } else {
      lane = free_.top();
      free_.pop();
    }
    // Of no length: the lane is taken all the same until time has moved on.
    busy_.emplace(std::max(end, start == std::numeric_limits<int64_t>::max() ? start : start + 1), lane);
    return lane;
  }
  size_t count() const { return count_; }

 private:
  using Busy = std::pair<int64_t, size_t>;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> free_;
  size_t count_ = 0;
};

}  // namespace lockstep::perfetto
