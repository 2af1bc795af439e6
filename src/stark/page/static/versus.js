// Two kernels against each other: figures of the same kind only, both from the search or both from the final check.

import { factorText } from "./charts.js";

/** The figures of two attempts that may be compared: `[name, one, other]`. Either side is null if it was not measured. */
export const kinds = (one, other) => [
  ["search", one.search.summary, other.search.summary],
  ["final check", one.check?.summary ?? null, other.check?.summary ?? null],
].filter(([, left, right]) => left || right);

const NEAR = 1.1;
const apart = (a, b) => Math.max(a, b) / Math.min(a, b);

/** How the first kernel stands against the second, both measured in the same way. Null if one has no figures. */
export function against2(one, other) {
  const [a, b] = [one?.speedups?.eager, other?.speedups?.eager];
  if (!a || !b) return null;
  const noisy = [a, b].some((each) => each.low <= 0 || each.high / each.low > 2);
  const told = !noisy && (a.low > b.high || b.low > a.high);
  const sameWindow = apart(one.references_ms.eager, other.references_ms.eager) <= NEAR;
  return { told, sameWindow, faster: a.ratio > b.ratio, times: other.latency_ms / one.latency_ms };
}

/** The same in words, such as `1.26× the speed of attempt 2 (218 µs)`. */
export function versusText(one, other, name) {
  const found = against2(one, other);
  if (!found) return null;
  if (!found.told) return `cannot be told apart from ${name} (${other.figures.latency})`;
  // Where eager mode took another time, the machine's speed changed, so the two times cannot be compared.
  if (!found.sameWindow) return `${found.faster ? "faster" : "slower"} than ${name} relative to eager (${factorText(other.figures.speedups.eager)})`;
  return `${found.times.toFixed(2)}× the speed of ${name} (${other.figures.latency})`;
}
