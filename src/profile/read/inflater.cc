#include "profile/read/inflater.h"

#ifdef LOCKSTEP_ISAL
#include <isa-l/igzip_lib.h>
#else
#include <zlib.h>
#endif

#include <algorithm>
#include <cstdint>

namespace lockstep::profile {

namespace {
constexpr size_t kPieceMost = 1u << 30;  // both count in 32 bits
}

#ifdef LOCKSTEP_ISAL

struct Inflater::State {
  inflate_state stream = {};
  const char* damage = "";
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  isal_inflate_init(&state_->stream);
  state_->stream.crc_flag = ISAL_GZIP;
}
Inflater::~Inflater() = default;

void Inflater::begin_member() {
  isal_inflate_reset(&state_->stream);
  state_->stream.crc_flag = ISAL_GZIP;
}

Inflater::Outcome Inflater::run(const char* input, size_t input_bytes, size_t& taken, char* output, size_t output_bytes,
                                size_t& written) {
  inflate_state& stream = state_->stream;
  const auto in = static_cast<uint32_t>(std::min(input_bytes, kPieceMost));
  const auto out = static_cast<uint32_t>(std::min(output_bytes, kPieceMost));
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(input));
  stream.avail_in = in;
  stream.next_out = reinterpret_cast<uint8_t*>(output);
  stream.avail_out = out;
  const int code = isal_inflate(&stream);
  taken = in - stream.avail_in;
  written = out - stream.avail_out;
  if (code < 0) {
    state_->damage = code == ISAL_INCORRECT_CHECKSUM ? "incorrect checksum" : "invalid data";
    return Outcome::kDamaged;
  }
  return stream.block_state == ISAL_BLOCK_FINISH ? Outcome::kMemberEnd : Outcome::kMore;
}

#else

struct Inflater::State {
  z_stream stream = {};
  const char* damage = "";
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  if (inflateInit2(&state_->stream, 15 + 16) != Z_OK) state_->damage = "no memory";
}
Inflater::~Inflater() {
  inflateEnd(&state_->stream);
}

void Inflater::begin_member() {
  inflateReset(&state_->stream);
}

Inflater::Outcome Inflater::run(const char* input, size_t input_bytes, size_t& taken, char* output, size_t output_bytes,
                                size_t& written) {
  z_stream& stream = state_->stream;
  const auto in = static_cast<uInt>(std::min(input_bytes, kPieceMost));
  const auto out = static_cast<uInt>(std::min(output_bytes, kPieceMost));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input));
  stream.avail_in = in;
  stream.next_out = reinterpret_cast<Bytef*>(output);
  stream.avail_out = out;
  const int code = inflate(&stream, Z_NO_FLUSH);
  taken = in - stream.avail_in;
  written = out - stream.avail_out;
  if (code == Z_STREAM_END) return Outcome::kMemberEnd;
  if (code == Z_OK || code == Z_BUF_ERROR) return Outcome::kMore;
  state_->damage = stream.msg != nullptr ? stream.msg : "invalid data";
  return Outcome::kDamaged;
}

#endif

const char* Inflater::damage() const {
  return state_->damage;
}

}  // namespace lockstep::profile
