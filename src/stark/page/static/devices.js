// Devices that runs were judged on, and what waits for models and judges.

import { h, section, table } from "./dom.js";
import { inOneFile, read } from "./source.js";
import { badge } from "./status.js";

export async function devicesScreen() {
  const body = h("div");
  const draw = async () => {
    const found = await read("devices");
    body.replaceChildren(
      ...found.devices.map((device) => section(among(device, found.devices).heading,
        h("p", { class: "quiet" }, Object.entries(device.versions).map(([name, version]) => `${name} ${version}`).join(", "), ". Limits as its newest run measured them.", among(device, found.devices).differs),
        h("div", { class: "columns" },
          h("ul", { class: "notes" }, device.facts.map((fact) => h("li", null, fact)), h("li", null, `executor ${device.executors.join(", ")}`)),
          h("div", null, inOneFile ? null : [h("h3", null, "In flight"), queue(device.queue)],
            h("details", null, h("summary", null, device.runs.length === 1 ? "1 run" : `${device.runs.length} runs`), h("ul", { class: "names" }, device.runs.map((id) => h("li", null, runLink(id))))))))),
      ...(found.unplaced.length ? [section("Device not measured yet", queue(found.unplaced))] : []),
      ...(found.devices.length ? [] : [h("p", null, "No run has measured a device yet.")]));
  };
  await draw();
  const now = h("div", { role: "status" });
  if (!inOneFile) watch(now);
  return { title: "Devices", element: h("div", null, h("h1", null, inOneFile ? "Device" : "Devices and queues"), now, body), concerns: () => true, update: draw };
}

/** Of several devices with one name, which one this is, and in which software it differs from the others. */
function among(device, all) {
  const alike = all.filter((each) => each.device.name === device.device.name);
  if (alike.length === 1) return { heading: device.device.name, differs: "" };
  const names = [...new Set(alike.flatMap((each) => Object.keys(each.versions)))].filter((name) => new Set(alike.map((each) => each.versions[name])).size > 1);
  return { heading: `${device.device.name} (software ${alike.indexOf(device) + 1} of ${alike.length})`, differs: ` Listed apart, since these differ or were recorded for one only: ${names.join(", ")}.` };
}

const runLink = (id) => h("a", { href: `#/run/${encodeURIComponent(id)}` }, id);

/** Draw which devices of this machine judges use, again and again while the screen is shown. No event of a run tells of it. */
async function watch(place) {
  const { queues } = await read("queues").catch(() => ({ queues: [] }));
  const named = (name) => (name.startsWith("cpu-") ? `CPU of ${name.slice(4)}` : `GPU ${name}`);
  place.replaceChildren(h("p", null, queues.length ? queues.map((one) => h("span", { class: "use" }, badge("running", `${named(one.device)}: judge ${one.judge} measures, ${one.waiting} waiting `)))
    : h("span", { class: "quiet" }, "No judge uses a device of the page's machine at present.")));
  setTimeout(() => { if (place.isConnected) watch(place); }, document.hidden ? 20_000 : 2_000);
}

function queue(waiting) {
  if (!waiting.length) return h("p", { class: "quiet" }, "Nothing is in flight.");
  const where = (step) => (step === "judge" ? "at the judge, or waiting for it" : step === "waiting" ? "not asked yet" : `the ${step} model is asked`);
  return table(["run", "attempt", "where"], waiting.map((one) => [runLink(one.run), one.attempt, where(one.step)]), [1]);
}
