// Any bytes as the file of --notify, and as a mail server's answer: one line, or something that can be used.
#include <cstdlib>

#include "alert/notify_config.h"
#include "alert/smtp_client.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size > 20'000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<NotifyConfig> config = parse_notify_config(text);
  if (!config.ok() && (!config.error().starts_with("line ") || config.error().find('\n') != std::string::npos))
    std::abort();
  if (config.ok()) {
    for (const ReceiverConfig& receiver : config->receivers) {
      if (receiver.name.empty() || receiver.from.find('\n') != std::string::npos) std::abort();
    }
  }
  const Result<SmtpAnswer> answer = parse_smtp_answer(text);
  if (answer.ok() && (answer->bytes > size || answer->text.find('\n') != std::string::npos)) std::abort();
  return 0;
}
