// Pictures of a run: the course of the search, the best kernel against its references, and how one attempt stands.

import { h, s } from "./dom.js";
import { linearScale, logScale, short } from "./scales.js";
import { sign, words } from "./status.js";

/** An SVG picture with a description for those who cannot see it. */
export function picture(width, height, title, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title, class: "picture" }, ...children);
}

/** Lines and names of an axis on the left. */
export function leftAxis(scale, left, right, format) {
  return scale.ticks.map((value) => [
    s("line", { class: "grid", x1: left, x2: right, y1: scale.place(value), y2: scale.place(value) }),
    s("text", { class: "tick", x: left - 8, y: scale.place(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
}

/** Names of an axis at the bottom. */
export function bottomAxis(scale, y, format) {
  return scale.ticks.map((value) =>
    s("text", { class: "tick", x: scale.place(value), y: y + 18, "text-anchor": "middle" }, format(value)));
}

/** The width of a picture: at most `most`, and less on a narrow screen, where its texts would become too small. */
export const fitting = (most) => Math.max(280, Math.min(most, document.documentElement.clientWidth - 56));

export const times = (value) => `${short(value)}×`;

/** `2.00x [1.98, 2.02]` without its interval, as `2.00×`. */
export const factorText = (text) => text.split(/[ ,]/)[0].replace("x", "×");

/** Every attempt with its interval, and the best so far among those that can be ranked. Several runs can share a picture. */
export function course(runs, { width = fitting(640), height = 260 } = {}) {
  const all = runs.flatMap((run) => run.attempts.flatMap((one) => one.speedups.eager ?? []));
  const most = Math.max(1, ...runs.flatMap((run) => run.attempts.map((one) => one.attempt)), ...runs.map((run) => Math.min(run.run.config.budget.attempts, 60)));
  const ends = all.filter((one) => !noisy(one)).flatMap((one) => [one.low, one.high]);
  const middles = all.map((one) => one.ratio);
  const low = Math.min(0.9, ...middles, ...ends) / 1.06;
  const high = Math.max(1.5, ...middles, ...ends) * 1.08;
  const [left, right, top, bottom] = [46, width - 10, 10, height - 40];
  const y = logScale(low, high, bottom, top);
  const x = attemptScale(most, left, right);
  return [
    picture(width, height, "Speedup of each attempt, and the best so far",
      leftAxis(y, left, right, times),
      bottomAxis(x, bottom, (value) => (value === 0 ? "eager" : short(value))),
      s("text", { class: "label", x: right, y: height - 4, "text-anchor": "end" }, "attempt"),
      s("line", { class: "one", x1: left, x2: right, y1: y.place(1), y2: y.place(1) }),
      runs.map((run, number) => lineOf(run, x, y, bottom, number, runs))),
    runs.length === 1 ? h("p", { class: "legend" },
      h("span", { class: "key line" }), "best so far", all.some(noisy) ? [h("span", { class: "key dashed" }), "too noisy to rank; the line leaves it out"] : null) : null,
  ];
}

/** The place of an attempt, the same in all pictures of a run; 0 is eager mode. */
export const attemptScale = (most, left, right) => linearScale(0, most, left + 14, right - 10);

export const noisy = (speedup) => speedup.low <= 0 || speedup.high / speedup.low > 2;

function lineOf(run, x, y, bottom, number, runs) {
  const clamp = (value) => Math.max(Math.min(y.place(Math.max(value, 1e-6)), bottom), 6);
  const place = (attempt) => x.place(attempt) + (number - (runs.length - 1) / 2) * BESIDE;
  const refuted = (one) => (run.final_checks[one.duplicate_of ?? one.attempt]?.status ?? "correct") !== "correct";
  let path = `M${place(0)} ${y.place(1)}`;
  let best = 0;
  for (const one of run.attempts) {
    const found = one.speedups.eager;
    if (!found || noisy(found) || refuted(one) || found.ratio <= best) continue;
    path += `H${place(one.attempt)}V${y.place(found.ratio)}`;
    best = found.ratio;
  }
  path += `H${place(run.attempts.at(-1)?.attempt ?? 0)}`;
  return s("g", { class: `series series-${number}${runs.length > 1 ? " several" : ""}` },
    s("path", { class: "course", d: path }),
    run.attempts.length > MANY ? crowd(run.attempts, x, y, bottom) : run.attempts.map((one) => {
      const link = { href: `#/run/${encodeURIComponent(run.run.id)}/${one.attempt}`, tabindex: -1, "aria-label": `attempt ${one.attempt}` };
      const at = place(one.attempt);
      const speedup = one.speedups.eager;
      if (!speedup) return s("a", link, s("title", null, `attempt ${one.attempt}: ${words(one.status)}`), sign(one.status, at, bottom - 6));
      const kind = one.attempt === run.best ? "best" : "correct";
      return s("a", link,
        s("title", null, `attempt ${one.attempt}: ${one.figures.speedups.eager} vs eager. ${one.idea}`),
        s("line", { class: noisy(speedup) ? "interval noisy" : "interval", x1: at, x2: at, y1: clamp(speedup.low), y2: clamp(speedup.high) }),
        s("g", { class: noisy(speedup) ? "pale" : null }, sign(kind, at, y.place(speedup.ratio))));
    }));
}

/** Between the marks that two runs have at one attempt. */
const BESIDE = 7;
const MANY = 120;

/** So many attempts that their intervals would hide each other: small dots, and ticks for failures. */
function crowd(attempts, x, y, bottom) {
  return attempts.map((one) => {
    const at = x.place(one.attempt);
    const speedup = one.speedups.eager;
    if (!speedup) return s("line", { class: "tick-failed", x1: at, x2: at, y1: bottom - 5, y2: bottom });
    return s("circle", { class: noisy(speedup) ? "crowd noisy" : "crowd", cx: at, cy: y.place(speedup.ratio), r: 1.7 });
  });
}

/** A run, or one of several, in a picture's legend and rows: a letter, since not everybody tells colors apart. */
export const letter = (number) => "ABCDEF"[number];
export const letterKey = (number) => [h("span", { class: `letter series-${number}` }, letter(number)), " "];

/** What an evaluation says of each reference, as the claims of a headline. `series` is the number of its run among several. */
export const claimsOf = (one, series) => Object.entries(one?.figures ? one.speedups : {}).map(([reference, speedup]) => ({
  reference, speedup, series, factor: one.figures.speedups[reference].split(/[ ,]/)[0], meaning: meaningOf(speedup), text: one.figures.speedups[reference] }));

const meaningOf = (speedup) => (noisy(speedup) ? "noisy" : speedup.low > 1 ? "faster" : speedup.high < 1 ? "slower" : "same");

/** The best kernel's speedup against each reference: a dot with its 95 % interval beside the line of equal speed. */
export function against(claims, most = 460) {
  const several = claims.some((claim) => claim.series !== undefined);
  const [rowHeight, left] = [30, several ? 122 : 104];
  const width = fitting(most);
  const narrow = width < 400; // then there is no room for intervals in figures
  const right = width - (narrow ? 72 : 160);
  const ends = claims.flatMap(({ speedup }) => [speedup.ratio, Math.max(speedup.low, speedup.ratio / 4), Math.min(speedup.high, speedup.ratio * 4)]);
  const x = logScale(Math.min(0.8, ...ends) / 1.05, Math.max(1.25, ...ends) * 1.05, left, right);
  const height = claims.length * rowHeight + 22;
  const clamp = (value) => Math.min(Math.max(x.place(Math.max(value, 1e-6)), left), right);
  const drawn = picture(width, height, "Speedup against each reference",
    s("line", { class: "one", x1: x.place(1), x2: x.place(1), y1: 0, y2: height - 20 }),
    s("text", { class: "tick", x: x.place(1), y: height - 5, "text-anchor": "middle" }, "same speed"),
    claims.map((claim, place) => {
      const y = place * rowHeight + 18;
      return s("g", { class: `claim ${claim.meaning}${several ? ` several series-${claim.series}` : ""}` },
        s("title", null, `${named(claim.reference)}: ${claim.text}`),
        s("text", { class: "name", x: left - 12, y: y + 4, "text-anchor": "end" }, named(claim.reference), several ? ` ${letter(claim.series)}` : null),
        s("line", { class: "interval", x1: clamp(claim.speedup.low), x2: clamp(claim.speedup.high), y1: y, y2: y }),
        s("circle", { cx: x.place(claim.speedup.ratio), cy: y, r: 5 }),
        s("text", { x: right + 12, y: y + 4 }, claim.meaning === "noisy" ? s("tspan", { class: "meaning" }, narrow ? "too noisy" : "too noisy to tell")
          : [s("tspan", { class: "value" }, claim.factor.replace("x", "×")), narrow ? null : s("tspan", { class: "meaning", dx: 9 }, interval(claim.text))]));
    }));
  return [drawn, several ? null : slowerAutotune(claims)];
}

/** Said of a max-autotune that is measurably slower than torch.compile's default mode, which surprises readers. */
function slowerAutotune(claims) {
  const [compile, tuned] = ["compile", "max-autotune"].map((name) => claims.find((claim) => claim.reference === name));
  if (!compile || !tuned || noisy(compile.speedup) || noisy(tuned.speedup) || tuned.speedup.low <= compile.speedup.high) return null;
  return h("p", { class: "quiet" }, `torch.compile was slower in its mode max-autotune than in its default mode here: ${tuned.reference_latency} and ${compile.reference_latency}.`);
}

/** The interval in a text such as `2.00x vs eager [1.98, 2.02]`. */
export const interval = (text) => text.match(/\[([^\]]+)\]/)?.[1].replace(", ", " to ") ?? "";

const NAMES = { eager: "eager", compile: "compile", "max-autotune": "max-autotune" };
export const named = (reference) => NAMES[reference] ?? reference;

/** One attempt's interval on an axis that a whole list shares. */
export function whisker(speedup, scale, width = 120) {
  if (!speedup) return h("span", { class: "whisker" });
  const clamp = (value) => Math.min(Math.max(scale.place(Math.max(value, 1e-6)), 1), width - 1);
  return s("svg", { viewBox: `0 0 ${width} 14`, class: `whisker ${meaningOf(speedup)}`, "aria-hidden": "true" },
    s("line", { class: "one", x1: scale.place(1), x2: scale.place(1), y1: 0, y2: 14 }),
    s("line", { class: "interval", x1: clamp(speedup.low), x2: clamp(speedup.high), y1: 7, y2: 7 }),
    s("circle", { cx: clamp(speedup.ratio), cy: 7, r: 3.5 }));
}

/** The names of the axis that a list's whiskers share. */
export function whiskerAxis(scale, width = 120) {
  const names = scale.ticks.filter((value) => [1, 2, 3, 5].includes(Number(String(value)[0]))).reduce((kept, value) => (kept.length && scale.place(value) - scale.place(kept.at(-1)) < 26 ? kept : [...kept, value]), []);
  return s("svg", { viewBox: `0 0 ${width} 14`, class: "whisker axis", "aria-hidden": "true" },
    names.map((value) => s("text", { class: "tick", x: scale.place(value), y: 11, "text-anchor": "middle" }, times(value))));
}

const LEAST = 0.005;

/** Parts of a whole as bars. Those that would be rounded to nothing are one. */
export function bars(steps) {
  const least = steps.filter((step) => step.share < LEAST);
  const together = least.length > 1 ? { text: `${least.length} more: ${least.map((step) => step.name).join(", ")}`, share: least.reduce((sum, step) => sum + step.share, 0) } : least[0];
  return h("ul", { class: "bars" }, [...steps.filter((step) => step.share >= LEAST), together].filter(Boolean).map((step) => h("li", null,
    h("span", { class: "bar-name" }, step.text),
    h("span", { class: "bar-share" }, step.share < LEAST ? "< 1 %" : `${Math.round(step.share * 100)} %`),
    h("span", { class: `bar ${step.own ? "own" : ""}`, style: { "--share": step.share } }))));
}
