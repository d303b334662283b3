// One flow: its state, what needs attention, and its parts in tabs.

import * as act from "./actions.js";
import { offsets, settings } from "./asked.js";
import { connectorsPart } from "./connectors.js";
import { fare } from "./diagram.js";
import { h, setText } from "./dom.js";
import { Events } from "./events.js";
import { connector as called, flowEnds, plural, state } from "./format.js";
import { groupsPart } from "./groups.js";
import { nodesPart } from "./nodes.js";
import { Past } from "./past.js";
import { flowAddress } from "./place.js";
import { Problems, problems } from "./problems.js";
import { find, forgetFlow, store } from "./store.js";
import { pill, setPill } from "./table.js";
import { Tabs } from "./tabs.js";
import { tasksPart } from "./tasks.js";
import { topicsPart } from "./topics.js";

/** Of one kind of failure, so many partitions are named. */
const MOST_NAMES = 5;

export class FlowPage {
  constructor(flow) {
    this.flow = flow;
    forgetFlow();
    this.problems = new Problems({ isOfFlow: true });
    this.word = h("span", {}, pill(state("starting")));
    this.noteText = h("span");
    this.note = h("div", { class: "override-note" }, this.noteText, act.button("Revert all", "restart", () => act.revertAll(flow, overrideText(store.flow?.overrides)), { small: true }));
    this.tabs = new Tabs("Parts of the flow", {
      plots: new Past(flow), topics: topicsPart(flow), tasks: tasksPart(flow), groups: groupsPart(flow), connectors: connectorsPart(flow),
      nodes: nodesPart(), settings: settings(flow), offsets: offsets(flow), events: new Events(flow),
    }, (name, view) => flowAddress(flow, name, view));
    const [source, target] = flowEnds(flow);
    this.gone = h("p", { class: "empty", text: "Loading this flow…" });
    this.change = this.buildActions();
    this.node = h("div", { class: "page" },
      h("p", { class: "crumbs" }, h("a", { href: "#/", text: "All flows" })),
      h("div", { class: "flow-head" },
        h("div", {}, h("h1", {}, h("span", { text: source }), h("span", { class: "arrow", "aria-label": "to", text: " → " }), h("span", { text: target })), this.word),
        this.change),
      this.tabs.list, this.problems.node, this.note, this.gone, this.tabs.node);
  }

  buildActions() {
    const { flow } = this;
    this.acts = {
      pause: act.button("Pause", "pause", () => act.pauseFlow(flow)),
      resume: act.button("Resume", "run", () => act.resumeFlow(flow), { mood: "primary" }),
      restart: act.button("Restart", "restart", () => act.restartConnector(flow, act.SOURCE)),
      limit: act.button("Rate limit", "limit", () => act.limitFlow(flow, store.flow?.overrides?.limit)),
      stop: act.button("Stop", "stop", () => act.stopFlow(flow), { mood: "danger" }),
    };
    this.readers = h("p", { class: "faint readers" });
    return h("div", { class: "acts", role: "group", "aria-label": "Change this flow" }, ...Object.values(this.acts), this.readers);
  }

  /** What the browser's tab says. */
  get title() {
    const line = find(this.flow);
    return { word: line ? fare(line).word : "", mood: line ? fare(line).mood : "still", text: this.flow };
  }

  choose({ parts, query }) {
    this.tabs.choose(parts[2] || "plots", query);
    this.update();
  }

  begin() {}

  end() {
    this.tabs.end();
    forgetFlow();
  }

  repaint() {
    this.tabs.repaint();
  }

  update() {
    const line = find(this.flow);
    const flow = store.flow?.flow === this.flow ? store.flow : null;
    const isGone = store.isGone || (store.overview && !line);
    const isShown = !isGone && flow && line;
    this.gone.hidden = isShown;
    for (const node of [this.word, this.change, this.tabs.list, this.problems.node, this.note, this.tabs.node]) node.hidden = !isShown;
    setText(this.gone, isGone ? `This node does not run ${this.flow}.` : "Loading this flow…");
    if (!isShown) return;
    setPill(this.word.firstChild, fare(line));
    this.showProblems(line, flow);
    this.showActions(line, flow);
    this.tabs.update(line, flow);
  }

  showProblems(line, flow) {
    const found = problems([line]);
    const paused = found.find((one) => one.code === "paused");
    const text = overrideText(flow.overrides);
    setText(this.noteText, `Overrides by operators, until reverted: ${[text, paused?.items[0].text].filter(Boolean).join("; ")}.`);
    this.note.hidden = text === "";
    // What is paused has that line; what failed is named by what it failed of.
    const shown = found.filter((one) => one !== paused || one.mood !== "note" || !text);
    this.problems.update(shown.map((one) => (one.code === "partitions_stopped" ? { ...one, items: failures(flow, one.items) } : one)));
  }

  showActions(line, flow) {
    const copying = line.connectors.find((one) => one.connector === act.SOURCE);
    const wanted = line.connectors.map((one) => flow.overrides?.connectors?.[one.connector] ?? "running");
    act.show(this.acts.pause, wanted.includes("running"));
    act.show(this.acts.resume, wanted.some((one) => one !== "running"));
    act.show(this.acts.restart, Boolean(copying));
    act.show(this.acts.stop, wanted.some((one) => one !== "stopped"));
    act.show(this.acts.limit, Boolean(copying));
    setText(this.readers, store.who && !store.who.mayWrite ? act.whyNot() : "");
    this.readers.hidden = this.readers.textContent === "";
  }
}

/** The partitions that failed here by why they did; as the daemon says it where other nodes copy them. */
function failures(flow, said) {
  const whys = new Map();
  for (const one of flow.partitions.values()) {
    if (one.stage !== "stopped") continue;
    const key = `${one.message}\n${one.hint}`;
    if (!whys.has(key)) whys.set(key, []);
    whys.get(key).push(one);
  }
  if (whys.size < 2) return said;
  return [...whys.values()].map((failed) => {
    const names = failed.slice(0, MOST_NAMES).map((one) => `${one.topic}-${one.partition}`).join(", ");
    const more = failed.length > MOST_NAMES ? ` and ${failed.length - MOST_NAMES} more` : "";
    return { ...said[0], title: `${names}${more}`, text: failed[0].message, hint: failed[0].hint, about: failed[0].message };
  });
}

/** What operators asked for and still holds, in words. */
function overrideText(overrides) {
  if (!overrides) return "";
  const parts = [];
  for (const [name, wanted] of Object.entries(overrides.connectors)) parts.push(`${called(name).toLowerCase()} ${wanted}`);
  if (overrides.topics.length) parts.push(`${plural(overrides.topics.length, "topic")} paused (${overrides.topics.slice(0, 3).join(", ")}${overrides.topics.length > 3 ? ", …" : ""})`);
  if (overrides.partitions.length) parts.push(`${plural(overrides.partitions.length, "partition")} paused`);
  const limit = act.limitText(overrides.limit);
  if (limit) parts.push(`copying is limited to ${limit}`);
  const topics = Object.keys(overrides.topic_limits);
  if (topics.length) parts.push(`${plural(topics.length, "topic")} limited`);
  const settings = Object.values(overrides.settings).flat();
  if (settings.length) parts.push(`${plural(settings.length, "setting")} overridden (${settings.slice(0, 3).join(", ")}${settings.length > 3 ? ", …" : ""})`);
  return parts.join("; ");
}
