// Elements made of text and other elements. Nothing here reads markup: every string becomes a text node, with characters shown
// that would otherwise hide or reorder what is beside them.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `on…` attributes are listeners; `style` is an object; null, undefined and false are left out. */
export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else element.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...shown.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/[\u061c\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (found) => `\u27e8${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

/** At most `most` characters of a text. */
export function brief(text, most = 20_000) {
  return text.length <= most ? text : `${text.slice(0, most)}… (${(text.length - most).toLocaleString("en")} more characters)`;
}

/** Make the children of `parent` those of `items`, and keep the elements of items that have not changed. */
export function reconcile(parent, items, key, render) {
  const kept = parent.rendered ?? new Map();
  const now = new Map();
  const elements = items.map((item) => {
    const name = key(item);
    const content = JSON.stringify(item);
    const before = kept.get(name);
    const entry = before?.content === content ? before : { content, element: render(item) };
    now.set(name, entry);
    return entry.element;
  });
  parent.rendered = now;
  elements.forEach((element, place) => {
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place] ?? null);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}

const LONG = 200_000;

/** A box of text from a model or a program. A very long text is shown in part, with a button for the rest. */
export function box(text, attributes = {}) {
  const pre = h("pre", { tabindex: 0, ...attributes }, text.slice(0, LONG));
  if (text.length <= LONG) return pre;
  const more = h("button", {
    class: "plain",
    onclick: () => { pre.textContent = visible(text); more.remove(); },
  }, `Show all ${text.length.toLocaleString("en")} characters`);
  return h("div", null, pre, more);
}

/** A list of names with texts. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, text]) => [
    h("dt", null, name),
    h("dd", { class: name === "warning" ? "warning" : null }, brief(text)),
  ]));
}

/** An attempt's idea; where its title was cut, as much of the strategy that it was cut from as has room. */
export function wholeIdea(one, most = 200) {
  if (!one.title?.endsWith("…") || !one.strategy) return one.idea;
  const all = one.strategy.trim().replace(/[*`]+/g, "");
  const line = all.slice(Math.max(0, all.indexOf(one.title.slice(0, -1)))).split("\n")[0];
  const sentence = line.split(/(?<!\be\.g|\bi\.e)[.!?](?=\s)/)[0].replace(/\.$/, "");
  return one.idea.replace(one.title, sentence.length > most ? `${sentence.slice(0, most).replace(/\s+\S*$/, "")}…` : sentence);
}

/** A titled part of a screen. */
export function section(title, ...children) {
  const id = `part-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** A table of texts. `numbers` are the columns aligned to the right. */
export function table(columns, rows, numbers = []) {
  const wide = (place) => (columns[place] === "idea" ? "idea" : null);
  const cell = (kind, content, place) =>
    h(kind, { class: numbers.includes(place) ? "number" : wide(place), scope: kind === "th" ? "col" : null }, content);
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Table: ${columns.map((name) => name.textContent ?? name).filter(Boolean).join(", ")}` }, h("table", null,
    h("thead", null, h("tr", null, columns.map((name, place) => cell(name ? "th" : "td", name, place)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((content, place) => cell("td", content, place)))))));
}
