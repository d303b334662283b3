// One flow: its state, plots, and parts.

import * as act from "./actions.js";
import { offsets, settings } from "./asked.js";
import { h, setAttribute, setText } from "./dom.js";
import { Events } from "./events.js";
import { ago, bytes, bytesPerS, clock, connector as called, count, duration, ms, plural, recordsPerS, short, state, taskState } from "./format.js";
import { fare } from "./diagram.js";
import { nodeTable, part } from "./nodes.js";
import { Past } from "./past.js";
import { Plot } from "./plots.js";
import { Problems, problems, sparkText } from "./overview.js";
import { forgetFlow, find, now, store } from "./store.js";
import { pill, setPill, Table } from "./table.js";
import { topicTable, topicsOf } from "./topics.js";

/** What this node has written; of a flow that nodes share, only the owner writes heartbeats. */
function heartbeatsText({ heartbeats, nodes }) {
  if (!heartbeats) return "This flow emits no heartbeats.";
  const written = `${plural(heartbeats.sent, "heartbeat")} written by this node since it was started`;
  if (heartbeats.last_ms !== null) return `${written}, the last one ${ago(heartbeats.last_ms, now())}.`;
  return nodes.length > 1 ? `${written}; the flow's owner writes them now.` : `${written}.`;
}

const TABS = [["topics", "Topics"], ["tasks", "Copy tasks"], ["groups", "Consumer groups"], ["connectors", "Task groups"], ["nodes", "Nodes"], ["settings", "Settings"], ["offsets", "Offsets"], ["events", "Events"]];

const MOST_FAILURES = 3;

const tile = (label, title = null) => {
  const value = h("span", { class: "tile-value" });
  return { value, node: h("div", { class: "tile", title }, h("span", { class: "tile-label", text: label }), value) };
};

export class FlowPage {
  constructor(flow, tab) {
    this.flow = flow;
    forgetFlow();
    this.problems = new Problems();
    this.word = h("span", {}, pill(state("starting")));
    this.noteText = h("span");
    this.note = h("div", { class: "override-note" }, this.noteText, act.button("Revert all", "restart", () => act.revertAll(flow, overrideText(store.flow?.overrides)), { small: true }));
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
    this.past = new Past(flow);
    this.buildTabs();
    const [source, target] = [flow.slice(0, flow.indexOf("->")), flow.slice(flow.indexOf("->") + 2)];
    this.body = h("div", {}, h("section", { class: "tiles", "aria-label": "Now" }, ...Object.values(this.tiles).map((one) => one.node)),
      h("section", { "aria-label": "Plots" }, this.past.node, h("div", { class: "plots" }, ...this.plots.map((plot) => plot.node))),
      h("section", { class: "card tabs-card" }, this.tablist, ...Object.values(this.panels)));
    this.gone = h("p", { class: "empty", text: "Loading this flow…" });
    this.change = this.buildActions();
    this.node = h("div", { class: "page" },
      h("p", { class: "crumbs" }, h("a", { href: "#/", text: "All flows" })),
      h("div", { class: "flow-head" },
        h("div", {}, h("h1", {}, h("span", { text: source }), h("span", { class: "arrow", "aria-label": "to", text: " → " }), h("span", { text: target })), this.word),
        this.change),
      this.problems.node, this.note, this.gone, this.body);
    this.choose(tab);
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

  buildTabs() {
    this.topics = topicTable(this.flow);
    this.tasks = taskTable(this.flow);
    this.groups = groupTable();
    this.connectors = connectorTable(this.flow);
    this.nodes = nodeTable();
    this.part = h("p", { class: "faint" });
    this.heartbeats = h("p", { class: "faint" });
    this.steps = stepTable();
    this.spark = h("p", { class: "faint spark-line" });
    this.sparkShown = "";
    this.events = new Events(this.flow);
    this.settings = settings(this.flow);
    this.offsets = offsets(this.flow);
    const content = {
      topics: [this.part, this.topics.node], nodes: [this.nodes.node], tasks: [this.spark, this.tasks.node], groups: [this.groups.node],
      connectors: [this.connectors.node, this.heartbeats, h("h3", { text: "Other steps" }), this.steps.node], events: [this.events.node],
      settings: [this.settings.node], offsets: [this.offsets.node],
    };
    this.tabs = {};
    this.panels = {};
    for (const [name, label] of TABS) {
      this.tabs[name] = h("a", { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, href: `#/flow/${encodeURIComponent(this.flow)}/${name}`, text: label });
      this.panels[name] = h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, ...content[name]);
    }
    this.tablist = h("div", { role: "tablist", class: "tabs", "aria-label": "Parts of the flow" }, ...Object.values(this.tabs));
    this.tablist.addEventListener("keydown", (event) => this.move(event));
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = TABS.map(([name]) => name).filter((name) => !this.tabs[name].hidden);
    const next = names[(names.indexOf(this.tab) + step + names.length) % names.length];
    location.hash = this.tabs[next].getAttribute("href");
    this.tabs[next].focus();
    event.preventDefault();
  }

