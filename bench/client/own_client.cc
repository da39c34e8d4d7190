// The agent's way: GrpcClient of src/net.
#include "client.h"
#include "net/grpc_client.h"

int main(int count, char** words) {
  using namespace lockstep;
  const Arguments arguments = read_arguments(count, words);
  Result<GrpcTarget> target = parse_grpc_target(arguments.url, 4317);
  if (!target.ok()) return std::fprintf(stderr, "%s\n", target.error().c_str()), 1;
  target->tls_options.ca_file = arguments.ca;
  GrpcClient client(*target);
  GrpcRequest request{kMethod, request_of(arguments.bytes), "", {}, -1};
  if (!arguments.token.empty()) request.metadata = {{"authorization", "Bearer " + arguments.token}};
  double first_ms = 0;
  for (long call = 0; call < arguments.calls; ++call) {
    const Result<GrpcResponse> response = client.call(request);
    if (!response.ok()) return std::fprintf(stderr, "%s\n", response.error().c_str()), 1;
    if (response->code != GrpcCode::kOk) return std::fprintf(stderr, "%s\n", response->message.c_str()), 1;
    if (call == 0) first_ms = now_ms();
  }
  report(first_ms);
}
