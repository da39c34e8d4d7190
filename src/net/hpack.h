// HPACK (RFC 7541), header compression of HTTP/2, for a client: what it sends uses the static table and plain literals
// only, so it needs no state and leaks nothing; what it receives may use all of it (dynamic table, Huffman).
// No sockets in here, so that a fuzzer can feed it.
//
// Limits: the dynamic table holds kHpackTableBytesMax; a decoded list list_bytes_max (each header counts 32 bytes more
//         than its letters, as HTTP/2 counts).
// On error: one clear line; the connection's state is lost with it, so the connection has to go.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kHpackTableBytesMax = 4096;  // what HTTP/2 lets a server assume until it is told otherwise

// Names in lower case, pseudo-headers first. `authorization` is marked as never to be indexed on the way.
std::string hpack_encode(const HeaderList& headers);

class HpackDecoder {
 public:
  explicit HpackDecoder(size_t list_bytes_max) : list_bytes_max_(list_bytes_max) {}
  Result<HeaderList> decode(std::string_view block);
  size_t table_bytes() const { return table_bytes_; }

 private:
  using Header = std::pair<std::string, std::string>;
  Result<Header> at(uint64_t index) const;
  void insert(const Header& header);
  void shrink_to(size_t bytes);

  size_t list_bytes_max_;
  std::deque<Header> table_;  // newest first
  size_t table_bytes_ = 0;
  size_t table_bytes_max_ = kHpackTableBytesMax;
};

}  // namespace lockstep
