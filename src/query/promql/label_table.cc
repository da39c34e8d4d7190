#include "query/promql/label_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "query/promql/printer.h"

namespace lockstep::promql {
namespace {

constexpr size_t kChunk = 16 * 1024;
constexpr size_t kReported = 4096;  // texts are charged in pieces of this size

uint64_t xxh64(std::string_view data) {
  constexpr uint64_t k1 = 0x9E3779B185EBCA87, k2 = 0xC2B2AE3D27D4EB4F, k3 = 0x165667B19E3779F9, k4 = 0x85EBCA77C2B2AE63,
                     k5 = 0x27D4EB2F165667C5;
  const auto word = [](const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
  };
  const auto round = [](uint64_t acc, uint64_t input) { return std::rotl(acc + input * k2, 31) * k1; };
  const char* at = data.data();
  const char* end = at + data.size();
  uint64_t h;
  if (data.size() >= 32) {
    uint64_t v[4] = {k1 + k2, k2, 0, 0 - k1};
    for (; at + 32 <= end; at += 32) {
      for (int i = 0; i < 4; ++i) v[i] = round(v[i], word(at + 8 * i));
    }
    h = std::rotl(v[0], 1) + std::rotl(v[1], 7) + std::rotl(v[2], 12) + std::rotl(v[3], 18);
    for (uint64_t lane : v) h = (h ^ round(0, lane)) * k1 + k4;
  } else {
    h = k5;
  }
  h += data.size();
  for (; at + 8 <= end; at += 8) h = std::rotl(h ^ round(0, word(at)), 27) * k1 + k4;
  if (at + 4 <= end) {
    uint32_t half;
    std::memcpy(&half, at, 4);
    h = std::rotl(h ^ half * k1, 23) * k2 + k3;
    at += 4;
  }
  for (; at < end; ++at) h = std::rotl(h ^ static_cast<uint8_t>(*at) * k5, 11) * k1;
  h = (h ^ (h >> 33)) * k2;
  h = (h ^ (h >> 29)) * k3;
  return h ^ (h >> 32);
}

// Short texts, within one query: quick rather than strong. Whoever sends labels cannot choose what else is in the
// query.
uint64_t text_hash(std::string_view text) {
  uint64_t h = 0x9E3779B97F4A7C15 ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    h = (h ^ word) * 0xFF51AFD7ED558CCD;
    h ^= h >> 32;
  }
  uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  h = (h ^ word) * 0xC4CEB9FE1A85EC53;
  return h ^ (h >> 29);
}

bool among(std::span<const uint32_t> names, uint32_t name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

LabelTable::LabelTable(std::function<void(size_t bytes)> charge) : charge_(std::move(charge)), slots_(1024, 0) {
  for (std::string_view text : {"", "__name__", "__type__", "__unit__", "le"}) intern(text);
}

uint32_t LabelTable::intern(std::string_view text, bool copy) {
  const uint64_t hash = text_hash(text);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t known = slots_[slot] - 1;
    if (hashes_[known] == hash && texts_[known] == text) return known;
  }
  const auto id = static_cast<uint32_t>(texts_.size());
  unsaid_ += 32 + (copy ? text.size() + sizeof(std::string) : 0);
  if (unsaid_ >= kReported) take(std::exchange(unsaid_, 0));
  if (copy) {
    store_.emplace_back(text);
    text = store_.back();
  }
  texts_.push_back(text);
  hashes_.push_back(hash);
  slots_[slot] = id + 1;
  if (texts_.size() * 2 > slots_.size()) grow();
  return id;
}

void LabelTable::grow() {
  slots_.assign(slots_.size() * 4, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < hashes_.size(); ++id) {
    size_t slot = hashes_[id] & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(id + 1);
  }
}

LabelSymbols* LabelTable::room(size_t most) {
  if (most > chunk_left_) {
    const size_t size = std::max(most, kChunk);
    take(size * sizeof(LabelSymbols));
    chunks_.push_back(std::make_unique_for_overwrite<LabelSymbols[]>(size));
    chunk_at_ = chunks_.back().get();
    chunk_left_ = size;
  }
  return chunk_at_;
}

LabelSpan LabelTable::keep(const LabelSymbols* begin, size_t count) {
  chunk_at_ += count;
  chunk_left_ -= count;
  return {begin, count};
}

LabelSpan LabelTable::with(LabelSpan labels, uint32_t name, uint32_t value) {
  if (value == kEmpty) {
    const uint32_t names[] = {name};
    return without(labels, names);
  }
  LabelSymbols* out = room(labels.size() + 1);
  size_t count = 0;
  bool placed = false;
  const std::string_view wanted = text(name);
  for (const LabelSymbols& label : labels) {
    if (label.name == name) {
      out[count++] = {name, value};
      placed = true;
      continue;
    }
    if (!placed && text(label.name) > wanted) {
      out[count++] = {name, value};
      placed = true;
    }
    out[count++] = label;
  }
  if (!placed) out[count++] = {name, value};
  return keep(out, count);
}

LabelSpan LabelTable::without(LabelSpan labels, std::span<const uint32_t> names) {
  size_t found = 0;
  for (const LabelSymbols& label : labels) found += among(names, label.name);
  if (found == 0) return labels;
  LabelSymbols* out = room(labels.size());
  size_t count = 0;
  for (const LabelSymbols& label : labels) {
    if (!among(names, label.name)) out[count++] = label;
  }
  return keep(out, count);
}

LabelSpan LabelTable::only(LabelSpan labels, std::span<const uint32_t> names) {
  LabelSymbols* out = room(labels.size());
  size_t count = 0;
  for (const LabelSymbols& label : labels) {
    if (among(names, label.name)) out[count++] = label;
  }
  return keep(out, count);
}

LabelSpan LabelTable::without_metadata(LabelSpan labels) {
  constexpr uint32_t kNames[] = {kName, kType, kUnit};
  return without(labels, kNames);
}

uint64_t LabelTable::hash(LabelSpan labels) {
  uint64_t h = 0x9E3779B97F4A7C15 + labels.size();
  for (const LabelSymbols& label : labels) {
    h ^= (static_cast<uint64_t>(label.name) << 32 | label.value);
    h *= 0xFF51AFD7ED558CCD;
    h ^= h >> 32;
  }
  return h;
}

bool LabelTable::same(LabelSpan a, LabelSpan b) {
  if (a.size() != b.size()) return false;
  return a.empty() || a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

int LabelTable::compare(LabelSpan a, LabelSpan b) const {
  const size_t shared = std::min(a.size(), b.size());
  for (size_t i = 0; i < shared; ++i) {
    if (a[i].name != b[i].name) return text(a[i].name).compare(text(b[i].name));
    if (a[i].value != b[i].value) return text(a[i].value).compare(text(b[i].value));
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

LabelText LabelTable::text_of(LabelSpan labels) const {
  LabelText out;
  out.reserve(labels.size());
  for (const LabelSymbols& label : labels) out.emplace_back(text(label.name), text(label.value));
  return out;
}

size_t LabelTable::text_bytes(LabelSpan labels) const {
  size_t bytes = labels.size() * sizeof(LabelText::value_type);
  for (const LabelSymbols& label : labels) bytes += text(label.name).size() + text(label.value).size();
  return bytes;
}

std::string LabelTable::shown(LabelSpan labels) const {
  std::string out = "{";
  for (const LabelSymbols& label : labels) {
    if (out.size() > 1) out += ", ";
    out += std::string(text(label.name)) + "=" + in_quotes(text(label.value));
  }
  return out + "}";
}

uint64_t LabelTable::stable_hash(LabelSpan labels) const {
  std::string bytes;
  const auto put = [&](std::string_view part) {
    if (part.size() < 255) {
      bytes += static_cast<char>(part.size());
    } else {
      bytes += '\xff';
      for (int shift : {0, 8, 16}) bytes += static_cast<char>(part.size() >> shift);
    }
    bytes += part;
  };
  for (const LabelSymbols& label : labels) {
    put(text(label.name));
    put(text(label.value));
  }
  return xxh64(bytes);
}

LabelSetIds::LabelSetIds(size_t expected) : slots_(std::bit_ceil(std::max<size_t>(16, expected * 2)), 0) {}

uint32_t LabelSetIds::id(LabelSpan labels) {
  const uint64_t hash = LabelTable::hash(labels);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) {
      sets_.push_back(labels);
      hashes_.push_back(hash);
      slots_[slot] = static_cast<uint32_t>(sets_.size());
      if (sets_.size() * 2 > slots_.size()) grow();
      return static_cast<uint32_t>(sets_.size() - 1);
    }
    const uint32_t id = slots_[slot] - 1;
    if (hashes_[id] == hash && LabelTable::same(sets_[id], labels)) return id;
  }
}

void LabelSetIds::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < hashes_.size(); ++id) {
    size_t slot = hashes_[id] & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(id + 1);
  }
}

}  // namespace lockstep::promql
