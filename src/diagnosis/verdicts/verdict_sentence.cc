#include "diagnosis/verdicts/verdict_sentence.h"

#include "base/text.h"

namespace lockstep {
namespace {

std::string step_text(StepNumber step) {
  return with_thousands(step.value());
}

std::string when(const Lasting& lasting) {
  if (!lasting.over) return "since step " + step_text(lasting.since);
  if (lasting.through <= lasting.since) return "in step " + step_text(lasting.since);
  return "in steps " + step_text(lasting.since) + " to " + step_text(lasting.through);
}

// What stands for "{mark}"; nothing where it is none of ours, such as a part of somebody's name.
std::optional<std::string> meaning_of(std::string_view mark, const Lasting& lasting) {
  if (mark == "since") return step_text(lasting.since);
  if (mark == "when") return when(lasting);
  const size_t bar = mark.find('|');
  if (bar == std::string_view::npos) return std::nullopt;
  return std::string(lasting.over ? mark.substr(bar + 1) : mark.substr(0, bar));
}

std::string filled_in(std::string_view text, const Lasting& lasting) {
  std::string out;
  while (true) {
    const size_t open = text.find('{'), close = text.find('}', open);
    if (close == std::string_view::npos) return out.append(text);
    const std::optional<std::string> meaning = meaning_of(text.substr(open + 1, close - open - 1), lasting);
    out.append(text.substr(0, open));
    out.append(meaning ? *meaning : std::string(text.substr(open, close - open + 1)));
    text.remove_prefix(close + 1);
  }
}

// "Slow data loader (input): "; nothing where neither cause nor layer is known.
std::string headline(const Finding& finding) {
  const std::string layer = finding.layer == Layer::kUnknown ? "" : to_text(finding.layer);
  if (const std::string title = title_of(finding.cause); !title.empty())
    return title + (layer.empty() ? "" : " (" + layer + ")") + ": ";
  return layer.empty() ? "" : "Layer " + layer + ": ";
}

}  // namespace

std::string verdict_sentence(const Finding& finding, const Lasting& lasting) {
  return headline(finding) + filled_in(finding.sentence, lasting);
}

}  // namespace lockstep
