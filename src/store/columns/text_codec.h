// A table of texts as bytes: varint count, the column of their lengths (bytes), packed texts one after the other. Text
// 0, the empty one, is not written.
//
// On error: decoding takes nothing on trust; bytes that are no such table are false.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>

#include "store/columns/text_table.h"

namespace lockstep::columns {

std::string encode_texts(const TextTable& texts);
// At most `bytes_max` bytes of text; `texts` is empty before.
bool decode_texts(std::string_view encoded, size_t bytes_max, TextTable& texts);

}  // namespace lockstep::columns
