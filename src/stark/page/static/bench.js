// A bench: its tables, its curves, and a dot for every run.

import { bottomAxis, fitting, leftAxis, picture, times } from "./charts.js";
import { h, s, section, table } from "./dom.js";
import { read } from "./source.js";
import { linearScale, logScale } from "./scales.js";

export async function benchesScreen() {
  const { benches } = await read("runs");
  return {
    title: "Benches",
    element: h("div", null, h("h1", null, "Benches"),
      benches.length ? h("ul", { class: "names" }, benches.map((name) => h("li", null, h("a", { href: `#/bench/${encodeURIComponent(name)}` }, name))))
        : [h("p", null, "There are none here. A bench runs every combination of problems, strategies and seeds, and reports how they compare. This makes one of the shipped examples:"),
          h("pre", { tabindex: 0 }, "stark bench run examples --strategy stark,sampling --model ollama:qwen3"),
          h("p", null, "This page then shows it. ", h("code", null, "stark bench run --help"), " has the limits and the other problems. Recordings that the page was opened with belong to no bench.")]),
    concerns: () => false,
  };
}

export async function benchScreen(name) {
  let bench = await read(`benches/${encodeURIComponent(name)}`);
  const body = h("div");
  let level = null;
  let reference = "eager";
  const choice = (label, values, change) => h("label", null, `${label} `, h("select", { onchange: (event) => { change(event.target.value); pictures(); } }, values.map((value) => h("option", { value }, value))));
  const drawn = h("div", { class: "columns" });

  function pictures() {
    const runs = bench.runs.filter((run) => level === null || level === "all" || run.level === level);
    const strategies = [...new Set(bench.runs.map((run) => run.strategy))];
    drawn.replaceChildren(
      h("div", { class: "card" }, h("h2", null, "fast_p: share of runs faster than p"), legend(strategies), fastP(runs, strategies, reference)),
      h("div", { class: "card" }, h("h2", null, "Best by attempt, geometric mean vs eager"), legend(strategies), progress(bench, strategies, level)),
      h("div", { class: "card across" }, h("h2", null, `Every run vs ${reference}`), legend(strategies), dots(runs, strategies, reference)));
  }

  function draw() {
    const levels = ["all", ...new Set(bench.runs.map((run) => run.level))];
    const references = [...new Set(bench.runs.flatMap((run) => Object.keys(run).filter((key) => /^speedup_vs_(?!.*_low$)/.test(key)).map((key) => key.slice(11))))];
    level ??= levels.length > 2 ? "all" : levels[1] ?? "all";
    body.replaceChildren(
      h("ul", { class: "notes" }, bench.notes.map((note) => h("li", null, note))),
      h("div", { class: "tools" }, choice("level", levels.length > 2 ? levels : levels.slice(1), (value) => { level = value; }), choice("reference", references.length ? references : ["eager"], (value) => { reference = value; })),
      drawn,
      ...bench.tables.map((sheet) => section(sheet.title, h("p", { class: "quiet" }, sheet.about), table(sheet.columns, sheet.rows, sheet.columns.map((_, at) => at).slice(2)))),
      section("Runs", table(["problem", "strategy", "seed", "attempts", "correct", `speedup vs ${reference}`, "state"],
        bench.runs.map((run) => [h("a", { href: `#/run/${encodeURIComponent(run.run_id)}` }, run.problem), run.strategy, run.seed, run.attempts, run.correct,
          run[`speedup_vs_${reference}`] ? times(run[`speedup_vs_${reference}`]) : "none", run.ended ?? "not ended"]), [2, 3, 4, 5])));
    pictures();
  }

  draw();
  return {
    title: `Bench ${bench.bench.name}`,
    element: h("div", null, h("p", { class: "crumbs" }, h("a", { href: "#/bench" }, "Benches"), ` / ${bench.bench.name}`), h("h1", null, bench.bench.name), body),
    concerns: (runs) => bench.runs.some((run) => runs.includes(run.run_id)),
    update: async () => { bench = await read(`benches/${encodeURIComponent(name)}`); draw(); },
  };
}

const legend = (strategies) => h("p", { class: "legend" }, strategies.map((name, at) => [h("span", { class: `key series-${at % 6}` }), h("span", null, name)]));

