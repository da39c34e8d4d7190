"""Receivers of notifications as tests need them: one that keeps what it got, and can be down, slow or rude; a mail server."""

import base64
import http.server
import json
import socketserver
import threading


class Receiver:
    """Keeps every body that was posted. answer: a function of the number of the post that gives (status, headers, body)."""

    def __init__(self, port=0, answer=lambda number: (200, {}, b"ok")):
        self.posts, self.paths, self.heads = [], [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.posts.append(json.loads(body))
                outer.paths.append(self.path)
                outer.heads.append(dict(self.headers))
                status, headers, said = answer(len(outer.posts))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                try:
                    self.wfile.write(said)
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def alerts(self):
        return [(alert["labels"]["alertname"], alert["status"]) for post in self.posts for alert in post["alerts"]]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class MailServer:
    """Enough of SMTP to take mails. rcpt: a function of an address that gives the answer to it. context: STARTTLS, and then
    the password, come first; whoever gives a wrong one is told what it was."""

    def __init__(self, rcpt=lambda address: "250 ok", context=None, password=""):
        self.mails, self.recipients = [], []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.wfile.write(b"220 test\r\n")
                taken, secured, known = [], context is None, not password
                while line := self.rfile.readline():
                    word = line.split()[0].upper() if line.split() else b""
                    if word == b"STARTTLS" and context:
                        self.wfile.write(b"220 go on\r\n")
                        self.connection = context.wrap_socket(self.connection, server_side=True)
                        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)
                        secured = True
                        continue
                    if word == b"AUTH":
                        given = base64.b64decode(line.split()[2]).decode().split("\0")[2]
                        known = secured and given == password
                        self.wfile.write(b"235 ok\r\n" if known else f"535 {given} is wrong\r\n".encode())
                        continue
                    if word not in (b"EHLO", b"QUIT") and not (secured and known):
                        self.wfile.write(b"530 not like this\r\n")
                        continue
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        text = b""
                        while (part := self.rfile.readline()) not in (b".\r\n", b""):
                            text += part
                        outer.recipients.append(taken)
                        outer.mails.append(text.decode())
                    if word == b"RCPT":
                        address = line.decode().split("<")[1].split(">")[0]
                        answer = rcpt(address)
                        taken += [address] if answer.startswith("2") else []
                        self.wfile.write(answer.encode() + b"\r\n")
                        continue
                    if word == b"QUIT":
                        return
                    self.wfile.write(b"250-test\r\n250 ok\r\n" if word == b"EHLO" else b"250 ok\r\n")

        class Threading(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

        self.server = Threading(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
