// Two attempts, or two runs, beside each other.

import { against, claimsOf, course, fitting, letter, letterKey, noisy } from "./charts.js";
import { sideBySide } from "./code.js";
import { brief, h, section, table, wholeIdea } from "./dom.js";
import { attemptPath, inOneFile, read, runPath } from "./source.js";
import { badge, speedupShown } from "./status.js";
import { modelName } from "./terms.js";
import { against2, bestOf, comparable, kinds, ratesWarning, runsVerdict, versusText } from "./versus.js";

export function compareScreen(a, m, b, n) {
  return Number(m) && Number(n) ? attempts(a, m, b, n) : runs(a, b);
}

const address = (a, m, b, n) => `#/compare/${encodeURIComponent(a)}/${m}/${encodeURIComponent(b)}/${n}`;
const swapButton = (hash) => h("a", { class: "button", href: hash }, "Swap sides");
const crumbs = (...links) => h("p", { class: "crumbs" }, inOneFile ? null : [h("a", { href: "#/" }, "Runs"), " / "], links, " compare");
const runLinkTo = (id) => [h("a", { href: `#/run/${encodeURIComponent(id)}` }, id), " / "];

async function attempts(a, m, b, n) {
  const [left, right, one, other] = await Promise.all([read(attemptPath(a, m)), read(attemptPath(b, n)), read(runPath(a)), a === b ? null : read(runPath(b))]);
  const names = a === b ? [`attempt ${m}`, `attempt ${n}`] : [`${a}, attempt ${m}`, `${b}, attempt ${n}`];
  const problems = [...new Set([one.run.problem.name, (other ?? one).run.problem.name])];
  const side = (attempt, run, where) => {
    const pick = h("select", { "aria-label": `Attempt on the ${where}`, onchange: () => { location.hash = where === "left" ? address(a, pick.value, b, n) : address(a, m, b, pick.value); } },
      run.attempts.map((each) => h("option", { value: each.attempt, selected: each.attempt === attempt.attempt }, `attempt ${each.attempt}${each.attempt === run.best ? " ★" : ""}`)));
    return h("div", { class: "card" },
      h("div", { class: "tools" }, pick, badge(attempt.status), h("a", { href: `#/run/${encodeURIComponent(attempt.run)}/${attempt.attempt}` }, "open")),
      h("p", null, wholeIdea(attempt)),
      attempt.reason ? h("p", { class: "quiet" }, attempt.reason) : null);
  };
  const unlike = other && ratesWarning(one, other);
  const [old, fresh] = [left.node.candidate?.source, right.node.candidate?.source];
  return {
    title: `Attempts ${m} and ${n}`,
    element: h("div", null,
      crumbs(runLinkTo(a), a === b ? null : runLinkTo(b)),
      h("h1", null, `Attempts ${m} and ${n} of ${brief(problems.join(" and "), 300)}`),
      h("div", { class: "tools" }, swapButton(address(b, n, a, m))),
      h("div", { class: "columns" }, side(left, one, "left"), side(right, other ?? one, "right")),
      warned(unlike),
      kinds(left, right).map(([kind, mine, theirs]) => section(kind === "search" ? "In the search" : "In the final check", figuresOf(mine, theirs, names), problems.length === 1 ? gainOf(mine, theirs, names, !unlike) : null)),
      section("Sources", old && fresh ? sideBySide(old, fresh, names) : h("p", { class: "quiet" }, "One of them has no source: its reply was unusable."))),
    keys: { run: () => { location.hash = `#/run/${encodeURIComponent(a)}`; } },
  };
}

const warned = (text) => (text ? h("ul", { class: "warnings across" }, h("li", null, text)) : null);

/** The figures of two evaluations of one kind. */
function figuresOf(mine, theirs, names, heads = names) {
  const both = [mine, theirs];
  if (!both.some((each) => each?.figures))
    return h("p", { class: "quiet" }, both.map((each, at) => `${names[at]}: ${each ? each.reason : "not checked"}`).join("; "));
  const row = (name, text) => [name, ...both.map((each) => (each?.figures ? text(each) : ""))];
  const results = both.map((each) => (each ? [each.status.replaceAll("_", " "), each.reason].filter(Boolean).join(": ") : "not checked"));
  const references = [...new Set(both.flatMap((each) => Object.keys(each?.speedups ?? {})))];
  return h("div", { class: "even" }, table(["", ...heads], [
    ...(both.every((each) => each?.figures) ? [] : [["result", ...results]]),
    row("time of a call", (each) => each.figures.latency),
    ...references.map((name) => row(`vs ${name}`, (each) => [each.speedups[name] ? speedupShown(each.figures.speedups[name]) : "", name === "eager" && each.figures.eager_beside ? h("small", null, `; ${each.figures.eager_beside}`) : ""])),
    row("roofline", (each) => each.figures.roofline),
    ["error", ...both.map((each) => each?.figures?.error ?? each?.evidence.match(/relative RMS error ([\d.e+-]+\d)/)?.[1] ?? "")],
    row("bottleneck", (each) => each.bottleneck?.text ?? ""),
  ].filter(([, ...texts]) => texts.some(Boolean))));
}

