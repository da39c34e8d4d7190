#include "wire/step_walk.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/text.h"
#include "model/events.h"
#include "model/step_rows.h"
#include "wire/copy_budget.h"
#include "wire/otlp_value.h"

namespace lockstep::otlp {
namespace {

using namespace protobuf;

constexpr int32_t kSeverityInfo = 9;  // of the records that to_record() makes

// Whether the only field of `value`, an AnyValue, is this one. What the field holds is the caller's to read, and then
// to look at whether anything follows.
bool begins_with(WireReader& value, uint32_t tag) {
  return value.next() && value.tag() == tag;
}

bool read_int(WireReader value, int64_t& number) {
  if (!begins_with(value, tag_of(3, kVarint))) return false;
  number = static_cast<int64_t>(value.varint());
  return value.at_end();
}

bool read_int_in(WireReader value, int64_t least, int64_t most, int64_t& number) {
  return read_int(value, number) && number >= least && number <= most;
}

bool read_text(WireReader value, std::string_view& text) {
  if (!begins_with(value, tag_of(1, kBytes))) return false;
  text = value.bytes();
  return value.at_end();
}

// A key and a value, each once.
bool read_pair(WireReader pair, std::string_view& key, WireReader& value) {
  if (!begins_with(pair, tag_of(1, kBytes))) return false;
  key = pair.bytes();
  if (!begins_with(pair, tag_of(2, kBytes))) return false;
  value = pair.message();
  return pair.at_end();
}

// A list of integers as the columns of a row.
class WireRow : public BoundedRow<WireRow> {
 public:
  explicit WireRow(WireReader value) : list_(value) {
    ok_ = begins_with(value, tag_of(5, kBytes));
    if (!ok_) return;
    list_ = value.message();
    ok_ = value.at_end();
  }
  int64_t next() {
    int64_t number = 0;
    ++columns_;
    if (!begins_with(list_, tag_of(1, kBytes)) || !read_int(list_.message(), number)) ok_ = false;
    return number;
  }
  bool next_flag() { return next_in(0, 1) != 0; }  // another number would be written as 1 again
  bool more() const { return !list_.at_end(); }
  bool ended() const { return ok_ && !more(); }
  size_t columns() const { return columns_; }  // that were asked for