function fastP(runs, strategies, reference) {
  const [width, height, left, top, bottom] = [fitting(520), 280, 50, 12, 240];
  const right = width - 12;
  const speedups = (strategy) => runs.filter((run) => run.strategy === strategy && run.ended).map((run) => run[`speedup_vs_${reference}`] ?? 0);
  const most = Math.max(2, ...runs.map((run) => run[`speedup_vs_${reference}`] ?? 0)) * 1.1;
  const [x, y] = [logScale(0.25, most, left, right), linearScale(0, 1, bottom, top)];
  const line = (values) => {
    const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
    let share = sorted.length / (values.length || 1);
    let path = `M${left} ${y.place(share)}`;
    for (const value of sorted) { path += `H${Math.max(left, x.place(value))}`; share -= 1 / values.length; path += `V${y.place(Math.max(0, share))}`; }
    return `${path}H${right}`;
  };
  return picture(width, height, "Share of runs with a speedup over p",
    [0, 0.25, 0.5, 0.75, 1].map((value) => [s("line", { class: "grid", x1: left, x2: right, y1: y.place(value), y2: y.place(value) }), s("text", { class: "tick", x: left - 8, y: y.place(value) + 4, "text-anchor": "end" }, `${value * 100} %`)]),
    bottomAxis(x, bottom, times),
    s("line", { class: "one", x1: x.place(1), x2: x.place(1), y1: top, y2: bottom }),
    strategies.map((strategy, at) => s("g", { class: `series series-${at % 6}` }, s("path", { class: "course", d: line(speedups(strategy)) }))));
}

function progress(bench, strategies, level) {
  const [width, height, left, top, bottom] = [fitting(520), 280, 50, 12, 240];
  const right = width - 12;
  const courses = bench.best_by_attempt.filter((one) => one.level === level || level === null);
  const values = courses.flatMap((one) => one.geomean_all);
  const x = linearScale(0, Math.max(1, bench.bench.attempts), left, right);
  const y = logScale(Math.min(0.95, ...values) / 1.03, Math.max(1.3, ...values) * 1.05, bottom, top);
  return picture(width, height, "Best speedup by attempt", leftAxis(y, left, right, times), bottomAxis(x, bottom, String),
    courses.map((one) => s("g", { class: `series series-${strategies.indexOf(one.strategy) % 6}` },
      s("path", { class: "course", d: `M${left} ${y.place(1)}${one.geomean_all.map((value, at) => `L${x.place(at + 1)} ${y.place(value)}`).join("")}` }))));
}

function dots(runs, strategies, reference) {
  const problems = [...new Set(runs.map((run) => run.problem))];
  const width = fitting(1000);
  const [left, rowHeight, top] = [Math.min(300, width / 2.4), 26, 8];
  const [right, bottom] = [width - 14, top + problems.length * rowHeight];
  const found = runs.map((run) => run[`speedup_vs_${reference}`]).filter(Boolean);
  const x = logScale(Math.min(0.8, ...found) / 1.1, Math.max(1.5, ...found) * 1.1, left, right);
  return picture(width, bottom + 34, "The speedup of every run, by problem", bottomAxis(x, bottom, times),
    s("line", { class: "one", x1: x.place(1), x2: x.place(1), y1: top, y2: bottom }),
    problems.map((problem, place) => {
      const y = top + (place + 0.5) * rowHeight;
      return [
        s("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
        s("text", { class: "name", x: left - 12, y: y + 4, "text-anchor": "end" }, problem.length * 7 > left ? `…${problem.slice(-Math.floor(left / 7))}` : problem),
        runs.filter((run) => run.problem === problem && run[`speedup_vs_${reference}`]).map((run) => s("a", { href: `#/run/${encodeURIComponent(run.run_id)}`, "aria-label": `${run.strategy}, seed ${run.seed}` },
          s("title", null, `${run.strategy}, seed ${run.seed}: ${times(run[`speedup_vs_${reference}`])}`),
          s("circle", { class: `dot series-${strategies.indexOf(run.strategy) % 6}`, cx: x.place(run[`speedup_vs_${reference}`]), cy: y, r: 6 }))),
      ];
    }));
}
