"""One scrape file, two readers: Debian's Prometheus and ours get the same targets from it, and the same series from them.
The exporters: a real node exporter behind TLS and a password, and a page that shows how it was asked."""

import http.server
import json
import shutil
import threading

import certificates
import harness
import peers
import pytest

NAME, PASSWORD, TOKEN = "scraper", "let-me-in", "s3cret-list"
HASHED = "$2b$04$wdpEFaTCnfRdWX0SoN5APOvyVqUJp8V/1crAtAkZZlwr1Kd09Dv52"  # the password, by bcrypt
LISTED = 12

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: node
  scheme: https
  static_configs: [{{targets: ["{node}"], labels: {{Rack: "R-07"}}}}]
  basic_auth: {{username: {name}, password_file: {folder}/password}}
  tls_config: {{ca_file: {ca}, server_name: node.example}}
  relabel_configs:
  - {{source_labels: [__address__], regex: "([^:]+):.*", target_label: host}}
  - {{source_labels: [Rack], action: lowercase, target_label: rack}}
  - {{action: labeldrop, regex: Rack}}
  metric_relabel_configs:
  - {{source_labels: [__name__], regex: "node_(load|cpu_seconds|memory_Mem).*", action: keep}}
  - {{source_labels: [__name__, mode], regex: "node_cpu_seconds_total;(guest|softirq|steal)", action: drop}}
  - {{source_labels: [mode], action: uppercase, target_label: mode}}
  - {{regex: "(cpu)", action: labelmap, replacement: "${{1}}_number"}}
  - {{regex: cpu, action: labeldrop}}
  - {{source_labels: [__name__], regex: "node_load(.*)", target_label: minutes}}
  - {{source_labels: [__name__], regex: "node_load.*", target_label: __name__, replacement: node_load}}
- job_name: probe
  metrics_path: /probe
  params: {{module: [http_2xx], target: ["nobody"], more: [a, "b c"]}}
  static_configs: [{{targets: ["https://example.org/a?b=c", "second.example", "third.example"]}}]
  relabel_configs:
  - {{source_labels: [__address__], target_label: __param_target}}
  - {{source_labels: [__param_target], target_label: instance}}
  - {{source_labels: [__address__], regex: "third.*", action: drop}}
  - {{target_label: __address__, replacement: "{page}"}}
- job_name: files
  honor_labels: true
  file_sd_configs: [{{files: ["{folder}/targets/*.json"]}}]
  relabel_configs:
  - {{source_labels: [env], regex: "prod|", action: keep}}
  - {{source_labels: [__address__, shard], separator: "", action: hashmod, modulus: 3, target_label: __tmp_share}}
  - {{source_labels: [__tmp_share], regex: "[01]", action: keep}}
  - {{source_labels: [__tmp_share], target_label: share, replacement: "$1-of-$$3"}}
  - {{source_labels: [__meta_filepath], regex: ".*/(?P<file>[^/]+)\\\\.json", target_label: list, replacement: "${{file}}"}}
  - {{source_labels: [env], target_label: "in_${{1}}", replacement: "yes"}}
- job_name: listed
  http_sd_configs: [{{url: "http://{page}/list?zone=a", authorization: {{type: Bearer, credentials: {token}}}, refresh_interval: 1s}}]
  relabel_configs:
  - {{regex: "__meta_(zone)", action: labelmap}}
  - {{source_labels: [wanted_path], regex: "(.+)", target_label: __metrics_path__}}
  - {{source_labels: [__address__], action: keepequal, target_label: copy}}
