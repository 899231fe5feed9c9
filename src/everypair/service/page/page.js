// The page of the service: visitor, recommendations, explanation and map. It shows nothing but the service's responses.

import { ask, onSwitch, using } from "./api.js";
import { drawBars } from "./bars.js";
import { combobox } from "./combobox.js";
import { drawFacts } from "./facts.js";
import { ItemMap } from "./map.js";
import { $, count, keeping, kept, label, make, place, plural, released, tags } from "./parts.js";
import { Who } from "./who.js";

const state = { facts: null, users: true, ranks: null, chosen: null, explained: null, turn: 0, arranging: 0 };
const who = new Who(() => refresh());
let map = null;

function trouble(error) {
  $("trouble").hidden = !error;
  $("trouble-words").textContent = error ? error.message : "";
}

// the visitor

async function known(user) {
  const turn = ++state.turn;
  try {
    const profile = await ask("profile", { user });
    if (turn !== state.turn) return;
    state.ranks = null;
    who.known(profile);
    refresh();
  } catch (error) {
    if (turn !== state.turn) return;
    if (error.status === 404 && who.user !== null) anyone(); // the user of a model that was replaced
    else trouble(error);
  }
}

function someoneNew() {
  state.turn++;
  state.ranks = null;
  who.unknown();
  refresh();
}

async function anyone() {
  if (!state.users) return someoneNew();
  const turn = ++state.turn;
  try {
    const { users } = await ask("users?limit=100");
    if (turn !== state.turn) return;
    if (users.length) await known(users[Math.floor(Math.random() * users.length)]);
    else someoneNew();
  } catch (error) {
    trouble(error);
  }
}

// recommendations

async function refresh() {
  const turn = ++state.turn, began = performance.now(), body = who.body;
  const asked = { ...body, n: Number($("n").value), exclude_seen: $("seen").checked, details: true };
  let answer, popular = false;
  try {
    try {
      answer = await ask("recommend", asked);
    } catch (error) {
      if (error.status !== 422) throw error;
      answer = await ask("recommend", { ...asked, fallback: "popular" });
      popular = true;
    }
  } catch (error) {
    if (turn === state.turn) trouble(error);
    return;
  }
  const took = performance.now() - began;
  await released();
  if (turn !== state.turn) return;
  trouble(null);
  const strange = Object.entries(answer.unknown).map(([name, n]) => `${n} of ${name} not known`);
  const nothing = who.facts.takes.user ? "This model takes users of the data alone: what is popular" : "The model can say nothing of this visitor yet: what is popular";
  const words = popular ? [nothing] : [`${plural(answer.items.length, "item")} in ${took.toFixed(took < 10 ? 1 : 0)} ms`];
  $("status").textContent = [...words, ...strange, ...(answer.note ? ["there are no more"] : [])].join("; ");
  keeping(() => drawItems(answer.items), $("recommended"));
  if (state.chosen !== null) why(state.chosen);
  locate();
}

function drawItems(items) {
  const before = state.ranks;
  const largest = Math.max(...items.map((item) => Math.abs(item.score)), 1e-9);
  const digits = items.every((item) => Number.isInteger(item.score)) ? 0 : Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest))));
  state.ranks = new Map(items.map((item) => [item.item, item.rank]));
  $("items").replaceChildren(...items.map((item, j) => {
    const was = before?.get(item.item);
    const moved = !before ? null : was === undefined ? ["new", "new"] : was > item.rank ? ["up", `▲ ${was - item.rank}`] : was < item.rank ? ["down", `▼ ${item.rank - was}`] : null;
    const open = row(item, item.score.toFixed(digits), `item:${j}`, moved ? make("span", { className: `moved ${moved[0]}` }, moved[1]) : null);
    open.setAttribute("aria-pressed", String(state.chosen?.item === item.item));
    const add = make("button", { type: "button", className: "plus", title: "Add to the history", dataset: { key: `plus:${j}` }, attributes: { "aria-label": `Add ${label(item)} to the history` } }, "+");
    add.addEventListener("click", () => who.add(item));
    return make("li", { className: moved?.[0] === "new" ? "arrived" : "" }, open, add);
  }));
  map?.recommended(items.map((item) => item.item));
}

// A button with the title of an item, which shows its explanation.
function row(item, score, key, moved) {
  const open = make("button", { type: "button", className: "item", dataset: { item: String(item.item), key } },
    make("span", { className: "rank" }, String(item.rank)), make("span", { className: "name" }, label(item)),
    make("span", { className: "score" }, score, moved), make("span", { className: "tags" }, tags(item)));
  open.addEventListener("click", () => choose(item));
  return open;
}

function choose(item) {
  state.chosen = item;
  document.querySelectorAll(".items .item").forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.item === String(item.item))));
  map?.highlight(item);
  why(item);
  if (matchMedia("(max-width: 1080px)").matches) {
    $("why").focus({ preventScroll: true });
    $("why").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
  }
}

// the explanation

async function why(item) {
  const turn = state.turn, at = place(), current = () => turn === state.turn && state.chosen === item;
  $("why-empty").hidden = true;
  $("why-body").hidden = false;
  if (state.explained !== item.item) clearWhy("…");
  $("why-item").replaceChildren(make("span", { className: "name" }, label(item)), make("span", { className: "quiet" }, tags(item)));
  try {
    const [explained, similar] = await Promise.all([ask("explain", { ...who.body, item: item.item }), alike(item)]);
    await released();
    if (!current()) return;
    state.explained = item.item;
    drawBars($("bars"), explained);
    $("why-status").textContent = `Why ${label(item)}: score ${explained.score.toPrecision(4)}`;
    const lost = document.activeElement === document.body && at?.startsWith("similar:");
    keeping(() => drawSimilar(similar), $("why"), lost ? at : place());
  } catch (error) {
    if (!current()) return;
    clearWhy("");
    trouble(error);
  }
}

