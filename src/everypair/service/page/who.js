// The visitor: a user of the data, with changed attributes or history, or someone new.

import { same } from "./api.js";
import { $, count, keeping, label, make, tags } from "./parts.js";

const LISTED = 30; // items of a history shown at first

export class Who {
  constructor(changed) {
    Object.assign(this, { changed, facts: null, user: null, profile: null, attributes: {}, history: [], all: false });
  }

  // another visitor

  unknown() {
    Object.assign(this, { user: null, profile: null, history: [], all: false });
    this.attributes = Object.fromEntries(this.facts.takes.attributes.map(({ name }) => [name, null]));
    this.draw();
  }

  known(profile) {
    Object.assign(this, { user: profile.user, profile, history: [...profile.history], all: false });
    this.attributes = Object.fromEntries(this.facts.takes.attributes.map(({ name }) => [name, profile.attributes[name] ?? null]));
    this.draw();
  }

  // the request

  get knownHistory() { return this.profile?.history ?? []; }
  differs(name) { return !same(this.attributes[name] ?? null, this.profile?.attributes[name] ?? null); }
  get otherHistory() { return !same(this.history.map((item) => item.item), this.knownHistory.map((item) => item.item)); }
  get touched() { return this.otherHistory || Object.keys(this.attributes).some((name) => this.differs(name)); }

  // The fields for the service. A history in a request replaces that of the data, so it includes the items that are not shown.
  get body() {
    if (this.user !== null && !this.touched) return { user: this.user };
    const request = this.user === null ? {} : { [this.facts.user_column]: this.user };
    for (const name of Object.keys(this.attributes)) if (this.differs(name)) request[name] = this.attributes[name];
    if (this.otherHistory) request.history = [...(this.profile?.earlier ?? []), ...this.history.map((item) => item.item)];
    return { request };
  }

  add(item) {
    if (same(this.history.at(-1)?.item ?? null, item.item)) return; // a double click
    this.history.push({ item: item.item, title: item.title, attributes: item.attributes });
    this.drawHistory();
    this.changed();
  }

  remove(place) {
    this.history.splice(place, 1);
    keeping(() => this.drawHistory(), $("add"));
    this.changed();
  }

  say(name, value, input) {
    this.attributes[name] = value;
    input.classList.toggle("changed", this.user !== null && this.differs(name));
    this.drawUndo();
    this.changed();
  }

  // drawing

  draw() {
    $("user").value = this.user ?? "";
    $("attributes").replaceChildren(...this.facts.takes.attributes.map((attribute) => this.menu(attribute)));
    this.drawHistory();
  }

  drawUndo() {
    $("restore").hidden = !this.touched;
    $("restore").textContent = this.user === null ? "Clear" : "Undo changes";
  }

  drawHistory() {
    this.drawUndo();
    const earlier = this.profile ? this.profile.seen - this.profile.history.length : 0;
    const hint = this.facts.takes.history ? "newest first" : "this model does not look at it; it says what was seen";
    $("history-hint").textContent = earlier > 0 ? `${hint}; the last ${count(this.profile.history.length)} of ${count(this.profile.seen)}` : hint;
    const before = new Set(this.knownHistory.map((item) => item.item));
    const newest = this.history.map((item, place) => [item, place]).reverse();
    const shown = this.all ? newest : newest.slice(0, LISTED);
    const entries = shown.map(([item, place], j) => {
      const remove = make("button", { type: "button", title: "Remove", dataset: { key: `remove:${j}` }, attributes: { "aria-label": `Remove ${label(item)}` } }, "×");
      remove.addEventListener("click", () => this.remove(place));
      const added = this.user !== null && !before.has(item.item);
      return make("li", { className: added ? "added" : "" }, make("span", { title: [label(item), tags(item)].join(" · ") }, label(item)), remove);
    });
    if (newest.length > shown.length) {
      const all = make("button", { type: "button", dataset: { key: `remove:${LISTED}` } }, `and ${count(newest.length - shown.length)} more`);
      all.addEventListener("click", () => { this.all = true; keeping(() => this.drawHistory(), $("add")); });
      entries.push(make("li", { className: "more" }, all));
    }
    $("history").replaceChildren(...entries);
  }

  menu(attribute) {
    const { name, kind } = attribute, id = `attribute-${name}`, value = this.attributes[name] ?? null;
    if (kind === "several") return this.checks(attribute, value);
    let input;
    const typed = (text) => (text === "" ? null : attribute.value === "number" ? Number(text) : attribute.value === "boolean" ? text === "true" : text);
    if (kind === "number") {
      input = make("input", { type: "number", step: "any", value: value ?? "", placeholder: "no value" });
    } else if (attribute.more) {
      input = make("input", { type: "text", value: value ?? "", placeholder: "no value", attributes: { list: `${id}-options` } });
    } else {
      const options = [...new Set([...attribute.options, ...(value === null ? [] : [String(value)])])];
      input = make("select", {}, make("option", { value: "" }, "no value"), ...options.map((option) => make("option", { value: option }, option)));
      input.value = value === null ? "" : String(value);
    }
    input.id = id;
    input.addEventListener("change", () => this.say(name, typed(input.value), input));
    const listed = attribute.more ? make("datalist", { id: `${id}-options` }, ...attribute.options.map((option) => make("option", { value: option }))) : null;
    return make("div", {}, make("label", { htmlFor: id }, name), input, listed);
  }

  checks(attribute, value) {
    const { name, separator } = attribute;
    const held = new Set((Array.isArray(value) ? value : value === null ? [] : String(value).split(separator)).map((each) => String(each).trim()));
    const box = make("fieldset", { className: "several" }, make("legend", {}, name));
    for (const option of new Set([...attribute.options, ...held].filter((each) => each !== ""))) {
      const check = make("input", { type: "checkbox", value: option, checked: held.has(option) });
      check.addEventListener("change", () => {
        const chosen = [...box.querySelectorAll("input:checked")].map((each) => (attribute.value === "number" && !separator ? Number(each.value) : each.value));
        this.say(name, !chosen.length ? null : separator ? chosen.join(separator) : chosen, box);
      });
      box.append(make("label", {}, check, option));
    }
    return box;
  }
}