"""


def page_server(asked):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind = "text/plain; version=0.0.4"
            if self.path.startswith("/list"):
                asked.append((self.path, self.headers.get("Authorization")))
                address = f"127.0.0.1:{self.server.server_address[1]}"
                body = json.dumps([
                    {"targets": [address], "labels": {"__meta_zone": "a", "copy": address, "wanted_path": "/own"}},
                    {"targets": [address], "labels": {"copy": "another"}},
                ])  # fmt: skip
                kind = "application/json"
            else:
                seen = self.path.replace("\\", "\\\\").replace('"', '\\"')
                body = f'page_asked{{path="{seen}",instance="its own",job=""}} 1\nup_like{{env="page"}} 2\n'
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(ask ours, ask theirs), once both have scraped every target."""
    for program in ("prometheus", "prometheus-node-exporter"):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed; ./dev setup does it")
    folder = tmp_path_factory.mktemp("scraped")
    authority = certificates.Authority(folder / "ca")
    certificate, key = authority.sign("node", "DNS:node.example")
    (folder / "password").write_text(PASSWORD + "\n")
    (folder / "web.yml").write_text(
        f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\nbasic_auth_users: {{{NAME}: '{HASHED}'}}\n"
    )
    asked = []
    page = page_server(asked)
    page_address = f"127.0.0.1:{page.server_address[1]}"
    (folder / "targets").mkdir()
    for number in range(LISTED):
        labels = {"shard": f"s{number}", "env": ("prod", "dev", "prod", "")[number % 4]}
        if number == 0:
            labels["__metrics_path__"] = "/zero"
        (folder / "targets" / f"list-{number}.json").write_text(
            json.dumps([{"targets": [page_address], "labels": {k: v for k, v in labels.items() if v}}])
        )
    node, peer = harness.unused_address(), harness.unused_address()
    (folder / "scrape.yml").write_text(
        CONFIG.format(node=node, page=page_address, folder=folder, ca=authority.certificate, name=NAME, token=TOKEN)
    )
    children, server = [], None
    try:
        children.append(
            peers.Child(
                ["prometheus-node-exporter", f"--web.listen-address={node}", f"--web.config.file={folder}/web.yml"],
                node,
                folder / "node_exporter.log",
            )
        )
        children.append(
            peers.Child(
                ["prometheus", f"--config.file={folder}/scrape.yml", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={peer}"],
                peer,
                folder / "prometheus.log",
            )
        )  # fmt: skip
        server = harness.Server(folder / "data", more=["--scrape", folder / "scrape.yml"])

        def ours(path, **parameters):
            return peers.asked(server.http, "/prometheus/api/v1/" + path, "GET", parameters)

        def theirs(path, **parameters):
            return peers.asked(peer, "/api/v1/" + path, "GET", parameters)

        def all_scraped(ask):
            targets = ask("targets")["activeTargets"]
            return {one["scrapePool"] for one in targets} == {"node", "probe", "files", "listed"} and all(
                one["health"] == "up" for one in targets
            )

        for who, ask in (("ours", ours), ("theirs", theirs)):
            try:
                harness.eventually(lambda: all_scraped(ask), 40, f"{who} has scraped everything")
            except AssertionError as failure:
                raise AssertionError(ask("targets")) from failure
        yield ours, theirs, asked
    finally:
        if server is not None:
            server.kill()
        for child in children:
            child.end()
        page.shutdown()


def same(ours, theirs, what):
    ours, theirs = sorted(ours), sorted(theirs)
    only = {"ours": sorted(set(ours) - set(theirs)), "theirs": sorted(set(theirs) - set(ours))}
    assert ours == theirs, f"{what}: {json.dumps(only, indent=1)}"


def test_both_have_the_same_targets_and_drop_the_same(both):
    ours, theirs, asked = both

    def active(target):
        return json.dumps([target["labels"], target["scrapePool"], target["scrapeUrl"]], sort_keys=True)

    def dropped(target):
        # Prometheus 2 writes what rules made over some of these labels; the address and where it is from stay.
        labels = target["discoveredLabels"]
        return json.dumps([labels["__address__"], labels.get("__meta_filepath"), labels["job"]])

    same(*(map(active, ask("targets")["activeTargets"]) for ask in (ours, theirs)), "active")
    same(*(map(dropped, ask("targets")["droppedTargets"]) for ask in (ours, theirs)), "dropped")
    assert len(ours("targets")["droppedTargets"]) > 3
    assert ours("targets")["droppedTargetCounts"]["probe"] == 1
    assert {one for one in asked} == {("/list?zone=a", f"Bearer {TOKEN}")}


def test_both_have_the_same_series(both):
    ours, theirs, _ = both

    def series(ask, job):
        found = ask("series", **{"match[]": f'{{job="{job}"}}'})
        return sorted(json.dumps(one, sort_keys=True) for one in found)

    for job in ("node", "probe", "files", "listed"):
        mine, peer = series(ours, job), series(theirs, job)
        same(mine, peer, job)
        assert len(mine) > 5, job
    names = {one["__name__"] for one in ours("series", **{"match[]": '{job="node"}'})}
    assert "node_load" in names and "node_load1" not in names and "node_boot_time_seconds" not in names


def test_both_count_what_rules_left(both):
    ours, theirs, _ = both
    for query in ("scrape_samples_post_metric_relabeling < bool scrape_samples_scraped", "max_over_time(scrape_series_added[5m])",
                  "scrape_samples_post_metric_relabeling"):  # fmt: skip
        answers = [
            {tuple(sorted(one["metric"].items())): one["value"][1] for one in ask("query", query=query)["result"]}
            for ask in (ours, theirs)
        ]
        assert answers[0] == answers[1] and len(answers[0]) > 5, query
