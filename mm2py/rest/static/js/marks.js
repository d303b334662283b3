// What happened to a flow in the range of its plots: one row of marks, those that are near each other as one.

import { h, s, setAttribute, setText } from "./dom.js";
import { clock, level, sentence } from "./format.js";
import { flowAddress } from "./place.js";
import { now, store } from "./store.js";

/** So many marks fit beside each other. */
const PLACES = 60;
const HEIGHT = 20;

export class Marks {
  /** `pointed` gets the time, in seconds, of the mark under the pointer or with the focus, then null. */
  constructor(flow, pointed) {
    Object.assign(this, { flow, pointed });
    this.svg = s("svg", { class: "marks-line", height: HEIGHT, role: "group", "aria-label": "Warnings and errors in this range" });
    this.said = h("p", { class: "marks-said faint", role: "status" });
    this.node = h("div", { class: "marks" }, h("span", { class: "marks-label", text: "Events" }), this.svg, this.said);
    this.made = new Map();
    this.shown = null;
  }

  mark(key) {
    const dot = s("circle", { r: 6, cy: HEIGHT / 2 });
    const many = s("text", { y: HEIGHT / 2 + 3.5 });
    const node = s("a", { href: flowAddress(this.flow, "events", { level: "warn" }), class: "mark" }, s("title"), dot, many);
    const [show, hide] = [() => this.point(key), () => this.point(null)];
    for (const [event, then] of Object.entries({ pointerenter: show, focus: show, pointerleave: hide, blur: hide })) node.addEventListener(event, then);
    return { node, dot, many };
  }

  point(key) {
    this.shown = key;
    this.pointed(this.made.get(key)?.at ?? null);
    this.say();
  }

  say() {
    setText(this.said, this.made.get(this.shown)?.text ?? "");
  }

  update({ window_s }) {
    const width = this.svg.clientWidth;
    const from_s = now() / 1000 - window_s;
    const groups = new Map();
    for (const event of store.events) {
      const at = event.wall_ms / 1000;
      if (event.flow !== this.flow || event.level === "info" || at < from_s) continue;
      // Places are those of the clock, so that a mark stays the same one while it moves to the left.
      const key = `${window_s} ${Math.floor((at * PLACES) / window_s)}`;
      const group = groups.get(key) ?? { at, level: event.level, events: [] };
      groups.set(key, group);
      group.events.push(event);
      if (event.level === "error") group.level = "error";
    }
    for (const [key, { node }] of this.made) {
      if (groups.has(key)) continue;
      node.remove();
      this.made.delete(key);
    }
    for (const [key, { at, level: worst, events }] of groups) {
      const one = this.made.get(key) ?? this.mark(key);
      this.made.set(key, one);
      const names = [...new Set(events.map((event) => sentence(event.name)))];
      one.at = at;
      one.text = `${clock(at * 1000)} ${names.join(", ")}${events.length > names.length ? ` (${events.length} events)` : ""}`;
      setAttribute(one.node, "data-mood", level(worst).mood);
      setAttribute(one.node, "aria-label", one.text);
      setText(one.node.firstChild, one.text);
      setText(one.many, events.length > 1 ? String(Math.min(events.length, 99)) : "");
      const x = Math.max(8, Math.min(width - 8, ((at - from_s) / window_s) * width));
      for (const part of [one.dot, one.many]) setAttribute(part, part === one.dot ? "cx" : "x", x.toFixed(1));
      setAttribute(one.dot, "r", events.length > 1 ? 8 : 6);
      if (!one.node.isConnected) this.svg.append(one.node);
    }
    if (this.shown !== null) this.point(this.made.has(this.shown) ? this.shown : null);
    this.node.hidden = groups.size === 0;
  }
}
