// PriorBook::from_json: any bytes give a book or one line; a book comes back from its own JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnosis/signals/prior_book.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<PriorBook> book = PriorBook::from_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!book.ok()) return 0;
  Result<PriorBook> again = PriorBook::from_json(book->to_json());
  if (!again.ok() || again->to_json() != book->to_json()) std::abort();
  return 0;
}
