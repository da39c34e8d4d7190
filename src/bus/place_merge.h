// Puts records of several places (topics and their partitions) into the order of their time, without keeping more of a
// place than one small batch: a job's metrics and steps are in different topics, and diagnosis that reads an hour of steps
// before the metrics of that hour would judge without them.
//
// A place that has nothing here and is not at its end holds up the others: what comes next there may be older.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bus/telemetry_bus.h"

namespace lockstep {

class PlaceMerge {
 public:
  // From now on these places, of which nothing is known yet. What was kept is forgotten.
  void reset(const std::set<BusPlace>& places) {
    places_.clear();
    for (const BusPlace& place : places) places_[place];
  }
  // is_last: nothing stands behind it, as far as is known.
  void add(TakenRecord record, bool is_last) {
    auto found = places_.find(record.place);
    if (found == places_.end()) return;  // taken away meanwhile: whoever has it now reads it
    found->second.at_end = is_last;
    found->second.records.push_back(std::move(record));
  }
  void at_end(const BusPlace& place) {
    if (auto found = places_.find(place); found != places_.end()) found->second.at_end = true;
  }
  bool needs_more(const BusPlace& place) const {
    auto found = places_.find(place);
    return found != places_.end() && found->second.records.empty();
  }
  // The oldest there is. only_if_sure: nothing, where an older one may come.
  std::optional<TakenRecord> next(bool only_if_sure) {
    Place* oldest = nullptr;
    for (auto& [name, place] : places_) {
      if (place.records.empty()) {
        if (!place.at_end && only_if_sure) return std::nullopt;
        continue;
      }
      if (oldest == nullptr || place.records.front().received_unix_ns < oldest->records.front().received_unix_ns)
        oldest = &place;
    }
    if (oldest == nullptr) return std::nullopt;
    std::optional<TakenRecord> record(std::move(oldest->records.front()));
    oldest->records.pop_front();
    return record;
  }
  bool is_empty() const {
    for (const auto& [name, place] : places_) {
      if (!place.records.empty()) return false;
    }
    return true;
  }
  // Nothing is here, and nothing was behind it.
  bool is_at_end() const {
    for (const auto& [name, place] : places_) {
      if (!place.records.empty() || !place.at_end) return false;
    }
    return true;
  }

 private:
  struct Place {
    std::deque<TakenRecord> records;
    bool at_end = false;
  };
  std::map<BusPlace, Place> places_;
};

}  // namespace lockstep
