"""Certificates for peers that speak TLS, made by openssl."""

import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


class Authority:
    """A CA in a folder, and what it signs."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.certificate = folder / "ca.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={folder.name}", "-keyout", folder / "ca.key", "-out", self.certificate,
        )  # fmt: skip

    def sign(self, name, alternative="IP:127.0.0.1,DNS:localhost"):
        """(certificate, key)"""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
            "-days", "1", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key
