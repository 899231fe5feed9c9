// A text input with search results below it, for pointer and keyboard (the combobox pattern of ARIA).

import { make } from "./parts.js";

// search(text) returns options, show(option) its elements, choose(option) is called for the chosen one, rest() returns the text to show when nobody is typing.
export function combobox(input, list, { search, show, choose, rest, trouble }) {
  let options = [], at = -1, turn = 0, timer = null, looking = false, hurried = false, quiet = false; // hurried: Enter was pressed before the results arrived
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  };
  const mark = () => {
    [...list.children].forEach((child, j) => child.setAttribute("aria-selected", String(j === at)));
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  };
  const take = (j) => {
    if (!options[j]) return;
    hurried = false;
    close();
    input.value = rest();
    choose(options[j]);
  };
  const look = async () => {
    const mine = ++turn, typed = input.value === rest() ? "" : input.value;
    try {
      const found = await search(typed);
      if (mine !== turn || (document.activeElement !== input && !hurried)) return;
      options = found;
      looking = false;
      at = found.length && typed ? 0 : -1;
      if (hurried && found.length) { take(0); return; }
      hurried = false;
      list.replaceChildren(...found.map((option, j) => {
        const entry = make("li", { id: `${list.id}-${j}`, role: "option" }, ...show(option));
        entry.addEventListener("pointerdown", (event) => event.preventDefault());
        entry.addEventListener("click", () => take(j));
        return entry;
      }));
      if (!found.length) list.append(make("li", { className: "none", role: "option", attributes: { "aria-disabled": "true" } }, "Nothing like that"));
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      mark();
    } catch (error) {
      trouble(error);
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    turn++;
    [looking, hurried] = [true, false];
    close();
    timer = setTimeout(look, 120);
  });
  input.addEventListener("focus", () => {
    if (quiet) return;
    hurried = false;
    input.select();
    look();
  });
  input.addEventListener("click", () => { if (list.hidden && !looking) look(); });
  input.addEventListener("blur", () => {
    close();
    if (!hurried) input.value = rest();
  });
  input.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && !list.hidden && options.length) {
      at = at < 0 ? (move > 0 ? 0 : options.length - 1) : (at + move + options.length) % options.length;
      mark();
    } else if (move && list.hidden) {
      look();
    } else if (event.key === "Enter" && looking) {
      hurried = true;
    } else if (event.key === "Enter" && !list.hidden) {
      take(at);
    } else if (event.key === "Escape") {
      close();
      input.value = rest();
      looking = false;
    } else {
      return;
    }
    event.preventDefault();
  });
  // Focus the input without opening the list.
  return { focus: () => { quiet = true; input.focus({ preventScroll: true }); quiet = false; } };
}
