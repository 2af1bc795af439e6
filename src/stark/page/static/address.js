// The address: which screen, and what is chosen on it, such as `#/run/ID?show=correct`.

const parts = () => location.hash.replace(/^#\/?/, "").split("?");

export const screenPath = () => parts()[0];

export const chosenIn = (name) => new URLSearchParams(parts()[1] ?? "").get(name) ?? "";

/** Keep a choice in the address, without a new entry in the history. */
export function keepChoice(name, value) {
  const [path, query] = parts();
  const choices = new URLSearchParams(query ?? "");
  if (value) choices.set(name, value); else choices.delete(name);
  const text = choices.toString();
  history.replaceState(history.state, "", `#/${path}${text ? `?${text}` : ""}`);
}
