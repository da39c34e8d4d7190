#include "profile/read/trace_events.h"

#include <cstring>

#include "base/characters.h"

namespace lockstep::profile {
namespace {

// Names are looked up once per event, so this is most of what interning costs; equal texts are compared in full.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  const auto mix = [&hash](uint64_t word) {
    const auto wide = static_cast<unsigned __int128>(hash ^ word) * 0xa0761d6478bd642fULL;
    hash = static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  };
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, at, left);
  mix(tail ^ 0xe7037ed1a0b428dbULL);
  return hash | 1;  // 0 is a free slot
}

// Four hexadecimal digits; -1: they are none.
int32_t hex4(std::string_view raw, size_t at) {
  if (at + 4 > raw.size()) return -1;
  int32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = hex_digit(raw[i]);
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

}  // namespace

const char* to_text(EventKind kind) {
  switch (kind) {
    case EventKind::kCpuOp:
      return "cpu_op";
    case EventKind::kAnnotation:
      return "user_annotation";
    case EventKind::kGpuAnnotation:
      return "gpu_user_annotation";
    case EventKind::kKernel:
      return "kernel";
    case EventKind::kMemcpy:
      return "gpu_memcpy";
    case EventKind::kMemset:
      return "gpu_memset";
    case EventKind::kRuntime:
      return "cuda_runtime";
    case EventKind::kDriver:
      return "cuda_driver";
    case EventKind::kSync:
      return "cuda_sync";
    case EventKind::kOverhead:
      return "overhead";
    case EventKind::kPython:
      return "python_function";
    case EventKind::kCounter:
      return "counter";
    case EventKind::kInstant:
      return "instant";
    case EventKind::kOther:
      return "other";
  }
  return "other";
}

std::string unescaped(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      out.push_back(raw[i]);
      continue;
    }
    const char c = raw[++i];
    switch (c) {
      case 'n':
        out.push_back('\n');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'u': {
        int32_t code = hex4(raw, i + 1);
        if (code < 0) {
          out += "\\u";
          break;
        }
        i += 4;
        if (code >= 0xD800 && code < 0xDC00 && i + 2 < raw.size() && raw[i + 1] == '\\' && raw[i + 2] == 'u') {
          const int32_t low = hex4(raw, i + 3);
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
          }
        }
        append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : static_cast<uint32_t>(code));
        break;
      }
      default:
        out.push_back(c);  // \" \\ \/ and what is no escape
    }
  }
  return out;
}

TextTable::TextTable() : slots_(1024) {
  texts_.emplace_back();
}

void TextTable::grow() {
  std::vector<Slot> larger(slots_.size() * 2);
  for (const Slot& slot : slots_) {
    if (slot.hash == 0) continue;
    size_t at = slot.hash & (larger.size() - 1);
    while (larger[at].hash != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = slot;
  }
  slots_ = std::move(larger);
}

uint32_t TextTable::intern(std::string_view key) {
  if (key.empty()) return 0;
  const uint64_t hash = hash_of(key);
  size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].hash != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && texts_[slots_[at].id] == key) return slots_[at].id;
  }
  const auto id = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(key);
  bytes_ += key.size() + sizeof(std::string);
  slots_[at] = {hash, id};
  if (texts_.size() * 2 > slots_.size()) grow();
  return id;
}

uint32_t TextTable::intern_json(std::string_view raw) {
  if (raw.empty()) return 0;
  return std::memchr(raw.data(), '\\', raw.size()) == nullptr ? intern(raw) : intern(unescaped(raw));
}

uint32_t TextTable::find(std::string_view text) const {
  if (text.empty()) return 0;
  const uint64_t hash = hash_of(text);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].hash != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && texts_[slots_[at].id] == text) return slots_[at].id;
  }
  return 0;
}

const CollectiveDetail* TraceEvents::collective(size_t event) const {
  uint32_t at = kNoDetail;
  if (const KernelDetail* found = kernel(event)) at = found->collective;
  if (const OpDetail* found = op(event)) at = found->collective;
  return at == kNoDetail ? nullptr : &collectives[at];
}

uint64_t TraceEvents::memory_bytes() const {
  return start_ns.capacity() *
             (3 * sizeof(int64_t) + 2 * sizeof(uint64_t) + 3 * sizeof(uint32_t) + sizeof(int32_t) + 1) +
         kernels.capacity() * sizeof(KernelDetail) + ops.capacity() * sizeof(OpDetail) +
         syncs.capacity() * sizeof(SyncDetail) + collectives.capacity() * sizeof(CollectiveDetail) + texts.bytes();
}

}  // namespace lockstep::profile
