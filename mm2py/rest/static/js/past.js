// A flow's figures: those of now, and plots of the last 15 minutes as they pass by, or of longer ranges as the daemon is asked for them.

import { ask, flowPath } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { atLeast, bytes, bytesPerS, count, duration, ms, NOTHING, recordsPerS, short } from "./format.js";
import { Marks } from "./marks.js";
import { Plot, RANGES } from "./plots.js";
import { store } from "./store.js";

export const tile = (label, title = null) => {
  const value = h("span", { class: "tile-value" });
  return { value, node: h("div", { class: "tile", title }, h("span", { class: "tile-label", text: label }), value) };
};

/** The first part of a flow's page. */
export class Past {
  constructor(flow) {
    this.flow = flow;
    this.tiles = {
      records: tile("Records"), bytes: tile("Bytes"), lag: tile("Lag", "Records at the source that are not copied yet"),
      behind: tile("Behind", "How long, at most, the oldest record that is not copied yet has waited"),
      level: tile("Level in", "When nothing will be left to copy, at the rates of the last minutes; – while what is left does not shrink"),
      latency: tile("Latency p50 / p99", "From a record's timestamp until the target has it, over the last minute"), copied: tile("Copied", "Since the daemon was started"),
    };
    this.plots = [
      new Plot({ title: "Records", format: recordsPerS, series: [{ column: "records", label: "copied", colour: "a" }] }),
      new Plot({ title: "Bytes", format: bytesPerS, series: [{ column: "bytes", label: "copied", colour: "b" }] }),
      new Plot({ title: "Lag", format: short, series: [{ column: "lag", label: "records", colour: "c" }] }),
      new Plot({ title: "Behind", format: duration, series: [{ column: "lag_s", label: "the oldest record", colour: "d" }] }),
      new Plot({ title: "Latency", format: ms, series: [{ column: "latency_p99_ms", label: "p99", colour: "d" }, { column: "latency_p50_ms", label: "p50", colour: "a" }] }),
      new Plot({ title: "Age", format: ms, series: [{ column: "age_p50_ms", label: "p50", colour: "b" }] }),
    ];
    this.marks = new Marks(flow, (at) => { for (const plot of this.plots) plot.point(at); });
    this.buttons = RANGES.map((range) => h("button", { type: "button", class: "act small", text: range.label, on: { click: () => this.ask(range) } }));
    this.said = h("span", { class: "faint", role: "status" });
    this.nodes = [
      h("section", { class: "tiles", "aria-label": "Now" }, ...Object.values(this.tiles).map((one) => one.node)),
      h("div", { class: "ranges", role: "group", "aria-label": "Range of the plots" }, ...this.buttons, this.said), this.marks.node,
      h("section", { class: "plots", "aria-label": "Plots" }, ...this.plots.map((plot) => plot.node)),
    ];
    this.shown = this;
    this.onView = () => {};
    this.choose(RANGES[0]);
  }

  label() {
    return "Plots";
  }

  get view() {
    return { range: this.range === RANGES[0] ? "" : this.range.name };
  }

  restore(view) {
    const wanted = RANGES.find(({ name }) => name === view.get("range")) ?? RANGES[0];
    if (wanted !== this.range) this.choose(wanted);
  }

  ask(range) {
    this.choose(range);
    this.onView(true);
  }

  choose(range) {
    this.range = range;
    this.points = null;
    this.askedAt = -Infinity;
    this.buttons.forEach((button, at) => setAttribute(button, "aria-pressed", String(RANGES[at] === range)));
    setText(this.said, "");
  }

  update(line, flow) {
    const { records, bytes: size, lag, behind, level, latency, copied } = this.tiles;
    setText(records.value, recordsPerS(line.records_per_s));
    setText(size.value, bytesPerS(line.bytes_per_s));
    // A tile has room for nine digits: a longer number would be broken, and read as one of fewer digits.
    setText(lag.value, atLeast(line.lag < 1e9 ? count(line.lag) : short(line.lag), line.lag_is_least));
    setText(behind.value, atLeast(duration(flow.lag_s), flow.lag_s_is_least));
    setText(level.value, flow.seconds_until_level === 0 ? "now" : duration(flow.seconds_until_level));
    setText(latency.value, line.latency_p50_ms === null ? NOTHING : `${ms(line.latency_p50_ms)} / ${ms(line.latency_p99_ms)}`);
    setText(copied.value, `${short(line.records)} / ${bytes(line.bytes)}`);
    const history = this.history();
    for (const plot of this.plots) plot.update(history, this.range);
    this.marks.update(this.range);
  }

  repaint() {
    for (const plot of this.plots) plot.repaint();
  }

  end() {
    for (const plot of this.plots) plot.end();
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
      setText(this.said, points.wall_ms.length ? "" : `The first point comes ${duration(range.every_s)} after the daemon's start.`);
    } catch (error) {
      if (this.range === range) setText(this.said, `This cannot be shown now: ${error.message}`);
    }
  }
}
