"""A server to be measured: its listeners behind TLS or not, with tokens or not, and how much processor time it has taken."""
import pathlib
import secrets
import subprocess
import time


KEYS = {"ECDSA P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "RSA 2048": ["rsa:2048"]}


def make_certificate(folder, kind):
    certificate, key = folder / "server.pem", folder / "server.key"
    words = ["openssl", "req", "-x509", "-newkey", *KEYS[kind], "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*words, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Server:
    """program: lockstepd, with lockstep beside it where there are tokens. folder: empty, for everything it keeps."""

    def __init__(self, program, folder, tls, token=False, key="ECDSA P-256"):
        self.scheme, self.program = "https" if tls else "http", pathlib.Path(program)
        words = [program, "--data", folder / "data"]
        for listener in ("--http", "--otlp-http", "--otlp-grpc"):
            words += [listener, "127.0.0.1:0"]
        self.certificate = ""
        if tls:
            self.certificate, key_file = make_certificate(folder, key)
            words += ["--tls-certificate", self.certificate, "--tls-key", key_file]
        self.admin = folder / "admin"
        if token:
            self.admin.touch(mode=0o600)
            self.admin.write_text(secrets.token_urlsafe(32))
            words += ["--admin-token-file", self.admin]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            raise SystemExit("the server did not start")
        self.addresses = dict(word.split("=", 1) for word in ready.split()[1:])
        self.tokens = {role: self._make_token(role) for role in ("ingest", "read")} if token else {}

    def _make_token(self, role):
        words = [self.program.parent / "lockstep", "token", "create", "--role", role, "--server", self.url("http"), "--token-file", self.admin]
        words += ["--ca", self.certificate] if self.certificate else []
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def url(self, listener):
        return f"{self.scheme}://{self.addresses[listener]}"

    def cpu_s(self):
        """Of all its threads, to the nanosecond: the clock that clock_getcpuclockid() gives for a process."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def stop(self):
        self.process.terminate()
        self.process.wait()
