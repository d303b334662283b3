// Plots of the last 15 minutes, 3 hours or day.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h, s, setAttribute, setText } from "./dom.js";
import { NOTHING } from "./format.js";
import { now } from "./store.js";

/** The ranges that the daemon keeps, and how often a point is added to each. */
export const RANGES = [
  { name: "15m", label: "15 minutes", window_s: 900, every_s: 3 },
  { name: "3h", label: "3 hours", window_s: 10_800, every_s: 36 },
  { name: "1d", label: "1 day", window_s: 86_400, every_s: 288 },
];
const HEIGHT = 150;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** One plot: a title, its latest values, and lines. `series` are {column, label, colour (a CSS variable)}. */
export class Plot {
  constructor({ title, series, format }) {
    Object.assign(this, { title, series, format });
    this.values = series.map((one) => h("span", { class: "plot-value" }));
    const keys = series.map((one, at) => h("span", { class: "plot-key" },
      h("span", { class: `swatch swatch-${one.colour}`, "aria-hidden": "true" }), h("span", { class: "plot-label", text: one.label }), this.values[at]));
    this.canvas = h("div", { class: "plot-canvas" });
    this.node = h("figure", { class: "plot" }, h("figcaption", {}, h("h3", { text: title }), ...keys), this.canvas);
    this.data = null;
    this.range = RANGES[0];
    this.plot = null;
    this.width = 0;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.canvas);
  }

  resize() {
    const width = Math.floor(this.canvas.clientWidth);
    if (width === this.width || width === 0) return;
    this.width = width;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.draw();
  }

  /** Colours are part of a drawing: after a change of theme it is created again. */
  repaint() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  update(history, range) {
    this.range = range;
    const from = now() / 1000 - range.window_s;
    const times = history?.wall_ms ?? [];
    let first = 0;
    while (first < times.length && times[first] / 1000 < from) first += 1;
    this.data = [times.slice(first).map((wall_ms) => wall_ms / 1000), ...this.series.map((one) => (history?.[one.column] ?? []).slice(first))];
    this.series.forEach((one, at) => {
      const column = this.data[at + 1];
      const last = column.length ? column[column.length - 1] : null;
      setText(this.values[at], last === null || last === undefined ? NOTHING : this.format(last));
    });
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
  }

  draw() {
    if (!this.width || !this.data) return;
    const [text, grid] = [colour("--faint"), colour("--line")];
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font };
    this.plot = new uPlot({
      width: this.width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      padding: [10, 20, 0, 0],
      hooks: { setCursor: [() => this.showValues()] },
      scales: {
        x: { time: true, range: () => [now() / 1000 - this.range.window_s, now() / 1000] },
        y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.12 : 1] },
      },
      axes: [
        { ...axis, size: 26, space: 70, values: (_plot, at) => at.map((second) => new Date(second * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
        { ...axis, size: 62, space: 34, values: (_plot, at) => at.map((value) => this.format(value)) },
      ],
      series: [
        {},
        ...this.series.map((one, at) => ({
          label: one.label,
          stroke: colour(`--plot-${one.colour}`),
          fill: this.series.length === 1 ? colour(`--plot-${one.colour}-fill`) : undefined,
          width: 1.8,
          dash: at === 1 ? [5, 3] : undefined,
          points: { show: false },
          spanGaps: false,
        })),
      ],
    }, this.data, this.canvas);
  }

  /** Have the cursor at a time, in seconds; null takes it away. */
  point(at) {
    this.plot?.setCursor({ left: at === null ? -10 : this.plot.valToPos(at, "x"), top: at === null ? -10 : 0 });
  }

  /** Under the pointer, the values there; else the latest. */
  showValues() {
    const at = this.plot.cursor.idx;
    const isPointing = at !== null && at !== undefined && this.plot.cursor.left >= 0;
    const last = this.data[0].length - 1;
    this.series.forEach((one, index) => {
      const value = this.data[index + 1][isPointing ? at : last];
      const time = isPointing ? ` at ${new Date(this.data[0][at] * 1000).toLocaleTimeString("en-GB")}` : "";
      setText(this.values[index], (value === null || value === undefined ? NOTHING : this.format(value)) + (index === this.series.length - 1 ? time : ""));
    });
  }

  end() {
    this.watcher.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

const SPARK = { width: 96, height: 24 };

/** A line of a few values, for a cell of a table. */
export function sparkline() {
  return s("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, ...SPARK, "aria-hidden": "true" }, s("polyline"));
}

export function setSparkline(node, values) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const step = SPARK.width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(SPARK.height - 2 - ((value ?? 0) / most) * (SPARK.height - 4)).toFixed(1)}`).join(" ");
  setAttribute(node.firstChild, "points", points);
}