  choose(tab) {
    this.tab = this.panels[tab] ? tab : "topics";
    for (const [name, panel] of Object.entries(this.panels)) {
      const isChosen = name === this.tab;
      panel.hidden = !isChosen;
      setAttribute(this.tabs[name], "aria-selected", String(isChosen));
      setAttribute(this.tabs[name], "tabindex", isChosen ? "0" : "-1");
    }
    this.update();
  }

  begin() {}

  end() {
    for (const plot of this.plots) plot.end();
    forgetFlow();
  }

  repaint() {
    for (const plot of this.plots) plot.repaint();
  }

  update() {
    const line = find(this.flow);
    const flow = store.flow?.flow === this.flow ? store.flow : null;
    const isGone = store.isGone || (store.overview && !line);
    this.body.hidden = isGone || !flow || !line;
    this.gone.hidden = !this.body.hidden;
    for (const node of [this.word, this.change, this.problems.node, this.note]) node.hidden = this.body.hidden;
    setText(this.gone, isGone ? `This node does not run ${this.flow}.` : "Loading this flow…");
    if (!line || !flow) return;
    setPill(this.word.firstChild, fare(line));
    // The partitions that failed are named one by one; what is paused has a line of its own.
    const elsewhere = ["partitions_stopped", "paused"];
    const ofFlow = problems([line]).filter((one) => !elsewhere.includes(one.code));
    this.problems.update([...ofFlow.map((one) => ({ ...one, flow: null, flows: [] })), ...failures(flow)]);
    this.showActions(line, flow);
    this.showNumbers(line, flow);
    const [history, marks] = [this.past.history(), this.past.marks()];
    for (const plot of this.plots) plot.update(history, this.past.range, marks);
    this.showTab(line, flow);
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
    const text = overrideText(flow.overrides);
    setText(this.noteText, `Overrides by operators, until reverted: ${text}.`);
    this.note.hidden = text === "";
  }

  showNumbers(line, flow) {
    setText(this.tiles.records.value, recordsPerS(line.records_per_s));
    setText(this.tiles.bytes.value, bytesPerS(line.bytes_per_s));
    // A tile has room for nine digits: a longer number would be broken, and read as one of fewer digits.
    setText(this.tiles.lag.value, line.lag < 1e9 ? count(line.lag) : short(line.lag));
    setText(this.tiles.behind.value, duration(flow.lag_s));
    setText(this.tiles.level.value, flow.seconds_until_level === 0 ? "now" : duration(flow.seconds_until_level));
    setText(this.tiles.latency.value, line.latency_p50_ms === null ? "–" : `${ms(line.latency_p50_ms)} / ${ms(line.latency_p99_ms)}`);
    setText(this.tiles.copied.value, `${short(line.records)} / ${bytes(line.bytes)}`);
    const failed = line.stages.stopped ?? 0;
    setText(this.tabs.topics, `Topics ${line.topics}${failed ? ` (${failed} failed)` : ""}`);
    setText(this.tabs.tasks, `Copy tasks ${flow.tasks.length}`);
    setText(this.tabs.nodes, `Nodes ${flow.nodes.length}`);
    this.tabs.nodes.hidden = flow.nodes.length < 2 && this.tab !== "nodes";
    setText(this.part, part(flow.nodes, line.partitions));
    this.part.hidden = this.part.textContent === "";
    setText(this.tabs.groups, `Consumer groups ${flow.groups.size}`);
  }

