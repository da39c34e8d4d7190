// Small text helpers: printf-style formatting into a std::string, splitting, numbers people can read.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// printf into a std::string; the compiler checks the arguments.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

// The whole text must be the number; anything else is nullopt. Never throws.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<uint64_t> parse_uint(std::string_view text);
std::optional<double> parse_double(std::string_view text);

// The shortest text that reads back as this number; "+Inf", "-Inf", "NaN" as Prometheus writes them.
std::string shortest_text(double number);
// "1,204"
std::string with_thousands(int64_t value);
// "118 ms", "4.2 s", "3 min", "850 us": one unit, sane precision.
std::string human_duration(double nanoseconds);
// "1.5 GB/s" style, decimal units.
std::string human_bytes(double bytes);
// "3, 5 and 9"; "0-7" for runs; at most `most` items, then "and N more".
std::string human_numbers(std::vector<int> numbers, size_t most = 8);

// Bytes that would disturb a terminal or forge a log line.
bool has_control_characters(std::string_view text);
// The same text with blanks in their place: one line, whatever it was.
std::string as_one_line(std::string_view text);
// Length of the valid UTF-8 sequence that begins at `at`; 0: there is none.
size_t utf8_length(std::string_view text, size_t at);
bool is_utf8(std::string_view text);
// What fits into bytes_max of its beginning, cut between two characters.
std::string_view utf8_prefix(std::string_view text, size_t bytes_max);
// One part of a URL's path, percent-encoded: a job id may contain anything.
std::string url_part(std::string_view text);
// What it was; nothing where a % is followed by anything but two digits.
std::optional<std::string> from_url_part(std::string_view part);
// As a shell takes it for one word: names in a command that people copy come from anywhere.
std::string shell_word(std::string_view text);

// Nearest candidate by edit distance, if it is near enough to be a slip of the finger.
std::optional<std::string> did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
