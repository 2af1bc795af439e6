"""The tools and resources that an agent sees. Docstrings of tools are their descriptions."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations

from stark import __version__
from stark.core.errors import StarkError
from stark.languages import LANGUAGES, language
from stark.mcp.answers import Attempts, Best, Evaluated, Examined, Measured, Pending, Profiled
from stark.mcp.jobs import OnProgress
from stark.mcp.workbench import Workbench
from stark.report.agent_documents import CheckedDocument

T = TypeVar("T")

INSTRUCTIONS = """STARK judges GPU and CPU kernels that replace a PyTorch module. Begin with `problem`. Then repeat: \
write a candidate, `check`, `evaluate`, `profile`. End with `evaluate` and final=true for the best attempt, and report \
only what it calls reportable. Never special-case the inputs, cache results between calls or otherwise work on the \
measurement. `candidate` is the path of a Python file with a class ModelNew, or its source."""


class Tools:
    """The tools, as bound methods."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    async def doctor(self, ctx: Context[Any, Any]) -> Examined | Pending:
        """Check this machine: languages, devices, models, and what to fix."""
        return await self._answer(ctx, "checking the machine", self._bench.examine())

    async def problem(
        self,
        ctx: Context[Any, Any],
        problem: str,
        inputs: str | None = None,
        guide: str | None = None,
    ) -> Measured | Pending:
        """Measure a problem's reference: time, roofline, inputs and outputs, error budget, device.

        `problem` is the path of a file with Model, get_inputs and get_init_inputs. Or it is the user's own module as
        package.module:Object, and `inputs` names its arguments as package.module:example; every tool takes both. `guide`
        names a language (such as cpp, triton, cuda); its guide then says how candidates are written and which techniques
        may pay here.
        """
        work = self._bench.measure(problem, inputs, guide)
        return await self._answer(ctx, f"measuring {problem}", work)

    async def check(
        self, ctx: Context[Any, Any], problem: str, candidate: str, inputs: str | None = None
    ) -> CheckedDocument | Pending:
        """Build and verify a candidate, without a time. Nothing is stored."""
        return await self._answer(ctx, "checking", self._bench.check(problem, candidate, inputs))

    async def evaluate(
        self,
        ctx: Context[Any, Any],
        problem: str,
        candidate: str,
        inputs: str | None = None,
        parent: int = 0,
        idea: str = "",
        final: bool = False,
    ) -> Evaluated | Pending:
        """Verify and time a candidate, and store it as an attempt.

        `parent` is the attempt that the candidate was made from (0: the reference). `idea` says in one line what it
        tries. `final` runs the final check: more inputs, and torch.compile as a second reference.
        """
        work = self._bench.evaluate(
            problem, candidate, inputs, "promote" if final else "search", parent, idea
        )
        return await self._answer(ctx, "judging", work)

    async def optimize(
        self,
        ctx: Context[Any, Any],
        problem: str | None = None,
        inputs: str | None = None,
        run: str | None = None,
        attempts: int | None = None,
        tokens: int | None = None,
        dollars: float | None = None,
        minutes: float | None = None,
        model: str | None = None,
    ) -> Best | Pending:
        """Let STARK's own agents search, within a budget that must be named. It costs money.

        Name a `problem` to search anew, or a `run` to continue from its attempts, yours included; the budget then counts
        from now. `model` is such as anthropic:NAME.
        """
        budget = {"attempts": attempts, "tokens": tokens, "dollars": dollars, "minutes": minutes}
        work = self._bench.optimize(problem, inputs, run, budget, model)
        return await self._answer(ctx, "searching", work)

    async def wait(
        self, ctx: Context[Any, Any], pending: str, stop: bool = False
    ) -> Evaluated | Best | CheckedDocument | Measured | Examined | Pending:
        """Wait for the answer of a call that returned `pending`, up to 45 s. `stop` cancels that call instead."""
        with _errors_as_text():
            if stop:
                self._bench.jobs.stop(pending)
                raise ToolError(f"{pending} is cancelled")
            return await self._bench.jobs.wait(pending, _progress(ctx))  # type: ignore[no-any-return]

    def profile(self, run: str = "last", attempt: int = 0) -> Profiled:
        """Where the time of an attempt goes and what limits it; attempt 0 is the reference."""
        with _errors_as_text():
            return self._bench.profile(run, attempt)

    def best(self, run: str = "last", source: bool = False) -> Best:
        """The best kernel of a run, whether its speedup may be reported, and with `source` its code."""
        with _errors_as_text():
            return self._bench.best(run, source)

    def attempts(self, run: str = "last", last: int = 20) -> Attempts:
        """The latest attempts of a run. The resource stark://runs/RUN/attempts/N has all of one attempt."""
        with _errors_as_text():
            return self._bench.attempts(run, max(last, 1))

    async def _answer(
        self, ctx: Context[Any, Any], doing: str, work: Coroutine[Any, Any, T]
    ) -> T | Pending:
        with _errors_as_text():
            return await self._bench.jobs.run(work, doing, _progress(ctx))


def make_server(bench: Workbench) -> MCPServer[Any]:
    """The server, with every tool and resource."""
    server: MCPServer[Any] = MCPServer(
        "stark", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR"
    )
    tools = Tools(bench)
    reading = (tools.doctor, tools.profile, tools.best, tools.attempts)
    running = (tools.problem, tools.check, tools.evaluate, tools.optimize, tools.wait)
    for tool in (*reading, *running):
        # Clients may call tools that only read without asking their user. A problem's file runs outside the sandbox.
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=tool in reading))
    _add_resources(server, bench)
    return server


def _add_resources(server: MCPServer[Any], bench: Workbench) -> None:
    """Guides and techniques as Markdown, attempts as JSON."""

    @server.resource("stark://guides/{name}", mime_type="text/markdown")
    def guide(name: str) -> str:
        """How candidates in a language are written."""
        with _errors_as_missing():
            return language(name).guide

    @server.resource("stark://techniques", mime_type="text/markdown")
    def techniques() -> str:
        """Every technique: its resource and its title."""
        found = {each.name: each.title for entry in LANGUAGES.values() for each in entry.techniques}
        return "\n".join(f"- stark://techniques/{name}: {title}" for name, title in found.items())

    @server.resource("stark://techniques/{folder}/{name}", mime_type="text/markdown")
    def technique(folder: str, name: str) -> str:
        """One technique: when it pays, the idea, an example and traps."""
        for each in (each for entry in LANGUAGES.values() for each in entry.techniques):
            if each.name == f"{folder}/{name}":
                return each.text
        raise ResourceNotFoundError(f"there is no technique {folder}/{name}")

    @server.resource("stark://runs/{run}/attempts/{attempt}", mime_type="application/json")
    def attempt(run: str, attempt: str) -> str:
        """Everything that is stored of an attempt: its source, evidence, profile and model calls."""
        with _errors_as_missing():
            return bench.attempt_json(run, int(attempt))


def _progress(ctx: Context[Any, Any]) -> OnProgress:
    async def report(seconds: float, doing: str) -> None:
        await ctx.report_progress(seconds, None, doing)

    return report


@contextmanager
def _errors_as_text() -> Iterator[None]:
    """Let the agent read our errors, which say what to do. Other exceptions are bugs, and stay private."""
    try:
        yield
    except StarkError as error:
        raise ToolError(str(error)) from error


@contextmanager
def _errors_as_missing() -> Iterator[None]:
    try:
        yield
    except (StarkError, ValueError) as error:
        raise ResourceNotFoundError(str(error)) from error
