#include "alert/alert_center.h"

#include "base/text.h"

namespace lockstep {

Result<std::vector<Url>> parse_alertmanagers(const std::string& text) {
  std::vector<Url> urls;
  for (const std::string_view part : split(text, ',')) {
    if (trim(part).empty()) continue;
    Result<Url> url = parse_url(trim(part), 9093);
    if (!url.ok()) return prefixed(url.failure(), "--alertmanager: ");
    urls.push_back(std::move(*url));
  }
  return urls;
}

AlertCenter::AlertCenter(AlertSettings settings, StateStore& state, AlertWatch::Reads reads, RuleManager::Push push,
                         const Clock& clock, const ClockWitness& witness, Counters& counters)
    : settings_(std::move(settings)),
      registry_(state, clock, witness, counters),
      actions_(settings_.actions, settings_.external_url, state, registry_, clock, counters),
      watch_(registry_, actions_, reads, clock, witness),
      rules_(registry_, reads.metrics, std::move(push), settings_.external_url, clock, counters) {
  rules_.reload(settings_.rules);  // none: what rules said before the start is over
  std::vector<ReceiverTerms> terms;
  for (const ReceiverConfig& receiver : settings_.notify.receivers) {
    terms.push_back({receiver.name, receiver.least, receiver.send_resolved, receiver.type == ReceiverType::kPagerDuty});
    senders_.push_back(
        std::make_unique<NotificationSender>(receiver, settings_.external_url, registry_, clock, counters));
  }
  registry_.set_receivers(std::move(terms));
  for (const Url& url : settings_.alertmanagers)
    alertmanagers_.push_back(
        std::make_unique<AlertmanagerSender>(url, settings_.external_url, registry_, clock, counters));
}

AlertCenter::~AlertCenter() {
  stop();
}

void AlertCenter::go_live() {
  live_ = true;
  watch_.go_live();
  tick();
  for (const auto& sender : senders_) sender->start();
  for (const auto& sender : alertmanagers_) sender->start();
  evaluator_.start();
  actions_.start();
}

void AlertCenter::tick(bool is_behind) {
  if (!live_) return;
  watch_.tick(is_behind);
  registry_.tick();
  actions_.release();
}

void AlertCenter::stop() {
  actions_.stop();
  evaluator_.stop();
  for (const auto& sender : senders_) sender->stop();
  for (const auto& sender : alertmanagers_) sender->stop();
  if (live_) registry_.tick();
  live_ = false;
}

void AlertCenter::evaluate(const std::function<bool()>& give_up) {
  rules_.evaluate_due(give_up);
  watch_.poll_services();
}

std::vector<AlertmanagerState> AlertCenter::alertmanagers() const {
  std::vector<AlertmanagerState> list;
  for (const auto& sender : alertmanagers_) list.push_back(sender->state());
  return list;
}

std::vector<AlertCenter::Receiver> AlertCenter::receivers() const {
  std::vector<Receiver> list;
  for (const ReceiverConfig& receiver : settings_.notify.receivers)
    list.push_back({receiver.name, to_text(receiver.type), receiver.least, registry_.waiting(receiver.name)});
  return list;
}

}  // namespace lockstep
