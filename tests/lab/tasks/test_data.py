"""Where data comes from: the directory named, the variable, the cache; damaged and half files never count."""

from __future__ import annotations

import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from grokfast.lab.tasks.data import (
    VARIABLE,
    DataError,
    check_same_data,
    data_directory,
    digest,
    download,
    locate,
    read_archive,
    read_text,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/grokfast"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server on this machine with one file."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served/file.bin").write_bytes(b"right")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()


def test_the_flag_comes_before_the_variable_and_the_variable_before_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flag").mkdir()
    assert data_directory(None) == (cache, True)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert data_directory(None) == (tmp_path, False)
    assert data_directory(tmp_path / "flag") == (tmp_path / "flag", False)
    with pytest.raises(DataError, match=r"the data directory must exist, got .*nowhere"):
        data_directory(tmp_path / "nowhere")


def test_the_first_pattern_in_the_first_folder_wins_and_doubt_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("x.csv", "a/y2.csv", "a/y1.csv"):
        (tmp_path / name).touch()
    assert locate(tmp_path, ["a", "."], ["x.csv"], wanted="x.csv") == tmp_path / "x.csv"
    assert locate(tmp_path, ["a", "."], ["y1.csv", "y*.csv"], wanted="x.csv") == tmp_path / "a/y1.csv"
    with pytest.raises(DataError, match=r"one file must fit y\*.csv in .*a, got y1.csv, y2.csv"):
        locate(tmp_path, ["a", "."], ["y*.csv"], wanted="y.csv")
    with pytest.raises(DataError, match=r"missing data: put z.csv into .*a, or dig it up"):
        locate(tmp_path, ["a"], ["z.csv"], wanted="z.csv", hint="dig it up")


def test_missing_files_are_downloaded_into_the_cache_only(server: str, cache: Path, tmp_path: Path) -> None:
    source = server + "file.bin", "sha256:" + sha256(b"right").hexdigest()
    found = locate(None, ["set"], ["file.bin"], wanted="file.bin", source=source)
    assert found == cache / "set/file.bin"
    assert found.read_bytes() == b"right"
    with pytest.raises(DataError, match=r"missing data: put file.bin into"):
        locate(tmp_path, ["set"], ["file.bin"], wanted="file.bin", source=source)


@pytest.mark.parametrize(("name", "reason"), [("file.bin", "the checksum is wrong"), ("none.bin", "404 .*")])
def test_a_download_that_fails_leaves_nothing(server: str, cache: Path, name: str, reason: str) -> None:
    target = cache / "set" / name
    with pytest.raises(DataError, match=rf"cannot download {name} \({reason}\): put it into .*set by hand"):
        download(target, (server + name, "sha256:" + "0" * 64))
    assert not list(cache.rglob("*.bin"))


def test_text_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"abc\xff")
    with pytest.raises(DataError, match=r"t.csv must be UTF-8 text: .* at byte 3"):
        read_text(tmp_path / "t.csv")


def write_tar(path: Path, members: dict[str, bytes], link: str | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("in/link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
    return path


def test_an_archive_is_read_in_memory_and_never_beyond_itself(tmp_path: Path) -> None:
    good = write_tar(tmp_path / "good.tgz", {"in/a": b"1", "out/b": b"2"}, link="/etc/passwd")
    assert read_archive(good, ["in/"]) == {"in/a": b"1"}
    bad = write_tar(tmp_path / "bad.tgz", {"in/../../evil": b"1"})
    with pytest.raises(DataError, match=r"bad.tgz must hold plain paths, got 'in/../../evil'"):
        read_archive(bad, ["in/"])
    (tmp_path / "cut.tgz").write_bytes(good.read_bytes()[:60])
    with pytest.raises(DataError, match=r"cut.tgz is damaged or cut short"):
        read_archive(tmp_path / "cut.tgz", ["in/"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tgz", "cut.tgz", "good.tgz"]


def test_other_data_have_another_digest_and_are_refused() -> None:
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    check_same_data("1", "1")
    with pytest.raises(DataError, match="this run was begun with other data"):
        check_same_data("1", "2")
