// Helpers: creating elements, formatting items and numbers, and keeping the focus when elements are redrawn.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const { dataset, attributes, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.dataset, dataset ?? {});
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const count = (value) => value.toLocaleString("en");
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
export const number = (value) => (Number.isInteger(value) ? count(value) : Number(value.toPrecision(6)).toString());
export const label = (item) => item.title ?? String(item.item);
export const shorter = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const plain = (value) => (typeof value === "number" ? number(value) : String(value));
export const tags = (item) => {
  const said = Object.values(item.attributes ?? {}).flat().filter((value) => value !== null && value !== "").map(plain);
  return [...(item.title ? [String(item.item)] : []), ...said].join(" · ");
};

// Redraw, then focus the element with the key that had the focus, or the one that took its place.
export const place = () => document.activeElement?.dataset?.key;
export function keeping(redraw, otherwise, key = place()) {
  redraw();
  if (!key || document.activeElement?.dataset?.key === key) return;
  const [kind, row] = key.split(":");
  const left = [...document.querySelectorAll(`[data-key^="${kind}:"]`)];
  const there = left.find((each) => each.dataset.key === key) ?? left[Math.min(Number(row), left.length - 1)];
  (there ?? otherwise)?.focus({ preventScroll: true });
}

// Resolves when no pointer is pressed: an element that is redrawn while it is pressed would lose its click.
let pressed = null;
let release = () => {};
addEventListener("pointerdown", () => { pressed ??= new Promise((resolve) => { release = resolve; }); }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressed = null; release(); }, 0), true);
export const released = async () => { if (pressed) await pressed; };

export function svg(tag, attributes, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

// A value in local storage; null if the browser does not allow it.
export function kept(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
