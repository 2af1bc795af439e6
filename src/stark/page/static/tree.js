// The tree of attempts: a row per attempt, with its branch drawn on the left. Arrow keys move, fold and unfold.

import { chosenIn, keepChoice } from "./address.js";
import { h, reconcile, s, wholeIdea } from "./dom.js";
import { whisker } from "./charts.js";
import { logScale } from "./scales.js";
import { sign, speedupShown, tie, words } from "./status.js";

const ROW = 30;
/** The rows that are drawn before the first paint; the others follow. */
const FIRST = 60;
/** Lines reach over the row, which may be taller on a narrow screen and cuts them off. */
const OVER = 12;

const KINDS = [["all", "all attempts"], ["best", "path to the best"], ["correct", "correct"], ["failed", "failed"]];

/** The two attempts that a comparison begins with: the best one, or the first, and the one that it came from or the next best. */
function twoOf(run) {
  const best = run.best ?? run.attempts[0]?.attempt;
  const parent = run.attempts.find((one) => one.attempt === best)?.parent;
  const other = parent || [...run.leaders, ...run.attempts.map((one) => one.attempt)].find((one) => one !== best);
  return [other, other && best];
}

/** The tree of a run, which `update(run)` redraws. */
export function tree(first) {
  const folded = new Set();
  let run = first;
  let kind = KINDS.some(([name]) => name === chosenIn("show")) ? chosenIn("show") : "all";
  let most = FIRST;
  const rows = h("div", { role: "tree", class: "tree", "aria-label": "Attempts", onkeydown: (event) => move(event, folded, draw) });
  const count = h("span", { class: "quiet" });
  const heads = h("div");
  const filter = h("select", { "aria-label": "Which attempts", onchange: () => { kind = filter.value; keepChoice("show", kind === "all" ? "" : kind); draw(); } },
    KINDS.map(([value, text]) => h("option", { value, selected: value === kind }, text)));
  const compare = h("a", { class: "button" }, "Compare two attempts");

  function draw() {
    const { rows: visibleRows, total } = layout(run, folded, kind);
    heads.replaceChildren(visibleRows.length ? headsOf(visibleRows[0]) : "");
    const [a, b] = twoOf(run);
    compare.hidden = b === undefined;
    compare.href = `#/compare/${encodeURIComponent(run.run.id)}/${a}/${encodeURIComponent(run.run.id)}/${b}`;
    count.textContent = visibleRows.length === total ? `${total} ${total === 1 ? "attempt" : "attempts"}` : `${visibleRows.length} of ${total} attempts`;
    reconcile(rows, visibleRows.slice(0, most), (row) => row.id, (row) => rowOf(row, run.run.id));
    if (visibleRows.length > most) {
      most *= 4;
      setTimeout(draw, 30);
    }
    const current = rows.querySelector("[tabindex='0']") ?? rows.firstElementChild;
    current?.setAttribute("tabindex", "0");
  }

  draw();
  return {
    element: h("div", null, h("div", { class: "tools" }, filter, compare, count), heads, rows),
    update: (next) => { run = next; draw(); },
  };
}

