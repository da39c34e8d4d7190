#include "store/columns/text_codec.h"

#include <vector>

#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"

namespace lockstep::columns {

std::string encode_texts(const TextTable& texts) {
  std::vector<int64_t> lengths;
  std::string bytes;
  for (uint32_t id = 1; id < texts.size(); ++id) {
    lengths.push_back(static_cast<int64_t>(texts[id].size()));
    bytes += texts[id];
  }
  std::string out;
  put_varint(out, lengths.size());
  put_bytes(out, encode_ints(lengths));
  out += pack_bytes(bytes);
  return out;
}

bool decode_texts(std::string_view encoded, size_t bytes_max, TextTable& texts) {
  ByteReader in(encoded);
  const uint64_t count = in.varint();
  std::string_view lengths_bytes = in.bytes();
  std::vector<int64_t> lengths;
  std::string bytes;
  // A row uses a bounded number of texts, but keys and values may be many: 16 million is beyond any row group.
  if (!in.ok() || count > (1u << 24) || !decode_ints(lengths_bytes, count, lengths) ||
      !unpack_bytes(in.raw(in.left()), bytes_max, bytes))
    return false;
  size_t at = 0;
  for (int64_t length : lengths) {
    if (length < 0 || static_cast<size_t>(length) > bytes.size() - at) return false;
    texts.add(std::string_view(bytes).substr(at, static_cast<size_t>(length)));
    at += static_cast<size_t>(length);
  }
  return at == bytes.size();
}

}  // namespace lockstep::columns
