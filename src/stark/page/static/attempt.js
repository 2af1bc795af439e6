// One attempt: its result and why, its changes, its plan in the source, its profile, and every prompt and reply.

import { bars } from "./charts.js";
import { sideBySide, source } from "./code.js";
import { box, brief, facts, h, section, table, wholeIdea } from "./dom.js";
import { overShare } from "./roofline.js";
import { attemptPath, inOneFile, read, runPath } from "./source.js";
import { classOf } from "./run.js";
import { badge, speedupText, tie, unbounded } from "./status.js";
import { precisionTerm } from "./terms.js";
import { against2, versusText } from "./versus.js";

export async function attemptScreen(id, number) {
  const [run, attempt] = await Promise.all([read(runPath(id)), read(attemptPath(id, number))]);
  const parent = run.attempts.find((one) => one.attempt === attempt.parent);
  const to = (other) => `#/run/${encodeURIComponent(id)}/${other}`;
  const place = run.attempts.findIndex((one) => one.attempt === attempt.attempt);
  const [previous, next] = [run.attempts[place - 1]?.attempt, run.attempts[place + 1]?.attempt];
  const go = (other) => () => { if (other) location.hash = to(other); };
  const against = (other) => `#/compare/${encodeURIComponent(id)}/${other}/${encodeURIComponent(id)}/${attempt.attempt}`;
  const compare = attempt.parent ? () => { location.hash = against(attempt.parent); } : undefined;
  const others = run.attempts.filter((one) => one.attempt !== attempt.attempt);
  const pick = h("select", { "aria-label": "Compare with another attempt", onchange: () => { location.hash = against(pick.value); } },
    h("option", { value: "" }, "compare with …"), others.map((one) => h("option", { value: one.attempt }, `attempt ${one.attempt}${one.attempt === run.best ? " ★" : ""}${one.figures ? `, ${one.figures.latency}` : ""}`)));
  return {
    title: `Attempt ${number} of ${brief(run.run.problem.name, 300)}`,
    element: h("div", null,
      h("p", { class: "crumbs" }, inOneFile ? null : [h("a", { href: "#/" }, "Runs"), " / "], h("a", { href: `#/run/${encodeURIComponent(id)}` }, run.run.id), ` / attempt ${number}`,
        h("span", { class: "steps" }, previous && h("a", { href: to(previous) }, `← ${previous}`), next && h("a", { href: to(next) }, `${next} →`))),
      h("h1", null, h("span", { class: "number-of" }, number), attempt.title && attempt.action === "improve" ? wholeIdea({ ...attempt, idea: attempt.title }, 100) : attempt.idea || `Attempt ${number}`),
      h("p", { class: "lineage" }, attempt.attempt === run.best ? badge("best", run.headline.claims[0]?.meaning === "noisy" ? "correct, ranks first" : "best") : badge(attempt.status), { debug: " · a repair of ", tune: " · tuned from " }[attempt.action] ?? " · made from ",
        attempt.parent ? h("a", { href: to(attempt.parent) }, `attempt ${attempt.parent}`) : "the reference",
        attempt.action === "tune" ? ", without a model" : `, by the ${attempt.role} role`,
        attempt.told_of && run.attempts.some((one) => one.attempt < attempt.attempt) ? told(attempt.told_of, to) : "",
        attempt.children.length ? [", continued by ", attempt.children.map((child, at) => [at ? ", " : "", h("a", { href: to(child) }, child)])] : "",
        attempt.duplicate_of ? [", same source as ", h("a", { href: to(attempt.duplicate_of) }, attempt.duplicate_of)] : ""),
      others.length ? h("div", { class: "tools" }, attempt.parent ? h("a", { class: "button", href: against(attempt.parent) }, "Compare with parent") : null, pick) : null,
      result(attempt, gained(attempt, parent, run), run),
      changed(attempt),
      plan(attempt) ?? said(attempt),
      section("Evidence", evidence(attempt)),
      attempt.tuning && section("Tuning", h("p", null, attempt.tuning)),
      profile(attempt),
      models(attempt)),
    keys: { run: () => { location.hash = `#/run/${encodeURIComponent(id)}`; }, best: go(run.best), next: go(next), previous: go(previous), parent: go(attempt.parent), compare },
  };
}

/** Which earlier attempts its writer knew. */
function told(ids, to) {
  if (!ids.length) return ", whose prompts name no earlier attempt";
  return [`, whose prompts name attempt${ids.length > 1 ? "s" : ""} `, ids.map((id, at) => [at ? ", " : "", h("a", { href: to(id) }, id)])];
}

