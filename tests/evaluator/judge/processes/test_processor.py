from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.processes import processor


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu fma avx avx2 ssse3", ("AVX2", "FMA")),
        (
            "flags\t\t: avx512f avx512_vnni amx_tile amx_bf16",
            ("AVX-512", "AVX-512 VNNI", "AMX BF16"),
        ),
        ("Features\t: fp asimd asimddp sve", ("NEON", "NEON dot product", "SVE")),
        ("isa\t\t: rv64imafdc", ()),
    ],
    ids=["avx2", "avx-512", "arm", "unknown"],
)
def test_features_are_read_from_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: tuple[str, ...]
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\nbogomips: 1\n\nprocessor\t: 1\n{line}\n")
    monkeypatch.setattr(processor, "CPUINFO", cpuinfo)

    assert expected == processor.features()


def test_caches_are_those_of_one_core_for_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = [("1", "Data", "0", "48K"), ("1", "Instruction", "0", "32K")]
    caches += [("2", "Unified", "0-1", "2048K")]
    for core in ("cpu0", "cpu1"):
        for number, parts in enumerate(caches):
            folder = tmp_path / core / "cache" / f"index{number}"
            folder.mkdir(parents=True)
            names = ("level", "type", "shared_cpu_list", "size")
            for name, text in zip(names, parts, strict=True):
                own = core[-1] if text == "0" else text
                (folder / name).write_text(f"{own}\n")
    monkeypatch.setattr(processor, "CACHES", tmp_path)

    assert [48.0, 2048.0, None] == [processor.data_cache_kb(level) for level in (1, 2, 3)]
    assert 2 * 48 + 2 * 32 + 2048 == sum(processor.caches_kb().values())


def test_the_library_of_matrix_products_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    show = "PyTorch built with:\n  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release"
    monkeypatch.setattr(processor.torch.__config__, "show", lambda: show)

    assert (processor.blas() or "").startswith("MKL")
