// /prometheus/api/v1/format_query and parse_query: a query in normal form, and as a tree.
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "query/promql/parser.h"
#include "query/promql/printer.h"

namespace lockstep {
namespace {

using promql::AtModifier;
using promql::DurationExpr;
using promql::Expr;

void write_words(JsonWriter& json, const std::vector<std::string>& words) {
  json.begin_array();
  for (const std::string& word : words) json.string(word);
  json.end_array();
}

void write_matchers(JsonWriter& json, const Expr& selector) {
  static constexpr const char* kOps[] = {"=", "!=", "=~", "!~"};
  json.key("matchers").begin_array();
  for (const LabelMatcher& matcher : selector.matchers)
    json.begin_object()
        .field("name", matcher.name)
        .field("value", matcher.value)
        .field("type", kOps[static_cast<size_t>(matcher.op)])
        .end_object();
  json.end_array();
}

void write_duration(JsonWriter& json, const DurationExpr* duration) {
  if (duration == nullptr) {
    json.null();
    return;
  }
  using Op = DurationExpr::Op;
  static constexpr const char* kOps[] = {"", "step", "range", "min_of", "max_of", "+", "-", "*", "/", "%", "^", "-"};
  if (duration->op == Op::kNumber) {
    json.begin_object()
        .field("type", "numberLiteral")
        .field("val", promql::plain_number(duration->seconds))
        .field("duration", duration->is_duration)
        .end_object();
    return;
  }
  json.begin_object().field("type", "durationExpr").field("op", kOps[static_cast<size_t>(duration->op)]).key("lhs");
  write_duration(json, duration->left.get());
  json.key("rhs");
  write_duration(json, duration->right.get());
  json.field("wrapped", duration->in_parens).end_object();
}

void write_times(JsonWriter& json, const Expr& expr) {
  json.field("offset", expr.offset_ms).key("offsetExpr");
  write_duration(json, expr.offset_expr.get());
  json.key("timestamp");
  if (expr.at == AtModifier::kTime) {
    json.number(expr.at_ms);
  } else {
    json.null();
  }
  json.key("startOrEnd");
  if (expr.at == AtModifier::kStart) {
    json.string("start");
  } else if (expr.at == AtModifier::kEnd) {
    json.string("end");
  } else {
    json.null();
  }
}

void write_fill(JsonWriter& json, const char* name, const std::optional<double>& fill) {
  json.key(name);
  if (fill) {
    json.number(*fill);
  } else {
    json.null();
  }
}

void write_tree(JsonWriter& json, const Expr& expr);

void write_selector(JsonWriter& json, const Expr& selector) {
  write_times(json, selector);
  write_matchers(json, selector);
  json.field("anchored", selector.anchored).field("smoothed", selector.smoothed);
}

void write_aggregate(JsonWriter& json, const Expr& expr) {
  json.field("type", "aggregation").field("op", promql::op_text(expr.aggregate)).key("expr");
  write_tree(json, expr.child());
  json.key("param");
  if (expr.children.size() > 1) {
    write_tree(json, expr.child(1));
  } else {
    json.null();
  }
  json.key("grouping");
  write_words(json, expr.grouping);
  json.field("without", expr.without);
}

void write_matching(JsonWriter& json, const promql::VectorMatching& matching) {
  static constexpr const char* kCards[] = {"one-to-one", "many-to-one", "one-to-many", "many-to-many"};
  json.begin_object().field("card", kCards[static_cast<size_t>(matching.card)]).key("labels");
  write_words(json, matching.labels);
  json.field("on", matching.on).key("include");
  write_words(json, matching.include);
  json.key("fillValues").begin_object();
  write_fill(json, "lhs", matching.fill_left);
  write_fill(json, "rhs", matching.fill_right);
  json.end_object().end_object();
}

void write_binary(JsonWriter& json, const Expr& expr) {
  json.field("type", "binaryExpr").field("op", promql::op_text(expr.op)).key("lhs");
  write_tree(json, expr.child(0));
  json.key("rhs");
  write_tree(json, expr.child(1));
  json.key("matching");
  if (expr.matching) {
    write_matching(json, *expr.matching);
  } else {
    json.null();
  }
  json.field("bool", expr.return_bool);
}

void write_call(JsonWriter& json, const Expr& expr) {
  json.field("type", "call")
      .key("func")
      .begin_object()
      .field("name", expr.function->name)
      .key("argTypes")
      .begin_array();
  for (promql::ValueType type : expr.function->arguments) json.string(prometheus_type(type));
  json.end_array()
      .field("variadic", expr.function->variadic)
      .field("returnType", prometheus_type(expr.function->returns));
  json.end_object().key("args").begin_array();
  for (const auto& child : expr.children) write_tree(json, *child);
  json.end_array();
}

void write_tree(JsonWriter& json, const Expr& expr) {
  json.begin_object();
  switch (expr.kind) {
    case Expr::Kind::kNumber:
      json.field("type", "numberLiteral").field("val", promql::plain_number(expr.number));
      break;
    case Expr::Kind::kString:
      json.field("type", "stringLiteral").field("val", expr.text);
      break;
    case Expr::Kind::kParen:
      json.field("type", "parenExpr").key("expr");
      write_tree(json, expr.child());
      break;
    case Expr::Kind::kUnary:
      json.field("type", "unaryExpr").field("op", expr.negative ? "-" : "+").key("expr");
      write_tree(json, expr.child());
      break;
    case Expr::Kind::kSelector:
      json.field("type", "vectorSelector").field("name", expr.text);
      write_selector(json, expr);
      break;
    case Expr::Kind::kMatrix:
      json.field("type", "matrixSelector")
          .field("name", expr.child().text)
          .field("range", expr.range_ms)
          .key("rangeExpr");
      write_duration(json, expr.range_expr.get());
      write_selector(json, expr.child());
      break;
    case Expr::Kind::kSubquery:
      json.field("type", "subquery").key("expr");
      write_tree(json, expr.child());
      json.field("range", expr.range_ms).key("rangeExpr");
      write_duration(json, expr.range_expr.get());
      json.field("step", expr.step_ms).key("stepExpr");
      write_duration(json, expr.step_expr.get());
      write_times(json, expr);
      break;
    case Expr::Kind::kAggregate:
      write_aggregate(json, expr);
      break;
    case Expr::Kind::kBinary:
      write_binary(json, expr);
      break;
    case Expr::Kind::kCall:
      write_call(json, expr);
      break;
  }
  json.end_object();
}

Result<std::unique_ptr<Expr>> parsed(const ApiRequest& request) {
  const PrometheusForm form = LOCKSTEP_TRY(PrometheusForm::read(request.http));
  Result<std::unique_ptr<Expr>> expr = promql::parse(form.value("query"));
  if (!expr.ok()) return prefixed(expr.failure(), "invalid parameter \"query\": ");
  return expr;
}

}  // namespace

HttpResponse prometheus_format_query(const ApiContext&, const ApiRequest& request) {
  const Result<std::unique_ptr<Expr>> expr = parsed(request);
  if (!expr.ok()) return prometheus_error("bad_data", expr.error());
  return prometheus_answer([&](JsonWriter& json) { json.string(promql::pretty(**expr)); });
}

HttpResponse prometheus_parse_query(const ApiContext&, const ApiRequest& request) {
  const Result<std::unique_ptr<Expr>> expr = parsed(request);
  if (!expr.ok()) return prometheus_error("bad_data", expr.error());
  return prometheus_answer([&](JsonWriter& json) { write_tree(json, **expr); });
}

}  // namespace lockstep
