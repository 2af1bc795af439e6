// All runs: a table that can be filtered and sorted.

import { jobs, mayControl } from "./control.js";
import { chosenIn, keepChoice } from "./address.js";
import { h } from "./dom.js";
import { badge, speedupShown } from "./status.js";
import { read } from "./source.js";
import { logScale } from "./scales.js";
import { factorText, noisy, whisker, whiskerAxis } from "./charts.js";

/** Where a run stands by a speedup: one that is too noisy to rank comes after the others. */
const rankBy = (speedup) => (speedup ? (noisy(speedup) ? speedup.ratio / 1e9 : speedup.ratio) : 0);

const COLUMNS = [
  ["problem, run", (run) => `${run.problem} ${run.id}`],
  ["vs eager", (run) => rankBy(run.speedup)],
  ["vs compile", (run) => rankBy(run.vs_compile)],
  ["time", (run) => run.latency_ms ?? Infinity],
  ["device", (run) => run.device ?? ""],
  ["language", (run) => run.language],
  ["strategy", (run) => run.strategy],
  ["correct", (run) => run.correct],
  ["failed", (run) => run.attempts - run.correct],
  ["tokens", (run) => total(run, "input_tokens") + total(run, "output_tokens")],
  ["price", (run) => total(run, "dollars")],
  ["begun", (run) => run.created],
  ["state", (run) => state(run)],
];
const NUMBERS = new Set(["correct", "failed", "time", "tokens", "price"]);
const FALLING = new Set([...NUMBERS, "vs eager", "vs compile"]);
/** Columns that go where there is little room. */
const ROOM = { "problem, run": "", "vs eager": "", state: "", tokens: "wide-only", begun: "wide-only", price: "wide-only" };
const room = (name) => ROOM[name] ?? "not-narrow";
/** Names are spelled with / in problems and with - in runs. */
const plain = (text) => text.toLowerCase().replace(/[\/_]/g, "-");
/** The name of a recording, if it has words that the names of the run and its problem lack. */
const telling = (run) => (run.file && plain(run.file.replace(/\.json(\.gz)?$/, "")).split(/[-.]/).some((word) => !plain(`${run.id} ${run.problem}`).includes(word)) ? run.file : null);

/** Why a run ended, unless it simply made its attempts. */
const state = (run) => (run.ended === null ? (run.in_flight ? "running" : "not ended") : { attempts: "ended", recorded: "ended early" }[run.ended.kind] ?? run.ended.detail);

const total = (run, name) => Object.values(run.roles).reduce((sum, role) => sum + role[name], 0);

