// The page: which screen an address means, what keys do, and when a screen is drawn again.

import { screenPath } from "./address.js";
import { attemptScreen } from "./attempt.js";
import { benchScreen, benchesScreen } from "./bench.js";
import { compareScreen } from "./compare.js";
import { takeToken } from "./control.js";
import { devicesScreen } from "./devices.js";
import { h } from "./dom.js";
import { runScreen } from "./run.js";
import { runsScreen } from "./runs.js";
import { follow, inOneFile, problem } from "./source.js";
import { helpDialog } from "./terms.js";

const SCREENS = [
  [/^$/, runsScreen],
  [/^run\/([^/]+)$/, runScreen],
  [/^run\/([^/]+)\/(\d+)$/, attemptScreen],
  [/^compare\/([^/]+)\/(\d+)\/([^/]+)\/(\d+)$/, compareScreen],
  [/^bench$/, benchesScreen],
  [/^bench\/([^/]+)$/, benchScreen],
  [/^devices$/, devicesScreen],
];

const content = document.getElementById("content");
const trouble = h("p", { class: "problem", role: "alert", hidden: true });
const live = h("span", { class: "live", role: "status" });
let screen = null;
let shown = 0;

/** Draw the screen that the address names. */
async function show() {
  const [number, known] = [(shown += 1), heardOf];
  const path = screenPath() || home();
  const [pattern, make] = SCREENS.find(([each]) => each.test(path)) ?? [/^/, unknown];
  let made;
  try {
    made = await make(...path.match(pattern).slice(1).map(decodeURIComponent));
  } catch (error) {
    made = { title: "STARK", element: problem(error), failed: true };
  }
  if (number !== shown) return;
  const moved = screen?.path !== path || entry !== entryOf();
  screen = { ...made, path };
  document.title = made.title === "STARK" ? "STARK" : `${made.title} · STARK`;
  content.replaceChildren(made.element);
  if (heardOf !== known) update(null);
  if (!moved) return;
  entry = entryOf();
  scrollBack(places.get(entry) ?? 0);
  if (number > 1) content.focus({ preventScroll: true });
}

/** Where each entry of the history was scrolled to, so that going back returns there. */
const places = new Map();
let entry = null;
function entryOf() {
  if (!history.state?.entry) history.replaceState({ entry: crypto.getRandomValues(new Uint32Array(1))[0] }, "");
  return history.state.entry;
}

/** Long lists are drawn in steps, so the place may not be there at once. */
function scrollBack(y, tries = 20) {
  window.scrollTo(0, y);
  if (tries && y && Math.abs(window.scrollY - y) > 2) setTimeout(() => { if (entry === entryOf()) scrollBack(y, tries - 1); }, 30);
}

const home = () => (inOneFile ? `run/${encodeURIComponent(document.body.dataset.run)}` : "");
const unknown = () => { throw new Error("There is no such screen. The link may be of another version of STARK."); };

/** The store changed: let the screen draw what is new. */
let heardOf = 0;
function heard(news) {
  trouble.hidden = news.trouble === null;
  trouble.textContent = news.trouble ?? "";
  if (news.trouble !== null) return;
  heardOf += 1;
  update(news.runs);
}

/** Draw what changed in these runs; null: in any. At most one update runs at a time; one that fails is tried once more. */
let updating = Promise.resolve();
function update(runs, again = true) {
  updating = updating.then(async () => {
    if (screen?.failed) return show();
    if (runs !== null && !screen?.concerns?.(runs)) return null;
    return screen?.update?.().catch(() => again && setTimeout(() => update(runs, false), RETRY_MS));
  });
}
const RETRY_MS = 1000;

function bar() {
  const link = (hash, text) => h("a", { href: hash }, text);
  return [
    h("a", { class: "mark", href: "#/" }, "STARK"),
    h("nav", { "aria-label": "Screens" }, inOneFile ? [link("#/", "Run"), link("#/devices", "Device")] : [link("#/", "Runs"), link("#/bench", "Benches"), link("#/devices", "Devices")]),
    live,
    h("button", { class: "plain", onclick: () => help.showModal(), "aria-label": "Keys and terms" }, "?"),
    h("button", { class: "plain", onclick: turnTheme, "aria-label": "Light or dark" }, "◐"),
  ];
}

function turnTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(dark ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.style.setProperty("color-scheme", theme);
  try { localStorage.setItem("theme", theme); } catch { /* a file may have no storage */ }
}

const KEYS = [
  ["g", "runs", () => { location.hash = "#/"; }],
  ["r", "the attempt's run", () => screen?.keys?.run?.()],
  ["b", "the best attempt", () => screen?.keys?.best?.()],
  ["j", "the next attempt", () => screen?.keys?.next?.()],
  ["k", "the previous attempt", () => screen?.keys?.previous?.()],
  ["p", "the parent", () => screen?.keys?.parent?.()],
  ["c", "compare with the parent", () => screen?.keys?.compare?.()],
  ["/", "filter", () => content.querySelector("input[type=search], select")?.focus()],
  ["t", "light or dark", turnTheme],
  ["?", "keys and terms", () => help.showModal()],
];

const help = helpDialog([...KEYS, ["← →", "fold and unfold a row of the tree; ↑ ↓ move"]]);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
  const found = KEYS.find(([key]) => key === event.key);
  if (found) { event.preventDefault(); found[2](); }
});

try {
  const theme = localStorage.getItem("theme");
  if (theme) setTheme(theme);
} catch { /* a file may have no storage */ }
takeToken();
document.getElementById("bar").replaceChildren(...bar());
document.getElementById("bar").after(trouble);
document.body.append(help);
history.scrollRestoration = "manual";
window.addEventListener("scroll", () => { if (entry === history.state?.entry) places.set(entry, window.scrollY); }, { passive: true });
window.addEventListener("hashchange", show);
follow(heard, (alive) => { live.className = alive ? "live on" : "live off"; live.textContent = alive ? "" : "reconnecting"; });
show();
