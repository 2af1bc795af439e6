// The roofline: what the device allows at each intensity, and where the attempts stand below it.

import { attemptScale, bottomAxis, fitting, leftAxis, picture } from "./charts.js";
import { h, s } from "./dom.js";
import { logScale, short } from "./scales.js";
import { sign } from "./status.js";

/** The uncertainty of a roofline, `NEAR` in `core/device.py`. */
const UNSURE = 0.05;

/** Why a share such as `101%` can exceed 100 %; null if it does not. */
export const overShare = (text) => (parseInt(text, 10) > 100 ? "at the roofline, which is known to 5 %" : null);

export function roofline(run) {
  const roof = run.roofline;
  const words = roof.peak_tflop_s === null
    ? `Without matrix products, only memory bounds this problem: ${roof.gb_s.toFixed(0)} GB/s.`
    : `${short(roof.flop_per_byte)} FLOP per byte: ${roof.limit} at best; what limits a kernel now is its own bottleneck, which its profile tells. Memory ${roof.gb_s.toFixed(0)} GB/s; ${roof.arithmetic} ${short(roof.peak_tflop_s)} TFLOP/s.`;
  const among = (least, most) => roof.points.filter((point) => point.share > least && point.share <= most).map((point) => point.attempt || "eager").sort((a, b) => a - b).join(", ");
  const [near, above] = [among(1, 1 + UNSURE), among(1 + UNSURE, Infinity)];
  const cause = roof.bound === "memory" ? "their data stayed in a cache, or the bandwidth was measured too low" : "they do less arithmetic, or in lower precision, or the peak was measured too low";
  const doubt = [near && ` Just above 100 %: ${near}. They are at the roofline, which is known to 5 %.`, above && ` Above the roofline: ${above}; ${cause}.`].filter(Boolean).join("");
  return [
    h("p", { class: "quiet" }, `As the search measured them. ${roof.device}, ${roof.dtypes.join(", ")}${roof.case ? `, case ${roof.case}` : ""}. ${words} Measured for this run: shares of runs with other limits cannot be compared.${doubt}`),
    h("div", { class: "pair-of-pictures" }, roof.peak_tflop_s === null ? null : plane(run, roof), shares(run, roof)),
  ];
}

/** Rate over intensity, both logarithmic, with a roof for each arithmetic. */
function plane(run, roof) {
  const [width, height, left, top, bottom] = [fitting(640), 320, 56, 12, 270];
  const right = width - 12;
  const peaks = { ...roof.peaks_tflop_s };
  const rates = [...Object.values(peaks), roof.peak_tflop_s, ...roof.points.map((point) => point.tflop_s)];
  const intensities = roof.points.map((point) => point.flop_per_byte);
  const ridge = Math.max(...Object.values(peaks), roof.peak_tflop_s) * 1000 / roof.gb_s;
  const x = logScale(Math.min(...intensities, ridge / 30) / 3, Math.max(...intensities, ridge) * 4, left, right);
  const y = logScale(Math.min(...rates) / 2, Math.max(...rates) * 2, bottom, top);
  const from = invert(x, left);
  const slope = (peak) => `M${left} ${y.place(from * roof.gb_s / 1000)}L${x.place(peak * 1000 / roof.gb_s)} ${y.place(peak)}H${right}`;
  return picture(width, height, "Rate over intensity, below the device's limits",
    s("clipPath", { id: "plane" }, s("rect", { x: left, y: top, width: right - left, height: bottom - top })),
    leftAxis(y, left, right, short), bottomAxis(x, bottom, short),
    s("text", { class: "label", x: right, y: height - 8, "text-anchor": "end" }, "FLOP per byte"),
    s("text", { class: "label", x: left + 4, y: top + 10 }, "TFLOP/s"),
    s("g", { "clip-path": "url(#plane)" },
      Object.entries(peaks).map(([, peak]) => s("path", { class: "roof other", d: slope(peak) })),
      s("path", { class: "roof", d: slope(roof.peak_tflop_s) }),
      s("line", { class: "one", x1: x.place(roof.flop_per_byte), x2: x.place(roof.flop_per_byte), y1: top, y2: bottom }),
      path(roof, (point) => [x.place(point.flop_per_byte), y.place(point.tflop_s)])),
    Object.entries(peaks).map(([name, peak]) => s("text", { class: "roof-name", x: right - 2, y: y.place(peak) - 4, "text-anchor": "end" }, name)),
    s("text", { class: "roof-name bound", x: right - 60, y: y.place(roof.peak_tflop_s) - 4, "text-anchor": "end" }, roof.arithmetic in peaks ? "" : roof.arithmetic),
    points(run, roof, (point) => [x.place(point.flop_per_byte), y.place(point.tflop_s)]));
}

const invert = (scale, at) => {
  const [a, b] = scale.ticks;
  const [pa, pb] = [scale.place(a), scale.place(b)];
  return Math.exp(Math.log(a) + ((at - pa) / (pb - pa)) * (Math.log(b) - Math.log(a)));
};

/** How close each attempt is to the roofline, in the order of the attempts. */
function shares(run, roof) {
  const [width, height, left, top, bottom] = [fitting(640), 320, 56, 12, 270];
  const right = width - 12;
  const found = roof.points.map((point) => point.share);
  const y = logScale(Math.min(...found, 0.5) / 1.3, Math.max(...found, 1) * 1.25, bottom, top);
  const most = Math.max(1, ...run.attempts.map((one) => one.attempt), Math.min(run.run.config.budget.attempts, 60));
  const x = attemptScale(most, left, right);
  const at = (point) => [x.place(point.attempt), y.place(point.share)];
  return picture(width, height, "Share of the roofline, by attempt",
    leftAxis(y, left, right, (value) => `${short(value * 100)} %`),
    bottomAxis(x, bottom, (value) => (value === 0 ? "eager" : short(value))),
    s("line", { class: "roof", x1: left, x2: right, y1: y.place(1), y2: y.place(1) }),
    s("text", { class: "roof-name bound", x: right - 2, y: y.place(1) - 5, "text-anchor": "end" }, `roofline, ${short(roof.floor_ms)} ms`),
    s("text", { class: "label", x: right, y: height - 8, "text-anchor": "end" }, "attempt"),
    path(roof, at), points(run, roof, at));
}

/** From the reference by the ancestors of the best kernel to that kernel. Failed ancestors have no point. */
function path(roof, at) {
  const byId = new Map(roof.points.map((point) => [point.attempt, point]));
  const steps = roof.path.map((id) => byId.get(id)).filter(Boolean).map(at);
  return steps.length > 1 && s("path", { class: "way", d: `M${steps.map((step) => step.join(" ")).join("L")}` });
}

function points(run, roof, at) {
  return roof.points.map((point) => {
    const [x, y] = at(point);
    const kind = point.attempt === 0 ? "root" : point.attempt === run.best ? "best" : "correct";
    const text = `${point.attempt ? `attempt ${point.attempt}` : "eager"}: ${short(point.latency_ms)} ms, ${short(point.gb_s)} GB/s, ${short(point.tflop_s)} TFLOP/s, ${short(point.share * 100)} % of the roofline`;
    const small = roof.points.length > 120 && kind === "correct";
    const drawn = [s("title", null, text), small ? s("circle", { class: "crowd", cx: x, cy: y, r: 1.7 }) : sign(kind, x, y)];
    return point.attempt ? s("a", { href: `#/run/${encodeURIComponent(run.run.id)}/${point.attempt}`, tabindex: -1, "aria-label": text }, drawn) : s("g", null, drawn);
  });
}