/** The gain over the parent, and why there is none, from figures of one kind: both of the final check, or both of the search. */
function gained(attempt, parent, run) {
  if (!parent) return null;
  const checks = [attempt.check?.summary, run.final_checks[parent.attempt]];
  const [mine, theirs] = checks.every((one) => one?.figures) ? checks : [attempt.search.summary, parent];
  const found = against2(mine, theirs);
  const name = `attempt ${parent.attempt}`;
  if (!found) return null;
  const where = attempt.check && mine !== checks[0] ? ", as the search measured both" : "";
  if (found.told) return h("b", null, `${versusText(mine, theirs, name)}${where}.`);
  const [ours, its] = [mine, theirs].map((one) => speedupText(one.figures.speedups.eager));
  return [h("b", null, `No measurable gain over ${name}${where}.`),
    h("span", { class: "quiet" }, `Their speedups cannot be told apart: ${ours} here; ${name}: ${its}. The times, ${mine.figures.latency} and ${theirs.figures.latency}, are of different moments, so they do not rank.`)];
}

/** What the interval against eager mode says. */
function standingOf(shown, checked) {
  const eager = shown.speedups.eager;
  if (!eager) return badge("correct");
  if (shown.figures.speedups.eager.endsWith("too noisy")) return badge("unusable", "Correct; too noisy to tell whether it is faster than eager");
  if (eager.low > 1) return badge("correct", checked ? "Confirmed: faster than eager" : "Faster than eager, not confirmed");
  return badge("unusable", eager.high < 1 ? "Correct, but slower than eager" : "Correct; no measurable difference from eager");
}

function result(attempt, gain, run) {
  const checked = attempt.check?.summary;
  const shown = checked ?? attempt.search.summary;
  if (!shown.figures)
    return h("div", { class: "card failure" }, h("h2", null, checked ? "The final check refused it" : "Why it failed"), box(shown.evidence, { class: "said" }),
      checked && attempt.figures ? h("p", { class: "quiet" }, `In the search it was correct: ${attempt.figures.latency}, ${speedupText(attempt.figures.speedups.eager)}.`) : null);
  const figure = (name, value, note) => h("div", null, h("dt", null, name), h("dd", null, value, note ? h("small", null, note) : null));
  return h("div", { class: "card" },
    h("p", { class: "verdict" }, standingOf(shown, checked), gain),
    h("p", { class: "quiet" }, checked ? "As the final check measured it." : "As the search measured it; only a final check confirms a win.", checked && attempt.figures ? ` The search measured ${attempt.figures.latency}, ${speedupText(attempt.figures.speedups.eager).replace("×", "× vs eager")}.` : ""),
    h("dl", { class: "figures" },
      figure("time of a call", shown.figures.latency, shown.figures.eager && `eager ${shown.figures.eager}, beside it`),
      Object.entries(shown.figures.speedups).map(([name, text]) => {
        const [factor, interval] = speedupText(text).replace(", too noisy", "").split(/(?<=×) /);
        return text.endsWith("too noisy") ? figure(`vs ${name}`, "too noisy", `${factor} ${interval}`) : figure(`vs ${name}`, factor, interval);
      }),
      shown.roofline_fraction === null ? figure("roofline", h("small", null, shown.figures.roofline_why.replace("roofline ", ""))) : figure("roofline", shown.figures.roofline, overShare(shown.figures.roofline)),
      figure("error", shown.figures.error, [`reference ${tiny(shown.accuracy.reference_relative_rms)}, `, h("span", { class: "whole" }, `allowed ${tiny(shown.accuracy.budget)}`), h("br"),
        precisionTerm(classOf(shown.accuracy.precision, shown.figures.meets !== "not recorded" && shown.figures.meets, run))]),
      shown.bottleneck && figure("bottleneck, by its profile", shown.bottleneck.kind, shown.bottleneck.text.replace(/^[\w -]+: /, ""))),
    Object.keys(shown.cases).length ? table(["case", "weight", "time", "vs eager", "roofline", "error"],
      Object.entries(shown.cases).map(([name, one]) => [name, one.weight, one.figures.latency, one.figures.speedups.eager, one.figures.roofline, one.figures.error]), [1, 2, 3, 4, 5]) : null);
}

/** A small number as Python shows it: `2e-05`. */
const tiny = (value) => (value >= 1e-4 ? String(Number(value.toPrecision(2))) : value ? value.toExponential(1).replace(".0e", "e").replace(/([+-])(\d)$/, "$10$2") : "0");

function plan(attempt) {
  const made = attempt.node.plan;
  if (!made) return null;
  const inherited = { debug: "repairs", tune: "tunes" }[attempt.action];
  const title = inherited ? `Plan of attempt ${attempt.parent}, which this ${inherited}` : `Plan: ${made.action === "edit" ? "edit the parent" : "rewrite the file"}`;
  return section(title, h("div", { class: attempt.anchored ? "plan" : "plan alone" },
    h("div", { class: "prose" }, brief(made.strategy).split(/\n{2,}/).map((part) => h("p", null, part))),
    attempt.anchored ? source(attempt.before, made.anchors)
      : made.anchors.length ? facts(made.anchors.map((anchor) => [anchor.name, anchor.instruction])) : null));
}

