// One run: what it achieved, its tree, its leaders, its cost, and what happens.

import { against, course, factorText, interval, named } from "./charts.js";
import { resumeButton } from "./control.js";
import { brief, facts, h, section, table } from "./dom.js";
import { overShare, roofline } from "./roofline.js";
import { inOneFile, read, readAgain, runPath } from "./source.js";
import { badge, speedupShown, speedupText, tie, unbounded, words } from "./status.js";
import { modelName, precisionTerm } from "./terms.js";
import { tree } from "./tree.js";

const VERDICTS = {
  confirmed: ["correct", "Confirmed"],
  unconfirmed: ["unusable", "Not confirmed yet"],
  refuted: ["incorrect", "Refuted"],
  nothing: ["unusable", "No kernel yet"],
  refused: ["rejected", "Problem refused"],
};

export async function runScreen(id) {
  let run = await read(runPath(id));
  const grown = tree(run);
  const [head, side, roof, below] = [h("div", { class: "hero" }), h("div", { class: "columns lead" }), h("div"), h("div", { class: "columns" })];
  const title = h("div", { class: "title" });

  function draw() {
    title.replaceChildren(...titleOf(run));
    head.replaceChildren(
      h("div", { class: "card" }, achieved(run), figures(run)),
      h("div", { class: "card" }, h("h2", null, "Speedup vs eager, as the search measured it"), ...course([run], { height: innerWidth < 1024 || innerWidth > 2000 ? 260 : 330 }).filter(Boolean)),
      ...warnings(run));
    side.replaceChildren(leaderboard(run), happenings(run));
    roof.replaceChildren(...[run.roofline && section("Roofline", ...roofline(run))].filter(Boolean));
    below.replaceChildren(section("Spending", ...spending(run)), section("Setting", facts(settings(run))));
  }

  draw();
  const go = (attempt) => () => { if (attempt()) location.hash = `#/run/${encodeURIComponent(id)}/${attempt()}`; };
  return {
    title: brief(run.run.problem.name, 300),
    element: h("div", null, title, head, h("div", { class: "work" }, section("Attempts", grown.element), side), roof, below),
    concerns: (runs) => runs.includes(run.run.id),
    update: async () => { run = await readAgain(run); grown.update(run); draw(); },
    keys: { best: go(() => run.best), next: go(() => run.attempts[0]?.attempt) },
  };
}

function titleOf(run) {
  const config = run.run.config;
  const device = run.reference?.device.name;
  const prepared = run.spending_notes.some((note) => note.includes("prepared before the run"));
  const models = [...new Set(Object.values(config.models).map((one) => modelName(one.model)))].join(", ") + (prepared ? ", replies prepared before the run" : "");
  return [
    inOneFile ? null : h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs"), " / ", run.run.id),
    h("h1", null, brief(run.run.problem.name, 300)),
    h("p", { class: "quiet" }, [config.strategy.name, models, config.language, device, run.run.created.slice(0, 10), run.file, inOneFile ? run.run.id : null].filter(Boolean).join(" · "), " ",
      run.ended ? badge("ended", run.ended.detail) : run.pending.length ? badge("running", "running") : !run.headline.over && badge("unusable", "not ended"),
      " ", inOneFile || run.pending.length ? null : resumeButton(run.run.id)),
  ].filter(Boolean);
}

/** The configuration; warnings are above, and eager's time is beside the kernel's, where it was measured. */
const settings = (run) => run.facts.filter(([name]) => name && name !== "warning" && !(name === "reference" && run.headline.claims.length)).map(([name, text]) => [name, name === "models" ? modelName(text) : text]);

/** What a final check found at other shapes, which refutes no kernel: `incorrect with seq_len = 257`. */
const SPECIALIZED = "shape-specialized: ";
const elsewhere = (line) => line.warnings.filter((text) => text.startsWith(SPECIALIZED)).map((text) => text.slice(SPECIALIZED.length));

/** A final check can pass a kernel whose gain the measurements do not show, or that fails at other shapes. */
function verdict(line) {
  const { outcome, over, claims: [first] } = line;
  if (over && outcome === "unconfirmed") return ["unusable", "No final check"];
  if (outcome === "confirmed" && first.meaning === "faster" && elsewhere(line).length) return ["correct", "Confirmed at the given shape only"];
  if (outcome !== "confirmed" || first.meaning === "faster") return VERDICTS[outcome];
  return ["unusable", first.meaning === "slower" ? "Correct, but slower" : "Correct, gain not shown"];
}

/** The first thing to read: verified or not, how much faster if that is known, and against what. */
function achieved(run) {
  const line = run.headline;
  const [first] = line.claims;
  return [
    h("p", { class: "verdict" }, badge(...verdict(line)), h("span", { class: "quiet" }, line.sentence)),
    elsewhere(line).length > 0 && h("p", null, `Attempt ${line.attempt} is correct only at the given shape: ${elsewhere(line).join("; ")}.`),
    first?.meaning === "faster" && h("p", { class: `claim-big ${line.outcome === "confirmed" ? "sure" : "unsure"}` },
      h("span", { class: "factor" }, first.factor.replace("x", "×")),
      h("span", { class: "of" }, `faster than ${named(first.reference)} PyTorch`,
        h("small", null, `95 % interval ${first.speedup.low.toFixed(2)} to ${first.speedup.high.toFixed(2)}`))),
    first?.meaning === "noisy" && h("p", null, `The times are too noisy to tell whether it is faster than ${named(first.reference)} PyTorch: ${speedupText(first.factor)}, but the 95 % interval is ${interval(unbounded(first.text))}.`),
    line.claims.length > 0 && against(line.claims),
  ].filter(Boolean);
}

