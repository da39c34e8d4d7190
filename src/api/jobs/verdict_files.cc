// What the ranks of a hang or a crash have left, with the verdict on it (model/evidence_files.h).
#include "api/jobs/job_view.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "model/evidence_files.h"
#include "model/verdict_terms.h"
#include "store/blobs/blob_store.h"

namespace lockstep {
namespace {

constexpr size_t kFilesShown = 256;

// As members of an object; "": a bucket that does not answer hides no verdict.
std::string files_of(BlobStore& blobs, const std::string& job, const std::string& id) {
  const Result<std::vector<BlobInfo>> found = blobs.list(blob_job_part(job) + "/" + id + "/");
  if (!found.ok()) return {};
  JsonWriter json;
  json.begin_array();
  size_t total = 0;
  for (const BlobInfo& info : *found) {
    const std::string file = info.path.substr(info.path.rfind('/') + 1);
    const std::optional<EvidenceFileName> name = parse_evidence_file_untrusted(file);
    if (!name || ++total > kFilesShown) continue;
    json.begin_object()
        .field("rank", name->rank.value())
        .field("kind", to_text(name->kind))
        .field("time_unix_ns", name->unix_s * 1'000'000'000)
        .field("bytes", info.bytes)
        .field("query", "/api/jobs/" + url_part(job) + "/profiles/" + id + "/files/" + file)
        .end_object();
  }
  json.end_array();
  return format(",\"files_total\":%zu,\"files\":", total) + json.take();
}

}  // namespace

std::string VerdictFiles::added_to(std::string verdict_json) {
  if (context_.blobs == nullptr || !verdict_json.ends_with('}')) return verdict_json;
  const Result<JsonDocument> document = JsonDocument::parse(verdict_json);
  if (!document.ok()) return verdict_json;
  const std::optional<VerdictKind> kind = term_of<VerdictKind>(document->root()["kind"].string().value_or(""));
  const std::string job(document->root()["job_id"].string().value_or(""));
  if (!kind || !is_standstill(*kind) || job.empty()) return verdict_json;
  const std::string id = evidence_id(job, document->root()["attempt"].integer().value_or(0));
  const auto [known, is_new] = known_.try_emplace(id);
  if (is_new) known->second = files_of(*context_.blobs, job, id);
  verdict_json.pop_back();
  return verdict_json + known->second + "}";
}

}  // namespace lockstep
