#include "store/logs/log_search.h"

#include <algorithm>

namespace lockstep::logs {
namespace {

size_t bytes_of(const LogEntry& entry) {
  size_t bytes = sizeof entry;
  for (const std::string* text : {&entry.job, &entry.host, &entry.service, &entry.event, &entry.gpu,
                                  &entry.severity_text, &entry.body, &entry.attributes, &entry.resource, &entry.trace})
    bytes += text->size();
  return bytes;
}

}  // namespace

// ~ turns the order round, and knows no overflow.
LogPlace LogSearch::place_of(const LogRow& row) const {
  if (follows()) return {row.arrival_unix_ns, 0};
  return goes_back() ? LogPlace{~row.time_unix_ns, ~row.arrival_unix_ns}
                     : LogPlace{row.time_unix_ns, row.arrival_unix_ns};
}

LogPlace LogSearch::place_before(const GroupMeta& group) const {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  if (follows()) return {group.arrival.least, kLeast};
  return {goes_back() ? ~group.time.most : group.time.least, kLeast};
}

bool LogSearch::wants(const LogPlace& place) const {
  if (border_ && place >= *border_) return false;
  // One more than the limit says that there are more.
  return found_.size() <= query_.limit || place < found_.front().place;
}

void LogSearch::stop_before(const GroupMeta& group) {
  page_.whole = false;
  looked_through_ = std::min(looked_through_, std::max<int64_t>(group.arrival.least, 1) - 1);
}

bool LogSearch::goes_on(const GroupMeta& group) {
  if (!wants(place_before(group)) || page_.gave_up) return false;
  page_.gave_up = query_.give_up && query_.give_up();
  // Who follows has to come further by each answer.
  const bool may_stop = !follows() || (group.arrival.least > query_.after && group.arrival.least - 1 > query_.after);
  if (!page_.gave_up && (page_.rows_looked_at < query_.rows_max || !may_stop)) return true;
  stop_before(group);
  return false;
}

bool LogSearch::choose(const LogColumns& index, bool is_by_time) {
  page_.rows_looked_at += index.rows.size();
  chosen_.clear();
  is_by_time_ = is_by_time && !follows();
  if (!matcher_.begin(index)) return false;
  for (size_t n = 0; n < index.rows.size(); ++n) {
    const size_t at = goes_back() ? index.rows.size() - 1 - n : n;
    const LogRow& row = index.rows[at];
    if (!wants(place_of(row))) {
      if (is_by_time_) break;
      continue;
    }
    if (matcher_.wants(row)) chosen_.push_back(static_cast<uint32_t>(at));
  }
  return !chosen_.empty();
}

void LogSearch::take(const LogColumns& columns, const GroupMeta& group) {
  size_t looked = 0;
  for (const uint32_t at : chosen_) {
    if (++looked % kLogRowsBetweenLooks == 0 && query_.give_up && query_.give_up()) {
      page_.gave_up = true;
      return stop_before(group);
    }
    const LogRow& row = columns.rows[at];
    const LogPlace place = place_of(row);
    if (wants(place)) {
      if (matcher_.shows(columns, row)) add({place, columns.entry(row)});
    } else if (is_by_time_) {
      return;
    }
  }
}

void LogSearch::add(Found found) {
  const auto by_place = [](const Found& a, const Found& b) { return a.place < b.place; };
  found_bytes_ += bytes_of(found.entry);
  found_.push_back(std::move(found));
  std::push_heap(found_.begin(), found_.end(), by_place);
  while (found_.size() > query_.limit + 1 || (found_bytes_ > query_.bytes_max && found_.size() > 1)) {
    std::pop_heap(found_.begin(), found_.end(), by_place);
    border_ = found_.back().place;
    found_bytes_ -= bytes_of(found_.back().entry);
    found_.pop_back();
  }
}

LogPage LogSearch::page(int64_t arrival_last) {
  std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.place < b.place; });
  if (found_.size() > query_.limit) {
    border_ = found_.back().place;
    found_.pop_back();
  }
  page_.more = border_.has_value();
  page_.after = arrival_last;
  if (follows()) {
    page_.after = std::min(arrival_last, looked_through_);
    // Records of one request have the same arrival in files of before each had its own: of these, the rest is lost.
    if (border_)
      page_.after = std::min(page_.after, border_->first - 1 > query_.after ? border_->first - 1 : border_->first);
    page_.after = std::max(page_.after, query_.after);
    std::erase_if(found_, [&](const Found& found) { return found.place.first > page_.after; });
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) {
      const int64_t a_ns = a.entry.time_unix_ns, b_ns = b.entry.time_unix_ns;
      return query_.oldest_first ? a_ns < b_ns : a_ns > b_ns;
    });
  }
  page_.after = std::max<int64_t>(page_.after, 1);
  for (Found& found : found_) {
    page_.bytes += bytes_of(found.entry);
    page_.entries.push_back(std::move(found.entry));
  }
  return std::move(page_);
}

}  // namespace lockstep::logs
