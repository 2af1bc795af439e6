// Axes: where a value stands, and which values are named.

/** A logarithmic axis from `low` to `high`, drawn from `start` to `end`. */
export function logScale(low, high, start, end) {
  const [a, b] = [Math.log(low), Math.log(high)];
  const place = (value) => start + ((Math.log(value) - a) / (b - a || 1)) * (end - start);
  return { place, ticks: logTicks(low, high) };
}

/** A linear axis. */
export function linearScale(low, high, start, end) {
  const place = (value) => start + ((value - low) / (high - low || 1)) * (end - start);
  return { place, ticks: linearTicks(low, high) };
}

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const steps = decades > 3 ? [1] : decades > 1.5 ? [1, 3] : decades > 0.5 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
    for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  return found;
}

function linearTicks(low, high) {
  const rough = (high - low) / 6 || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each >= rough));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

/** A number as short as it can be. */
export const short = (value) =>
  value >= 1000 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(3)));