 private:
  WireReader list_;
  size_t columns_ = 0;
};

template <size_t kSize>
bool read_times(WireReader value, std::array<int64_t, kSize>& times) {
  WireRow row(value);
  for (int64_t& ns : times) ns = row.next_ns();
  return row.ended();
}

// Rows are AnyValues, each a list.
template <typename T, typename ReadRow>
bool read_rows(WireReader value, size_t most, std::vector<T>& rows, const ReadRow& read_row) {
  if (!begins_with(value, tag_of(5, kBytes))) return false;
  WireReader list = value.message();
  if (!value.at_end()) return false;
  while (list.next()) {
    if (list.tag() != tag_of(1, kBytes) || rows.size() == most) return false;
    if (rows.empty()) rows.reserve(std::min(list.run_length(), kReserveMax));
    WireRow row(list.message());
    rows.push_back(read_row(row));
    if (!row.ended()) return false;
  }
  return true;
}

bool read_comms(WireReader value, StepSummary& step) {
  bool is_plain = true;  // a last column is not sent where it says nothing
  const bool ok = read_rows(value, kCommsPerStepMax, step.comms, [&](WireRow& row) {
    const CommStep comm = read_comm_step(row);
    if (row.columns() > kCommStepColumns && comm.unseen == 0) is_plain = false;
    return comm;
  });
  return ok && is_plain;
}

bool read_flows(WireReader value, StepSummary& step) {
  return read_rows(value, kFlowsPerStepMax, step.flows, [](WireRow& row) { return read_flow_step(row); });
}

bool read_scalars(WireReader value, StepSummary& step) {
  if (!begins_with(value, tag_of(6, kBytes))) return false;
  WireReader map = value.message();
  if (!value.at_end()) return false;
  while (map.next()) {
    if (map.tag() != tag_of(1, kBytes) || step.scalars.size() == kScalarsPerStepMax) return false;
    std::string_view key;
    WireReader number = map;
    if (!read_pair(map.message(), key, number) || !begins_with(number, tag_of(4, kFixed64))) return false;
    const double scalar = number.real();
    if (!number.at_end() || key.empty() || key.size() > kScalarNameMax || has_control_characters(key)) return false;
    step.scalars.push_back({std::string(key), scalar});
  }
  return !step.scalars.empty();
}

bool read_step(WireReader value, StepSummary& step) {
  int64_t number = 0;
  const bool ok = read_int_in(value, 0, step_bounds::kCountMost, number);
  step.step = StepNumber{number};
  return ok;
}

bool read_inferred(WireReader value, StepSummary& step) {
  if (!begins_with(value, tag_of(2, kVarint))) return false;
  step.inferred = value.varint() != 0;
  return value.at_end();
}

bool read_split(WireReader value, StepSummary& step) {
  step.split_known = true;
  return read_times(value, step.split_ns);
}

template <int64_t StepSummary::*kField>
bool read_ns(WireReader value, StepSummary& step) {
  return read_int_in(value, 0, step_bounds::kDayNs, step.*kField);
}
template <int64_t StepSummary::*kField, int64_t kLeast>
bool read_count(WireReader value, StepSummary& step) {
  return read_int_in(value, kLeast, step_bounds::kCountMost, step.*kField);
}
bool read_quiet_from(WireReader value, StepSummary& step) {
  return read_int_in(value, -step_bounds::kTimeMost, step_bounds::kTimeMost, step.quiet_from_unix_ns);
}
bool read_phases(WireReader value, StepSummary& step) {
  return read_times(value, step.phase_ns);
}

// The attributes in the order in which to_record() writes them; from kAlways on, those that are sent where they say
// something.
struct StepAttribute {
  std::string_view key;
  bool (*read)(WireReader value, StepSummary& step);
};
constexpr StepAttribute kStepAttributes[] = {{"step", read_step},
                                             {"duration_ns", read_ns<&StepSummary::duration_ns>},
                                             {"self_ns", read_ns<&StepSummary::self_ns>},
                                             {"comm_ns", read_ns<&StepSummary::comm_ns>},
                                             {"queue_ns", read_ns<&StepSummary::queue_ns>},
                                             {"quiet_ns", read_ns<&StepSummary::quiet_ns>},
                                             {"quiet_from_unix_ns", read_quiet_from},
                                             {"inferred", read_inferred},
                                             {"records_lost", read_count<&StepSummary::records_lost, 0>},
                                             {"phases", read_phases},
                                             {"comms", read_comms},
                                             {"flows", read_flows},
                                             {"unseen", read_count<&StepSummary::unseen, 1>},
                                             {"split", read_split},
                                             {"scalars", read_scalars}};
constexpr size_t kAlways = 12;
static_assert(kStepAttributes[kAlways].key == "unseen");

// at: of the attribute that may come next.
bool read_attribute(WireReader attribute, size_t& at, StepSummary& step) {
  std::string_view key;
  WireReader value = attribute;
  if (!read_pair(attribute, key, value)) return false;
  while (at >= kAlways && at < std::size(kStepAttributes) && kStepAttributes[at].key != key) ++at;
  return at < std::size(kStepAttributes) && kStepAttributes[at].key == key && kStepAttributes[at++].read(value, step);
}

bool read_record(WireReader in, StepReport& report) {
  int64_t time_unix_ns = 0;
  int32_t severity = 0;
  size_t attribute = 0;
  bool is_step = false;
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(2, kVarint):
        severity = static_cast<int32_t>(in.varint());
        break;
      case tag_of(6, kBytes):
        if (!read_attribute(in.message(), attribute, report.summary)) return false;
        break;
      case tag_of(11, kFixed64):
        report.observed_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(12, kBytes):
        is_step = in.bytes() == kEventTrainStep;
        break;
      default:
        return false;
    }
  }
  report.summary.start_unix_ns = time_unix_ns - report.summary.duration_ns;
  return is_step && severity == kSeverityInfo && time_unix_ns != 0 && attribute >= kAlways;
}

