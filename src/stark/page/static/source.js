// Where documents come from: the server of `stark ui`, or the file itself.

import { h } from "./dom.js";

const embedded = document.getElementById("documents");
let unpacked = null;

/** Whether the page is one file without a server. */
export const inOneFile = embedded !== null;

/** The document at a path such as `runs/ID/attempts/3`. Throws an Error with a sentence for people. */
export async function read(path) {
  if (inOneFile) {
    unpacked ??= unpack(embedded.textContent);
    const found = (await unpacked)[path];
    if (found === undefined) throw new Error("This file holds one run; `stark ui` shows the others.");
    return found;
  }
  let response;
  try {
    response = await fetch(`/api/${path}`);
  } catch {
    throw new Error("The server does not answer. Start `stark ui` again; this page will reconnect.");
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error ?? `The server answered ${response.status}.`);
  return found;
}

/** A run again, of which only the attempts that finished since are read. */
export async function readAgain(run) {
  const found = await read(`${runPath(run.run.id)}?have=${run.finished.length}`);
  const attempts = [...run.attempts, ...found.attempts].sort((a, b) => a.attempt - b.attempt);
  return attempts.length === found.finished.length ? { ...found, attempts } : read(runPath(run.run.id));
}

export const runPath = (id) => `runs/${encodeURIComponent(id)}`;
export const attemptPath = (id, attempt) => `${runPath(id)}/attempts/${attempt}`;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { texts, documents } = await new Response(plain).json();
  return restored(documents, texts);
}

/** Long texts are kept once, as lists of places in `texts`. */
function restored(value, texts) {
  if (Array.isArray(value)) return value.map((each) => restored(each, texts));
  if (value === null || typeof value !== "object") return value;
  if ("$text" in value) return value.$text.map((place) => texts[place]).join("\n");
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, restored(each, texts)]));
}

/** Call `heard({runs, trouble})` when the store changes, and `alive(true or false)` when the connection does. */
export function follow(heard, alive) {
  if (inOneFile) return;
  const stream = new EventSource("/api/news");
  stream.onopen = () => alive(true);
  stream.onerror = () => alive(false);
  stream.onmessage = (event) => heard(JSON.parse(event.data));
}

/** What went wrong, as a part of a screen. */
export const problem = (error) => h("p", { class: "problem", role: "alert" }, error.message);
