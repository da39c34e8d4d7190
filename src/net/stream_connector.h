// Opens streams to one peer, again and again, with TLS or without: what the clients in this folder keep.
//
// Thread rule: Confined.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/stream.h"
#include "net/tls.h"

namespace lockstep {

class Connector {
 public:
  // tls: none for a plain stream. application_protocol: must be agreed on by ALPN where TLS is used; empty: no ALPN.
  Connector(StreamAddress address, const std::optional<TlsOptions>& tls, std::string application_protocol = {})
      : address_(std::move(address)), application_protocol_(std::move(application_protocol)) {
    if (tls) tls_.emplace(*tls, application_protocol_);
  }

  Result<std::unique_ptr<Stream>> open(const Deadline& deadline) {
    UniqueFd connected = LOCKSTEP_TRY(connect_socket(address_, deadline));
    if (!tls_) return plain_stream(std::move(connected));
    Result<std::unique_ptr<Stream>> stream = tls_->open(std::move(connected), address_.host, deadline);
    if (stream.ok() && (*stream)->application_protocol() != application_protocol_)
      return Error{"the server does not offer " + application_protocol_ + " over TLS", ErrorCode::kOtherProtocol};
    return stream;
  }

  const StreamAddress& address() const { return address_; }
  bool tls() const { return tls_.has_value(); }

 private:
  StreamAddress address_;
  std::string application_protocol_;
  std::optional<TlsClient> tls_;
};

}  // namespace lockstep
