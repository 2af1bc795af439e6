"""A stream is unpacked as it was packed, or refused before anything is written."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from stark.core.judging import Limits
from stark.evaluator.judge.building import packing
from stark.evaluator.judge.building.packing import (
    Packed,
    Unusable,
    Wanted,
    fetched,
    receive,
    send,
)
from stark.evaluator.judge.processes.child import Patience
from support.candidates import as_candidate


def packed(folder: Path) -> bytes:
    stream = io.BytesIO()
    send("nvcc said", folder, stream)
    return stream.getvalue()


def received(stream: bytes) -> packing.Received:
    return receive(memoryview(stream))


def forged(contents: bytes, *files: dict[str, Any]) -> bytes:
    """A stream with the right digest, whatever its files are."""
    plain = {"size": len(contents), "changed_ns": 5, "executable": False}
    header = Packed.model_validate({"output": "", "files": [plain | f for f in files]})
    whole = header.model_dump_json().encode() + b"\n" + contents
    return whole + hashlib.sha256(whole).digest()


def test_files_keep_contents_times_and_whether_they_are_executable(tmp_path: Path) -> None:
    (tmp_path / "build/deep").mkdir(parents=True)
    (program := tmp_path / "build/deep/run").write_text("#!/bin/sh")
    (library := tmp_path / "build/lib.so").write_bytes(bytes(3 << 20))
    program.chmod(0o4755)
    os.utime(library, ns=(1, 1_700_000_000_123_456_789))

    received(packed(tmp_path / "build")).unpack(tmp_path / "there")

    there = tmp_path / "there"
    assert {"deep", "deep/run", "lib.so"} == {
        str(path.relative_to(there)) for path in there.rglob("*")
    }
    assert library.read_bytes() == (there / "lib.so").read_bytes()
    assert 1_700_000_000_123_456_789 == (there / "lib.so").stat().st_mtime_ns
    assert 0o755 == (there / "deep/run").stat().st_mode & 0o7777
    assert 0o644 == (there / "lib.so").stat().st_mode & 0o7777


def test_links_pipes_and_unreadable_names_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret")
    (build := tmp_path / "build").mkdir()
    (build / "link").symlink_to(tmp_path / "secret")
    (build / "folder").symlink_to(tmp_path)
    os.mkfifo(build / "pipe")
    (build / "two\nlines").write_text("")
    Path(os.fsdecode(os.fsencode(build) + b"/\xff")).write_text("")
    (build / "kept").write_text("")

    assert ["kept"] == [file.path for file in received(packed(build)).packed.files]


@pytest.mark.parametrize(
    "path",
    ["../out", "/out", "a/../../out", "", ".", "a//b", "a/", "nul\0", "x/" * 60 + "x", "a" * 3000],
)
def test_a_path_that_could_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Unusable, match="a file is named"):
        received(forged(b"", {"path": path}))


def test_a_file_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    for second in ("a", "a/b"):
        stream = received(forged(b"", {"path": "a"}, {"path": second}))

        with pytest.raises(Unusable, match="cannot be written"):
            stream.unpack(tmp_path / second.replace("/", "-"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda stream: stream.replace(b"0\0", b"1\0", 1), "do not have its digest"),
        (lambda stream: stream.replace(b"nvcc said", b"gcc  said"), "do not have its digest"),
        (lambda stream: stream.replace(b'"executable":false', b'"executable":true'), "its digest"),
        (lambda stream: stream[:-1], "do not have its digest"),
        (lambda stream: stream[:-33], "do not have its digest"),
        (lambda stream: stream + b"1", "do not have its digest"),
        (lambda stream: stream[5:], "its first line cannot be read"),
        (lambda _: b"", "its first line cannot be read"),
        (lambda stream: stream.replace(b'"path"', b'"link"'), "its first line cannot be read"),
        (lambda stream: stream.replace(b'"size":', b'"size":-'), "its first line cannot be read"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, damage: Any, said: str) -> None:
    (tmp_path / "file").write_bytes(b"10\0\0")
    stream = packed(tmp_path)
    assert damage(stream) != stream

    with pytest.raises(Unusable, match=said):
        received(damage(stream))


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(Unusable, match=r"more than 0\.5 GB"):
        received(forged(b"", {"path": "large", "size": packing.KEPT_BYTES + 1}))
    with pytest.raises(Unusable, match="more than 50,000 files"):
        received(forged(b"", *({"path": str(n), "size": 0} for n in range(50_001))))


def test_a_first_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "HEADER_BYTES", 1000)

    with pytest.raises(Unusable, match="its first line cannot be read"):
        received(b"{" * 5000)


def test_an_answer_without_an_end_and_one_that_nobody_waits_for_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HEADER_BYTES", "KEPT_BYTES"):
        monkeypatch.setattr(packing, name, 1000)
    wanted = Wanted(key="k", candidate=as_candidate("cpp", ""), architecture=None, limits=Limits())
    sent = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
            while True:
                connection.sendall(bytes(1 << 20))
        sent.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "service"))
        listener.listen()
        threading.Thread(target=answer, daemon=True).start()

        assert fetched(tmp_path / "service", wanted, Patience(), tmp_path) is None
        assert sent.wait(10)
        assert fetched(tmp_path / "service", wanted, Patience(ended=True), tmp_path) is None