/** The best kernel and the whole search in numbers. */
function figures(run) {
  const line = run.headline;
  return h("dl", { class: "figures" }, [
      line.latency && ["time of a call", [line.latency, h("small", null, `eager ${line.claims[0].reference_latency}, beside it in the ${line.outcome === "confirmed" ? "final check" : "search"}`)]],
      line.roofline && ["roofline", shortened(line.roofline)],
      line.accuracy && ["error", errorOf(line, run)],
      ["cost", [line.cost, h("small", null, [`${line.tokens}, ${line.calls} ${line.calls === 1 ? "call" : "calls"}`, line.time && line.time !== "0:00" ? `${line.time} in all` : null, most(run.roles)].filter(Boolean).join(", "))]],
      ["attempts", [String(run.made), h("small", null, Object.entries(run.statuses).map(([name, count]) => `${count} ${name.replaceAll("_", " ")}`).join(", "))]],
  ].filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** The role that used most tokens, if there are several. */
function most(roles) {
  const used = Object.entries(roles).map(([role, spent]) => [spent.input_tokens + spent.output_tokens, role]).sort(([a], [b]) => b - a);
  return used.length > 1 && used[0][0] > used[1][0] ? `most tokens by ${used[0][1]}` : null;
}

/** The error beside the reference's own and the allowed one, and the outputs' types; the class is explained on request. */
function errorOf(line, run) {
  const [, error, reference, allowed, meets] = line.accuracy.match(/^error (\S+) \(reference (\S+), allowed ([^;]+?)(?:; meets (.+))?\)$/) ?? [null, line.accuracy];
  if (!reference) return error;
  return [error, h("small", null, `reference ${reference}, `, h("span", { class: "whole" }, `allowed ${allowed}`)), h("small", null, precisionTerm(classOf(line.precision, meets, run)))];
}

/** The class that was asked for, for outputs of which types, and the class that was met. */
export function classOf(asked, met, run) {
  const types = [...new Set((run.reference?.outputs ?? []).map((one) => one.dtype))].join(", ");
  return [`class ${asked}`, types && ` for ${types} outputs`, met && `, meets ${met}`].filter(Boolean).join("");
}

/** What a reader must know before the figures, such as a problem that a constant would solve. */
function warnings(run) {
  const found = run.headline.warnings.filter((text) => !text.startsWith(SPECIALIZED));
  return found.length ? [h("ul", { class: "warnings across" }, found.map((text) => h("li", null, text)))] : [];
}

function shortened(text) {
  if (text.startsWith("roofline unknown")) return h("small", null, "unknown, see the warning");
  const found = text.match(/^([^(]*?) ?\((.*)\)$/);
  return found ? [found[1].replace(" of the roofline", ""), h("small", null, [found[2], overShare(text)].filter(Boolean).join("; "))] : [h("small", null, text)];
}

function leaderboard(run) {
  const byId = new Map(run.attempts.map((attempt) => [attempt.attempt, attempt]));
  if (!run.leaders.length) return section("Leaderboard", h("p", { class: "quiet" }, "No correct kernel yet."));
  const shown = run.leaders.map((id) => byId.get(id)).filter(Boolean);
  const meets = (one) => (one.figures.meets === "not recorded" ? "" : one.figures.meets);
  const stack = (above, below) => h("span", { class: "stack" }, above, below ? h("small", null, below) : null);
  const speedup = (text) => (text.endsWith("too noisy") ? speedupShown(text) : stack(factorText(text), text.match(/\[(.*)\]/)?.[1].replace(", ", " to ")));
  const checked = (found) => (!found ? h("span", { class: "quiet" }, "none") : found.figures ? speedup(found.figures.speedups.eager) : words(found.status));
  const rows = shown.map((one) => [
    h("span", { title: tie(run, one.attempt)?.[1] }, one.attempt === run.best ? "★" : tie(run, one.attempt)?.[0] ?? ""),
    h("a", { href: `#/run/${encodeURIComponent(run.run.id)}/${one.attempt}` }, one.attempt),
    one.idea, stack(one.figures.latency, `eager ${one.figures.eager}`), speedup(one.figures.speedups.eager), checked(run.final_checks[one.attempt]),
    one.figures.roofline, stack(one.figures.error, meets(one)),
  ]);
  return section("Leaderboard",
    table(["", "attempt", "idea", "time", "vs eager", "in final check", "roofline", precisionTerm(shown.some(meets) ? "error, meets" : "error")], rows, [3, 4, 5, 6, 7]),
    h("p", { class: "quiet" }, "As the search measured them; the final check measured again. Speedups rank, not times: each is against eager's time beside it."),
    h("ul", { class: "notes quiet marks" }, run.standing.map((line) => h("li", null, brief(line, 600)))));
}

function happenings(run) {
  const item = (one) => h("li", null,
    badge(one.status, ""), h("span", { class: "when" }, one.time ?? ""),
    h("span", null, one.attempt ? h("a", { href: `#/run/${encodeURIComponent(run.run.id)}/${one.attempt}` }, `attempt ${one.attempt}`) : null, one.attempt ? " " : "", one.text.replace(/[\d.]+x( vs \S+)? \[[^\]]*\], too noisy/g, (_, versus) => `${versus?.trim() ?? "vs eager"} too noisy`)));
  return section("Events", h("ol", { class: "events", tabindex: 0, role: "list" }, run.happened.map(item)),
    run.happened.some((one) => one.time) ? h("p", { class: "quiet" }, "Times since the start of the run (hours:minutes:seconds), without pauses.") : "");
}

function spending(run) {
  return [
    run.spending.length ? table(["role", "calls", "tokens in", "tokens out", "price", "waiting"], run.spending, [1, 2, 3, 4, 5]) : "",
    ...run.spending_notes.map((note) => h("p", { class: "quiet" }, note)),
  ];
}
