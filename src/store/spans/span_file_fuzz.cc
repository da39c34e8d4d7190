// Any bytes as a span file: an error of one line or row groups that can be read, asked and given out, never a crash.
//
// Random bytes never pass the checksums, so the input is also taken as changes to a file that is whole, with its
// checksums made right again.
#include <cstdlib>
#include <cstring>

#include "base/crc32c.h"
#include "store/columns/byte_codec.h"
#include "store/spans/span_file.h"

namespace {

using namespace lockstep;
using namespace lockstep::spans;

// A source that does not care about checksums is what a file with right checksums and wrong content looks like.
class Changed final : public SectionSource {
 public:
  Changed(const SectionSource& whole, RowGroupMeta& meta, const uint8_t* data, size_t size)
      : whole_(whole), meta_(meta), data_(data), size_(size) {}
  Result<std::string> read(const SectionPlace& place) const override {
    std::string bytes = LOCKSTEP_TRY(whole_.read(place));
    // Triples: section, where, what.
    for (size_t i = 0; i + 2 < size_; i += 3) {
      if (bytes.empty() || data_[i] % 40 != place.section % 40) continue;
      const size_t at = data_[i + 1] * 7u % bytes.size();
      if (data_[i + 2] == 0) {
        bytes.resize(at);
      } else {
        bytes[at] = static_cast<char>(data_[i + 2]);
      }
    }
    for (SectionPlace& known : meta_.sections) {
      if (known.section == place.section) known.crc = crc32c(bytes);
    }
    return bytes;
  }

 private:
  const SectionSource& whole_;
  RowGroupMeta& meta_;
  const uint8_t* data_;
  size_t size_;
};

void use(const SpanColumns& columns) {
  for (const SpanRow& row : columns.rows) {
    (void)columns.to_span(row);
    (void)columns.part_of(row);
  }
  (void)describe(columns);
  (void)summarise_traces(columns);
  const SpanColumns* parts[] = {&columns};
  (void)disk_order(parts);
}

void read_all(const SectionSource& source, const RowGroupMeta& meta) {
  Result<SpanColumns> columns = read_row_group(source, meta);
  if (columns.ok()) {
    use(*columns);
  } else if (columns.error().empty() || columns.error().find('\n') != std::string::npos) {
    std::abort();
  }
  (void)read_row_group(source, meta, {.ids = false, .attributes = false});
  Result<std::vector<TraceId>> traces = read_traces(source, meta);
  if (traces.ok()) (void)read_trace_summaries(source, meta, traces->size());
  (void)read_steps(source, meta);
}

SpanColumns some_spans() {
  SpanColumnsBuilder builder;
  Identity identity{
      .job_id = "j", .attempt = 0, .rank = 1_rank, .world_size = 2, .local_rank = 0, .host = "h", .gpu_uuid = ""};
  StepDetail detail;
  detail.step = 3_step;
  detail.start_unix_ns = 1000;
  detail.duration_ns = 900;
  detail.phases = {{Phase::kForward, "", 1000, 5}};
  detail.notes = {{1001, "note"}};
  for (int i = 0; i < 70; ++i) {
    OpSpan op;
    op.comm_id = CommId{static_cast<uint64_t>(i % 3)};
    op.function = "AllReduce";
    op.start_unix_ns = 1000 + i * i;
    op.duration_ns = i * 7 % 31;
    op.timed = i % 9 != 0;
    detail.ops.push_back(op);
  }
  builder.begin_source(to_resource(identity), "", "");
  for (const Span& span : to_spans(identity, detail, SampledFor::kAsked)) builder.add(span);
  Span span;
  span.trace_id = {1};
  span.span_id = {2};
  span.parent_span_id = {3};
  span.name = "get";
  span.attributes = {{"a", 1}, {"b", ValueList{1, "x"}}, {"c", 0.5}, {"d", true}, {"e", Value()}};
  span.links = {{{1}, {2}, {{"k", "v"}}}};
  builder.begin_source({{"service.name", "shop"}}, "scope", "1");
  builder.add(span);
  return builder.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (Result<std::shared_ptr<const SpanFile>> file = SpanFile::from_bytes(std::string(bytes)); file.ok()) {
    for (size_t i = 0; i < (*file)->groups(); ++i) read_all(*(*file)->source(), (*file)->group(i));
  }
  {
    RowGroupMeta meta;
    ByteReader in(bytes);
    (void)decode_meta(in, meta);
  }
  static const SpanColumns columns = some_spans();
  static std::string content = SpanFile::start_content();
  static const RowGroupMeta whole_meta = write_row_group(columns, content);
  struct Bytes final : SectionSource {
    Result<std::string> read(const SectionPlace& place) const override {
      return content.substr(place.offset, place.bytes);
    }
  };
  static const Bytes whole;
  RowGroupMeta meta = whole_meta;
  Changed changed(whole, meta, data, size);
  read_all(changed, meta);
  return 0;
}
