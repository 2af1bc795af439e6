// Devices that runs were judged on, and what waits for models and judges.

import { h, section, table } from "./dom.js";
import { inOneFile, read } from "./source.js";

export async function devicesScreen() {
  const body = h("div");
  const draw = async () => {
    const found = await read("devices");
    body.replaceChildren(
      ...found.devices.map((device) => section(device.device.name,
        h("p", { class: "quiet" }, Object.entries(device.versions).map(([name, version]) => `${name} ${version}`).join(", "), ". Limits as its newest run measured them."),
        h("div", { class: "columns" },
          h("ul", { class: "notes" }, device.facts.map((fact) => h("li", null, fact)), h("li", null, `executor ${device.executors.join(", ")}`)),
          h("div", null, inOneFile ? null : [h("h3", null, "In flight"), queue(device.queue)],
            h("details", null, h("summary", null, device.runs.length === 1 ? "1 run" : `${device.runs.length} runs`), h("ul", { class: "names" }, device.runs.map((id) => h("li", null, runLink(id))))))))),
      ...(found.unplaced.length ? [section("Device not measured yet", queue(found.unplaced))] : []),
      ...(found.devices.length ? [] : [h("p", null, "No run has measured a device yet.")]));
  };
  await draw();
  return { title: "Devices", element: h("div", null, h("h1", null, inOneFile ? "Device" : "Devices and queues"), body), concerns: () => true, update: draw };
}

const runLink = (id) => h("a", { href: `#/run/${encodeURIComponent(id)}` }, id);

function queue(waiting) {
  if (!waiting.length) return h("p", { class: "quiet" }, "Nothing is in flight.");
  const where = (step) => (step === "judge" ? "at the judge, or waiting for it" : step === "waiting" ? "not asked yet" : `the ${step} model is asked`);
  return table(["run", "attempt", "where"], waiting.map((one) => [runLink(one.run), one.attempt, where(one.step)]), [1]);
}
