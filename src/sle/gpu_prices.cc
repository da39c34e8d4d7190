#include "sle/gpu_prices.h"

#include "base/text.h"

namespace lockstep {

Result<GpuPrices> GpuPrices::parse(std::string_view text) {
  GpuPrices prices;
  if (text.empty()) return prices;
  for (const std::string_view part : split(text, ',')) {
    const size_t equals = part.rfind('=');
    const bool named = equals != std::string_view::npos;
    const std::optional<double> price = parse_double(named ? part.substr(equals + 1) : part);
    if (!price || !(*price >= 0) || *price > 1e6 || (named && equals == 0))
      return Error{format("\"%.*s\": a price is a number from 0 to 1000000, or MODEL=NUMBER",
                          static_cast<int>(part.size()), part.data())};
    if (named) {
      prices.by_model_.emplace_back(part.substr(0, equals), *price);
    } else {
      prices.of_others_ = *price;
    }
  }
  return prices;
}

double GpuPrices::of(std::string_view gpu_model) const {
  for (const auto& [name, price] : by_model_)
    if (gpu_model.find(name) != std::string_view::npos) return price;
  return of_others_;
}

}  // namespace lockstep
