"""Files of captures in a real S3: versitygw, which checks every signature. The agent's uploader sends to it directly; the server only
signs. On request: ./dev test s3 builds it once from its Go module, which takes minutes."""

import gzip
import hashlib

import harness
import pytest
from backup_s3_real import BUCKET, SECRET, Store
from test_clock_and_disk import ServerElsewhere
from test_uploads import API, CAPTURE, FILE, MIB, Sender, noise

PLACE = f"s3://{BUCKET}/fleet"


class Bucket(Store):
    def __init__(self, folder):
        super().__init__(folder)
        self.objects = folder / BUCKET / "fleet"

    def stored(self):
        """What is whole, by name; versitygw keeps parts in a folder that begins with a dot."""
        return sorted(
            path.name for path in self.objects.rglob("*") if path.is_file() and not any(part.startswith(".") for part in path.parts)
        )


def serve(start, tmp_path, store, **more):
    return start(ServerElsewhere, tmp_path / "data", environment=store.environment(**more), more=["--blobs", PLACE])


@pytest.mark.limit(90)
def test_a_node_sends_to_the_bucket_and_goes_on_after_kills_of_sender_and_server(start, tmp_path):
    store = start(Bucket, tmp_path / "store")
    server = serve(start, tmp_path, store)
    trace = tmp_path / "trace.json"
    trace.write_bytes(noise(24 * MIB))
    sender = Sender(server, trace)
    sender.read_so_far(14 * MIB)
    sender.process.kill()
    sender.process.wait()
    server.kill()
    assert not store.stored()
    server = serve(start, tmp_path, store)
    code, done, error = Sender(server, trace).end()
    assert code == 0, error
    assert store.stored() == [FILE]
    content = (store.objects / "default" / "team%2Fllama" / CAPTURE / FILE).read_bytes()
    assert done == [f"default/team%2Fllama/{CAPTURE}/{FILE}", str(len(content)), hashlib.sha256(content).hexdigest()]
    assert gzip.decompress(content) == trace.read_bytes()
    assert server.counters().total("lockstep_blob_parts_total") == 0, "no part came through the server"

    whole = harness.request(server.http, "GET", f"{API}/files/{FILE}")
    assert whole.status == 200 and whole.body == content
    some = harness.request(server.http, "GET", f"{API}/files/{FILE}", headers={"Range": "bytes=-1000"})
    assert some.status == 206 and some.body == content[-1000:]
    assert server.get(f"{API}/files")["files"][0]["bytes"] == len(content)
    removed = harness.request(server.http, "POST", f"{API}/remove", b"{}", {"Content-Type": "application/json"})
    assert removed.status == 200 and not store.stored()


def test_wrong_keys_and_a_bucket_that_is_away_are_one_line_without_a_secret(start, tmp_path):
    store = start(Bucket, tmp_path / "store")
    trace = tmp_path / "trace.json"
    trace.write_bytes(noise(1000))
    for more, part in (
        ({"AWS_SECRET_ACCESS_KEY": SECRET + "x"}, "the store answers 403"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "tried 2 times"),
    ):
        server = serve(start, tmp_path, store, **more)
        code, _, error = Sender(server, trace, "--give-up-ms", 1000).end()
        assert code == 1 and "was not uploaded: the server answers 503: " in error.splitlines()[-1], error
        ready = harness.eventually(lambda: "warning: blobs: " in (text := harness.request(server.http, "GET", "/readyz").text) and text, 20, "a warning")
        assert part in ready and SECRET not in ready + error + server.log(), ready
        assert trace.exists() and not store.stored()
        server.stop()
