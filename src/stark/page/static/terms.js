// Terms that a reader may not know, as a button that explains them.

import { h } from "./dom.js";

const PRECISION = [
  ["error", "The relative RMS difference from the outputs expected in float64, the worst over all inputs. The reference's own error is beside it."],
  ["allowed", "The largest error that passes: set by the run's precision class, the type of the outputs and the reference's own error."],
  ["class", "A size of error, from strict to loose: reference, fp32-split, tf32, bf16. It is named after the least accurate arithmetic that it is meant for. A bf16 problem is judged by the same classes; its own rounding is in the allowed error."],
  ["meets", "The strictest class whose allowed error this kernel keeps. It says nothing about the arithmetic that the kernel uses."],
  ["KernelBench's allclose", "torch.allclose with KernelBench's tolerances: shown to compare with published results. It decides nothing here."],
];

const dialog = h("dialog", { "aria-label": "Precision" }, h("h2", null, "Precision"),
  h("dl", { class: "facts" }, PRECISION.map(([name, text]) => [h("dt", null, name), h("dd", null, text)])),
  h("form", { method: "dialog" }, h("button", null, "Close")));

/** Text about precision that opens its explanation. */
export function precisionTerm(text) {
  const open = () => { if (!dialog.isConnected) document.body.append(dialog); dialog.showModal(); };
  return h("button", { class: "term", onclick: open, title: "What this means" }, text);
}