  showTab(line, flow) {
    if (this.tab === "topics") this.topics.update(topicsOf(flow));
    else if (this.tab === "tasks") {
      this.showSpark();
      this.tasks.update(flow.tasks);
    } else if (this.tab === "groups") this.groups.update([...flow.groups.values()]);
    else if (this.tab === "events") this.events.update();
    else if (this.tab === "nodes") this.nodes.update(flow.nodes);
    else if (this.tab === "settings") this.settings.update();
    else if (this.tab === "offsets") this.offsets.update(line);
    else {
      const wanted = flow.overrides?.connectors ?? {};
      this.connectors.update(line.connectors.map((one) => ({ ...one, wanted: wanted[one.connector] ?? "running" })));
      setText(this.heartbeats, heartbeatsText(flow));
      this.steps.update(flow.steps);
    }
  }

  showSpark() {
    const { spark } = store.overview;
    const text = JSON.stringify(spark);
    if (text === this.sparkShown) return;
    this.sparkShown = text;
    if (!spark) {
      this.spark.replaceChildren("Nothing here needs Spark.");
      return;
    }
    const link = /^https?:\/\//.test(spark.ui) ? h("a", { href: spark.ui, target: "_blank", rel: "noopener noreferrer", text: "Spark's own UI" }) : null;
    this.spark.replaceChildren(
      h("strong", { text: spark.is_up ? `Spark runs${spark.master ? ` at ${spark.master}` : ""}` : spark.reason ? `Spark is down: ${spark.reason}` : "Spark is starting" }),
      spark.is_up ? `, ${sparkText(spark)}. ` : ". ", link ?? "");
  }
}

