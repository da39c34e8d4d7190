#include "agent/detail/packed_detail.h"

#include <map>
#include <tuple>
#include <vector>

#include "base/protobuf_wire.h"
#include "base/text.h"

namespace lockstep {
namespace {

using protobuf::zigzag_decode;
using protobuf::zigzag_encode;

// What operations of a step have in common; `timed` and `p2p` are bits of `flags`.
constexpr uint64_t kP2p = 1;
constexpr uint64_t kTimed = 2;

class Writer {
 public:
  void number(uint64_t value) { wire_.raw_varint(value); }
  void difference(uint64_t value, uint64_t before) { number(zigzag_encode(static_cast<int64_t>(value - before))); }
  void difference(int64_t value, int64_t before) {
    difference(static_cast<uint64_t>(value), static_cast<uint64_t>(before));
  }
  void text(const std::string& value) {
    number(value.size());
    out_ += value;
  }
  std::string take() {
    out_.shrink_to_fit();
    return std::move(out_);
  }

 private:
  std::string out_;
  protobuf::WireWriter wire_{out_};
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : wire_(bytes, error_) {}
  uint64_t number() { return wire_.varint(); }
  uint64_t difference(uint64_t before) { return before + static_cast<uint64_t>(zigzag_decode(number())); }
  int64_t difference(int64_t before) { return static_cast<int64_t>(difference(static_cast<uint64_t>(before))); }
  std::string text() { return std::string(wire_.bytes()); }
  // How many of something follow; each takes at least a byte.
  size_t count() {
    const uint64_t count_untrusted = number();
    if (count_untrusted > wire_.left()) wire_.fail("more items than bytes");
    return ok() ? count_untrusted : 0;
  }
  bool fail(const char* what) { return wire_.fail(what); }
  bool ok() const { return error_.what == nullptr; }
  bool at_end() const { return wire_.at_end(); }
  const char* error() const { return error_.what; }

 private:
  protobuf::WireError error_;
  protobuf::WireReader wire_;
};

void write_shape(Writer& out, const OpSpan& op) {
  out.number(op.comm_id.value());
  out.difference(int64_t{op.comm_size}, int64_t{0});
  out.difference(int64_t{op.rank_in_comm}, int64_t{0});
  out.number((op.p2p ? kP2p : 0) | (op.timed ? kTimed : 0));
  out.text(op.function);
  out.text(op.datatype);
  out.difference(int64_t{op.peer}, int64_t{0});
  out.difference(op.bytes, int64_t{0});
}

OpSpan read_shape(Reader& in) {
  OpSpan op;
  op.comm_id = CommId{in.number()};
  op.comm_size = static_cast<int32_t>(in.difference(int64_t{0}));
  op.rank_in_comm = static_cast<int32_t>(in.difference(int64_t{0}));
  const uint64_t flags = in.number();
  op.p2p = (flags & kP2p) != 0;
  op.timed = (flags & kTimed) != 0;
  op.function = in.text();
  op.datatype = in.text();
  op.peer = static_cast<int32_t>(in.difference(int64_t{0}));
  op.bytes = in.difference(int64_t{0});
  return op;
}

// What both sides work out alike while they go through the operations: the numbers expected next, by shape.
class Expected {
 public:
  struct Next {
    uint64_t* seq;
    uint64_t* ordinal;
  };
  void add_shape(const OpSpan& op) {
    by_shape_.push_back(
        {&seq_[{op.comm_id, op.function, op.p2p ? op.peer : -1, op.p2p}], &ordinal_[{op.comm_id, op.p2p}]});
  }
  const Next& of(uint64_t shape) const { return by_shape_[shape]; }

