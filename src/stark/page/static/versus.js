// Two kernels against each other: figures of the same kind only, both from the search or both from the final check.

import { factorText, noisy } from "./charts.js";
import { short } from "./scales.js";

/** The figures of two attempts that may be compared: `[name, one, other]`. Either side is null if it was not measured. */
export const kinds = (one, other) => [
  ["search", one.search.summary, other.search.summary],
  ["final check", one.check?.summary ?? null, other.check?.summary ?? null],
].filter(([, left, right]) => left || right);

const NEAR = 1.1;
const apart = (a, b) => Math.max(a, b) / Math.min(a, b);

/** How the first kernel stands against the second, both measured in the same way, on devices of the same rates or not. Null if one has no figures. */
export function against2(one, other, sameRates = true) {
  const [a, b] = [one?.speedups?.eager, other?.speedups?.eager];
  if (!a || !b) return null;
  const told = ![a, b].some(noisy) && (a.low > b.high || b.low > a.high);
  const [faster, times] = [a.ratio > b.ratio, other.latency_ms / one.latency_ms];
  const sameWindow = sameRates && apart(one.references_ms.eager, other.references_ms.eager) <= NEAR && (!told || faster === times > 1);
  return { told, sameWindow, faster, times };
}

/** The same in words, such as `1.26× the speed of attempt 2 (218 µs)`. */
export function versusText(one, other, name, sameRates = true) {
  const found = against2(one, other, sameRates);
  if (!found) return null;
  if (!found.told) return `cannot be told apart from ${name} (${other.figures.latency})`;
  // Where eager mode took another time, the machine's speed changed, so the two times cannot be compared.
  if (!found.sameWindow) return `${found.faster ? "faster" : "slower"} than ${name} relative to eager (${factorText(other.figures.speedups.eager)})`;
  return `${found.times.toFixed(2)}× the speed of ${name} (${other.figures.latency})`;
}

/** The figures of a run's best attempt, for `kinds`. */
export const bestOf = (run) => ({
  search: { summary: run.attempts.find((one) => one.attempt === run.best) ?? null },
  check: run.best in run.final_checks ? { summary: run.final_checks[run.best] } : null,
});

const sameProblem = (one, other) => one.run.problem.source === other.run.problem.source;

/** The figures by which two runs are compared, `[name, one, other]`: the final check's if both have them. Undefined if there are none. */
export const comparable = (one, other) => (sameProblem(one, other) ? kinds(bestOf(one), bestOf(other)).filter(([, left, right]) => left?.figures && right?.figures).at(-1) : undefined);

/** How two runs compare, in a sentence or two. `names` are what they are called. */
export function runsVerdict(runs, names) {
  const [left, right] = runs;
  const both = names.join(" and ");
  if (!sameProblem(left, right)) return `${both} solve different problems, so their speedups cannot be compared.`;
  const found = comparable(left, right);
  if (!found) return `${both} cannot be compared: there is no correct kernel in ${names.filter((_, at) => !comparable(runs[at], runs[at])).join(" and ")}.`;
  const [kind, mine, theirs] = found;
  const { told, faster, sameWindow } = against2(mine, theirs);
  const unsure = names.filter((_, at) => noisy([mine, theirs][at].speedups.eager));
  const why = ["the 95 % intervals of their speedups overlap", `the speedup of ${unsure[0]} is too noisy`, "both speedups are too noisy"][unsure.length];
  if (!told) return `${both} cannot be told apart in the ${kind}: ${why}.`;
  const [best, worst, first, second] = faster ? [mine, theirs, ...names] : [theirs, mine, ...[...names].reverse()];
  const speeds = `${factorText(best.figures.speedups.eager)} against ${factorText(worst.figures.speedups.eager)}`;
  if (sameWindow && !ratesWarning(left, right)) return `${first} is faster than ${second} in the ${kind}: ${best.figures.latency} against ${worst.figures.latency}, ${speeds} vs eager mode.`;
  return `${first} gains more over eager mode than ${second} in the ${kind}: ${speeds}.${sameWindow ? "" : " Eager mode took another time beside each, so the two times cannot be compared."}`;
}

/** A warning if the judges of two runs measured different rates of their devices; null if they agree or one is not known. */
export function ratesWarning(one, other) {
  const [a, b] = [one, other].map((run) => run.reference?.device);
  if (!a || !b) return null;
  const rates = [["bandwidth", a.bandwidth_gb_s, b.bandwidth_gb_s, "GB/s"], ...Object.keys(a.peak_tflop_s).filter((name) => name in b.peak_tflop_s).map((name) => [name, a.peak_tflop_s[name], b.peak_tflop_s[name], "TFLOP/s"])];
  const differing = rates.filter(([, left, right]) => apart(left, right) > NEAR).map(([name, left, right, unit]) => `${name} ${short(left)} against ${short(right)} ${unit}`);
  if (!differing.length) return null;
  const which = a.name === b.name ? `Their judges measured different rates of ${a.name}` : `Their devices differ (${a.name}, ${b.name})`;
  return `${which}: ${differing.join(", ")}. So times and shares of the roofline cannot be compared.`;
}
