// CRC-32C (Castagnoli), as in iSCSI and ext4: the checksum of what we write to disk. Uses the processor's instruction
// where there is one.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

uint32_t crc32c(std::string_view bytes);
// The same answer without the instruction; for the test that compares the two.
uint32_t crc32c_portable(std::string_view bytes);

}  // namespace lockstep
