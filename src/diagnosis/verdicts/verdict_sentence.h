// The one line of a verdict, which stands alone in lists, alerts and chats: cause and layer in front of what its finding
// says, and in the past tense once it is over.
//
// A finding's sentence is a template: "{makes|made}" is what is so while it lasts and what was so, "{since}" the first
// step, "{when}" is "since step 12", and "in steps 12 to 48" once it is over.
//
// Thread rule: Thread-safe (pure function).
#pragma once

#include <string>

#include "diagnosis/finding.h"

namespace lockstep {

struct Lasting {
  StepNumber since = kNoStep;
  StepNumber through = kNoStep;
  bool over = false;
};
std::string verdict_sentence(const Finding& finding, const Lasting& lasting);

}  // namespace lockstep
