// Any content of a file of sysfs, and any output of ethtool.
#include <cmath>
#include <cstdlib>

#include "sources/nic/ethtool.h"
#include "sources/nic/ethtool_names.h"
#include "sources/nic/infiniband.h"
#include "sources/nic/nic_address.h"
#include "sources/nic/pci_path.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const EthtoolStatistic& statistic : parse_ethtool_text(text)) (void)ethtool_meaning(statistic.name);
  if (std::optional<PortState> state = parse_port_state(text); state && state->number < 0) std::abort();
  if (std::optional<double> rate = parse_port_rate(text); rate && !std::isfinite(*rate)) std::abort();
  if (std::optional<double> speed = parse_link_speed(text); speed && !(*speed > 0)) std::abort();
  (void)parse_aer_total(text);
  if (std::optional<std::string> address = address_of_gid(text); address && address->empty()) std::abort();
  const PciDevice device = pci_device_from_path(text);
  if (!device.chain.empty() && !is_pci_address(device.address)) std::abort();
  (void)pci_distance(device, pci_device_from_path(text.substr(0, size / 2)));
  return 0;
}
