#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

// tables[k][b]: the checksum of byte b followed by k zero bytes, so that eight bytes are taken at a time.
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  }
  return tables;
}
constexpr auto kTables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::string_view bytes) {
  uint64_t crc = 0xFFFFFFFF;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    crc = _mm_crc32_u64(crc, word);
    bytes.remove_prefix(8);
  }
  uint32_t tail = static_cast<uint32_t>(crc);
  for (char byte : bytes) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(byte));
  return ~tail;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  while (bytes.size() >= 8) {
    uint8_t in[8];
    std::memcpy(in, bytes.data(), 8);
    crc = kTables[7][in[0] ^ (crc & 0xFF)] ^ kTables[6][in[1] ^ ((crc >> 8) & 0xFF)] ^
          kTables[5][in[2] ^ ((crc >> 16) & 0xFF)] ^ kTables[4][in[3] ^ (crc >> 24)] ^ kTables[3][in[4]] ^
          kTables[2][in[5]] ^ kTables[1][in[6]] ^ kTables[0][in[7]];
    bytes.remove_prefix(8);
  }
  for (char byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

uint32_t crc32c(std::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_sse42(bytes);
#endif
  return crc32c_portable(bytes);
}

}  // namespace lockstep
