// Recent events.

import { h } from "./dom.js";
import { ago, clock, dateAndClock, level, sentence } from "./format.js";
import { now, store } from "./store.js";
import { pill } from "./table.js";

const RANKS = { info: 0, warn: 1, error: 2 };
const PAGE = 100;

/** A list of events, newest first, that keeps what it has already drawn. */
export function eventList({ empty = "No events yet.", withFlow = true } = {}) {
  const list = h("ol", { class: "events" });
  const said = h("p", { class: "empty", text: empty });
  const node = h("div", {}, list, said);
  const made = new Map();
  const make = (event) => {
    const time = h("time", { datetime: new Date(event.wall_ms).toISOString(), title: dateAndClock(event.wall_ms) });
    const item = h("li", { "data-mood": level(event.level).mood },
      h("div", { class: "event-head" }, time, pill(level(event.level)), h("strong", { text: sentence(event.name), title: event.about }),
        withFlow && event.flow ? h("a", { href: `#/flow/${encodeURIComponent(event.flow)}`, text: event.flow }) : null),
      event.text ? h("p", { class: "event-text", text: event.text }) : null);
    return { item, time };
  };
  const update = (events) => {
    said.hidden = events.length > 0;
    const marks = new Set(events.map((event) => event.mark));
    for (const [mark, { item }] of made) {
      if (!marks.has(mark)) {
        item.remove();
        made.delete(mark);
      }
    }
    let before = list.firstChild;
    const present = now();
    for (const event of events) {
      let one = made.get(event.mark);
      if (!one) {
        one = make(event);
        made.set(event.mark, one);
      }
      const isRecent = present - event.wall_ms < 3_600_000;
      const when = isRecent ? ago(event.wall_ms, present) : clock(event.wall_ms);
      if (one.time.textContent !== when) one.time.textContent = when;
      if (one.item === before) before = before.nextSibling;
      else list.insertBefore(one.item, before);
    }
  };
  return { node, update };
}

/** Events with filters; of one flow where it is named. */
export class Events {
  constructor(flow = null) {
    this.flow = flow;
    this.most = PAGE;
    this.level = h("select", { "aria-label": "Level", on: { change: () => this.update() } },
      h("option", { value: "info", text: "All levels" }), h("option", { value: "warn", text: "Warnings and errors" }), h("option", { value: "error", text: "Errors" }));
    this.of = h("select", { "aria-label": "Flow", on: { change: () => this.update() } }, h("option", { value: "", text: "All flows" }));
    this.words = h("input", { type: "search", placeholder: "Search events", "aria-label": "Search events", autocomplete: "off", on: { input: () => this.update() } });
    this.list = eventList({ empty: "No event matches.", withFlow: flow === null });
    this.more = h("button", { type: "button", text: "Show more", on: { click: () => { this.most += PAGE; this.update(); } } });
    const tools = h("div", { class: "tools" }, this.words, this.level, flow === null ? this.of : null);
    const content = [tools, this.list.node, this.more];
    this.node = flow === null
      ? h("div", { class: "page" }, h("h1", { text: "Events" }), h("p", { class: "faint", text: "The latest events of this daemon at the levels info, warning and error. The log has all of them." }), h("section", { class: "card" }, ...content))
      : h("div", {}, ...content);
  }

  begin() {}

  end() {}

  repaint() {}

  update() {
    const flows = [...new Set([...(store.overview?.flows ?? []).map((flow) => flow.flow), ...store.events.map((event) => event.flow)])].filter(Boolean).sort();
    if (this.of.options.length !== flows.length + 1) {
      const chosen = this.of.value;
      this.of.replaceChildren(h("option", { value: "", text: "All flows" }), ...flows.map((flow) => h("option", { value: flow, text: flow })));
      this.of.value = flows.includes(chosen) ? chosen : "";
    }
    const words = this.words.value.trim().toLowerCase();
    const wanted = this.flow ?? this.of.value;
    const least = RANKS[this.level.value];
    const found = store.events.filter((event) => (!wanted || event.flow === wanted) && (RANKS[event.level] ?? 0) >= least
      && (!words || `${sentence(event.name)} ${event.text} ${event.flow}`.toLowerCase().includes(words)));
    this.list.update(found.slice(0, this.most));
    this.more.hidden = found.length <= this.most;
  }
}
