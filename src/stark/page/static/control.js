// Starting, stopping and resuming runs, for a page that was opened with the token of `stark ui --control`.

import { h, section, table } from "./dom.js";

const STORED = "stark-token";

/** Take the token out of the address, so that it is neither copied nor kept in the history. */
export function takeToken() {
  const found = location.hash.match(/^#token=([\w-]+)$/);
  if (!found) return;
  sessionStorage.setItem(STORED, found[1]);
  history.replaceState(null, "", "#/");
}

const token = () => { try { return sessionStorage.getItem(STORED); } catch { return null; } };
export const mayControl = () => token() !== null;

async function ask(path, body) {
  const response = await fetch(`/api/control${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token()}` },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

/** A button that resumes a run. */
export function resumeButton(run) {
  if (!mayControl()) return null;
  const said = h("span", { class: "quiet", role: "status" });
  const resume = async () => {
    button.disabled = true;
    try {
      await ask("/resume", { run });
      said.textContent = " resumed; its job is on the screen of all runs";
    } catch (error) { said.textContent = ` ${error.message}`; button.disabled = false; }
  };
  const button = h("button", { onclick: resume }, "Resume");
  return h("span", null, button, said);
}

/** A form that starts a run, and the jobs that were started from the page. `update()` reads them again. */
export function jobs() {
  const list = h("div");
  let later = null;
  const said = h("p", { class: "quiet", role: "status" });
  const field = (name, text, more) => h("label", null, `${text} `, h("input", { name, ...more }));
  const form = h("form", { class: "tools", onsubmit: start },
    field("problem", "problem", { required: true, placeholder: "problem.py" }), field("model", "model", { placeholder: "as configured" }),
    field("attempts", "attempts", { type: "number", min: 1, size: 5 }), field("dollars", "at most $", { type: "number", min: 0.01, step: "any", size: 6 }),
    h("button", null, "Start"));

  async function start(event) {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    for (const name of ["attempts", "dollars"]) if (name in given) given[name] = Number(given[name]);
    try { await ask("/start", given); said.textContent = ""; await update(); } catch (error) { said.textContent = error.message; }
  }

  async function update() {
    const found = await ask("");
    const stop = (number) => async (event) => { event.target.disabled = true; await ask(`/stop/${number}`, {}); await update(); };
    list.replaceChildren(...(found.jobs.length ? [table(["command", "state", "last line", "stop"], found.jobs.map((job, number) => [
      h("code", null, job.command), job.code === null ? "running" : `ended with ${job.code}`, job.lines.at(-1) ?? "",
      job.code === null ? h("button", { onclick: stop(number) }, "Stop") : ""]))] : []));
    clearTimeout(later);
    // A job that ends without a change of the store is no news.
    if (found.jobs.some((job) => job.code === null)) later = setTimeout(() => list.isConnected && update().catch(() => null), 2000);
  }

  return { element: section("Start a run", form, said, list), update };
}
