// Two attempts, or two runs, beside each other.

import { course, fitting } from "./charts.js";
import { sideBySide } from "./code.js";
import { h, section, table, visible } from "./dom.js";
import { achieved, figures } from "./run.js";
import { attemptPath, read, runPath } from "./source.js";
import { badge } from "./status.js";

export function compareScreen(a, m, b, n) {
  return Number(m) && Number(n) ? attempts(a, m, b, n) : runs(a, b);
}

async function attempts(a, m, b, n) {
  const [left, right] = await Promise.all([read(attemptPath(a, m)), read(attemptPath(b, n))]);
  const card = (one) => {
    const shown = one.check?.summary ?? one.search.summary;
    return h("div", { class: "card" },
      h("h2", null, h("a", { href: `#/run/${encodeURIComponent(one.run)}/${one.attempt}` }, `Attempt ${one.attempt}`), a === b ? "" : ` of ${one.run}`),
      h("p", null, badge(one.status), ` ${visible(one.title ?? one.idea)}`),
      shown.figures ? h("dl", { class: "figures" },
        [["time of a call", shown.figures.latency], ...Object.entries(shown.figures.speedups).map(([name, text]) => [`vs ${name}`, text.replace("x", "×").replace(" [", "\u00a0[")]), ["roofline", shown.figures.roofline], ["error", `${shown.figures.error}, meets ${shown.figures.meets}`]]
          .map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text)))) : h("p", null, visible(one.reason)),
      shown.bottleneck ? h("p", { class: "quiet" }, visible(shown.bottleneck.text)) : null);
  };
  const [old, fresh] = [left.node.candidate?.source, right.node.candidate?.source];
  return {
    title: `Attempts ${m} and ${n}`,
    element: h("div", null,
      h("h1", null, "Two attempts"),
      h("div", { class: "columns" }, card(left), card(right)),
      section("Sources", old && fresh ? sideBySide(old, fresh, [`attempt ${m}`, `attempt ${n}`]) : h("p", { class: "quiet" }, "One of them has no source: its reply was unusable."))),
    keys: { run: () => { location.hash = `#/run/${encodeURIComponent(a)}`; } },
  };
}

async function runs(a, b) {
  let found = await Promise.all([read(runPath(a)), read(runPath(b))]);
  const body = h("div");
  const draw = () => body.replaceChildren(
    h("div", { class: "columns" }, found.map((run, at) => h("div", { class: "card" },
      h("h2", null, h("span", { class: `key series-${at}` }), h("a", { href: `#/run/${encodeURIComponent(run.run.id)}` }, run.run.id)), achieved(run), figures(run)))),
    section("Search", h("div", { class: "card" }, course(found, { width: fitting(900), height: 320 }))),
    section("What differs", differences(found)));
  draw();
  return {
    title: "Two runs",
    element: h("div", null, h("h1", null, "Two runs"), body),
    concerns: (changed) => found.some((run) => changed.includes(run.run.id)),
    update: async () => { found = await Promise.all([read(runPath(a)), read(runPath(b))]); draw(); },
  };
}

function differences([left, right]) {
  const [one, other] = [left, right].map((run) => new Map([...run.facts.filter(([name]) => name), ["correct", `${run.correct} of ${run.attempts.length}`],
    ["failures debugged", `${run.failures_taken_up}, ${run.failures_repaired} repaired`], ["cost", `${run.headline.cost}, ${run.headline.tokens}`]]));
  const names = [...new Set([...one.keys(), ...other.keys()])].filter((name) => name !== "run" && one.get(name) !== other.get(name));
  return table(["", left.run.id, right.run.id], names.map((name) => [name, visible(one.get(name) ?? ""), visible(other.get(name) ?? "")]));
}
