from __future__ import annotations

from stark.evaluator.judge.builds import first_errors

NINJA = """RuntimeError: ninja exited with status 1
stdout:
[1/2] c++ -O3 -c main.cpp -o main.o
FAILED: main.o
c++ -O3 -c main.cpp -o main.o
main.cpp: In function 'void f()':
main.cpp:7:3: error: 'nothing' was not declared in this scope
    7 |   nothing();
      |   ^~~~~~~
ninja: build stopped: subcommand failed."""


def test_the_first_error_comes_first_and_command_lines_go() -> None:
    lines = first_errors(NINJA).splitlines()

    assert "main.cpp:7:3: error: 'nothing' was not declared in this scope" == lines[0]
    assert "    7 |   nothing();" == lines[1]


def test_a_python_error_stays_whole() -> None:
    text = "ValueError: no\n  line 3, in f: g()"

    assert text == first_errors(text)


def test_a_flood_of_errors_is_cut() -> None:
    flood = "\n".join(f"a.cu({n}): error: bad" for n in range(1000))

    assert 40 == len(first_errors(flood).splitlines())