export async function runsScreen() {
  let found = await read("runs");
  let [column, falling] = ["begun", true];
  const search = h("input", { type: "search", placeholder: "Filter: a problem, a file, a device, a language …", "aria-label": "Filter runs", value: chosenIn("filter"), oninput: () => { keepChoice("filter", search.value); draw(); },
    onkeydown: (event) => { if (event.key === "Enter") body.querySelector("a")?.click(); } });
  const summary = h("p", { class: "quiet", role: "status" });
  const head = h("tr");
  const body = h("tbody");
  const all = h("div", { class: "wide" }, h("table", { class: "runs" }, h("thead", null, head), body));
  const none = h("p", null, "There are no runs yet; ", h("code", null, "stark optimize PROBLEM"), " makes one, and this page will show it.");
  const chosen = new Set();
  const compare = h("button", { class: "not-narrow", onclick: () => { const [a, b] = chosen; location.hash = `#/compare/${encodeURIComponent(a)}/0/${encodeURIComponent(b)}/0`; } }, "Compare the two runs");
  const toChoose = h("span", { class: "quiet not-narrow", role: "status" });

  function draw() {
    [all.hidden, none.hidden] = [!found.runs.length, found.runs.length > 0];
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    const fits = (run) => words.every((word) => plain(`${run.id} ${run.problem} ${run.file ?? ""} ${run.device ?? ""} ${run.strategy} ${run.language} ${state(run)} ${run.confirmed ? "confirmed" : ""} ${run.attempts > run.correct ? "failed" : ""}`).includes(word));
    const value = COLUMNS.find(([name]) => name === column)[1];
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (falling ? -1 : 1);
    const shown = found.runs.filter(fits).sort(order);
    const dollars = shown.reduce((sum, run) => sum + total(run, "dollars"), 0);
    summary.textContent = [`${shown.length} of ${found.runs.length} runs`, dollars ? `$${dollars.toFixed(2)} at known prices` : ""].filter(Boolean).join(", ");
    const priced = found.runs.some((run) => total(run, "dollars") > 0);
    const ratios = shown.flatMap((run) => (run.speedup && !noisy(run.speedup) ? run.speedup.ratio : []));
    const scale = logScale(Math.min(0.7, ...ratios) / 1.15, Math.max(1.5, ...ratios) * 1.15, 6, 114);
    head.replaceChildren(h("th", { class: "pick" }, h("span", { class: "hidden" }, "choose")), ...COLUMNS.filter(([name]) => name !== "price" || priced).map((one) => header(one, scale)));
    body.replaceChildren(...shown.map((run) => rowOf(run, scale, priced)));
    choose();
  }

  function header([name], scale) {
    const sorted = name === column;
    const sort = () => { [column, falling] = [name, sorted ? !falling : FALLING.has(name)]; draw(); };
    return h("th", { scope: "col", class: `${NUMBERS.has(name) ? "number " : ""}${room(name)}`, "aria-sort": sorted ? (falling ? "descending" : "ascending") : null },
      h("div", { class: name === "vs eager" ? "gain" : null }, name === "vs eager" ? whiskerAxis(scale) : null,
        h("button", { class: "sort", onclick: sort }, name, sorted ? (falling ? " ↓" : " ↑") : "")));
  }

  function rowOf(run, scale, priced) {
    const pick = h("input", { type: "checkbox", "aria-label": `choose ${run.id}`, value: run.id, checked: chosen.has(run.id), onchange: () => { pick.checked ? chosen.add(run.id) : chosen.delete(run.id); choose(); } });
    return h("tr", null,
      h("td", { class: "pick" }, pick),
      h("td", { class: "name", title: run.file }, h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.problem.split(/(?<=[_/])/).map((part) => [part, h("wbr")]), " ", h("small", null, run.id), " ", telling(run) && h("small", null, telling(run)))),
      h("td", null, run.speedup ? h("div", { class: "gain" }, whisker(run.speedup, scale), gain(run.speedup, run.speedup_text), run.confirmed ? h("span", { class: noisy(run.speedup) ? "quiet" : "correct", title: "passed the final check" }, "✓") : null) : null),
      cell("vs compile", run.vs_compile ? speedupShown(run.compile_text) : ""),
      cell("time", run.latency_text),
      h("td", { class: "device not-narrow", title: run.device }, deviceName(run.device)),
      cell("language", run.strategy === "agent" ? "" : run.language),
      cell("strategy", run.strategy),
      cell("correct", `${run.correct} of ${run.attempts}`),
      cell("failed", run.attempts > run.correct ? h("span", { class: "incorrect" }, String(run.attempts - run.correct)) : ""),
      cell("tokens", run.tokens_text),
      priced ? cell("price", run.price_text) : null,
      h("td", { class: "quiet wide-only" }, run.created.slice(5, 16).replace("T", " ")),
      h("td", { class: "quiet" }, run.ended ? state(run) : badge(run.in_flight ? "running" : "unusable", run.in_flight ? `running, ${run.attempts}/${run.budget_attempts}` : state(run))));
  }

  const gain = (speedup, text) => h("span", null, noisy(speedup) ? speedupShown(text) : [factorText(text), h("span", { class: "not-narrow" }, text.slice(factorText(text).length))]);
  const cell = (name, text) => h("td", { class: `${NUMBERS.has(name) ? "number " : ""}${room(name)}` }, text);
  const deviceName = (name) => (name ?? "").replace(/\((R|TM)\)|NVIDIA |Processor|CPU/g, "").replace(/\s+/g, " ").trim();

  const choose = () => {
    compare.hidden = chosen.size !== 2;
    toChoose.textContent = ["Tick two runs to compare them.", "Tick one more run to compare it with.", "Two can be compared; untick one to choose another."][chosen.size];
    for (const box of body.querySelectorAll("input")) box.disabled = chosen.size === 2 && !box.checked;
  };
  draw();
  const started = mayControl() ? jobs() : null;
  await started?.update();
  return {
    title: "Runs",
    element: h("div", null,
      h("h1", null, "Runs"),
      h("div", { class: "tools staying" }, search, summary, compare, toChoose),
      all, none,
      started?.element),
    concerns: () => true,
    update: async () => { found = await read("runs"); draw(); await started?.update(); },
  };
}
