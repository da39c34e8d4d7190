#include "sim/read_verdicts.h"

#include <simdjson.h>

#include "base/text.h"

namespace lockstep::sim {
namespace {

std::string text_of(simdjson::dom::element object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

}  // namespace

Result<std::vector<ReadVerdict>> read_verdicts(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array verdicts;
  simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      (root.get(verdicts) != simdjson::SUCCESS && root["verdicts"].get(verdicts) != simdjson::SUCCESS)) {
    return Error{format("not an array of verdicts: %s", as_one_line(json.substr(0, 120)).c_str())};
  }
  std::vector<ReadVerdict> read;
  for (simdjson::dom::element item : verdicts) {
    ReadVerdict& verdict = read.emplace_back();
    verdict.id = text_of(item, "id");
    verdict.state = term_of<VerdictState>(text_of(item, "state"));
    verdict.kind = term_of<VerdictKind>(text_of(item, "kind"));
    verdict.sentence = text_of(item, "sentence");
    if (double share = 0; item["lost_share"].get(share) == simdjson::SUCCESS) verdict.lost_share = share;
    simdjson::dom::element culprit;
    simdjson::dom::array list;
    if (verdict.id.empty() || item["culprit"].get(culprit) != simdjson::SUCCESS ||
        culprit["rank"].get(list) != simdjson::SUCCESS) {
      return Error{format("verdict \"%s\" has no id or no culprit.rank", as_one_line(verdict.id).c_str())};
    }
    verdict.layer = term_of<Layer>(text_of(culprit, "layer"));
    verdict.place = text_of(culprit, "place");
    verdict.cause = term_of<Cause>(text_of(culprit, "cause")).value_or(Cause::kNone);
    for (simdjson::dom::element rank : list) {
      int64_t number = 0;
      if (rank.get(number) == simdjson::SUCCESS) verdict.ranks.push_back(Rank{static_cast<int32_t>(number)});
    }
    if (item["next"].get(list) == simdjson::SUCCESS)
      for (simdjson::dom::element next : list) verdict.commands.push_back(text_of(next, "command"));
    if (item["alternatives"].get(list) != simdjson::SUCCESS) continue;
    for (simdjson::dom::element alternative : list) verdict.alternatives.push_back(text_of(alternative, "culprit"));
  }
  return read;
}

}  // namespace lockstep::sim