function clearWhy(words) {
  state.explained = null;
  $("bars").replaceChildren(words);
  $("similar").replaceChildren();
}

async function alike(item) {
  if (!state.facts.has_map) return "This model has no vectors to compare items by.";
  try {
    return (await ask("similar", { item: item.item, n: 6, details: true })).items;
  } catch (error) {
    return error.message;
  }
}

function drawSimilar(similar) {
  if (typeof similar === "string") $("similar").replaceChildren(make("li", { className: "quiet" }, similar));
  else $("similar").replaceChildren(...similar.map((item, j) => make("li", {}, row(item, item.score.toFixed(2), `similar:${j}`))));
}

// the map

const arranged = () => ($("arrange").value === "apart" ? $("colour").value : "");

async function locate() {
  if (!map) return;
  const turn = state.turn, by = arranged(), current = () => turn === state.turn && by === arranged();
  try {
    const { x, y } = await ask("place", { ...who.body, by });
    if (current()) map.visitor(x === null ? null : [x, y]);
  } catch {
    if (current()) map.visitor(null);
  }
}

async function drawMap() {
  $("map-card").hidden = !state.facts.has_map;
  if (!state.facts.has_map) {
    map = null;
    return;
  }
  $("colour").replaceChildren(...state.facts.colours.map((name) => make("option", { value: name }, name)), make("option", { value: "" }, "nothing"));
  map ??= new ItemMap($("map"), $("tip"), $("legend"), choose);
  await arrange();
}

async function arrange() {
  const mine = ++state.arranging, by = arranged();
  try {
    const answer = await ask(`map?by=${encodeURIComponent(by)}`);
    if (mine !== state.arranging) return;
    const plane = by ? `in which the values of ${by} lie farthest apart` : "in which they differ most";
    const shown = answer.points.length < state.facts.items ? `The ${count(answer.points.length)} most popular of ${plural(state.facts.items, "item")}` : plural(answer.points.length, "item");
    $("map-note").textContent = `${shown} by the two directions of their vectors ${plane} (${Math.round(100 * answer.explained)} % of all difference). The star is whoever asks; rings are what is recommended.`;
    map.show(answer.points);
    map.colour($("colour").value);
    locate();
  } catch (error) {
    if (mine === state.arranging) $("map-note").textContent = `The map cannot be shown now: ${error.message}`;
  }
}

// the model card

let learning = null;
const learn = () => (learning ??= learnt().finally(() => { learning = null; }));

async function learnt() {
  const answer = await ask("model"), first = state.facts === null;
  state.facts = who.facts = answer.facts;
  state.users = answer.users;
  $("known").hidden = $("anyone").hidden = !answer.users;
  using(answer.model);
  Object.assign(state, { chosen: null, explained: null, ranks: null });
  $("why-empty").hidden = false;
  $("why-body").hidden = true;
  drawFacts(answer.facts, answer.model);
  drawMap();
  document.querySelectorAll("main :disabled").forEach((each) => { each.disabled = false; });
  if (first) await anyone();
  else if (who.user === null) someoneNew();
  else await known(who.user);
}

function begin() {
  trouble(null);
  learn().catch((error) => {
    trouble(error);
    $("retry").hidden = false;
    $("summary").textContent = "The model cannot be shown.";
  });
}

// colour scheme: system, light or dark

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
let colours = "auto";
function theme(name) {
  colours = name in THEMES ? name : "auto";
  if (colours === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = colours;
  $("theme").textContent = THEMES[colours];
  map?.draw();
}

$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(colours) + 1) % names.length]);
  kept("everypair-theme", colours);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map?.draw());

const found = (item) => [label(item), make("div", { className: "quiet" }, tags(item))];
const items = async (text) => (await ask(`items?limit=20&query=${encodeURIComponent(text)}`)).items;
const users = async (text) => (await ask(`users?limit=20&query=${encodeURIComponent(text)}`)).users;
const userBox = combobox($("user"), $("user-options"), { search: users, show: (user) => [String(user)], choose: known, rest: () => String(who.user ?? ""), trouble });
const addBox = combobox($("add"), $("add-options"), { search: items, show: found, choose: (item) => who.add(item), rest: () => "", trouble });
combobox($("any"), $("any-options"), { search: items, show: found, choose: (item) => choose(item), rest: () => "", trouble });

$("anyone").addEventListener("click", anyone);
$("nobody").addEventListener("click", () => { someoneNew(); addBox.focus(); });
$("restore").addEventListener("click", () => {
  if (who.user === null) someoneNew();
  else known(who.user);
  (state.users ? userBox : addBox).focus();
});
$("seen").addEventListener("change", () => refresh());
$("n").addEventListener("change", () => { state.ranks = null; refresh(); });
$("colour").addEventListener("change", arrange);
$("arrange").addEventListener("change", arrange);
$("retry").addEventListener("click", () => { $("retry").hidden = true; begin(); });
onSwitch(() => learn().catch(trouble));
theme(kept("everypair-theme") ?? "auto");
begin();
