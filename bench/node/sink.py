"""An OTLP/HTTP server that takes everything and counts its bytes."""

import http.server
import threading

from cost import tcp_bytes


class Sink:
    def __init__(self):
        self._lock, self._bytes = threading.Lock(), 0
        self.requests, sink = 0, self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            carried = 0  # by this connection, as far as it is counted

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()
                with sink._lock:
                    sink.requests += 1
                    now = tcp_bytes(self.connection)
                    sink._bytes += now - self.carried
                    self.carried = now

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def bytes(self):
        """Payload of all connections so far, in both directions."""
        with self._lock:
            return self._bytes

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
