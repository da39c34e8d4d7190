"""A server with TLS and a token for each role, asked as others ask it: the API with a read token, receivers with an ingest
token."""

import pathlib

import harness
from certificates import Authority


def secret_file(folder, name, content):
    path = pathlib.Path(folder) / name
    path.touch(mode=0o600)
    path.write_text(content + "\n")
    return path


class SecuredServer(harness.Server):
    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder, self.papers = folder, Authority(folder / "authority")
        self.ca = self.papers.certificate
        certificate, key = self.papers.sign("server")
        admin = secret_file(folder, "admin.token", "an-admin-token-that-nobody-else-has-0123456789")
        more = ["--tls-certificate", certificate, "--tls-key", key, "--admin-token-file", admin]
        super().__init__(folder / "data", more=more)
        self.token_files = {role: self._token(role, admin) for role in ("ingest", "read")}

    def _token(self, role, admin):
        made = harness.lockstep(
            "token", "create", "--role", role, "--name", role, "--server", self.url, "--ca", self.ca,
            environment={"LOCKSTEP_TOKEN_FILE": str(admin)},
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        return secret_file(self.folder, f"{role}.token", made.stdout.strip())

    def token(self, role):
        return self.token_files[role].read_text().strip()

    def _secured(self, name, role):
        address = self.ready[name]
        return harness.SecuredAddress(address, self.ca, self.token(role)) if hasattr(self, "token_files") else address

    @property
    def http(self):
        return self._secured("http", "read")

    @property
    def otlp_http(self):
        return self._secured("otlp_http", "ingest")

    @property
    def url(self):
        return "https://" + self.ready["http"]

    @property
    def otlp(self):
        headers = {"Authorization": f"Bearer {self.token('ingest')}"}
        return f"https://{self.otlp_http}", {"certificate_file": str(self.ca), "headers": headers}
