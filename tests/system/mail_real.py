"""Mails to a real mail server, Debian's Exim: over STARTTLS with a password, to those whom it knows, through a server that was
down. Run by ./dev test alerts, which installs it."""

import email
import email.policy
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import harness
import pytest
from certificates import Authority
from test_alerts import notify_file, secret_file, xid

# Whatever it takes is appended to one file. Without TLS nobody may sign in, and without signing in nobody may send.
CONFIGURATION = """
spool_directory = {folder}/spool
log_file_path = {folder}/log-%s
pid_file_path = {folder}/pid
primary_hostname = mail.test
never_users =
keep_environment =
tls_advertise_hosts = *
tls_certificate = {certificate}
tls_privatekey = {key}
auth_advertise_hosts = ${{if eq {{$tls_in_cipher}}{{}} {{}} {{*}}}}
acl_smtp_rcpt = rcpt
acl_smtp_data = data
daemon_smtp_ports = {port}
local_interfaces = 127.0.0.1

begin acl
rcpt:
  deny ! authenticated = *
    message = sign in first
  deny recipients = gone@example.com
    message = no such mailbox
  accept
data:
  accept

begin routers
all:
  driver = accept
  transport = file

begin transports
file:
  driver = appendfile
  file = {folder}/mails/$message_exim_id
  user = {user}
  envelope_to_add
  mode = 0644

begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if and {{ {{eq {{$auth2}}{{lockstep}}}} {{eq {{$auth3}}{{the-right-one}}}} }}}}
  server_set_id = $auth2
"""
USER = "Debian-exim"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Exim takes a configuration of its own from root alone")


class Exim:
    def __init__(self, folder, authority, port):
        self.folder, self.port = folder, port
        certificate, key = authority.sign("mail")
        for one in ("spool", "mails"):
            (folder / one).mkdir(parents=True)
        for source, name in ((certificate, "certificate.pem"), (key, "key.pem")):
            (folder / name).write_bytes(pathlib.Path(source).read_bytes())
        text = CONFIGURATION.format(folder=folder, certificate=folder / "certificate.pem", key=folder / "key.pem", port=port, user=USER)
        (folder / "exim.conf").write_text(text)
        subprocess.run(["chown", "-R", USER, folder], check=True)
        subprocess.run(["chown", "root", folder / "exim.conf"], check=True)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(["/usr/sbin/exim4", "-C", self.folder / "exim.conf", "-bdf", "-q1m"])
        harness.eventually(self.is_listening, 20, "Exim")

    def is_listening(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return None

    def stop(self):
        self.process.terminate()
        self.process.wait(20)

    def mails(self):
        return [email.message_from_bytes(one.read_bytes(), policy=email.policy.default) for one in sorted((self.folder / "mails").iterdir()) if not one.name.endswith(".lock")]

    def log(self):
        return "".join(one.read_text() for one in self.folder.glob("log-*"))


@pytest.fixture
def exim(tmp_path):
    # Exim leaves root for a user of its own, which does not get into the folder of a test.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-exim-"))
    folder.chmod(0o755)
    server = Exim(folder, Authority(tmp_path / "authority"), harness.unused_port())
    yield server
    server.stop()
    shutil.rmtree(folder)


def receiver(exim, tmp_path, to="o@example.com", password="the-right-one"):
    config = {"name": "mail", "type": "email", "smtp": f"smtp://127.0.0.1:{exim.port}", "from": "lockstep@example.com", "to": to}
    config |= {"username": "lockstep", "password_file": str(secret_file(tmp_path, "password", password))}
    return notify_file(tmp_path, config | {"tls": {"ca_file": str(tmp_path / "authority" / "ca.pem")}})


def test_a_mail_comes_over_tls_with_the_right_password_and_says_what_is_wrong(start, tmp_path, exim):
    more = ["--notify", receiver(exim, tmp_path, password="the-wrong-one"), "--external-url", "https://lockstep.example"]
    server = start(harness.Server, tmp_path / "data", more=more)
    xid(server)
    harness.eventually(lambda: "AUTH PLAIN with 535" in json.dumps(server.get("/api/alerts")) or None, 20, "that the password is wrong")
    assert exim.mails() == []
    secret_file(tmp_path, "password", "the-right-one")
    mail = harness.eventually(lambda: exim.mails() or None, 60, "the mail")[0]
    assert mail["Envelope-to"] == "o@example.com" and mail["From"] and mail["Message-ID"] and not mail.defects, mail.as_string()
    assert "XID" in mail["Subject"] + mail.get_body().get_content(), mail.as_string()
    assert "https://lockstep.example/incidents/" in mail.get_body().get_content(), mail.as_string()
    line = next(line for line in exim.log().splitlines() if "<= lockstep@example.com" in line)
    assert "X=TLS" in line and "A=plain:lockstep" in line, line


def test_whom_it_does_not_know_is_seen_and_the_others_get_it(start, tmp_path, exim):
    server = start(harness.Server, tmp_path / "data", more=["--notify", receiver(exim, tmp_path, to=["o@example.com", "gone@example.com"])])
    xid(server)
    mail = harness.eventually(lambda: exim.mails() or None, 30, "the mail")[0]
    assert mail["Envelope-to"] == "o@example.com"
    harness.eventually(lambda: "gone@example.com: 550 no such mailbox" in json.dumps(server.get("/api/alerts")) or None, 20, "who is refused")


def test_a_server_that_was_down_gets_one_mail(start, tmp_path, exim):
    exim.stop()
    server = start(harness.Server, tmp_path / "data", more=["--notify", receiver(exim, tmp_path)])
    xid(server)

    def delivery():
        return next((one for alert in server.get("/api/alerts")["alerts"] for one in alert["deliveries"]), None)

    harness.eventually(lambda: delivery() and delivery()["attempts"] > 1 or None, 30, "two attempts")
    exim.start()
    harness.eventually(lambda: exim.mails() or None, 90, "the mail")
    harness.eventually(lambda: delivery()["state"] == "delivered" or None, 20, "that it is delivered")
    assert len(exim.mails()) == 1
