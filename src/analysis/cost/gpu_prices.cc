#include "analysis/cost/gpu_prices.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kModelsNamedMax = 3;

std::string names_of(const std::set<std::string>& models) {
  std::string text;
  size_t named = 0;
  for (const std::string& model : models) {
    if (named == kModelsNamedMax) return text + format(" and %zu more", models.size() - named);
    text += (named++ == 0 ? "" : ", ") + (model.empty() ? "GPUs of unknown model" : as_one_line(model));
  }
  return text;
}

}  // namespace

GpuCost& GpuCost::operator+=(const GpuCost& other) {
  gpu_seconds += other.gpu_seconds;
  priced_gpu_seconds += other.priced_gpu_seconds;
  money += other.money;
  if (other.has_price()) price_least = has_price() ? std::min(price_least, other.price_least) : other.price_least;
  price_most = std::max(price_most, other.price_most);
  unpriced.insert(other.unpriced.begin(), other.unpriced.end());
  return *this;
}

std::string gpu_time_text(double gpu_seconds) {
  const double hours = gpu_seconds / 3600;
  return hours < 0.1 ? format("%.1f GPU-minutes", gpu_seconds / 60) : format("%.1f GPU-hours", hours);
}

std::string money_text(const GpuCost& cost) {
  if (!cost.has_price()) return cost.unpriced.empty() ? "" : "no price for " + names_of(cost.unpriced);
  std::string text = format("%.2f at %.2f", cost.money, cost.price_least);
  if (cost.price_most > cost.price_least) text += format(" to %.2f", cost.price_most);
  text += " a GPU-hour";
  if (!cost.unpriced.empty())
    text += ", and " + gpu_time_text(cost.gpu_seconds - cost.priced_gpu_seconds) + " without a price (" +
            names_of(cost.unpriced) + ")";
  return text;
}

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

GpuCost GpuPrices::cost(double gpu_seconds, const GpusByModel& gpus) const {
  GpuCost cost{.gpu_seconds = gpu_seconds, .unpriced = {}};
  if (!known()) return cost;
  int64_t all = 0;
  for (const auto& [model, count] : gpus) all += count;
  if (all <= 0) return this->cost(gpu_seconds, {{"", 1}});
  for (const auto& [model, count] : gpus) {
    if (count <= 0) continue;
    GpuCost part{.gpu_seconds = gpu_seconds * static_cast<double>(count) / static_cast<double>(all), .unpriced = {}};
    if (const double price = of(model); price > 0) {
      part.priced_gpu_seconds = part.gpu_seconds;
      part.money = part.gpu_seconds / 3600 * price;
      part.price_least = part.price_most = price;
    } else {
      part.unpriced.insert(model);
    }
    cost += part;
  }
  cost.gpu_seconds = gpu_seconds;  // not what its parts add up to but for rounding
  return cost;
}

}  // namespace lockstep