/** What is wrong with the first failed partitions, each in its own words. */
function failures(flow) {
  const failed = [...flow.partitions.values()].filter((one) => one.stage === "stopped");
  const found = failed.slice(0, MOST_FAILURES).map((one) => ({
    mood: "bad", title: `Partition ${one.topic}-${one.partition} has failed; the others continue`, text: one.message, hint: one.hint,
  }));
  if (failed.length > MOST_FAILURES) found.push({ mood: "bad", title: `${plural(failed.length - MOST_FAILURES, "further partition")} failed`, text: "See the table of topics, sorted by state.", hint: "" });
  return found;
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

function taskTable(flow) {
  return new Table({
    name: "tasks",
    caption: "Copy tasks",
    key: (task) => String(task.task),
    sort: ["task", "up"],
    empty: "No copy task has partitions yet.",
    opens: (task) => task.epochs.length > 0 || Boolean(task.last_error),
    detail: epochDetail,
    columns: [
      { key: "task", label: "Task", sort: (task) => task.task, text: (task) => String(task.task) },
      { key: "state", label: "State", sort: (task) => task.state, make: (task) => h("span", {}, pill(taskState(task.state))), update: (node, task) => setPill(node.firstChild, taskState(task.state)) },
      { key: "epoch", label: "Epoch", numeric: true, sort: (task) => task.epoch, text: (task) => count(task.epoch) },
      { key: "partitions", label: "Partitions", numeric: true, sort: (task) => task.partitions, text: (task) => count(task.partitions) },
      { key: "records", label: "Records", numeric: true, sort: (task) => task.records_per_s, text: (task) => recordsPerS(task.records_per_s) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (task) => task.bytes_per_s, text: (task) => bytesPerS(task.bytes_per_s) },
      { key: "boundary", label: "Between epochs", numeric: true, sort: (task) => task.boundary_ms, text: (task) => ms(task.boundary_ms), title: () => "How long nothing was copied between the last two epochs" },
      { key: "lost", label: "Lost epochs", numeric: true, sort: (task) => task.lost_epochs, text: (task) => count(task.lost_epochs), mood: (task) => (task.lost_epochs ? "warn" : null) },
      { key: "memory", label: "Memory", numeric: true, sort: (task) => task.rss_bytes, text: (task) => (task.rss_bytes ? bytes(task.rss_bytes) : "–") },
      { key: "worker", label: "Worker", sort: (task) => task.node || task.worker, text: (task) => (task.node ? `on ${task.node}` : task.worker || "–") },
      { key: "acts", label: "", make: (task) => act.button("Restart", "restart", () => act.restartTask(flow, task.task), { small: true }), update: (node, task) => act.show(node, !task.node) },
    ],
  });
}

function epochDetail() {
  const error = h("p", { class: "bad-text" });
  const body = h("tbody");
  const head = ["Epoch", "Ended", "Records", "Bytes", "Took", "Before it", "Outcome"];
  const table = h("table", { class: "inner" }, h("thead", {}, h("tr", {}, ...head.map((text, at) => h("th", { scope: "col", class: at > 1 && at < 6 ? "number" : null, text })))), body);
  let shown = "";
  return {
    node: h("div", { class: "under-box" }, error, table),
    update: (task) => {
      setText(error, task.last_error);
      error.hidden = !task.last_error;
      const now_shown = JSON.stringify(task.epochs);
      if (now_shown === shown) return;
      shown = now_shown;
      table.hidden = task.epochs.length === 0;
      body.replaceChildren(...[...task.epochs].reverse().map(([epoch, ended_ms, records, size, elapsed_s, boundary_ms, outcome]) => h("tr", { "data-mood": outcome === "ok" ? null : "warn" },
        ...[count(epoch), clock(ended_ms), count(records), bytes(size), duration(elapsed_s), ms(boundary_ms), outcome].map((text, at) => h("td", { class: at > 1 && at < 6 ? "number" : null, text })))));
    },
  };
}

function groupTable() {
  return new Table({
    name: "groups",
    caption: "Consumer groups",
    key: (group) => group.group,
    sort: ["group", "up"],
    search: { label: "Search groups", text: (group) => group.group },
    empty: "No consumer group's offsets are translated yet: none has committed offsets of a mirrored topic, or the filter excludes all of them.",
    opens: (group) => group.offsets.length > 0,
    detail: offsetDetail,
    columns: [
      { key: "group", label: "Group", sort: (group) => group.group, text: (group) => group.group },
      { key: "partitions", label: "Partitions", numeric: true, sort: (group) => group.offsets.length, text: (group) => count(group.offsets.length) },
      { key: "distance", label: "Distance", numeric: true, sort: (group) => group.distance, text: (group) => count(group.distance), title: () => "Records left to read at the target from the translated offsets" },
      { key: "exact", label: "Translated", sort: (group) => exactness(group), text: (group) => exactness(group), mood: (group) => (group.why ? "warn" : null) },
      { key: "move", label: "If moved now", sort: (group) => group.move, text: (group) => group.move || "–", mood: (group) => (group.move && group.move !== "ready" ? "warn" : null), title: () => "What its readers would see if they continued at the target now" },
      { key: "target", label: "At the target", sort: (group) => group.at_target, text: (group) => [group.at_target, group.at_target_why].filter(Boolean).join(": ") || "offsets are not written there" },
      { key: "synced", label: "Written", numeric: true, sort: (group) => group.synced_ms, text: (group) => ago(group.synced_ms, now()) },
    ],
  });
}

function exactness(group) {
  if (group.why) return group.why;
  const known = group.offsets.filter((offset) => offset[4] !== null);
  const exact = known.filter((offset) => offset[6]).length;
  if (known.length === group.offsets.length && exact === known.length) return "exactly";
  return `${exact} of ${group.offsets.length} exactly${known.length < group.offsets.length ? `, ${group.offsets.length - known.length} not yet` : ""}`;
}

function offsetDetail() {
  const body = h("tbody");
  const head = ["Topic", "Partition", "Offset at the source", "At the target", "Distance", "How"];
  let shown = "";
  return {
    node: h("div", { class: "under-box" }, h("table", { class: "inner" }, h("thead", {}, h("tr", {}, ...head.map((text, at) => h("th", { scope: "col", class: at > 0 && at < 5 ? "number" : null, text })))), body)),
    update: (group) => {
      const now_shown = JSON.stringify(group.offsets);
      if (now_shown === shown) return;
      shown = now_shown;
      body.replaceChildren(...group.offsets.slice(0, 500).map(([topic, partition, remote, upstream, downstream, distance, isExact, why]) => h("tr", {},
        ...[topic, String(partition), count(upstream), count(downstream), count(distance), why || (isExact ? "exactly" : "at or before")].map((text, at) => h("td", { class: at > 0 && at < 5 ? "number" : null, text, title: at === 0 ? `${remote} at the target` : null })))));
    },
  };
}

function connectorTable(flow) {
  const acts = (one) => {
    const pause = act.button("Pause", "pause", () => act.pauseConnector(flow, one.connector), { small: true });
    const resume = act.button("Resume", "run", () => act.resumeConnector(flow, one.connector), { small: true });
    const restart = act.button("Restart", "restart", () => act.restartConnector(flow, one.connector), { small: true });
    const stop = act.button("Stop", "stop", () => act.stopConnector(flow, one.connector), { small: true, mood: "danger" });
    const node = h("span", { class: "acts" }, pause, resume, restart, stop);
    node.buttons = { pause, resume, restart, stop };
    return node;
  };
  return new Table({
    name: "connectors",
    caption: "Task groups",
    key: (one) => one.connector,
    sort: ["connector", "up"],
    empty: "This flow has no task groups.",
    columns: [
      { key: "connector", label: "Task group", sort: (one) => one.connector, text: (one) => called(one.connector), title: (one) => one.connector },
      { key: "state", label: "State", sort: (one) => one.state, make: (one) => h("span", {}, pill(state(one.state))), update: (node, one) => setPill(node.firstChild, state(one.state)) },
      { key: "restarts", label: "Restarts", numeric: true, sort: (one) => one.restarts, text: (one) => count(one.restarts), mood: (one) => (one.restarts ? "warn" : null) },
      { key: "error", label: "Last error", sort: (one) => one.last_error, text: (one) => [one.last_error, one.hint && one.last_error ? `What to try: ${one.hint}` : ""].filter(Boolean).join(". ") || "none" },
      { key: "acts", label: "", make: acts, update: (node, one) => {
        const isHeld = one.wanted !== "running" || ["paused", "stopped"].includes(one.state);
        act.show(node.buttons.pause, !isHeld);
        act.show(node.buttons.resume, isHeld);
        act.show(node.buttons.restart, one.wanted !== "stopped");
        act.show(node.buttons.stop, one.wanted !== "stopped");
      } },
    ],
  });
}

function stepTable() {
  return new Table({
    name: "steps",
    caption: "Other steps",
    key: (step) => step.step,
    sort: ["step", "up"],
    empty: "Nothing yet.",
    columns: [
      { key: "step", label: "What", sort: (step) => step.step, text: (step) => step.step },
      { key: "succeeded", label: "Last done", numeric: true, sort: (step) => step.succeeded_ms, text: (step) => ago(step.succeeded_ms, now()) },
      { key: "failures", label: "Failures", numeric: true, sort: (step) => step.failures, text: (step) => count(step.failures), mood: (step) => (step.failures ? "warn" : null) },
    ],
  });
}
