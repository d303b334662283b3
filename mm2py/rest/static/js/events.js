// Recent events.

import { runbook } from "./docs.js";
import { h, setAttribute, setText } from "./dom.js";
import { ago, clock, count, dateAndClock, level, plural, sentence } from "./format.js";
import { address, flowAddress, isStep, put } from "./place.js";
import { now, store } from "./store.js";
import { pill } from "./table.js";

const RANKS = { info: 0, warn: 1, error: 2 };
const PAGE = 100;
const DAY_MS = 86_400_000;

/** Events of a run as one: {newest, older, many}, in the order of the newest ones. */
export function folded(events) {
  const runs = new Map();
  for (const event of events) {
    const run = runs.get(event.run);
    if (run) run.older.push(event);
    else runs.set(event.run, { newest: event, older: [], many: event.nth });
  }
  return [...runs.values()];
}

function line(withFlow) {
  const time = h("time");
  const said = h("span", { class: "ago" });
  const older = h("ol", { class: "older" });
  const many = h("summary");
  const fold = h("details", {}, many, older);
  const text = h("p", { class: "event-text" });
  const item = h("li");
  const show = ({ newest, older: before, many: length }) => {
    setAttribute(item, "data-mood", level(newest.level).mood);
    item.replaceChildren(
      h("div", { class: "event-head" }, h("span", { class: "when" }, time, said), pill(level(newest.level)), h("strong", { text: sentence(newest.name) }),
        length > 1 ? h("span", { class: "times", text: `${count(length)} times` }) : null,
        withFlow && newest.flow ? h("a", { href: flowAddress(newest.flow), text: newest.flow }) : null,
        h("a", { class: "runbook", href: runbook(newest.name), "aria-label": `Runbook of ${sentence(newest.name).toLowerCase()}`, text: newest.level === "info" ? "About" : "Runbook" })),
      h("div", { class: "event-body" }, newest.about ? h("p", { class: "event-about", text: newest.about }) : "", text, length > 1 ? fold : ""));
    setAttribute(time, "datetime", new Date(newest.wall_ms).toISOString());
    setAttribute(time, "title", dateAndClock(newest.wall_ms));
    setText(text, newest.text);
    text.hidden = !newest.text;
    const hidden = length - 1 - before.length;
    setText(many, `${plural(length - 1, "earlier one")} since ${clock(newest.since_ms)}${hidden > 0 ? `, the last ${before.length} here` : ""}`);
    older.replaceChildren(...before.map((event) => h("li", {}, h("time", { text: clock(event.wall_ms) }), ` ${event.text}`)));
  };
  return { item, time, said, show, shown: "" };
}

/** A list of events, newest first, repeats folded, that keeps what it has already drawn. */
export function eventList({ empty = "No events yet.", withFlow = true } = {}) {
  const list = h("ol", { class: "events" });
  const said = h("p", { class: "empty", text: empty });
  const node = h("div", {}, list, said);
  const made = new Map();
  const update = (runs) => {
    said.hidden = runs.length > 0;
    const keys = new Set(runs.map((run) => run.newest.run));
    for (const [key, { item }] of made) {
      if (!keys.has(key)) {
        item.remove();
        made.delete(key);
      }
    }
    let before = list.firstChild;
    const present = now();
    for (const run of runs) {
      const { newest } = run;
      const one = made.get(newest.run) ?? line(withFlow);
      made.set(newest.run, one);
      if (one.shown !== newest.mark) {
        one.shown = newest.mark;
        one.show(run);
      }
      setText(one.time, present - newest.wall_ms < DAY_MS ? clock(newest.wall_ms) : dateAndClock(newest.wall_ms));
      setText(one.said, ago(newest.wall_ms, present));
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
    this.level = h("select", { "aria-label": "Level", on: { change: () => this.changed() } },
      h("option", { value: "info", text: "All levels" }), h("option", { value: "warn", text: "Warnings and errors" }), h("option", { value: "error", text: "Errors" }));
    this.of = h("select", { "aria-label": "Flow", on: { change: () => this.changed() } }, h("option", { value: "", text: "All flows" }));
    this.words = h("input", { type: "search", placeholder: "Search events", "aria-keyshortcuts": "/", title: "Press / to search", "aria-label": "Search events", autocomplete: "off", on: { input: () => this.changed(isStep(this.searched, this.words.value)) } });
    this.list = eventList({ empty: "No event matches.", withFlow: flow === null });
    this.more = h("button", { type: "button", text: "Show more", on: { click: () => { this.most += PAGE; this.update(); } } });
    const tools = h("div", { class: "tools" }, this.words, this.level, flow === null ? this.of : null);
    const content = [tools, this.list.node, this.more];
    this.shown = this;
    this.searched = "";
    this.wanted = "";
    this.onView = (isOneStep) => put(address(["events"], this.view), isOneStep);
    this.nodes = content;
    this.node = flow !== null ? null : h("div", { class: "page" }, h("h1", { text: "Events" }), h("p", { class: "faint", text: "The latest events of this daemon at the levels info, warning and error; repeats are one line. The log has all of them." }), h("section", { class: "card" }, ...content));
  }

  label() {
    return "Events";
  }

  get title() {
    return { word: "", mood: "", text: "Events" };
  }

  get view() {
    return { level: this.level.value === "info" ? "" : this.level.value, flow: this.wanted, q: this.words.value };
  }

  restore(view) {
    const level = view.get("level");
    this.level.value = level in RANKS ? level : "info";
    this.wanted = view.get("flow") ?? "";
    const words = view.get("q") ?? "";
    if (this.words.value !== words) this.words.value = words;
    this.searched = words;
    this.update();
  }

  choose({ query }) {
    this.restore(query);
  }

  changed(isOneStep = true) {
    this.searched = this.words.value;
    this.wanted = this.of.value;
    this.update();
    this.onView(isOneStep);
  }

  begin() {}

  end() {}

  repaint() {}

  update() {
    const flows = [...new Set([...(store.overview?.flows ?? []).map((flow) => flow.flow), ...store.events.map((event) => event.flow), this.wanted])].filter(Boolean).sort();
    if (flows.join("\n") !== [...this.of.options].slice(1).map((option) => option.value).join("\n")) {
      this.of.replaceChildren(h("option", { value: "", text: "All flows" }), ...flows.map((flow) => h("option", { value: flow, text: flow })));
    }
    this.of.value = this.wanted;
    const words = this.words.value.trim().toLowerCase();
    const wanted = this.flow ?? this.wanted;
    const least = RANKS[this.level.value];
    const found = folded(store.events.filter((event) => (!wanted || event.flow === wanted) && (RANKS[event.level] ?? 0) >= least
      && (!words || `${sentence(event.name)} ${event.about} ${event.text} ${event.flow}`.toLowerCase().includes(words))));
    this.list.update(found.slice(0, this.most));
    this.more.hidden = found.length <= this.most;
  }
}