 private:
  // Of collectives by communicator and function, of p2p also by peer.
  std::map<std::tuple<CommId, std::string, int32_t, bool>, uint64_t> seq_;
  std::map<std::pair<CommId, bool>, uint64_t> ordinal_;
  std::vector<Next> by_shape_;
};

}  // namespace

std::string pack(const StepDetail& detail) {
  Writer out;
  out.difference(detail.step.value(), int64_t{0});
  out.difference(detail.start_unix_ns, int64_t{0});
  out.difference(detail.duration_ns, int64_t{0});
  out.number(detail.inferred ? 1 : 0);
  out.difference(detail.left_out, int64_t{0});

  out.number(detail.phases.size());
  int64_t before_ns = detail.start_unix_ns;
  for (const PhaseSpan& phase : detail.phases) {
    out.number(static_cast<uint64_t>(phase.phase));
    out.text(phase.name);
    out.difference(phase.start_unix_ns, before_ns);
    out.difference(phase.duration_ns, int64_t{0});
    before_ns = phase.start_unix_ns;
  }
  out.number(detail.notes.size());
  for (const StepNote& note : detail.notes) {
    out.difference(note.time_unix_ns, detail.start_unix_ns);
    out.text(note.text);
  }

  out.number(detail.ops.size());
  using Shape = std::tuple<CommId, int32_t, int32_t, bool, bool, std::string_view, std::string_view, int32_t, int64_t>;
  std::map<Shape, uint64_t> shapes;
  Expected expected;
  before_ns = detail.start_unix_ns;
  for (const OpSpan& op : detail.ops) {
    const auto [shape, is_new] = shapes.try_emplace(
        Shape{op.comm_id, op.comm_size, op.rank_in_comm, op.p2p, op.timed, op.function, op.datatype, op.peer, op.bytes},
        shapes.size());
    out.number(shape->second);  // one not seen before follows at once
    if (is_new) {
      write_shape(out, op);
      expected.add_shape(op);
    }
    const Expected::Next& next = expected.of(shape->second);
    out.difference(op.seq, *next.seq);
    out.difference(op.ordinal, *next.ordinal);
    *next.seq = op.seq + 1;
    *next.ordinal = op.ordinal + 1;
    out.difference(op.enqueued_unix_ns, before_ns);
    out.difference(op.start_unix_ns, op.enqueued_unix_ns);
    out.difference(op.duration_ns, int64_t{0});
    before_ns = op.enqueued_unix_ns;
  }
  return out.take();
}

Result<StepDetail> unpack(std::string_view bytes) {
  Reader in(bytes);
  StepDetail detail;
  detail.step = StepNumber{in.difference(int64_t{0})};
  detail.start_unix_ns = in.difference(int64_t{0});
  detail.duration_ns = in.difference(int64_t{0});
  detail.inferred = in.number() != 0;
  detail.left_out = in.difference(int64_t{0});

  int64_t before_ns = detail.start_unix_ns;
  for (size_t left = in.count(); left > 0 && in.ok(); --left) {
    PhaseSpan phase;
    const uint64_t number = in.number();
    if (number >= kPhaseCount) in.fail("a phase that is none");
    phase.phase = static_cast<Phase>(in.ok() ? number : 0);
    phase.name = in.text();
    phase.start_unix_ns = before_ns = in.difference(before_ns);
    phase.duration_ns = in.difference(int64_t{0});
    detail.phases.push_back(std::move(phase));
  }
  for (size_t left = in.count(); left > 0 && in.ok(); --left) {
    StepNote note;
    note.time_unix_ns = in.difference(detail.start_unix_ns);
    note.text = in.text();
    detail.notes.push_back(std::move(note));
  }

  const size_t count = in.count();
  std::vector<OpSpan> shapes;
  Expected expected;
  before_ns = detail.start_unix_ns;
  detail.ops.reserve(std::min(count, kOpsPerDetailMax));
  for (size_t i = 0; i < count && in.ok(); ++i) {
    const uint64_t shape = in.number();
    if (shape > shapes.size()) in.fail("a shape that was not told");
    if (!in.ok()) break;
    if (shape == shapes.size()) {
      shapes.push_back(read_shape(in));
      expected.add_shape(shapes.back());
    }
    OpSpan op = shapes[shape];
    const Expected::Next& next = expected.of(shape);
    op.seq = in.difference(*next.seq);
    op.ordinal = in.difference(*next.ordinal);
    *next.seq = op.seq + 1;
    *next.ordinal = op.ordinal + 1;
    op.enqueued_unix_ns = in.difference(before_ns);
    op.start_unix_ns = in.difference(op.enqueued_unix_ns);
    op.duration_ns = in.difference(int64_t{0});
    before_ns = op.enqueued_unix_ns;
    detail.ops.push_back(std::move(op));
  }
  if (in.ok() && !in.at_end()) in.fail("more bytes than a step has");
  if (!in.ok()) return Error{format("a packed step: %s", in.error())};
  return detail;
}

}  // namespace lockstep
