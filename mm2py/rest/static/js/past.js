// Which range the plots of a flow show: the last 15 minutes as they pass by, longer ones as the daemon is asked for them.

import { ask, flowPath } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { sentence } from "./format.js";
import { RANGES } from "./plots.js";
import { store } from "./store.js";

export class Past {
  constructor(flow) {
    this.flow = flow;
    this.range = RANGES[0];
    this.points = null;
    this.askedAt = -Infinity;
    this.buttons = RANGES.map((range) => h("button", { type: "button", class: "act small", text: range.label, on: { click: () => this.choose(range) } }));
    this.said = h("span", { class: "faint", role: "status" });
    this.node = h("div", { class: "ranges", role: "group", "aria-label": "Range of the plots" }, ...this.buttons, this.said);
    this.choose(this.range);
  }

  choose(range) {
    this.range = range;
    this.points = null;
    this.askedAt = -Infinity;
    this.buttons.forEach((button, at) => setAttribute(button, "aria-pressed", String(RANGES[at] === range)));
    setText(this.said, "");
  }

  /** The points to draw now; null until they are there. */
  history() {
    if (this.range === RANGES[0]) return store.history?.flow === this.flow ? store.history : null;
    if (performance.now() - this.askedAt > this.range.every_s * 1000) {
      this.askedAt = performance.now();
      this.load(this.range);
    }
    return this.points;
  }

  async load(range) {
    try {
      const points = await ask("GET", `${flowPath(this.flow, "history")}?range=${range.name}`);
      if (this.range !== range) return;
      this.points = points;
      setText(this.said, points.wall_ms.length ? "" : `The first point comes ${range.every_s} seconds after the daemon's start.`);
    } catch (error) {
      if (this.range === range) setText(this.said, `This cannot be shown now: ${error.message}`);
    }
  }

  /** When something happened to this flow. */
  marks() {
    return store.events
      .filter((event) => event.flow === this.flow && event.level !== "info")
      .map((event) => ({ at: event.wall_ms / 1000, level: event.level, text: sentence(event.name) }));
  }
}
