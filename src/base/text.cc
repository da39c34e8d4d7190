#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "base/characters.h"

namespace lockstep {

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  va_list again;
  va_copy(again, arguments);
  int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (true) {
    size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) {
      parts.push_back(text.substr(begin));
      return parts;
    }
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r' || text.front() == '\n'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

namespace {
template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  return parse_whole<int64_t>(text);
}
std::optional<uint64_t> parse_uint(std::string_view text) {
  return parse_whole<uint64_t>(text);
}
std::optional<double> parse_double(std::string_view text) {
  return parse_whole<double>(text);
}

std::string shortest_text(double number) {
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  if (std::isnan(number)) return "NaN";
  char digits[40];
  auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  (void)error;
  return std::string(digits, end);
}

std::string with_thousands(int64_t value) {
  const std::string digits = format("%lld", static_cast<long long>(value));
  const size_t sign = value < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string human_duration(double nanoseconds) {
  double ns = std::fabs(nanoseconds);
  const char* sign = nanoseconds < 0 ? "-" : "";
  auto with = [&](double value, const char* unit) {
    return format(value < 9.95 ? "%s%.1f %s" : "%s%.0f %s", sign, value, unit);
  };
  // Half a unit early: 999.9 us is 1.0 ms, not 1000 us.
  if (ns < 999.5) return format("%s%.0f ns", sign, ns);
  if (ns < 999.5e3) return with(ns / 1e3, "us");
  if (ns < 999.5e6) return with(ns / 1e6, "ms");
  if (ns < 120e9) return with(ns / 1e9, "s");
  if (ns < 7200e9) return with(ns / 60e9, "min");
  return with(ns / 3600e9, "h");
}

std::string human_bytes(double bytes) {
  static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return format(unit > 0 && std::fabs(bytes) < 9.95 ? "%.1f %s" : "%.0f %s", bytes, kUnits[unit]);
}

std::string human_numbers(std::vector<int> numbers, size_t most) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<std::string> parts;
  size_t left_out = 0;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (parts.size() >= most) {
      left_out += end - i;
    } else if (end - i >= 3) {
      parts.push_back(format("%d-%d", numbers[i], numbers[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) {
        if (parts.size() < most) {
          parts.push_back(std::to_string(numbers[k]));
        } else {
          ++left_out;
        }
      }
    }
    i = end;
  }
  if (left_out > 0) parts.push_back(format("%zu more", left_out));
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

namespace {

// Bytes at `at` that are a control character: of ASCII, or of the set that Unicode has besides (U+0080 to U+009F), which
// terminals obey as well. 0: none is there.
size_t control_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (byte(at) < 0x20 || byte(at) == 0x7F) return 1;
  return byte(at) == 0xC2 && byte(at + 1) >= 0x80 && byte(at + 1) < 0xA0 ? 2 : 0;
}

}  // namespace

bool has_control_characters(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (control_bytes(text, at) > 0) return true;
  }
  return false;
}

std::string as_one_line(std::string_view text) {
  std::string line(text);
  for (size_t at = 0; at < line.size(); ++at) {
    for (size_t left = control_bytes(line, at); left > 0; --left) line[at + left - 1] = ' ';
  }
  return line;
}

size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned first = byte(at);
  size_t length = first < 0x80                    ? 1
                  : first >= 0xC2 && first < 0xE0 ? 2
                  : first >= 0xE0 && first < 0xF0 ? 3
                  : first >= 0xF0 && first < 0xF5 ? 4
                                                  : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  // Surrogates, overlong three and four byte forms, and what is beyond Unicode.
  if (length == 3 && ((first == 0xE0 && byte(at + 1) < 0xA0) || (first == 0xED && byte(at + 1) >= 0xA0))) return 0;
  if (length == 4 && ((first == 0xF0 && byte(at + 1) < 0x90) || (first == 0xF4 && byte(at + 1) >= 0x90))) return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string_view utf8_prefix(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  // A character has at most three bytes behind its first; where more stand in a row it is no UTF-8, and cut anywhere.
  for (size_t end = bytes_max; bytes_max - end <= 3; --end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80) return text.substr(0, end);
    if (end == 0) break;
  }
  return text.substr(0, bytes_max);
}

std::string url_part(std::string_view text) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                 c == '.' || c == '~';
    out += plain ? std::string(1, c) : format("%%%02X", static_cast<unsigned char>(c));
  }
  return out;
}

std::optional<std::string> from_url_part(std::string_view part) {
  std::string text;
  text.reserve(part.size());
  for (size_t at = 0; at < part.size(); ++at) {
    if (part[at] != '%') {
      text += part[at];
      continue;
    }
    const int high = at + 2 < part.size() ? hex_digit(part[at + 1]) : -1;
    const int low = high >= 0 ? hex_digit(part[at + 2]) : -1;
    if (low < 0) return std::nullopt;
    text += static_cast<char>(high << 4 | low);
    at += 2;
  }
  return text;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@%+,=-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::optional<std::string> did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        size_t above = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1)});
        diagonal = above;
      }
    }
    if (row.back() < best_distance && row.back() < std::max(word.size(), candidate.size())) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