/** Without a plan: what the reply says besides the code, of which the title is the beginning. */
function said(attempt) {
  const reply = attempt.calls.at(-1)?.reply.text ?? "";
  const text = reply.replace(/^(`{3,})[^\n]*\n[\s\S]*?(?:^\1`*[ \t]*$|(?![\s\S]))/gm, "").trim();
  return text && text !== attempt.idea ? section("What its writer said", h("div", { class: "prose" }, brief(text).split(/\n{2,}/).map((part) => h("p", null, part)))) : null;
}

function changed(attempt) {
  const fresh = attempt.node.candidate?.source;
  if (!fresh) return null;
  const copy = h("button", { class: "plain", onclick: async () => { await navigator.clipboard.writeText(fresh); copy.textContent = "copied"; } }, "Copy the source");
  if (attempt.parent === 0 || attempt.before === null) return section("Source", copy, source(fresh));
  return section(`Changes to attempt ${attempt.parent}`, copy, sideBySide(attempt.before, fresh, [`attempt ${attempt.parent}`, `attempt ${attempt.attempt}`]),
    h("details", null, h("summary", null, "Whole source"), lazily(() => source(fresh))));
}

function evidence(attempt) {
  const elsewhere = Object.entries(attempt.elsewhere).map(([kind, one]) => [`Final check on ${kind}`, one]);
  const parts = [["Search", attempt.search], ["Final check", attempt.check], ...elsewhere].filter(([, one]) => one);
  const shown = attempt.check ?? attempt.search; // whose failure is told above
  return h("div", { class: "columns" }, parts.map(([name, judged]) => h("div", null,
    parts.length > 1 ? h("h3", null, name) : null,
    facts([["status", judged.summary.status.replaceAll("_", " ")], ...judged.facts.filter(([fact]) => fact !== "evidence" || judged !== shown).map(([fact, text]) => [fact, unbounded(text)])]),
    judged.output.trim() ? [h("h3", null, "Output"), box(judged.output.trim())] : null)));
}

function profile(attempt) {
  const profiles = Object.entries((attempt.check ?? attempt.search).profiles);
  const shown = profiles.length ? profiles : Object.entries(attempt.search.profiles);
  if (!shown.length) return null;
  return section("Where the time goes",
    h("p", { class: "quiet" }, "Shares are of the rates that its judge had measured by then; the roofline is the run's, so the two can differ by a few percent."),
    shown.map(([name, one]) => h("div", null,
    name ? h("h3", null, `Case ${name}`) : null,
    h("p", null, one.lines[0]), h("p", { class: "quiet" }, one.lines[1] ?? ""),
    bars(one.bars),
    one.counters.length ? [h("h3", null, "Counters"), facts(one.counters.map((each) => [`${each.name}, ${Math.round(each.share * 100)} %`, [each.limiter, ...each.facts].join("; ")]))] : null)));
}

function models(attempt) {
  if (!attempt.calls.length) return null;
  const call = (one, at) => h("details", { class: "call" },
    h("summary", null, h("b", null, `${one.turn + 1}. ${one.role}`), ` ${one.reply.model} `,
      h("span", { class: "outcome" }, outcome(attempt, at)),
      h("span", { class: "quiet" }, `${length(one.messages.map((each) => each.text).join(""))} sent, ${length(one.reply.text)} received${one.reply.truncated ? ", cut off at the output limit" : ""}`),
      attempt.cuts[at] ? h("span", { class: "cut" }, attempt.cuts[at]) : null),
    lazily(() => [
      ...one.messages.map((message) => h("details", { open: message.speaker !== "system" && one.messages.length < 3 }, h("summary", null, `${message.speaker}, ${length(message.text)}`), lazily(() => box(message.text)))),
      h("h3", null, "Reply"), box(one.reply.text)]));
  return section("Models",
    table(["role", "calls", "tokens in", "tokens out", "price", "waiting"], attempt.spending, [1, 2, 3, 4, 5]),
    attempt.calls.map(call));
}

/** What became of a reply: of each role, the last one decided, and earlier ones were sent back. */
function outcome(attempt, at) {
  const { role } = attempt.calls[at];
  if (attempt.calls.slice(at + 1).some((one) => one.role === role)) return "sent back ";
  if (at < attempt.calls.length - 1) return "";
  return attempt.node.candidate ? "wrote the code that was judged " : "unusable ";
}

const length = (text) => `${text.length.toLocaleString("en")} characters`;

/** The content of a fold, made when it is first opened. */
function lazily(make) {
  const place = h("div");
  const watch = () => {
    const fold = place.closest("details");
    if (!fold) return;
    const fill = () => { if (fold.open && !place.firstChild) { place.append(...[make()].flat()); } };
    fold.addEventListener("toggle", fill);
    fill();
  };
  queueMicrotask(watch);
  return place;
}
