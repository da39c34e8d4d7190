#include "agent/upload/http_uploader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "agent/export/other_port.h"
#include "agent/export/otlp_sender.h"
#include "base/base64.h"
#include "base/characters.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/md5.h"
#include "base/secret_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "net/http_client.h"
#include "wire/commands.h"
#include "wire/compression.h"
#include "wire/uploads.h"

namespace lockstep {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr uint64_t kPartBytesMax = 64ull << 20;  // whatever a server says, no more is held here
constexpr uint64_t kAnswerBytesMax = kUploadBodyBytesMax;
constexpr int kPassesMax = 4;
constexpr const char* kServer = "the server";
constexpr const char* kBucket = "the bucket";

std::string_view bytes_of(const std::array<uint8_t, 16>& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// The parts of what is stored, one after the other, from the first byte of the file on.
class PartReader {
 public:
  PartReader(int fd, uint64_t file_bytes, uint64_t part_bytes, const std::function<void(uint64_t)>& progress)
      : fd_(fd), file_bytes_(file_bytes), part_bytes_(part_bytes), progress_(progress), buffer_(kReadBytes, '\0') {}

  // Empty: there are no more.
  Result<std::string> next() {
    while (pending_.size() < part_bytes_ && !ended_) LOCKSTEP_TRY(read_some());
    std::string part = pending_.substr(0, part_bytes_);
    pending_.erase(0, part.size());
    sum_.add(part);
    bytes_ += part.size();
    return part;
  }
  std::string sha256() const { return to_text(sum_.digest()); }
  uint64_t bytes() const { return bytes_; }

 private:
  Result<void> read_some() {
    const size_t wanted = std::min<uint64_t>(buffer_.size(), file_bytes_ - at_);
    ssize_t got = wanted == 0 ? 0 : ::pread(fd_, buffer_.data(), wanted, static_cast<off_t>(at_));
    while (got < 0 && errno == EINTR) got = ::pread(fd_, buffer_.data(), wanted, static_cast<off_t>(at_));
    if (got < 0) return Error{std::string("the file cannot be read: ") + std::strerror(errno)};
    const std::string_view piece(buffer_.data(), static_cast<size_t>(got));
    if (at_ == 0) is_packed_ = piece.starts_with("\x1f\x8b") || !available(Encoding::kGzip);
    at_ += piece.size();
    ended_ = piece.empty() || at_ >= file_bytes_;
    if (is_packed_) {
      pending_ += piece;
    } else {
      LOCKSTEP_TRY(gzip_.add(piece, ended_, pending_));
    }
    if (progress_) progress_(at_);
    return {};
  }

  const int fd_;
  const uint64_t file_bytes_;
  const uint64_t part_bytes_;
  const std::function<void(uint64_t)>& progress_;
  std::string buffer_;
  GzipStream gzip_;
  Sha256Stream sum_;
  std::string pending_;
  uint64_t at_ = 0;
  uint64_t bytes_ = 0;
  bool is_packed_ = false;
  bool ended_ = false;
};

// What a bucket names as its reason, if that is a word.
std::string bucket_code(std::string_view body) {
  const size_t from = body.find("<Code>"), to = body.find("</Code>");
  if (from == std::string_view::npos || to == std::string_view::npos || to < from + 6 || to - from > 70) return {};
  return as_one_line(body.substr(from + 6, to - from - 6));
}

// One upload. What may be tried again is, here; what comes out is an answer to act on, or the end.
class Upload {
 public:
  Upload(const HttpUploaderOptions& options, Counters& counters, int stop_fd, int fd, const UploadOrder& order,
         const std::function<void(uint64_t)>& progress)
      : options_(options),
        counters_(counters),
        stop_fd_(stop_fd),
        fd_(fd),
        order_(order),
        progress_(progress),
        server_(url_of(options.target), options.timeout_ms, kAnswerBytesMax, options.target.tls_options),
        finisher_(url_of(options.target), options.finish_timeout_ms, kAnswerBytesMax, options.target.tls_options) {
    server_.interrupt_by(stop_fd);
    finisher_.interrupt_by(stop_fd);
  }

  const char* result() const { return result_; }  // as counted, after a failure

  Result<Uploaded> run() {
    struct stat info {};
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return refused("it is no file");
    file_bytes_ = std::min(static_cast<uint64_t>(info.st_size), order_.bytes_max);
    if (file_bytes_ == 0) return refused("the file is empty");
    if (file_bytes_ > options_.file_bytes_max)
      return refused(format("the file has %llu bytes (limit %llu)", static_cast<unsigned long long>(file_bytes_),
                            static_cast<unsigned long long>(options_.file_bytes_max)));
    for (int pass = 1;; ++pass) {
      begin_again_.clear();
      Result<Uploaded> done = send_all();
      if (done.ok() || begin_again_.empty() || pass == kPassesMax) return done;
      LOCKSTEP_LOG_INFO("agent", "upload of %s of %s begins again: %s", order_.file.c_str(), order_.capture.c_str(),
                        begin_again_.c_str());
    }
  }

 private:
  static Url url_of(const OtlpTarget& target) { return {target.address.host, target.address.port, "", target.tls}; }

  Error refused(const std::string& why) {
    result_ = "refused";
    return Error{format("%s of %s was not uploaded: %s", order_.file.c_str(), order_.capture.c_str(), why.c_str())};
  }
  static std::string line_of(const char* who, const HttpResponse& answer) {
    const std::string code = bucket_code(answer.body);
    if (!code.empty()) return format("%s answers %d %s", who, answer.status, code.c_str());
    const std::string line(trim(as_one_line(std::string_view(answer.body).substr(0, 300))));
    return format("%s answers %d%s%s", who, answer.status, line.empty() ? "" : ": ", line.c_str());
  }
  static std::string line_of(const HttpResponse& answer) { return line_of(kServer, answer); }

  // True: stopped meanwhile.
  bool wait(int64_t ms) const {
    pollfd stopped{stop_fd_, POLLIN, 0};
    return ::poll(&stopped, 1, static_cast<int>(ms)) > 0;
  }

  // Until there is an answer that says something of the request itself.
  Result<HttpResponse> ask(HttpClient& client, const char* who, const HttpRequest& request) {
    int64_t backoff_ms = 0;
    const int64_t began_ns = clock_.monotonic_ns();
    for (;;) {
      Result<HttpResponse> answer = client.send(request);
      const bool is_later = answer.ok() && (answer->status == 408 || answer->status == 429 || answer->status >= 500);
      if (answer.ok() && !is_later) return answer;
      if (wait(0)) {
        result_ = "stopped";
        return Error{"the agent stops; what was sent stays sent"};
      }
      const std::string why = answer.ok() ? line_of(who, *answer) : std::string(who) + ": " + answer.error();
      if (clock_.monotonic_ns() - began_ns > options_.give_up_ms * 1'000'000) {
        result_ = "failed";
        return Error{format("%s of %s was not uploaded: %s (tried for %s)", order_.file.c_str(), order_.capture.c_str(),
                            why.c_str(), human_duration(static_cast<double>(options_.give_up_ms) * 1e6).c_str())};
      }
      counters_.add("lockstep_agent_upload_retries_total");
      if (backoff_ms == 0)
        LOCKSTEP_LOG_WARN("agent", "upload of %s of %s waits: %s", order_.file.c_str(), order_.capture.c_str(),
                          why.c_str());
      backoff_ms = std::min(options_.backoff_most_ms, std::max(options_.backoff_first_ms, backoff_ms * 2));
      const int64_t asked_ms =
          answer.ok() ? parse_retry_after(answer->header("retry-after"), clock_.unix_ns()) : int64_t{0};
      // Spread: the ranks of a job finish together.
      const auto seed = static_cast<uint64_t>(clock_.monotonic_ns());
      const int64_t spread_ms =
          backoff_ms / 2 + static_cast<int64_t>(seed * 2654435761u % static_cast<uint64_t>(backoff_ms / 2 + 1));
      wait(std::clamp(asked_ms, spread_ms, options_.backoff_most_ms));
    }
  }

  Result<HttpResponse> ask_server(HttpClient& client, std::string method, const std::string& below, std::string body,
                                  std::string sum = {}) {
    const OtlpTarget& target = options_.target;
    HttpRequest request;
    request.method = std::move(method);
    request.path = target.path + below;
    request.body = std::move(body);
    // X-Lockstep: no web page can send it here from a browser (net/cross_site.h).
    request.headers = {{"X-Lockstep", "1"},
                       {"Content-Type", sum.empty() ? "application/json" : "application/octet-stream"}};
    if (!sum.empty()) request.headers.emplace_back(kPartSumHeader, std::move(sum));
    std::string token = target.token;
    if (!target.token_file.empty()) {
      if (Result<std::string> read = read_private_file(target.token_file); read.ok()) token = std::move(*read);
    }
    if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token);
    request.headers.insert(request.headers.end(), target.headers.begin(), target.headers.end());
    return ask(client, kServer, request);
  }

  Result<UploadBegun> begin(uint32_t from_part) {
    const UploadBegin wanted{order_.job, order_.capture, order_.file, file_bytes_, from_part};
    const HttpResponse answer = LOCKSTEP_TRY(ask_server(server_, "POST", "", encode(wanted)));
    if (answer.status != 200) return refused(line_of(answer));
    Result<UploadBegun> begun = parse_upload_begun(answer.body);
    if (!begun.ok()) return refused(begun.error());
    if (begun->part_bytes > kPartBytesMax) return refused("the server wants parts that are too large");
    return begun;
  }

  // sum: SHA-256 of the part, where it goes to the server.
  static bool is_there(const UploadBegun& begun, uint32_t number, const std::string& part, const std::string& sum,
                       std::string* etag) {
    const auto done = std::find_if(begun.done_parts.begin(), begun.done_parts.end(),
                                   [&](const UploadPart& one) { return one.number == number; });
    if (done == begun.done_parts.end() || done->bytes != part.size()) return false;
    *etag = done->etag;
    if (!done->sha256.empty()) return done->sha256 == sum;
    return done->etag.find(to_hex(md5(part))) != std::string::npos;
  }

  Result<void> send_part(const UploadBegun& begun, uint32_t number, const std::string& part, const std::string& sum) {
    const std::string below = "/" + url_part(begun.upload) + "/parts/" + std::to_string(number);
    // 400: bytes were damaged on the way; once more.
    for (int tried = 1;; ++tried) {
      const HttpResponse answer = LOCKSTEP_TRY(ask_server(server_, "PUT", below, part, sum));
      if (answer.status == 200) return {};
      if (answer.status == 400 && tried < 3) continue;
      if (answer.status == 404) begin_again_ = line_of(answer);
      return refused(line_of(answer));
    }
  }

  // Straight to the bucket; with its etag.
  Result<std::string> send_to_bucket(UploadBegun& begun, uint32_t number, const std::string& part) {
    for (int tried = 1;; ++tried) {
      const bool has_url = number >= begun.urls_from && number - begun.urls_from < begun.parts_urls.size();
      if (!has_url || tried > 1) {  // or it is no longer valid
        const std::vector<UploadPart> done = begun.done_parts;
        begun = LOCKSTEP_TRY(begin(number));
        begun.done_parts = done;
        if (number < begun.urls_from || number - begun.urls_from >= begun.parts_urls.size())
          return refused(format("the server signs no URL for part %u", number));
      }
      const Result<RequestUrl> url = parse_request_url(begun.parts_urls[number - begun.urls_from]);
      if (!url.ok()) return Error{"the server gives out a URL for parts that is none"};
      const std::string host = host_header(url->server);
      std::unique_ptr<HttpClient>& client = buckets_[host];
      if (client == nullptr) {
        client = std::make_unique<HttpClient>(url->server, options_.timeout_ms, kAnswerBytesMax, TlsOptions{});
        client->interrupt_by(stop_fd_);
      }
      HttpRequest request{"PUT", url->target, {{"Content-MD5", base64(bytes_of(md5(part)))}}, part};
      const HttpResponse answer = LOCKSTEP_TRY(ask(*client, kBucket, request));
      std::string etag(answer.header("etag"));
      if (answer.status == 200 && !etag.empty()) return etag;
      if (tried < 2 && (answer.status == 403 || answer.status == 400)) continue;
      if (bucket_code(answer.body) == "NoSuchUpload") begin_again_ = "the bucket has forgotten the upload";
      return refused(line_of(kBucket, answer));
    }
  }

  // From the first byte on, past what is there.
  Result<Uploaded> send_all() {
    UploadBegun begun = LOCKSTEP_TRY(begin(1));
    const bool is_stored = !begun.key.empty();
    PartReader reader(fd_, file_bytes_, begun.part_bytes, progress_);
    UploadFinish finish;
    for (uint32_t number = 1;; ++number) {
      const std::string part = LOCKSTEP_TRY(reader.next());
      if (part.empty()) break;
      UploadPart sent{.number = number};
      if (begun.parts_urls.empty()) sent.sha256 = to_text(sha256(part));
      if (!is_stored && !is_there(begun, number, part, sent.sha256, &sent.etag)) {
        if (begun.parts_urls.empty()) {
          LOCKSTEP_TRY(send_part(begun, number, part, sent.sha256));
        } else {
          sent.etag = LOCKSTEP_TRY(send_to_bucket(begun, number, part));
        }
        counters_.add("lockstep_agent_upload_bytes_total", "", static_cast<int64_t>(part.size()));
      }
      finish.parts.push_back(std::move(sent));
    }
    finish.sha256 = reader.sha256();
    if (is_stored) {
      if (begun.bytes != reader.bytes()) return refused("another file is stored under this name");
      return Uploaded{begun.key, reader.bytes(), finish.sha256};
    }
    const HttpResponse answer =
        LOCKSTEP_TRY(ask_server(finisher_, "POST", "/" + url_part(begun.upload) + "/finish", encode(finish)));
    if (answer.status == 404 || answer.status == 409) begin_again_ = line_of(answer);
    if (answer.status != 200) return refused(line_of(answer));
    const Result<UploadFinished> finished = parse_upload_finished(answer.body);
    if (!finished.ok()) return refused(finished.error());
    if (finished->bytes != reader.bytes()) return refused("the server has stored another number of bytes");
    return Uploaded{finished->key, reader.bytes(), finish.sha256};
  }

  const HttpUploaderOptions& options_;
  Counters& counters_;
  const int stop_fd_;
  const int fd_;
  const UploadOrder& order_;
  const std::function<void(uint64_t)>& progress_;
  SystemClock clock_;
  HttpClient server_, finisher_;
  std::map<std::string, std::unique_ptr<HttpClient>> buckets_;  // by host
  uint64_t file_bytes_ = 0;
  std::string begin_again_;  // why; empty: that would not help
  const char* result_ = "failed";
};

}  // namespace

OtlpTarget upload_target(OtlpTarget commands) {
  const std::string_view path = kCommandsPath;
  if (commands.path.ends_with(path)) commands.path.erase(commands.path.size() - path.size());
  commands.path += kUploadsPath;
  return commands;
}

HttpUploader::HttpUploader(HttpUploaderOptions options, Counters& counters)
    : options_(std::move(options)), counters_(counters), stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Result<Uploaded> HttpUploader::upload(int fd, const UploadOrder& order, const std::function<void(uint64_t)>& progress) {
  HttpUploaderOptions options = options_;
  for (int pass = 1;; ++pass) {
    Upload upload(options, counters_, stop_.get(), fd, order, progress);
    Result<Uploaded> done = upload.run();
    std::string why;
    std::optional<OtlpTarget> right;
    if (!done.ok() && pass == 1 && std::string_view(upload.result()) == "refused")
      right = at_right_port(options.target, why);
    if (!right) {
      counters_.add("lockstep_agent_uploads_total", format("result=\"%s\"", done.ok() ? "done" : upload.result()));
      return done;
    }
    options.target = std::move(*right);
  }
}

void HttpUploader::stop() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
}

}  // namespace lockstep
