// The model card: recipes, settings, the objective by epoch, and the evaluation.

import { $, count, make, number, plural, svg } from "./parts.js";

const spaced = (recipes) => recipes.map((recipe) => recipe.replaceAll(",", ", ")).join("; ");
const written = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value) : String(value));

function list(element, facts) {
  element.replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

export function drawFacts(facts, version) {
  $("summary").textContent = `${facts.name} on ${plural(facts.events, "event")} of ${plural(facts.users, "user")} and ${plural(facts.items, "item")}; version ${version}`;
  list($("made"), [
    ["model", facts.name], ["contexts", spaced(facts.context)], ["items", spaced(facts.item)],
    ["events", count(facts.events)], ["users", count(facts.users)], ["catalogue", count(facts.items)],
    ...(facts.unobserved_weight === null ? [] : [["weight of an unobserved pair", number(facts.unobserved_weight)]]),
    ...(facts.stop_reason ? [["training ended by", facts.stop_reason]] : []), ["version", version],
  ]);
  list($("settings"), Object.entries(facts.settings).map(([name, value]) => [name, written(value)]));
  const curved = facts.objective.length > 1, metrics = Object.entries(facts.evaluation?.metrics ?? {});
  $("objective-part").hidden = !curved && !metrics.length;
  $("objective-title").hidden = !curved;
  $("objective").replaceChildren(...(curved ? [curve(facts.objective)] : []));
  $("evaluation-part").hidden = !metrics.length;
  const figure = (value) => (typeof value === "number" ? value.toFixed(4) : "none");
  $("evaluation").replaceChildren(...metrics.map(([name, { value, low, high }]) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", {}, figure(value)),
    make("td", { className: "quiet" }, typeof low === "number" ? `95 %: ${figure(low)} to ${figure(high)}` : ""))));
  const shown = [facts.evaluation?.protocol, facts.evaluation?.queries ? `on ${count(facts.evaluation.queries)} held-out queries` : null].filter(Boolean);
  if (shown.length) $("evaluation").append(make("caption", { className: "quiet" }, shown.join(", ")));
}

function curve(values) {
  const [width, height, left, bottom] = [460, 190, 72, 22];
  const low = Math.min(...values), high = Math.max(...values);
  const x = (j) => left + ((width - left - 12) * j) / (values.length - 1);
  const y = (value) => 10 + (height - bottom - 18) * (high > low ? (high - value) / (high - low) : 0.5);
  const digits = high > low ? Math.min(8, Math.max(0, 2 - Math.floor(Math.log10(high - low)))) : 2;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Objective from ${number(values[0])} to ${number(values.at(-1))} in ${values.length} epochs` });
  for (const value of high > low ? [high, (high + low) / 2, low] : [high]) {
    const text = value.toLocaleString("en", { maximumFractionDigits: digits });
    picture.append(svg("line", { class: "axis", x1: left, x2: width - 8, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  picture.append(svg("polyline", { class: "curve", points: values.map((value, j) => `${x(j)},${y(value)}`).join(" ") }));
  values.forEach((value, j) => {
    const dot = svg("circle", { cx: x(j), cy: y(value), r: 3 });
    dot.append(svg("title", {}, `epoch ${j + 1}: ${number(value)}`));
    picture.append(dot);
  });
  picture.append(svg("text", { x: x(0), y: height - 4, "text-anchor": "middle" }, "1"), svg("text", { x: x(values.length - 1), y: height - 4, "text-anchor": "end" }, `epoch ${values.length}`));
  return picture;
}
