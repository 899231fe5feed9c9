// The contributions to a score as a waterfall chart: each bar begins where the one before ends, with the score below them.

import { make } from "./parts.js";

const SHOWN = 12; // bars at most, without that of the score
const last = (part) => part.field === "same for every item" || part.field === "item";

export function drawBars(element, explained, all = false) {
  const parts = explained.contributions, ends = parts.filter(last), features = parts.filter((part) => !last(part));
  const kept = all || parts.length <= SHOWN ? features.length : Math.max(1, SHOWN - 1 - ends.length);
  const rest = features.slice(kept);
  const together = { field: `${rest.length} others`, value: "", contribution: rest.reduce((sum, part) => sum + part.contribution, 0), others: true };
  const shown = [...features.slice(0, kept), ...(rest.length ? [together] : []), ...ends];
  let sum = 0, low = Math.min(0, explained.score), high = Math.max(0, explained.score);
  const steps = shown.map((part) => {
    const from = sum;
    sum += part.contribution;
    [low, high] = [Math.min(low, sum), Math.max(high, sum)];
    return [part, from, sum];
  });
  const at = (value) => (high > low ? (100 * (value - low)) / (high - low) : 0);
  const counts = parts.every((part) => Number.isInteger(part.contribution));
  const digits = counts ? 0 : Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(Math.max(-low, high, 1e-9)))));
  const written = (value, sign) => {
    const text = value.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : sign && value > 0 ? `+${text}` : text;
  };
  const row = (kind, name, from, to, amount) => {
    const fill = make("span", { className: `fill ${kind}` });
    fill.style.left = `${at(Math.min(from, to))}%`;
    fill.style.width = `${Math.abs(at(to) - at(from))}%`;
    const track = make("span", { className: "track", attributes: { "aria-hidden": "true" } }, fill);
    track.style.setProperty("--zero", `${at(0)}%`);
    return make("div", { className: kind === "whole" ? "bar total" : "bar", role: "row" }, name, track, make("span", { className: "amount", role: "cell" }, amount));
  };
  const name = (part) => {
    const value = part.title ?? part.value, words = value ? [make("b", {}, `${part.field}: `), value] : [part.field];
    const cell = make("span", { className: "label", role: "cell", title: value ? `${part.field}: ${value}` : part.field }, ...(part.others ? [] : words));
    if (part.others) {
      const more = make("button", { type: "button", className: "others", title: "Show all of them" }, part.field);
      more.addEventListener("click", () => { drawBars(element, explained, true); element.focus(); });
      cell.append(more);
    }
    return cell;
  };
  element.replaceChildren(
    ...steps.map(([part, from, to]) => row(part.contribution < 0 ? "down" : "up", name(part), from, to, written(part.contribution, true))),
    row("whole", make("span", { className: "label", role: "cell" }, "score"), 0, explained.score, written(explained.score, false)),
  );
}
