#include "sources/nvml/nvml_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace lockstep::nvml {

using enum GpuMetric;

namespace {

constexpr uint32_t kLinkCountField = 91;
constexpr uint32_t kLinkStateField = 165;
constexpr int32_t kLinksMax = 36;

struct LinkField {
  uint32_t field;
  GpuMetric one;      // kCount: only in the sum
  GpuMetric sum;      // kCount: no sum
  const char* label;  // of the sum, where the row wants one
  double scale;
};

// Up to Hopper the first ones answer, from Blackwell on the others. Where both do, the first is taken.
constexpr std::array<LinkField, 16> kLinkFields = {{
    {138, kLinkTransmit, kLinksTransmit, nullptr, 1024},
    {139, kLinkReceive, kLinksReceive, nullptr, 1024},
    {202, kLinkTransmit, kLinksTransmit, nullptr, 1},
    {204, kLinkReceive, kLinksReceive, nullptr, 1},
    {163, kLinkCrc, kLinksError, "crc", 1},
    {161, kLinkReplay, kLinksReplay, nullptr, 1},
    {162, kLinkRecovery, kLinksRecovery, nullptr, 1},
    {215, kLinkRecovery, kLinksRecovery, nullptr, 1},
    {208, kLinkErrors, kLinksError, "receive", 1},
    {221, kLinkSymbolErrors, kLinksError, "symbol", 1},
    {219, kLinkEffectiveErrors, kLinksError, "effective", 1},
    {214, kLinkRecoveryFailed, kLinksError, "recovery_failed", 1},
    {206, kCount, kLinksError, "malformed", 1},
    {207, kCount, kLinksError, "overrun", 1},
    {211, kCount, kLinksError, "integrity", 1},
    {212, kCount, kLinksError, "discard", 1},
}};

}  // namespace

void Links::open(Caller& gpu) {
  opened_ = true;
  FieldBatch count({{kLinkCountField, kCount, 1}});
  count.read(*api_, gpu, [this](const FieldBatch::Request&, double value) {
    count_ = static_cast<int32_t>(std::clamp(value, 0.0, static_cast<double>(kLinksMax)));
  });
  up_.assign(static_cast<size_t>(count_), -1);
  last_.assign(kLinkFields.size(), std::vector<double>(static_cast<size_t>(count_), NAN));
  for (int32_t link = 0; link < count_; ++link) {
    ask_for(link);
  }
}

void Links::ask_for(int32_t link) {
  batch_.add({kLinkStateField, kLinkUp, 1}, link);
  for (const LinkField& row : kLinkFields) batch_.add({row.field, row.one, row.scale}, link);
}

void Links::set_state(int32_t link, bool up) {
  int8_t& before = up_[static_cast<size_t>(link)];
  if (before == 1 && !up) ++downs_;
  before = up ? 1 : 0;
}

void Links::read_states_one_by_one(Caller& gpu) {
  for (int32_t link = 0; link < count_ && gpu.may_ask(api_->link_state); ++link) {
    uint32_t active = 0;
    if (gpu.ask(api_->link_state, static_cast<uint32_t>(link), &active)) set_state(link, active != 0);
  }
}

void Links::read(Caller& gpu, bool bytes_summed_elsewhere, GpuState& out) {
  if (!opened_) open(gpu);
  if (count_ == 0 || gpu.lost() != 0) return;

  std::vector<int32_t> came_up;
  batch_.read(*api_, gpu, [&](const FieldBatch::Request& request, double value) {
    const auto link = static_cast<size_t>(request.link);
    if (request.row.field == kLinkStateField) {
      const bool up = value != 0;
      if (up && up_[link] == 0) came_up.push_back(request.link);
      set_state(request.link, up);
      return;
    }
    for (size_t i = 0; i < kLinkFields.size(); ++i) {
      const LinkField& row = kLinkFields[i];
      if (row.field != request.row.field) continue;
      for (size_t k = 0; k < i; ++k) {
        if (row.one != kCount && kLinkFields[k].one == row.one && !std::isnan(last_[k][link])) return;
      }
      last_[i][link] = value;
      if (row.one != kCount) add_gpu_value(out, row.one, std::to_string(link), value);
      return;
    }
  });
  // A link that was down may have refused its counters; now it may have them.
  for (int32_t link : came_up) {
    batch_.remove_link(link);
    ask_for(link);
  }
  if (!batch_.asks_for(kLinkStateField)) read_states_one_by_one(gpu);
  if (gpu.lost() != 0) return;

  int64_t up_count = 0;
  bool known = false;
  for (size_t link = 0; link < up_.size(); ++link) {
    if (up_[link] < 0) continue;
    known = true;
    up_count += up_[link];
    add_gpu_value(out, kLinkUp, std::to_string(link), up_[link]);
  }
  add_gpu_value(out, kLinks, count_);
  if (known) {
    add_gpu_value(out, kLinksUp, static_cast<double>(up_count));
    add_gpu_value(out, kLinkDowns, static_cast<double>(downs_));
  }
  add_sums(bytes_summed_elsewhere, out);
}

// A link that went down keeps its last counters in the sum: a sum that falls would be read as a reset.
void Links::add_sums(bool bytes_summed_elsewhere, GpuState& out) const {
  for (size_t i = 0; i < kLinkFields.size(); ++i) {
    const LinkField& row = kLinkFields[i];
    if (bytes_summed_elsewhere && (row.sum == kLinksTransmit || row.sum == kLinksReceive)) continue;
    double sum = 0;
    bool any = false;
    bool first = true;
    for (size_t k = 0; k < kLinkFields.size(); ++k) {
      if (kLinkFields[k].sum != row.sum || kLinkFields[k].label != row.label) continue;
      if (k < i) first = false;
      for (double value : last_[k]) {
        if (std::isnan(value)) continue;
        sum += value;
        any = true;
      }
    }
    if (!any || !first) continue;
    if (row.label != nullptr) {
      add_gpu_value(out, row.sum, row.label, sum);
    } else {
      add_gpu_value(out, row.sum, sum);
    }
  }
}

}  // namespace lockstep::nvml
