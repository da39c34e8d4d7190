"""People sign in through a real OpenID Connect issuer (the package oidc-provider), as a browser would: redirects, cookies and all."""
import http.client
import json
import pathlib
import secrets
import subprocess
import urllib.parse

import harness
import pytest

HERE = pathlib.Path(__file__).resolve().parent
PEOPLE = {
    "ada": {"groups": ["ml"], "email": "ada@example.com"},
    "bob": {"groups": ["sre", "ml"], "email": "bob@example.com"},
    "eve": {"groups": ["sales"], "email": "eve@example.com"},
}


class Browser:
    """Keeps cookies by host and path, follows redirects and nothing else."""

    def __init__(self):
        self.cookies = {}

    def get(self, url, method="GET", headers=None, follow=True, body=None):
        for _ in range(10):
            parts = urllib.parse.urlsplit(url)
            path = parts.path + ("?" + parts.query if parts.query else "")
            cookies = "; ".join(f"{name}={value}" for (host, name), (under, value) in self.cookies.items() if host == parts.netloc and parts.path.startswith(under))
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
            connection.request(method, path or "/", body=body, headers={**(headers or {}), **({"Cookie": cookies} if cookies else {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            for name, value in answer.getheaders():
                if name.lower() == "set-cookie":
                    self.take(parts.netloc, value)
            connection.close()
            if follow and answer.status in (302, 303):
                url = urllib.parse.urljoin(url, answer.getheader("location"))
                continue
            return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}, url
        raise AssertionError("too many redirects")

    def take(self, host, cookie):
        pair, *attributes = [part.strip() for part in cookie.split(";")]
        name, value = pair.split("=", 1)
        under = next((one.split("=", 1)[1] for one in attributes if one.lower().startswith("path=")), "/")
        if value:
            self.cookies[host, name] = (under, value)
        else:
            self.cookies.pop((host, name), None)


class World:
    def __init__(self, folder):
        port, issuer_port = harness.unused_port(), harness.unused_port()
        self.issuer = f"http://127.0.0.1:{issuer_port}"
        redirect = f"http://127.0.0.1:{port}/api/session/oidc/callback"
        secret = folder / "client_secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_urlsafe(24) + "\n")
        self.secret = secret.read_text().strip()
        words = ["node", HERE / "oidc_issuer.mjs", str(issuer_port), "lockstep", redirect, secret]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdin.write(json.dumps(PEOPLE))
        self.process.stdin.close()
        while (line := self.process.stdout.readline()) != "ready\n":
            assert line, "the issuer did not start"
        rules = [{"value": "ml", "role": "read"}, {"value": "sre", "role": "operate", "tenant": "*"}]
        config = folder / "oidc.json"
        config.write_text(json.dumps({"issuer": self.issuer, "client_id": "lockstep", "client_secret_file": str(secret), "redirect_url": redirect, "name": "Example", "rules": rules}))
        admin = folder / "admin"
        admin.touch(mode=0o600)
        admin.write_text(secrets.token_urlsafe(32) + "\n")
        self.server = harness.Server(folder / "data", http=f"127.0.0.1:{port}", more=["--admin-token-file", admin, "--oidc", config])
        self.url = f"http://127.0.0.1:{port}"

    def sign_in(self, who, browser):
        Browser().get(f"{self.issuer}/next?who={who}", method="POST")
        return browser.get(f"{self.url}/api/session/oidc?return=/jobs/a%20b")

    def stop(self):
        self.server.stop()
        self.process.kill()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("oidc"))
    yield made
    made.stop()


def session_of(world, browser):
    return json.loads(browser.get(f"{world.url}/api/session")[1])


def test_the_page_learns_that_there_is_an_issuer(world):
    assert session_of(world, Browser())["issuer"] == "Example"


def test_a_person_signs_in_and_may_do_what_the_rules_say(world):
    browser = Browser()
    status, page, headers, url = world.sign_in("ada", browser)
    assert status == 200 and "Signed in as ada@example.com" in page, page
    assert 'content="0;url=/jobs/a b"' in page
    session = session_of(world, browser)
    assert session["name"] == "ada@example.com" and session["roles"] == ["read"] and session["signed_in"]
    assert browser.get(f"{world.url}/api/jobs")[0] == 200
    assert browser.get(f"{world.url}/api/tokens")[0] == 403
    assert browser.get(f"{world.url}/api/session/end", "POST", {"Content-Type": "application/json", **harness.OURS}, body="{}")[0] == 200
    assert browser.get(f"{world.url}/api/jobs")[0] == 401


def test_the_strongest_rule_counts(world):
    browser = Browser()
    assert world.sign_in("bob", browser)[0] == 200
    assert session_of(world, browser)["roles"] == ["operate"]
    assert browser.get(f"{world.url}/api/jobs", headers={"X-Scope-OrgID": "default"})[0] == 200


def test_whoever_no_rule_knows_is_told_so_and_gets_nothing(world):
    browser = Browser()
    status, page, _, _ = world.sign_in("eve", browser)
    assert status == 403 and "no rule gives a role" in page
    assert browser.get(f"{world.url}/api/jobs")[0] == 401


def test_an_answer_belongs_to_the_browser_that_began_and_is_good_once(world):
    Browser().get(f"{world.issuer}/next?who=ada", method="POST")
    mine = Browser()
    _, _, headers, _ = mine.get(f"{world.url}/api/session/oidc", follow=False)
    url = headers["location"]
    while not url.startswith(world.url):
        _, _, headers, here = mine.get(url, follow=False)
        url = urllib.parse.urljoin(here, headers["location"])
    stranger = Browser()
    assert stranger.get(url)[0] == 403
    assert stranger.get(f"{world.url}/api/jobs")[0] == 401
    assert mine.get(url)[0] == 403, "the try of the stranger used it up"


def test_secrets_are_in_no_log_and_no_answer(world):
    browser = Browser()
    page = world.sign_in("ada", browser)
    cookie = next(value for (_, name), (_, value) in browser.cookies.items() if name == "lockstep_session")
    for secret in (world.secret, cookie):
        assert secret not in page[1] and secret not in world.server.log()
