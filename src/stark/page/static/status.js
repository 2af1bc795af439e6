// How a status looks: a color, a sign that needs no color, and words.

import { h, s } from "./dom.js";

const SIGNS = {
  correct: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
  incorrect: "M-4 -4L4 4M4 -4L-4 4",
  build_failed: "M0 -4.5L4.5 4L-4.5 4Z",
  crashed: "M-4 -4L4 -4L4 4L-4 4Z",
  timed_out: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0M0 -2.5L0 0L2 1.5",
  out_of_memory: "M-4 3L-4 -3M0 3L0 -4M4 3L4 -1",
  rejected: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0M-3 -3L3 3",
  unusable: "M-4 0L4 0",
  running: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
  best: "M0 -6L1.6 -1.9L6 -1.9L2.5 0.9L3.8 5.2L0 2.6L-3.8 5.2L-2.5 0.9L-6 -1.9L-1.6 -1.9Z",
  root: "M-4 -4L4 -4L4 4L-4 4Z",
};

/** Intervals whose ends bound nothing, such as `[0.00, 3228.16]`, without figures that would invite doubt. */
export const unbounded = (text) => text.replace(/\[0\.00, /g, "[under 0.01, ").replace(/, \d{4,}\.\d+\]/g, ", over 1000]");

/** A speedup with its interval. */
export const speedupText = (text) => unbounded(text.replace("x", "×"));

/** A speedup with its interval in a list; one too noisy to rank says so, and has its figures in the title. */
export function speedupShown(text = "") {
  return text.endsWith("too noisy") ? h("span", { class: "quiet", title: speedupText(text) }, "too noisy") : speedupText(text);
}

/** Which attempts cannot be told apart from the best one. */
export function tie(run, attempt) {
  if (attempt === run.best) return null;
  if (run.group.includes(attempt)) return ["=", "cannot be told apart from the best one"];
  return run.level.includes(attempt) ? ["≈", "cannot be told apart from the best one by the search's figures; it had no final check"] : null;
}

export const words = (status) => status.replaceAll("_", " ");

/** The sign of a status as part of a picture. */
export function sign(status, x, y) {
  return s("path", { d: SIGNS[status] ?? SIGNS.unusable, class: `sign ${status}`, transform: `translate(${x} ${y})` });
}

/** A status in a line of text. */
export function badge(status, text = words(status)) {
  return h("span", { class: `badge ${status}` },
    s("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" }, sign(status, 0, 0)), text);
}
