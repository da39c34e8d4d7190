// A communicator in trouble, out of the event that tells of it. The product shows that event to people and reads none of
// it back.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "model/events.h"

namespace lockstep::testing {

// What is of another type ends the test by an exception.
inline CommRas comm_ras_of(const LogRecord& record) {
  const auto list = [&](const char* key) {
    const Value* const value = find(record.attributes, key);
    return value == nullptr ? ValueList() : std::get<ValueList>(value->data);
  };
  const auto number = [](const ValueList& row, size_t column) { return std::get<int64_t>(row.at(column).data); };
  const auto text = [](const ValueList& row, size_t column) { return std::get<std::string>(row.at(column).data); };
  CommRas ras{.comm_id = CommId{static_cast<uint64_t>(find_int(record.attributes, "comm_id"))},
              .size = static_cast<int32_t>(find_int(record.attributes, "size")),
              .missing_count = find_int(record.attributes, "missing_count")};
  for (const Value& value : list("missing")) {
    const auto& row = std::get<ValueList>(value.data);
    ras.missing.push_back({.rank_in_comm = static_cast<int32_t>(number(row, 0)),
                           .host = text(row, 4),
                           .pid = number(row, 1),
                           .unresponsive = number(row, 2) != 0,
                           .considered_dead = number(row, 3) != 0});
  }
  for (const Value& value : list("behind")) {
    const auto& row = std::get<ValueList>(value.data);
    RasBehind function{text(row, 0), number(row, 1), number(row, 2), number(row, 3), {}};
    for (size_t i = 4; i < row.size(); ++i) function.ranks_in_comm.push_back(static_cast<int32_t>(number(row, i)));
    ras.behind.push_back(std::move(function));
  }
  return ras;
}

}  // namespace lockstep::testing
