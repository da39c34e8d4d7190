// What stores of spans, of steps and of log records know of each of their files, and the name that says the most of it:
// KIND-NUMBER-FIRST-LAST.blk, so that number and sequences are known even of a file that cannot be read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/columns/byte_codec.h"
#include "store/columns/sealed_file.h"

namespace lockstep::sealed {

// Where the rows of a part of a store came from.
struct Origin {
  // Records of the durable log of which rows are in here; 0: not from a log.
  uint64_t first_sequence = 0;
  uint64_t last_sequence = 0;
  columns::Range<int64_t> received_unix_ns;

  // What follows it in a store is in here too.
  void add(const Origin& next) {
    if (first_sequence == 0) first_sequence = next.first_sequence;
    last_sequence = std::max(last_sequence, next.last_sequence);
    received_unix_ns.add(next.received_unix_ns);
  }
};

struct FileInfo : Origin {
  uint64_t number = 0;             // rising; no two files have the same
  std::vector<uint64_t> replaces;  // files that were put together into this one

  void add_replaced(const FileInfo& other) {
    replaces.push_back(other.number);
    add(other);
  }
};

// In a footer.
void put_info(std::string& out, const FileInfo& info);
void read_info(columns::ByteReader& in, FileInfo& info);

std::string file_name(std::string_view kind, const FileInfo& info);
// False: not a name of this kind, and `info` is as it was.
bool parse_file_name(std::string_view kind, std::string_view name, FileInfo& info);

// Records whose file could not be read: the log may still have them.
class LostRecords {
 public:
  void add(const FileInfo& file) { ranges_.push_back({file.first_sequence, file.last_sequence}); }
  bool has(uint64_t sequence) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range& lost) { return sequence >= lost.first && sequence <= lost.last; });
  }

 private:
  struct Range {
    uint64_t first, last;
  };
  std::vector<Range> ranges_;
};

}  // namespace lockstep::sealed
