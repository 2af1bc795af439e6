// All runs: a table that can be filtered and sorted.

import { jobs, mayControl } from "./control.js";
import { chosenIn, keepChoice } from "./address.js";
import { h } from "./dom.js";
import { badge } from "./status.js";
import { read } from "./source.js";
import { logScale } from "./scales.js";
import { factorText, whisker } from "./charts.js";

const COLUMNS = [
  ["run", (run) => run.id],
  ["speedup vs eager", (run) => run.speedup?.ratio ?? 0],
  ["vs compile", (run) => run.vs_compile?.ratio ?? 0],
  ["best", (run) => run.latency_ms ?? Infinity],
  ["device", (run) => run.device ?? ""],
  ["strategy", (run) => run.strategy],
  ["correct", (run) => run.correct],
  ["tokens", (run) => total(run, "input_tokens") + total(run, "output_tokens")],
  ["price", (run) => total(run, "dollars")],
  ["begun", (run) => run.created],
  ["state", (run) => state(run)],
];
const NUMBERS = new Set(["correct", "best", "tokens", "price"]);
const FALLING = new Set([...NUMBERS, "speedup vs eager", "vs compile"]);
/** Columns that go where there is little room. */
const ROOM = { run: "", "speedup vs eager": "", state: "", tokens: "wide-only", begun: "wide-only", price: "wide-only" };
const room = (name) => ROOM[name] ?? "not-narrow";
/** Names are spelled with / in problems and with - in runs. */
const plain = (text) => text.toLowerCase().replace(/[\/_]/g, "-");

/** Why a run ended, unless it simply made its attempts. */
const state = (run) => (run.ended === null ? (run.in_flight ? "running" : "not ended") : { attempts: "ended", recorded: "ended early" }[run.ended.kind] ?? run.ended.detail);

const total = (run, name) => Object.values(run.roles).reduce((sum, role) => sum + role[name], 0);

export async function runsScreen() {
  let found = await read("runs");
  let [column, falling] = ["begun", true];
  const search = h("input", { type: "search", placeholder: "Filter: a name, a device, a strategy …", "aria-label": "Filter runs", value: chosenIn("filter"), oninput: () => { keepChoice("filter", search.value); draw(); },
    onkeydown: (event) => { if (event.key === "Enter") body.querySelector("a")?.click(); } });
  const summary = h("p", { class: "quiet", role: "status" });
  const head = h("tr");
  const body = h("tbody");
  const all = h("div", { class: "wide" }, h("table", { class: "runs" }, h("thead", null, head), body));
  const none = h("p", null, "There are no runs yet; ", h("code", null, "stark optimize PROBLEM"), " makes one, and this page will show it.");
  const chosen = new Set();
  const compare = h("button", { class: "not-narrow", onclick: () => { const [a, b] = chosen; location.hash = `#/compare/${encodeURIComponent(a)}/0/${encodeURIComponent(b)}/0`; } }, "Compare two runs");

  function draw() {
    [all.hidden, none.hidden] = [!found.runs.length, found.runs.length > 0];
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    const fits = (run) => words.every((word) => plain(`${run.id} ${run.problem} ${run.device ?? ""} ${run.strategy} ${run.language} ${state(run)} ${run.confirmed ? "confirmed" : ""}`).includes(word));
    const value = COLUMNS.find(([name]) => name === column)[1];
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (falling ? -1 : 1);
    const shown = found.runs.filter(fits).sort(order);
    const dollars = shown.reduce((sum, run) => sum + total(run, "dollars"), 0);
    summary.textContent = [`${shown.length} of ${found.runs.length} runs`, dollars ? `$${dollars.toFixed(2)} at known prices` : ""].filter(Boolean).join(", ");
    const priced = found.runs.some((run) => total(run, "dollars") > 0);
    head.replaceChildren(h("th", { class: "pick" }, h("span", { class: "hidden" }, "choose")), ...COLUMNS.filter(([name]) => name !== "price" || priced).map(header));

    const ratios = shown.flatMap((run) => run.speedup?.ratio ?? []);
    const scale = logScale(Math.min(0.7, ...ratios) / 1.15, Math.max(1.5, ...ratios) * 1.15, 6, 114);
    body.replaceChildren(...shown.map((run) => rowOf(run, scale, priced)));
    choose();
  }

  function header([name]) {
    const sorted = name === column;
    const sort = () => { [column, falling] = [name, sorted ? !falling : FALLING.has(name)]; draw(); };
    return h("th", { scope: "col", class: `${NUMBERS.has(name) ? "number " : ""}${room(name)}`, "aria-sort": sorted ? (falling ? "descending" : "ascending") : null },
      h("button", { class: "sort", onclick: sort }, name, sorted ? (falling ? " ↓" : " ↑") : ""));
  }

  function rowOf(run, scale, priced) {
    const pick = h("input", { type: "checkbox", "aria-label": `choose ${run.id}`, checked: chosen.has(run.id), onchange: () => { pick.checked ? chosen.add(run.id) : chosen.delete(run.id); if (chosen.size > 2) chosen.delete([...chosen][0]); draw(); } });
    return h("tr", null,
      h("td", { class: "pick" }, pick),
      h("td", { class: "name" }, h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.id)),
      h("td", null, run.speedup ? h("div", { class: "gain" }, whisker(run.speedup, scale), h("span", null, factorText(run.speedup_text), h("span", { class: "not-narrow" }, run.speedup_text.slice(factorText(run.speedup_text).length))), run.confirmed ? h("span", { class: run.speedup_text.includes("noisy") ? "quiet" : "correct", title: "passed the final check" }, "✓") : null) : null),
      cell("vs compile", run.compile_text.replace("x", "×")),
      cell("best", run.latency_text),
      h("td", { class: "device not-narrow", title: run.device }, deviceName(run.device)),
      cell("strategy", run.strategy),
      cell("correct", `${run.correct} of ${run.attempts}`),
      cell("tokens", run.tokens_text),
      priced ? cell("price", run.price_text) : null,
      h("td", { class: "quiet wide-only" }, run.created.slice(5, 16).replace("T", " ")),
      h("td", { class: "quiet" }, run.ended ? state(run) : badge(run.in_flight ? "running" : "unusable", run.in_flight ? `running, ${run.attempts}/${run.budget_attempts}` : state(run))));
  }

  const cell = (name, text) => h("td", { class: `${NUMBERS.has(name) ? "number " : ""}${room(name)}` }, text);
  const deviceName = (name) => (name ?? "").replace(/\((R|TM)\)|NVIDIA |Processor|CPU/g, "").replace(/\s+/g, " ").trim();

  const choose = () => {
    compare.disabled = chosen.size !== 2;
    compare.textContent = ["Choose two runs to compare", "Choose one more to compare", "Compare two runs"][chosen.size];
  };
  draw();
  const started = mayControl() ? jobs() : null;
  await started?.update();
  return {
    title: "Runs",
    element: h("div", null,
      h("h1", null, "Runs"),
      h("div", { class: "tools" }, search, compare, summary),
      all, none,
      started?.element),
    concerns: () => true,
    update: async () => { found = await read("runs"); draw(); await started?.update(); },
  };
}
