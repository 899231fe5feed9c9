// The map of items on a canvas: coloured points, rings around recommended items, and a star for the visitor.

import { label, make, shorter, tags } from "./parts.js";

const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b3a100", "#8a63b8", "#b07d62", "#5f7fd9", "#66a61e", "#e7298a"];
const OTHER = "#8a94a1";
const EDGE = 26; // pixels around the points
const LETTERS = 44; // characters of the title of the chosen item

export class ItemMap {
  constructor(canvas, tip, legend, choose) {
    Object.assign(this, { canvas, tip, legend, points: [], byItem: new Map(), ringed: [], at: null, chosen: null, only: null, colours: new Map(), attribute: "" });
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("click", (event) => { const point = this.nearest(event); if (point) choose(point); });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(points) {
    this.points = points;
    this.byItem = new Map(points.map((point) => [point.item, point]));
    this.at = null;
    this.draw();
  }

  // Colour the points by an attribute, the most frequent values first; "" for one colour.
  colour(attribute) {
    [this.attribute, this.only] = [attribute, null];
    const counts = new Map();
    if (attribute) for (const point of this.points) counts.set(this.key(point), (counts.get(this.key(point)) ?? 0) + 1);
    const keys = [...counts].sort((a, b) => b[1] - a[1]).map(([key]) => key);
    this.colours = new Map(keys.slice(0, PALETTE.length).map((key, j) => [key, PALETTE[j]]));
    const words = (key) => (key === null ? "no value" : key === "" ? "empty" : shorter(key, 30));
    const entries = [...this.colours].map(([key, colour]) => [words(key), key, colour]);
    const rest = keys.length - PALETTE.length;
    if (rest > 0) entries.push([rest === 1 ? "1 other" : `${rest} others`, OTHER, OTHER]);
    this.legend.replaceChildren(...entries.map(([name, key, colour]) => this.entry(name, key, colour)));
    this.draw();
  }

  entry(name, key, colour) {
    const dot = make("i"), button = make("button", { type: "button", attributes: { "aria-pressed": "false" } }, dot, name);
    dot.style.background = colour;
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      for (const each of this.legend.querySelectorAll("button")) each.setAttribute("aria-pressed", String(on && each === button));
      this.only = on ? { key } : null;
      this.draw();
    });
    return make("li", {}, button);
  }

  key(point) {
    const value = point.attributes[this.attribute] ?? null;
    return value === null ? null : String(value);
  }

  colourOf(point) { return this.attribute ? this.colours.get(this.key(point)) ?? OTHER : null; }
  recommended(items) { this.ringed = items; this.draw(); }
  visitor(place) { this.at = place; this.draw(); }
  highlight(item) { this.chosen = item.item; this.draw(); }

  scale() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const all = this.at ? [...this.points, { x: this.at[0], y: this.at[1] }] : this.points;
    const [xs, ys] = [all.map((point) => point.x), all.map((point) => point.y)];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const x = (value) => EDGE + (right > left ? (value - left) / (right - left) : 0.5) * (width - 2 * EDGE);
    const y = (value) => height - EDGE - (high > low ? (value - low) / (high - low) : 0.5) * (height - 2 * EDGE);
    return { x, y, width, height };
  }

  draw() {
    if (!this.points.length || !this.canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1, { x, y, width, height } = this.scale();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [ink, card, accent, ground] = ["--ink", "--card", "--accent", "--ground"].map((name) => style.getPropertyValue(name).trim());
    pen.fillStyle = ground;
    pen.fillRect(0, 0, width, height);
    const size = this.points.length > 800 ? 2.8 : this.points.length > 200 ? 3.6 : 4.8;
    const ring = (point, radius, colour, line) => {
      pen.strokeStyle = colour;
      pen.lineWidth = line;
      pen.beginPath();
      pen.arc(x(point.x), y(point.y), radius, 0, 2 * Math.PI);
      pen.stroke();
    };
    for (const point of this.points) {
      const colour = this.colourOf(point) ?? accent;
      const shown = this.only === null || (this.only.key === OTHER ? colour === OTHER : this.key(point) === this.only.key);
      pen.globalAlpha = shown ? 1 : 0.1;
      pen.fillStyle = colour;
      pen.beginPath();
      pen.arc(x(point.x), y(point.y), size, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.globalAlpha = 1;
    for (const item of this.ringed) if (this.byItem.has(item)) ring(this.byItem.get(item), size + 3.5, ink, 1.6);
    if (this.at) star(pen, x(this.at[0]), y(this.at[1]), 11, "#ffcc00", ink);
    const chosen = this.byItem.get(this.chosen);
    if (chosen) {
      ring(chosen, size + 6.5, accent, 3);
      write(pen, shorter(label(chosen), LETTERS), x(chosen.x), y(chosen.y) - size - 12, ink, card, width);
    }
  }

  nearest(event) {
    const bounds = this.canvas.getBoundingClientRect(), { x, y } = this.scale();
    let best = null, least = 14 ** 2;
    for (const point of this.points) {
      const distance = (x(point.x) - event.clientX + bounds.left) ** 2 + (y(point.y) - event.clientY + bounds.top) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  hover(event) {
    const point = this.nearest(event);
    this.tip.hidden = !point;
    this.canvas.style.cursor = point ? "pointer" : "default";
    if (!point) return;
    const { x, y, width } = this.scale();
    this.tip.textContent = [shorter(label(point), 80), tags(point)].filter(Boolean).join(" · ");
    this.tip.style.left = `${Math.min(x(point.x) + 12, width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${Math.max(y(point.y) - 34, 2)}px`;
  }
}

function write(pen, text, x, y, ink, card, width) {
  pen.font = "600 12px system-ui, sans-serif";
  const half = pen.measureText(text).width / 2 + 4, middle = Math.min(Math.max(x, half + 2), width - half - 2);
  pen.textAlign = "center";
  pen.lineWidth = 4;
  pen.strokeStyle = card;
  pen.strokeText(text, middle, Math.max(y, 14));
  pen.fillStyle = ink;
  pen.fillText(text, middle, Math.max(y, 14));
}

function star(pen, x, y, size, fill, ink) {
  pen.beginPath();
  for (let j = 0; j < 10; j++) {
    const radius = j % 2 ? size * 0.45 : size, angle = (Math.PI * j) / 5 - Math.PI / 2;
    pen.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
  }
  pen.closePath();
  pen.fillStyle = fill;
  pen.strokeStyle = ink;
  pen.lineWidth = 1.5;
  pen.fill();
  pen.stroke();
}