// What to_resource() writes, in its order.
bool read_identity(WireReader resource, Identity& identity) {
  std::string_view texts[4];  // service.name, lockstep.job_id, host.name, lockstep.gpu_uuid
  int64_t numbers[4] = {};    // lockstep.attempt, rank, world_size, local_rank
  struct Part {
    std::string_view key;
    std::string_view* text;
    int64_t* number;
  };
  const Part parts[] = {{"service.name", &texts[0], nullptr},
                        {"lockstep.job_id", &texts[1], nullptr},
                        {"lockstep.attempt", nullptr, &numbers[0]},
                        {"lockstep.rank", nullptr, &numbers[1]},
                        {"lockstep.world_size", nullptr, &numbers[2]},
                        {"lockstep.local_rank", nullptr, &numbers[3]},
                        {"host.name", &texts[2], nullptr},
                        {"lockstep.gpu_uuid", &texts[3], nullptr}};
  for (const Part& part : parts) {
    std::string_view key;
    WireReader value = resource;
    if (!begins_with(resource, tag_of(1, kBytes)) || !read_pair(resource.message(), key, value) || key != part.key)
      return false;
    if (!(part.text != nullptr ? read_text(value, *part.text) : read_int(value, *part.number))) return false;
  }
  if (!resource.at_end() || texts[0] != kAgentService) return false;
  if (numbers[3] < std::numeric_limits<int32_t>::min() || numbers[3] > std::numeric_limits<int32_t>::max())
    return false;
  identity.job_id = texts[1];
  identity.attempt = numbers[0];
  identity.local_rank = static_cast<int32_t>(numbers[3]);
  identity.host = texts[2];
  identity.gpu_uuid = texts[3];
  return set_rank(identity, numbers[1], numbers[2]).ok();
}

// Of a group of steps; the resource besides where it says more than who the rank is.
bool read_resource(WireReader& in, std::string_view bytes, Identity& identity,
                   std::shared_ptr<const Attributes>& resource) {
  WireError ignored;
  if (read_identity(WireReader(bytes, ignored), identity) && ignored.what == nullptr) return true;
  auto whole = std::make_shared<Attributes>();
  decode_map(in.part(bytes), *whole, 1);
  Result<Identity> read = identity_from_resource(*whole);
  if (!read.ok()) return false;
  identity = std::move(*read);
  resource = std::move(whole);
  return true;
}

// What a report takes, besides what its identity does.
size_t memory_of(const StepReport& report) {
  const StepSummary& summary = report.summary;
  return sizeof(StepReport) + summary.comms.size() * sizeof(CommStep) + summary.flows.size() * sizeof(FlowStep) +
         summary.scalars.size() * sizeof(StepScalar);
}

}  // namespace

bool walk_steps(WireReader& in, std::string_view group, size_t before_group, std::vector<StepReport>& steps) {
  WireError error;  // what is malformed is for the other decoder to say
  WireReader fields(group, error);
  if (!begins_with(fields, tag_of(1, kBytes))) return false;
  const std::string_view resource_bytes = fields.bytes();
  if (!begins_with(fields, tag_of(2, kBytes))) return false;
  WireReader records = fields.message();
  if (!fields.at_end() || !begins_with(records, tag_of(1, kBytes))) return false;
  WireReader scope = records.message();
  if (!begins_with(scope, tag_of(1, kBytes)) || scope.bytes() != kAgentScopeName || !scope.at_end()) return false;

  const size_t first = steps.size();
  bool are_steps = true;
  while (are_steps && records.next()) {
    StepReport& report = steps.emplace_back();
    are_steps = records.tag() == tag_of(2, kBytes) && read_record(records.message(), report) && error.what == nullptr;
    report.before_group = before_group;
    if (are_steps && !in.take_memory(memory_of(report))) break;  // the whole request ends with it
  }
  Identity identity;
  std::shared_ptr<const Attributes> resource;
  are_steps = are_steps && error.what == nullptr && steps.size() > first &&
              read_resource(in, resource_bytes, identity, resource);
  if (!are_steps) {
    steps.resize(first);
    return false;
  }
  for (size_t i = first; i < steps.size(); ++i) {
    steps[i].resource = resource;
    steps[i].identity = i + 1 < steps.size() ? identity : std::move(identity);
  }
  return true;
}

}  // namespace lockstep::otlp
