"""Against a server on loopback: nothing here leaves the machine."""

import email.message
import hashlib
import http.server
import io
import stat
import threading
import urllib.request
import zipfile

import pytest

from mfauc_jax import data
from mfauc_jax.data import catalogue
from mfauc_jax.data.download import SafeRedirects

RATINGS = "".join(f"{u},{i},4.0,{u + i}\n" for u in range(12) for i in range(12))
RATINGS = ("userId,movieId,rating,timestamp\n" + RATINGS).encode()
SMALL = "ml-latest-small"  # its hash is not known


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `behaviour` is ranges, whole (no ranges), truncated or silent (no length)."""

    files: dict[str, bytes]
    behaviour = "ranges"
    elsewhere: str | None = None  # where every request is redirected to
    requests: list[tuple[str, str | None]]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args):
        pass

    def do_GET(self):
        content = self.server.files.get(self.path.rpartition("/")[2])
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        if self.server.elsewhere is not None:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.end_headers()
            return
        if content is None:
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and self.server.behaviour != "whole" else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.behaviour != "silent":
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) // 2 if self.server.behaviour == "truncated" else len(content)
        self.wfile.write(content[start:end])


@pytest.fixture
def server():
    running = Server(("127.0.0.1", 0), Handler)
    running.files, running.requests = {}, []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def zipped(members, root="ml-latest-small/"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(root + name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return file.getvalue()


GOOD = {"README.txt": b"read me", "ratings.csv": RATINGS, "sub/tags.csv": b"x"}


def fetch(server, folder, name=SMALL, **kwargs):
    base = f"http://127.0.0.1:{server.server_address[1]}/mirror"
    return data.download(name, folder, base_url=base, **kwargs)


def assert_nothing_left(folder, kept=()):
    assert sorted(p.name for p in folder.iterdir()) == sorted(kept)


def test_an_archive_becomes_a_data_set(server, tmp_path):
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    result = fetch(server, tmp_path / "new")
    assert result.folder == tmp_path / "new" / SMALL
    assert not result.verified
    assert result.sha256 == {"ratings.csv": hashlib.sha256(RATINGS).hexdigest()}
    assert_nothing_left(tmp_path / "new", [SMALL])
    assert (result.folder / "sub" / "tags.csv").read_bytes() == b"x"
    assert data.load(SMALL, tmp_path / "new").shape == (12, 12)


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    assert fetch(server, tmp_path) == fetch(server, tmp_path)
    assert len(server.requests) == 1


def know(monkeypatch, content):
    dataset = catalogue.DATASETS[SMALL]
    digest = hashlib.sha256(content).hexdigest()
    file = dataset.files[0]._replace(sha256=digest)
    monkeypatch.setitem(catalogue.DATASETS, SMALL, dataset._replace(files=(file,)))


def test_a_known_hash_is_verified(server, tmp_path, monkeypatch):
    know(monkeypatch, RATINGS)
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    assert fetch(server, tmp_path).verified
    assert fetch(server, tmp_path).verified  # of what is there, too


def test_a_wrong_hash_keeps_nothing(server, tmp_path, monkeypatch):
    know(monkeypatch, RATINGS + b"1,2,3,4\n")
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    with pytest.raises(ValueError, match=r"ratings.csv of ml-latest-small has sha256"):
        fetch(server, tmp_path)
    assert_nothing_left(tmp_path)


def test_a_folder_without_ratings_is_filled(server, tmp_path):
    (tmp_path / SMALL).mkdir()
    (tmp_path / SMALL / "mine.txt").write_text("mine")
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    folder = fetch(server, tmp_path).folder
    assert (folder / "mine.txt").read_text() == "mine"
    assert (folder / "ratings.csv").read_bytes() == RATINGS
    assert_nothing_left(tmp_path, [SMALL])


@pytest.mark.parametrize("then", ["ranges", "whole"])
def test_a_broken_connection_is_resumed_or_restarted(server, tmp_path, then):
    content = zipped(GOOD)
    server.files["ml-latest-small.zip"] = content
    server.behaviour = "truncated"
    with pytest.raises(ConnectionError, match=f"of {len(content)} bytes|cannot be reached"):
        fetch(server, tmp_path)
    assert_nothing_left(tmp_path, [f".{SMALL}.{SMALL}.zip.part"])
    server.behaviour = then
    fetch(server, tmp_path)
    assert server.requests[-1][1] == f"bytes={len(content) // 2}-"
    assert (tmp_path / SMALL / "ratings.csv").read_bytes() == RATINGS
    assert_nothing_left(tmp_path, [SMALL])


def test_a_stale_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    content = server.files["ml-latest-small.zip"] = zipped(GOOD)
    (tmp_path / f".{SMALL}.{SMALL}.zip.part").write_bytes(b"x" * (len(content) + 5))
    fetch(server, tmp_path)
    assert [asked for _, asked in server.requests] == [f"bytes={len(content) + 5}-", None]
    assert_nothing_left(tmp_path, [SMALL])


def test_a_stale_part_of_another_file_is_found_out_and_the_next_call_is_clean(server, tmp_path):
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    (tmp_path / f".{SMALL}.{SMALL}.zip.part").write_bytes(b"x" * 300)
    with pytest.raises(ValueError, match=r"archive of MovieLens latest, small is damaged"):
        fetch(server, tmp_path)
    assert_nothing_left(tmp_path)
    fetch(server, tmp_path)
    assert_nothing_left(tmp_path, [SMALL])


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty"])
def test_a_damaged_archive_keeps_nothing(server, tmp_path, damage):
    content = bytearray(zipped(GOOD))
    at = content.index(b"ratings.csv") + 40  # within the deflated ratings
    content[at] ^= 0xFF
    server.files["ml-latest-small.zip"] = {
        "cut": zipped(GOOD)[:-30],
        "flip": bytes(content),
        "text": b"<html>moved</html>",
        "empty": zipped({}),
    }[damage]
    server.behaviour = "silent"
    with pytest.raises(ValueError, match=r"is damaged|has no ratings.csv"):
        fetch(server, tmp_path)
    assert_nothing_left(tmp_path)


def link(name):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({zipfile.ZipInfo("../evil.txt"): b"x"}, r"outside its folder: '\.\./evil"),
        ({zipfile.ZipInfo("ml-latest-small/../../evil.txt"): b"x"}, "outside its folder"),
        ({zipfile.ZipInfo("/tmp/mfauc-evil.txt"): b"x"}, "outside its folder"),
        ({zipfile.ZipInfo("C:/evil.txt"): b"x"}, "outside its folder"),
        ({zipfile.ZipInfo("ml-latest-small\\..\\..\\evil.txt"): b"x"}, "outside its folder"),
        ({link("ml-latest-small/way-out"): b"/etc"}, "is a link or a special file"),
        ({link("ml-latest-small/ratings.csv"): b"/etc/passwd"}, "is a link or a special file"),
        ({"bomb": b"\0" * 3_000_000}, "unpacks to 30.* bytes, more than 1000000"),
    ],
)
def test_a_malicious_archive_writes_nothing(server, tmp_path, members, message):
    folder = tmp_path / "data"
    server.files["ml-latest-small.zip"] = zipped({**GOOD, **members})
    with pytest.raises(ValueError, match=message):
        fetch(server, folder, max_bytes=1_000_000)
    assert_nothing_left(folder)
    assert_nothing_left(tmp_path, ["data"])


def test_a_bomb_that_lies_about_its_size_is_stopped(server, tmp_path):
    content = zipped({**GOOD, "bomb": b"\0" * 3_000_000})
    lie = content.replace((3_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lie != content
    server.files["ml-latest-small.zip"] = lie
    with pytest.raises(ValueError, match=r"damaged|more than"):
        fetch(server, tmp_path, max_bytes=1_000_000)
    assert_nothing_left(tmp_path)


def test_too_many_members_are_refused(server, tmp_path):
    server.files["ml-latest-small.zip"] = zipped({**GOOD, **{f"f{i}": b"" for i in range(10_001)}})
    with pytest.raises(ValueError, match="10004 members, more than 10000"):
        fetch(server, tmp_path)


@pytest.mark.parametrize("behaviour", ["ranges", "silent"])
def test_a_file_over_the_cap_is_refused_announced_or_not(server, tmp_path, behaviour):
    server.files["ml-latest-small.zip"] = b"x" * 50_000
    server.behaviour = behaviour
    with pytest.raises(ValueError, match="max_bytes = 10000"):
        fetch(server, tmp_path, max_bytes=10_000)
    assert_nothing_left(tmp_path)


def test_an_archive_of_something_else_says_what_it_holds(server, tmp_path):
    server.files["ml-latest-small.zip"] = zipped({"movies.csv": b""})
    with pytest.raises(ValueError, match=r"no ratings.csv; it holds ml-latest-small/movies.csv"):
        fetch(server, tmp_path)
    assert_nothing_left(tmp_path)


def test_bare_files_are_fetched_together(server, tmp_path):
    server.files |= {"train.txt": b"0 0 1\n1 2 3\n", "test.txt": b"0 2\n1 0\n"}
    result = fetch(server, tmp_path, "gowalla")
    assert set(result.sha256) == {"train.txt", "test.txt"} and not result.verified
    train, test = data.load_split("gowalla", tmp_path)
    assert train.nnz == 4 and test.nnz == 2
    assert_nothing_left(tmp_path, ["gowalla"])


def test_half_a_split_is_not_a_data_set(server, tmp_path):
    server.files["train.txt"] = b"0 0 1\n1 2 3\n"
    with pytest.raises(ConnectionError, match=r"test.txt answers 404 .* get it by train.txt and"):
        fetch(server, tmp_path, "gowalla")
    assert not (tmp_path / "gowalla").exists()
    server.files["test.txt"] = b"0 2\n1 0\n"
    fetch(server, tmp_path, "gowalla")
    assert_nothing_left(tmp_path, ["gowalla"])


def test_no_server_no_address_no_name(tmp_path):
    with pytest.raises(ConnectionError, match="cannot be reached"):
        data.download(SMALL, tmp_path, base_url="http://127.0.0.1:9", timeout=2.0)
    with pytest.raises(ValueError, match="is not an http address"):
        data.download(SMALL, tmp_path, base_url="file:///etc")
    with pytest.raises(FileNotFoundError, match=r"Flixster not found .* cannot be downloaded"):
        data.download("flixster", tmp_path)
    with pytest.raises(ValueError, match="unknown data set 'ml-1k': did you mean"):
        data.download("ml-1k", tmp_path)
    assert_nothing_left(tmp_path)


def test_silent_when_not_on_a_terminal(server, tmp_path, capfd):
    server.files["ml-latest-small.zip"] = zipped(GOOD)
    fetch(server, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_official_addresses_are_https_or_known_not_to_be():
    plain = {n for n, d in catalogue.DATASETS.items() for u in d.urls if u.startswith("http:")}
    assert plain == {"book-crossing"}  # Freiburg's server; the ratings have a known sha256
    assert catalogue.DATASETS["book-crossing"].files[0].sha256


def test_a_redirect_from_https_to_http_is_not_followed():
    """No server with a certificate is needed: the rule is asked for each pair of addresses."""
    rule = SafeRedirects()

    def follows(old: str, new: str):
        request = urllib.request.Request(old)
        return rule.redirect_request(
            request, io.BytesIO(), 302, "Found", email.message.Message(), new
        )

    for old, new in (("https", "https"), ("http", "https"), ("http", "http")):
        followed = follows(f"{old}://a.org/x.zip", f"{new}://b.org/x.zip")
        assert followed is not None and followed.full_url == f"{new}://b.org/x.zip"
    for old, new in (("https", "http"), ("https", "HTTP"), ("http", "ftp"), ("https", "file")):
        with pytest.raises(
            ConnectionError, match=f"redirects to {new}://b.org/x.zip, which is not"
        ):
            follows(f"{old}://a.org/x.zip", f"{new}://b.org/x.zip")


def test_the_rule_is_used(server, tmp_path):
    """A redirect to another kind of address is refused in a real download, too: it kills plain urlopen."""
    server.elsewhere = "ftp://127.0.0.1/x.zip"
    with pytest.raises(ConnectionError, match="redirects to ftp://127"):
        fetch(server, tmp_path)


def test_what_cannot_be_verified_is_said_loudly(server, tmp_path):
    server.files[f"{SMALL}.zip"] = zipped(GOOD)
    digest = hashlib.sha256(RATINGS).hexdigest()
    for _ in range(2):  # when it is fetched, and when it is found
        with pytest.warns(UserWarning, match=rf"{SMALL}: UNVERIFIED: no sha256.*{digest}"):
            fetch(server, tmp_path)
