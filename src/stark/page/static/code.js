// Source code: highlighted lines, lines with anchors, and two versions side by side.

import { brief, h } from "./dom.js";
import { lineDiff } from "./diff.js";

const WORDS = new Set(("and as assert async await auto bool break case class const constexpr continue def del do double elif else " +
  "enum except extern False finally float for from global half if import in inline int is lambda long match namespace None nonlocal " +
  "not or pass raise return short signed sizeof size_t static struct switch template True try typedef typename union unsigned using " +
  "void volatile while with yield __global__ __device__ __shared__ __restrict__ __forceinline__").split(" "));
const REST = /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(\b\d[\w.]*\b)|(^\s*#\s*(?:include|define|pragma|if|ifdef|ifndef|else|endif|undef)\b|[A-Za-z_]\w*)/;
const TOKENS = {
  python: new RegExp(`(#.*)|${REST.source}`, "g"),
  cpp: new RegExp(`(//.*|/\\*.*?\\*/)|${REST.source}`, "g"),
};
const LONGEST_LINE = 2000;

/** The parts of one line as elements; colors only, so a wrong guess harms nothing. */
export function highlighted(line, language = "python") {
  if (line.length > LONGEST_LINE) return [brief(line, LONGEST_LINE)];
  if (language === "text") return [h("span", { class: "c-text" }, line)];
  const parts = [];
  let from = 0;
  for (const found of line.matchAll(TOKENS[language])) {
    const [text, comment, string, number, word] = found;
    const known = WORDS.has(word) || /^\s*#/.test(word ?? "");
    const kind = comment ? "comment" : string ? "string" : number ? "number" : known ? "word" : null;
    if (!kind) continue;
    parts.push(line.slice(from, found.index), h("span", { class: `c-${kind}` }, text));
    from = found.index + text.length;
  }
  return [...parts, line.slice(from)];
}

/** For each line: Python, C++ inside a string that holds a kernel, or text inside a docstring. */
function languages(lines) {
  let inside = null;
  return lines.map((line) => {
    const quotes = line.match(/"""|'''/g)?.length ?? 0;
    const before = inside;
    if (quotes % 2) inside = inside ? null : /^\s*[rRbBuU]?("""|''')/.test(line) ? "text" : "cpp";
    return before ?? "python";
  });
}

const MOST_LINES = 5000;

/** Numbered source. `anchors` mark their lines and carry an instruction. With anchors, far-away lines are folded. */
export function source(text, anchors = []) {
  const lines = text.split("\n");
  const spoken = languages(lines);
  const by = new Map(anchors.map((anchor) => [anchor.first_line, anchor]));
  const marked = (number) => anchors.some((one) => number >= one.first_line && number <= one.last_line);
  const near = (number) => !anchors.length || anchors.some((one) => number >= one.first_line - 3 && number <= one.last_line + 3);
  const rows = lines.slice(0, MOST_LINES).map((line, place) => {
    const number = place + 1;
    const anchor = by.get(number);
    return { near: near(number), elements: [
      anchor && h("div", { class: "note" }, h("b", null, anchor.name), ` lines ${anchor.first_line} to ${anchor.last_line}: `, brief(anchor.instruction)),
      h("div", { class: marked(number) ? "line marked" : "line" }, h("span", { class: "no" }, number), h("code", null, highlighted(line, spoken[place]))),
    ] };
  });
  const more = lines.length > MOST_LINES ? h("p", { class: "quiet" }, `${lines.length - MOST_LINES} more lines are not shown`) : null;
  return h("div", { class: "code", tabindex: 0, role: "region", "aria-label": "Source code" }, foldedRows(rows), more);
}

/** Rows with those that are not near anything replaced by a button. */
function foldedRows(rows) {
  const shown = [];
  let hidden = [];
  const close = () => {
    if (hidden.length > 2) {
      const rest = hidden;
      const button = h("button", { class: "gap", onclick: () => button.replaceWith(...rest) }, `${rest.length} lines`);
      shown.push(button);
    } else shown.push(...hidden);
    hidden = [];
  };
  for (const row of rows) {
    const elements = row.elements.filter(Boolean);
    if (row.near) { close(); shown.push(...elements); } else hidden.push(...elements);
  }
  close();
  return shown;
}

/** Two versions beside each other, with unchanged lines folded. */
export function sideBySide(old, fresh, names) {
  const [a, b] = [old.split("\n"), fresh.split("\n")];
  const changes = lineDiff(a, b);
  if (changes === null)
    return h("div", null, h("p", { class: "quiet" }, "The two sources differ too much to be laid side by side. This is the new one."), source(fresh));
  if (!changes.some((row) => row.kind !== "same")) return h("p", { class: "quiet" }, "The sources are equal.");
  const near = nearChanges(changes);
  const spoken = [languages(a), languages(b)];
  const rows = changes.map((row, place) => ({ near: near[place], elements: [diffRow(row, a, b, spoken)] }));
  const added = changes.filter((row) => row.new !== null && row.kind !== "same").length;
  const removed = changes.filter((row) => row.old !== null && row.kind !== "same").length;
  return h("div", { class: "code diff", tabindex: 0, role: "region", "aria-label": `Changes from ${names[0]} to ${names[1]}` },
    h("div", { class: "diff-head" }, h("span", null, names[0], h("b", { class: "minus" }, ` −${removed}`)), h("span", null, names[1], h("b", { class: "plus" }, ` +${added}`))),
    foldedRows(rows));
}

function nearChanges(rows, room = 3) {
  const near = rows.map(() => false);
  rows.forEach((row, place) => {
    if (row.kind === "same") return;
    for (let at = Math.max(0, place - room); at <= Math.min(rows.length - 1, place + room); at += 1) near[at] = true;
  });
  return near;
}

function diffRow(row, a, b, [before, after]) {
  const [left, right] = [row.old === null ? null : a[row.old], row.new === null ? null : b[row.new]];
  const [cutLeft, cutRight] = left !== null && right !== null && row.kind === "changed" ? changedParts(left, right, after[row.new]) : [null, null];
  const side = (text, number, parts, kind, language) => h("div", { class: `half ${text === null ? "none" : kind}` },
    h("span", { class: "no" }, number === null ? "" : number + 1),
    h("code", null, text === null ? "" : parts ?? highlighted(text, language)));
  return h("div", { class: "pair" },
    side(left, row.old, cutLeft, row.kind === "same" ? "" : "old", before[row.old]),
    side(right, row.new, cutRight, row.kind === "same" ? "" : "new", after[row.new]));
}

/** The middle of two lines that differ, after the beginning and before the end that they share. */
function changedParts(left, right, language) {
  let begin = 0;
  while (begin < Math.min(left.length, right.length) && left[begin] === right[begin]) begin += 1;
  let end = 0;
  while (end < Math.min(left.length, right.length) - begin && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  if (begin + end < 0.3 * Math.max(left.length, right.length)) return [null, null];
  const parts = (line) => [
    highlighted(line.slice(0, begin), language),
    h("mark", null, highlighted(line.slice(begin, line.length - end), language)),
    highlighted(line.slice(line.length - end), language),
  ].flat();
  return [parts(left), parts(right)];
}
