// CausePriors::from_json: any bytes give a book or one line; a book comes back from its own JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnosis/signals/cause_priors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<CausePriors> book = CausePriors::from_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!book.ok()) return 0;
  Result<CausePriors> again = CausePriors::from_json(book->to_json());
  if (!again.ok() || again->to_json() != book->to_json()) std::abort();
  return 0;
}
