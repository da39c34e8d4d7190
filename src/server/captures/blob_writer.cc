#include "server/captures/blob_writer.h"

#include <algorithm>

#include "base/base64.h"
#include "base/md5.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kTimeoutMs = 60'000;
constexpr uint64_t kAnswerBytesMax = 1 << 20;

}  // namespace

Result<BlobWriter> BlobWriter::begin(BlobStore& store, BlobKey key) {
  BlobUpload upload = LOCKSTEP_TRY(store.begin(key, 1));
  if (upload.stored) {
    if (const Result<void> gone = store.remove(key); !gone.ok() && gone.code() != ErrorCode::kNotFound)
      return gone.failure();
    upload = LOCKSTEP_TRY(store.begin(key, 1));
  }
  return BlobWriter(store, std::move(key), std::move(upload));
}

Result<void> BlobWriter::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t taken = std::min<size_t>(bytes.size(), kBlobPartBytes - part_.size());
    part_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (part_.size() == kBlobPartBytes) LOCKSTEP_TRY(send_part());
  }
  return {};
}

Result<void> BlobWriter::send_part() {
  const auto number = static_cast<uint32_t>(parts_.size() + 1);
  BlobPart part{number, part_.size(), to_text(sha256(part_))};
  if (upload_.urls.empty()) {
    part = LOCKSTEP_TRY(store_->put_part(key_, number, part_, part.sha256));
  } else {
    part.etag = LOCKSTEP_TRY(put_to_bucket(number));
  }
  parts_.push_back(std::move(part));
  sum_.add(part_);
  bytes_ += part_.size();
  part_.clear();
  return {};
}

// With its etag.
Result<std::string> BlobWriter::put_to_bucket(uint32_t number) {
  if (number - upload_.urls_from >= upload_.urls.size()) {
    upload_ = LOCKSTEP_TRY(store_->begin(key_, number));
    if (upload_.urls.empty()) return Error{"the bucket gives out no URL for a part"};
  }
  const RequestUrl url = LOCKSTEP_TRY(parse_request_url(upload_.urls[number - upload_.urls_from]));
  if (bucket_ == nullptr) bucket_ = std::make_unique<HttpClient>(url.server, kTimeoutMs, kAnswerBytesMax);
  const std::array<uint8_t, 16> sum = md5(part_);
  const std::string_view sum_bytes(reinterpret_cast<const char*>(sum.data()), sum.size());
  const HttpResponse answer =
      LOCKSTEP_TRY(bucket_->send({"PUT", url.target, {{"Content-MD5", base64(sum_bytes)}}, part_}));
  std::string etag(answer.header("etag"));
  if (answer.status != 200 || etag.empty()) return Error{format("the bucket answers %d to a part", answer.status)};
  return etag;
}

Result<void> BlobWriter::finish() {
  if (!part_.empty()) LOCKSTEP_TRY(send_part());
  const BlobFinish finished = LOCKSTEP_TRY(store_->finish(key_, to_text(sum_.digest()), parts_));
  if (finished.state != BlobFinish::State::kStored) return Error{finished.line};
  return {};
}

}  // namespace lockstep
