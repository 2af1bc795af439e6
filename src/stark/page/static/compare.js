// Two attempts, or two runs, beside each other.

import { course, fitting } from "./charts.js";
import { sideBySide } from "./code.js";
import { brief, h, section, table, wholeIdea } from "./dom.js";
import { achieved, figures } from "./run.js";
import { attemptPath, inOneFile, read, runPath } from "./source.js";
import { badge } from "./status.js";
import { against2, kinds, versusText } from "./versus.js";

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
  const [old, fresh] = [left.node.candidate?.source, right.node.candidate?.source];
  return {
    title: `Attempts ${m} and ${n}`,
    element: h("div", null,
      crumbs(runLinkTo(a), a === b ? null : runLinkTo(b)),
      h("h1", null, `Attempts ${m} and ${n} of ${brief(problems.join(" and "), 300)}`),
      h("div", { class: "tools" }, swapButton(address(b, n, a, m))),
      h("div", { class: "columns" }, side(left, one, "left"), side(right, other ?? one, "right")),
      kinds(left, right).map(([kind, mine, theirs]) => section(kind === "search" ? "In the search" : "In the final check", figuresOf(mine, theirs, names))),
      section("Sources", old && fresh ? sideBySide(old, fresh, names) : h("p", { class: "quiet" }, "One of them has no source: its reply was unusable."))),
    keys: { run: () => { location.hash = `#/run/${encodeURIComponent(a)}`; } },
  };
}

/** The figures of two evaluations of one kind, and what the second gains over the first. */
function figuresOf(mine, theirs, names) {
  const both = [mine, theirs];
  if (!both.some((each) => each?.figures))
    return h("p", { class: "quiet" }, both.map((each, at) => `${names[at]}: ${each ? each.reason : "not checked"}`).join("; "));
  const row = (name, text) => [name, ...both.map((each, at) => (each?.figures ? text(each) : name !== "time of a call" ? "" : each ? each.status.replaceAll("_", " ") : "not checked"))];
  const references = [...new Set(both.flatMap((each) => Object.keys(each?.speedups ?? {})))];
  const found = against2(theirs, mine);
  const gain = theirs?.figures && mine?.figures ? versusText(theirs, mine, names[0]) : null;
  return [
    h("div", { class: "even" }, table(["", ...names], [
      row("time of a call", (each) => each.figures.latency),
      ...references.map((name) => row(`vs ${name}`, (each) => [(each.figures.speedups[name] ?? "").replace("x", "×"), name === "eager" && each.figures.eager_beside ? h("small", null, `; ${each.figures.eager_beside}`) : ""])),
      row("roofline", (each) => each.figures.roofline),
      row("error", (each) => each.figures.error),
      row("bottleneck", (each) => each.bottleneck?.text ?? ""),
    ].filter(([, ...texts]) => texts.some(Boolean)))),
    gain ? h("p", null, `${names[1][0].toUpperCase()}${names[1].slice(1)}: ${gain}`,
      !found.sameWindow ? ". Eager mode took another time beside each, so the two times cannot be compared." : found.told ? "." : `; the ratio of the times is ${found.times.toFixed(2)}.`) : null,
  ];
}

async function runs(a, b) {
  let found = await Promise.all([read(runPath(a)), read(runPath(b))]);
  const body = h("div");
  const draw = () => body.replaceChildren(
    h("div", { class: "columns" }, found.map((run, at) => h("div", { class: "card" },
      h("h2", null, h("span", { class: `key series-${at}` }), h("a", { href: `#/run/${encodeURIComponent(run.run.id)}` }, run.run.id)), achieved(run), figures(run)))),
    section("Search", h("div", { class: "card" }, course(found, { width: fitting(900), height: 320 }).filter(Boolean))),
    section("What differs", differences(found)));
  draw();
  return {
    title: "Two runs",
    element: h("div", null, crumbs(), h("h1", null, "Two runs"), h("div", { class: "tools" }, swapButton(address(b, 0, a, 0))), body),
    concerns: (changed) => found.some((run) => changed.includes(run.run.id)),
    update: async () => { found = await Promise.all([read(runPath(a)), read(runPath(b))]); draw(); },
  };
}

function differences([left, right]) {
  const [one, other] = [left, right].map((run) => new Map([...run.facts.filter(([name]) => name), ["correct", `${run.correct} of ${run.made}`],
    ["failures debugged", `${run.failures_taken_up}, ${run.failures_repaired} repaired`], ["cost", `${run.headline.cost}, ${run.headline.tokens}`]]));
  const names = [...new Set([...one.keys(), ...other.keys()])].filter((name) => name !== "run" && one.get(name) !== other.get(name));
  return table(["", left.run.id, right.run.id], names.map((name) => [name, one.get(name) ?? "", other.get(name) ?? ""]));
}
