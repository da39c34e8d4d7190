"""What a web page of another site, or one whose name was made to point here, may not do (docs/guide/browsers.md)."""

import http.client

import harness
import pytest

ADMIN = "/prometheus/api/v1/admin/tsdb/"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = harness.Server(
        tmp_path_factory.mktemp("cross_site") / "data",
        more=["--admin-api", "--allowed-host", "lockstep.example.com,.corp.example"],
    )
    yield one
    one.stop()


def ask(address, method, path, headers, body=b""):
    """As a browser would: every header is the caller's, the Host too."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": address, **headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, {k.lower() for k, _ in response.getheaders()}, response.read().decode()
    finally:
        connection.close()


def test_only_names_of_the_server_are_answered(server):
    for host in ("localhost:7070", "127.0.0.1", "[::1]:7070", "lockstep.example.com", "a.corp.example:80"):
        assert ask(server.http, "GET", "/api/jobs", {"Host": host})[0] == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example:7070", "lockstep.example.com.evil.example"):
        for path in ("/api/jobs", "/", "/metrics", "/prometheus/api/v1/query?query=1"):
            status, _, text = ask(server.http, "GET", path, {"Host": host})
            assert status == 403 and "--allowed-host" in text, (host, path, text)


@pytest.mark.parametrize("path", ["delete_series?match[]=up", "clean_tombstones", "snapshot"])
def test_a_form_of_another_site_deletes_and_copies_nothing(server, path):
    for headers in (
        {},
        FORM,
        {"Content-Type": "text/plain"},
        {**FORM, "Origin": "http://evil.example"},
        {**FORM, "Origin": "null"},
        {**FORM, "Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "application/json", "Origin": "https://evil.example"},
    ):
        status, names, text = ask(server.http, "POST", ADMIN + path, headers)
        assert status == 403, (headers, text)
        assert text.count("\n") == 1 and not any(name.startswith("access-control") for name in names)
    for headers in ({"X-Lockstep": "1"}, {**FORM, "Origin": f"http://{server.http}"}, {"Content-Type": "application/json"}):
        assert ask(server.http, "POST", ADMIN + path, headers)[0] in (200, 204), headers


def test_remote_write_needs_its_content_type(server):
    write = "/prometheus/api/v1/write"
    assert ask(server.http, "POST", write, {}, b"\0")[0] == 415
    assert ask(server.http, "POST", write, {"Content-Type": "text/plain"}, b"\0")[0] == 415
    assert ask(server.http, "POST", write, {"Content-Type": "application/x-protobuf"}, b"\0")[0] == 204


def test_queries_as_a_form_are_answered_but_not_for_pages_of_other_sites(server):
    query = "/prometheus/api/v1/query"
    assert ask(server.http, "POST", query, FORM, b"query=1")[0] == 200
    assert ask(server.http, "POST", query, {**FORM, "Origin": f"http://{server.http}"}, b"query=1")[0] == 200
    assert ask(server.http, "POST", query, {**FORM, "Origin": "https://lockstep.example.com"}, b"query=1")[0] == 200
    assert ask(server.http, "POST", query, {**FORM, "Origin": "http://evil.example"}, b"query=1")[0] == 403
    assert ask(server.http, "GET", query + "?query=1", {"Origin": "http://evil.example"})[0] == 403


def test_otlp_is_taken_under_any_name_but_not_from_pages(server):
    body = {"Content-Type": "application/json"}
    assert ask(server.otlp_http, "POST", "/v1/logs", {**body, "Host": "otlp.svc.cluster.local"}, b"{}")[0] == 200
    rebound = {**body, "Host": "evil.example:4318", "Origin": "http://evil.example:4318"}
    assert ask(server.otlp_http, "POST", "/v1/logs", rebound, b"{}")[0] == 403
    # A poll takes commands off the list: an image may not.
    poll = "/v1/lockstep/commands?host=a&after=1"
    assert ask(server.otlp_http, "GET", poll, {})[0] == 403
    assert ask(server.otlp_http, "GET", "/v1/lockstep/commands", {"X-Lockstep": "1"})[0] == 400
    assert ask(server.otlp_http, "POST", "/v1/lockstep/uploads", {}, b"{}")[0] == 403
    assert ask(server.otlp_http, "POST", "/v1/lockstep/uploads", {"X-Lockstep": "1"}, b"{}")[0] == 400


def test_refusals_are_counted(server):
    ask(server.http, "GET", "/", {"Host": "evil.example"})
    page = ask(server.http, "GET", "/metrics", {})[2]
    assert 'lockstep_http_bad_requests_total{receiver="http",reason="foreign_host"' in page