function layout(run, folded, kind) {
  const attempts = [
    ...run.attempts,
    ...run.pending.map((one) => ({ ...one, status: "running", idea: `in progress, to ${one.action} ${one.parent ? `attempt ${one.parent}` : "the reference"}`, speedups: {}, figures: null, role: one.text })),
  ];
  const kept = filtered(attempts, run, kind);
  const children = new Map();
  for (const one of kept.values()) {
    const parent = kept.has(one.parent) ? one.parent : 0;
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const extent = [0.7, 1.4, ...attempts.flatMap((one) => one.speedups.eager?.ratio ?? [])];
  const [low, high] = [Math.min(...extent) / 1.15, Math.max(...extent) * 1.15];
  const found = [];
  const visit = (parent, level, lines) => {
    const below = (children.get(parent) ?? []).sort((a, b) => a.attempt - b.attempt);
    below.forEach((one, place) => {
      const last = place === below.length - 1;
      const leaf = !children.has(one.attempt);
      found.push(asRow(one, run, { level, lines, last, leaf, folded: folded.has(one.attempt), low, high }));
      if (!folded.has(one.attempt)) visit(one.attempt, level + 1, [...lines, !last]);
    });
  };
  visit(0, 1, []);
  return { rows: found, total: attempts.length };
}

function filtered(attempts, run, kind) {
  const byId = new Map(attempts.map((one) => [one.attempt, one]));
  if (kind === "all") return byId;
  if (kind === "best") {
    const path = new Map();
    for (let one = byId.get(run.best); one; one = byId.get(one.parent)) path.set(one.attempt, one);
    return path;
  }
  const wanted = (one) => (kind === "correct" ? one.status === "correct" : !["correct", "running"].includes(one.status));
  return new Map(attempts.filter(wanted).map((one) => [one.attempt, one]));
}

function asRow(one, run, place) {
  return {
    ...place,
    id: one.attempt,
    status: one.attempt === run.best ? "best" : one.status,
    state: one.status,
    refuted: one.attempt in run.final_checks && run.final_checks[one.attempt].status !== "correct",
    checked: one.attempt in run.final_checks,
    gained: showsGain(run.final_checks[one.attempt]?.speedups.eager),
    tie: tie(run, one.attempt),
    role: one.role,
    idea: one.status === "correct" || one.duplicate_of ? wholeIdea(one) : one.idea,
    reason: one.duplicate_of ? "" : one.reason,
    latency: one.figures?.latency ?? "",
    beside: one.figures?.eager ?? "",
    speedup: one.figures?.speedups.eager ?? "",
    eager: one.speedups.eager ?? null,
  };
}

/** Whether a final check showed a gain; it can also pass a kernel that is no faster. */
const showsGain = (speedup) => Boolean(speedup && speedup.low > 1 && speedup.high / speedup.low <= 2);

function rowOf(row, run) {
  const note = row.refuted ? " refuted by the final check" : row.checked ? " passed the final check" : "";
  const state = (row.status === "running" ? row.role : words(row.state) + note) + (row.tie ? `, ${row.tie[1]}` : "");
  return h("a", {
    role: "treeitem", class: `row ${row.status}`, href: `#/run/${encodeURIComponent(run)}/${row.id}`, tabindex: -1,
    "aria-level": row.level, "aria-expanded": row.leaf ? null : String(!row.folded), "data-id": row.id,
    "aria-label": `attempt ${row.id}, ${state}, ${row.speedup} ${row.idea} ${row.reason ?? ""}`.slice(0, 300),
  },
    branch(row),
    h("span", { class: "id", title: row.tie?.[1] }, row.tie ? `${row.tie[0]} ` : "", row.id),
    h("span", { class: "idea" }, h("span", { class: "what" }, row.folded ? h("span", { class: "fold" }, "folded ") : null, row.idea ?? ""), row.reason ? h("span", { class: "why" }, row.reason) : null),
    h("span", { class: `state ${row.state}` }, row.status === "running" ? row.role : words(row.state), row.refuted ? " · refuted" : row.checked ? (row.gained ? " · confirmed" : ", gain not shown") : ""),
    h("span", { class: "latency" }, row.latency),
    h("span", { class: "beside" }, row.beside),
    whisker(row.eager, logScale(row.low, row.high, 6, 114)),
    h("span", { class: "speedup" }, speedupShown(row.speedup)));
}

/** The names of the columns, and where equal speed is on the axis that the rows share. */
function headsOf({ low, high }) {
  const scale = logScale(low, high, 6, 114);
  return h("div", { class: "heads", "aria-hidden": "true" }, h("span"), h("span"), h("span", null, "attempt, as the search measured it"), h("span", null, "result"),
    h("span", { class: "latency" }, "time"), h("span", { class: "beside", title: "eager mode's time beside the attempt; the speedup is the median of paired ratios" }, "eager's"),
    s("svg", { viewBox: "0 0 120 14", class: "whisker" }, s("text", { x: scale.place(1), y: 11, "text-anchor": "middle" }, "1×")), h("span", { class: "speedup" }, "vs eager, 95 %"));
}

function branch(row) {
  const step = Math.max(4, Math.min(16, 220 / row.level));
  const x = (level) => level * step + 6;
  const half = ROW / 2;
  const end = x(row.level - 1) + 4;
  return s("svg", { class: "branch", width: end + 12, height: ROW, viewBox: `0 0 ${end + 12} ${ROW}`, "aria-hidden": "true" },
    row.lines.map((open, level) => open && s("line", { class: "twig", x1: x(level) - 6, x2: x(level) - 6, y1: -OVER, y2: ROW + OVER })),
    s("path", { class: "twig", d: `M${x(row.level - 1) - 6} ${-OVER}V${row.last ? half : ROW + OVER}M${x(row.level - 1) - 6} ${half}H${end}` }),
    !row.leaf && s("path", { class: "twig", d: `M${x(row.level) - 6} ${half}V${row.folded ? half : ROW + OVER}` }),
    sign(row.status, end, half));
}

function move(event, folded, draw) {
  const rows = [...event.currentTarget.children];
  const here = rows.indexOf(document.activeElement);
  if (here < 0) return;
  const row = rows[here];
  const id = Number(row.dataset.id);
  const open = row.getAttribute("aria-expanded");
  const target = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (event.key === "ArrowLeft" && open === "true") folded.add(id), draw();
  else if (event.key === "ArrowRight" && open === "false") folded.delete(id), draw();
  else if (target === undefined) return;
  event.preventDefault();
  const list = event.currentTarget;
  const next = target === undefined ? list.querySelector(`[data-id="${id}"]`) : rows[Math.max(0, Math.min(rows.length - 1, target))];
  list.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}
