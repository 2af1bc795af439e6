// Terms that a reader may not know: a glossary, and a button that explains those of precision.

import { h } from "./dom.js";

const PRECISION = [
  ["error", "The relative RMS difference from the outputs expected in float64, the worst over all inputs. The reference's own error is beside it."],
  ["allowed", "The largest error that passes: set by the run's precision class, the type of the outputs and the reference's own error."],
  ["class", "A size of error, from strict to loose: reference, fp32-split, tf32, bf16. It is named after the least accurate arithmetic that it is meant for, so fp32-split is for float32 products split into bfloat16 parts. A bf16 problem is judged by the same classes; its own rounding is in the allowed error."],
  ["meets", "The strictest class whose allowed error this kernel keeps. It says nothing about the arithmetic that the kernel uses."],
  ["KernelBench's allclose", "torch.allclose with KernelBench's tolerances: shown to compare with published results. It decides nothing here."],
];

/** Terms by what they are about; `docs/glossary.md` has more. */
const TERMS = [
  ["Speed", [
    ["vs eager, compile, max-autotune", "The time of PyTorch in eager mode, under torch.compile, or under torch.compile in its mode max-autotune, divided by the kernel's: the median of pairs timed side by side, with its 95 % interval. Speedups rank attempts, times do not: on a busy machine, eager mode takes longer too."],
    ["too noisy", "The ends of the interval differ by more than a factor of two, so the speedup ranks nothing."],
    ["cannot be told apart, =, ≈", "The 95 % intervals overlap, or one is too noisy. = marks attempts that cannot be told apart from the best one, ≈ those of which only the search's figures say so."],
    ["final check, ✓, confirmed", "After the search, a stricter evaluation of the fastest kernels. A kernel that passed it is confirmed: correct, not necessarily faster. “Unconfirmed” figures are the search's."],
    ["roofline", "An estimate of the least time on the device: the bytes at the measured bandwidth or the operations at the measured peak, whichever takes longer; memory- or compute-bound says which. It is known to 5 %, so a kernel at the roofline may show 101 %."],
    ["bottleneck", "What takes a kernel's time now, by its profile. The roofline says what would bound a perfect kernel, so the two can differ: a memory-bound problem can have a kernel that waits."],
    ["1.8 of 2 busy", "How many of the judge's CPU cores worked, on average, while the program ran."],
  ]],
  ["Precision", PRECISION],
  ["The search", [
    ["strategy", "Which attempt is continued next, and by whom. stark: a planner, a coder and a debugger continue the fastest attempt, at times another one. stark:best-first: the same team drafts a few, repairs failures, then continues the fastest. reflexion: one model continues the latest. sampling: one model starts anew each time."],
    ["role", "What a model is asked for: plan an edit, code it, debug a failure, or solo: write a kernel in one call."],
    ["exec[NAME]", "A model behind a command, called NAME; exec alone has no name. Beside a call stands the name that its reply gave. A command may ask a model, or read prepared replies from files."],
    ["executor", "How requests reach the judge: local, a command, a Ray cluster, or a folder that workers on other machines read."],
    ["waiting", "How long the replies of a role took, added up. Replies from a file take no time."],
    ["~", "An estimate of tokens, for models that report none."],
  ]],
];

/** A model as a reader knows it: `claude` for `exec[claude]` with or without its command. */
export const modelName = (text) => text.replace(/\bexec\[([^\]]+)\](:\S+)?/g, "$1").replace(/\bexec(?=$| \()/g, "a command without a name (exec)");

const listOf = (terms) => h("dl", { class: "facts terms" }, terms.map(([name, text]) => [h("dt", null, name), h("dd", null, text)]));
const close = () => h("form", { method: "dialog" }, h("button", null, "Close"));

/** A window with the keys and the terms. `keys` are pairs of a key and what it does. */
export const helpDialog = (keys) => h("dialog", { "aria-label": "Keys and terms" },
  h("h2", { tabindex: -1, autofocus: true }, "Keys"), h("dl", { class: "facts keys" }, keys.map(([key, text]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, text)))),
  TERMS.map(([about, terms]) => [h("h2", null, about), listOf(terms)]), close());

const dialog = h("dialog", { "aria-label": "Precision" }, h("h2", null, "Precision"), listOf(PRECISION), close());

/** Text about precision that opens its explanation. */
export function precisionTerm(text) {
  const open = () => { if (!dialog.isConnected) document.body.append(dialog); dialog.showModal(); };
  return h("button", { class: "term", onclick: open, title: "What this means" }, text);
}