/** What the second of two attempts gains over the first. */
function gainOf(mine, theirs, names, sameRates) {
  const found = against2(theirs, mine, sameRates);
  if (!found || !mine.figures || !theirs.figures) return null;
  return h("p", null, `${names[1][0].toUpperCase()}${names[1].slice(1)}: ${versusText(theirs, mine, names[0], sameRates)}`,
    !sameRates ? "." : !found.sameWindow ? ". Eager mode took another time beside each, so the two times cannot be compared." : found.told ? "." : `; the ratio of the times is ${found.times.toFixed(2)}, but the times are of different moments, so it does not rank.`);
}

async function runs(a, b) {
  let found = await Promise.all([read(runPath(a)), read(runPath(b))]);
  const body = h("div");
  const problems = [...new Set(found.map((run) => run.run.problem.name))];
  const draw = () => body.replaceChildren(
    h("p", { class: "lead-sentence" }, runsVerdict(found, ["A", "B"])),
    ...[warned(ratesWarning(...found))].filter(Boolean),
    h("ul", { class: "sides" }, found.map((run, at) => h("li", null, letterKey(at), h("a", { href: `#/run/${encodeURIComponent(run.run.id)}` }, run.run.id), ` ${achievement(run)}`))),
    ...[againstBoth(found)].filter(Boolean),
    ...kinds(...found.map(bestOf)).reverse().map(([kind, mine, theirs]) => section(`Best attempts in the ${kind}`,
      figuresOf(mine, theirs, ["A", "B"], found.map((run, at) => h("span", null, letterKey(at), run.best ? `attempt ${run.best}` : "no correct attempt"))))),
    section("Search", h("div", { class: "card" },
      h("p", { class: "legend" }, found.map((run, at) => [letterKey(at), h("span", null, run.run.id)]), "Lines: best so far; dashed: too noisy to rank, so the lines leave it out."),
      found.map((run, at) => offLine(run, letter(at))),
      course(found, { width: fitting(900), height: 320 }).filter(Boolean))),
    section("What differs", differences(found)));
  draw();
  return {
    title: "Two runs",
    element: h("div", null, crumbs(), h("h1", null, `Two runs of ${brief(problems.join(" and "), 300)}`), h("div", { class: "tools" }, swapButton(address(b, 0, a, 0))), body),
    concerns: (changed) => found.some((run) => changed.includes(run.run.id)),
    update: async () => { found = await Promise.all([read(runPath(a)), read(runPath(b))]); draw(); },
  };
}

/** Why the line of a run does not end at its best attempt; null if it may. */
function offLine(run, name) {
  const best = run.attempts.find((one) => one.attempt === run.best);
  if (!best || !noisy(best.speedups.eager)) return null;
  return h("p", { class: "quiet" }, `${name}'s best attempt, ${run.best}, is not on its line: its speedup in the search is too noisy to rank.${run.confirmed ? " It leads by the final check." : ""}`);
}

/** What a run achieved, such as `attempt 5 passed the final check; 8 attempts, 1 of them failed; price unknown`. */
function achievement(run) {
  const failed = run.made - run.correct;
  const attempts = `${run.made} ${run.made === 1 ? "attempt" : "attempts"}${failed ? `, ${failed} failed` : ""}`;
  return [run.headline.sentence.replace(/\.$/, ""), attempts, run.headline.cost, run.headline.tokens].join("; ");
}

/** Every speedup of both runs on one axis, from figures of one kind. */
function againstBoth(found) {
  const [kind, ...both] = comparable(...found) ?? [];
  if (!kind) return null;
  const claims = both.flatMap(claimsOf);
  const references = [...new Set(claims.map((each) => each.reference))];
  const paired = references.flatMap((name) => claims.filter((each) => each.reference === name));
  return h("div", { class: "card" }, h("h2", null, `Speedup against each reference, in the ${kind}`), against(paired, 1000));
}

function differences([left, right]) {
  const plainly = ([name, text]) => [name, name === "models" ? modelName(text) : text];
  const [one, other] = [left, right].map((run) => new Map([...run.facts.filter(([name]) => name).map(plainly), ["correct", `${run.correct} of ${run.made}`],
    ["failures debugged", `${run.failures_taken_up}, ${run.failures_repaired} repaired`], ["cost", `${run.headline.cost}, ${run.headline.tokens}`]]));
  const names = [...new Set([...one.keys(), ...other.keys()])].filter((name) => name !== "run" && one.get(name) !== other.get(name));
  return h("div", { class: "even" }, table(["", ...[left, right].map((run, at) => h("span", null, letterKey(at), run.run.id))], names.map((name) => [name, one.get(name) ?? "", other.get(name) ?? ""])));
}
