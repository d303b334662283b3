// All flows: problems, the diagram, the figures, and the latest events.

import { eventList } from "./events.js";
import { h, s, setAttribute, setText } from "./dom.js";
import { bytesPerS, ms, plural, recordsPerS, short } from "./format.js";
import { fare, isHeartbeatsAlone, Diagram } from "./diagram.js";
import { store } from "./store.js";
import { pill, setPill, Table } from "./table.js";

const LAST_EVENTS = 8;

/** What an operator should know first, worst first: {mood, title, text, hint, flow}. */
export function problems(flows) {
  const found = [];
  const away = new Map();
  for (const flow of flows) {
    for (const cluster of flow.clusters) {
      if (cluster.is_reachable) continue;
      const known = away.get(cluster.alias) ?? { ...cluster, flows: [] };
      known.flows.push(flow.flow);
      away.set(cluster.alias, known);
    }
  }
  for (const cluster of away.values()) {
    found.push({ mood: "bad", title: `Cluster ${cluster.alias} is unreachable`, text: cluster.error, hint: cluster.hint, flow: cluster.flows[0], about: cluster.flows.join(", ") });
  }
  for (const flow of flows) {
    if (flow.state === "failed" || flow.state === "restarting") {
      found.push({ mood: flow.state === "failed" ? "bad" : "warn", title: `Flow ${flow.flow} ${flow.state === "failed" ? "has failed" : "is restarting"}`, text: flow.last_error, hint: flow.hint, flow: flow.flow });
    }
    if (flow.state === "standby") found.push({ mood: "warn", title: `Flow ${flow.flow} is standing by`, text: flow.last_error, hint: flow.hint, flow: flow.flow });
    for (const one of flow.connectors.slice(1)) {
      if (one.state === "failed") found.push({ mood: "bad", title: `${one.connector} of ${flow.flow} has failed`, text: one.last_error, hint: one.hint, flow: flow.flow });
    }
    const stopped = flow.stages.stopped ?? 0;
    if (stopped) found.push({ mood: "bad", title: `${plural(stopped, "partition")} of ${flow.flow} ${stopped === 1 ? "needs" : "need"} attention`, text: "Retried at long intervals, while the others continue.", hint: "Open the flow to see what is wrong with each failed partition.", flow: flow.flow });
    if (flow.late_tasks) found.push({ mood: "bad", title: `${plural(flow.late_tasks, "copy task")} of ${flow.flow} ${flow.late_tasks === 1 ? "hangs" : "hang"}`, text: "Their epochs did not return in time and are killed; copying continues by itself.", hint: "Find out what blocked them: memory, a stopped process.", flow: flow.flow });
    if (flow.waiting_for_slot) found.push({ mood: "warn", title: `${plural(flow.waiting_for_slot, "copy task")} of ${flow.flow} ${flow.waiting_for_slot === 1 ? "waits" : "wait"} for a Spark slot`, text: "Spark has fewer slots than there are copy tasks; they take turns.", hint: "", flow: flow.flow });
  }
  return found;
}

export function problemCard(problem) {
  return h("div", { class: "problem", "data-mood": problem.mood },
    pill({ word: problem.mood === "bad" ? "action needed" : "watch", sign: "bad", mood: problem.mood }),
    h("div", {},
      h("strong", {}, problem.flow ? h("a", { href: `#/flow/${encodeURIComponent(problem.flow)}`, text: problem.title }) : problem.title),
      problem.text ? h("p", { text: problem.text }) : null,
      problem.hint ? h("p", { class: "hint", text: `What to try: ${problem.hint}` }) : null,
      problem.about ? h("p", { class: "faint", text: `Flows: ${problem.about}` }) : null));
}

/** Cards of problems, created again only when they change. */
export class Problems {
  constructor() {
    this.node = h("div", { class: "problems" });
    this.shown = "";
  }

  update(found) {
    const now = JSON.stringify(found);
    if (now === this.shown) return;
    this.shown = now;
    this.node.replaceChildren(...found.map(problemCard));
  }
}

const WIDTH = 96;
const HEIGHT = 24;

function sparkline() {
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" }, s("polyline"));
}

function setSparkline(node, values) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - ((value ?? 0) / most) * (HEIGHT - 4)).toFixed(1)}`).join(" ");
  setAttribute(node.firstChild, "points", points);
}

function flowTable() {
  return new Table({
    name: "flows",
    caption: "Flows",
    key: (flow) => flow.flow,
    sort: ["flow", "up"],
    empty: "This node runs no flow. Flows are enabled in the properties file, with lines such as A->B.enabled = true.",
    columns: [
      { key: "flow", label: "Flow", sort: (flow) => flow.flow,
        make: (flow) => h("a", { href: `#/flow/${encodeURIComponent(flow.flow)}`, class: "flow-link" }, h("span", { text: flow.source }), h("span", { class: "arrow", "aria-label": "to", text: " → " }), h("span", { text: flow.target })), update: () => {} },
      { key: "state", label: "State", sort: (flow) => fare(flow).word, make: (flow) => h("span", {}, pill(fare(flow))), update: (node, flow) => setPill(node.firstChild, fare(flow)) },
      { key: "records", label: "Records", numeric: true, sort: (flow) => flow.records_per_s, text: (flow) => (isHeartbeatsAlone(flow) ? "heartbeats only" : recordsPerS(flow.records_per_s)) },
      { key: "recent", label: "Last 3 min", make: sparkline, update: (node, flow) => setSparkline(node, flow.recent) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (flow) => flow.bytes_per_s, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : bytesPerS(flow.bytes_per_s)) },
      { key: "lag", label: "Lag", numeric: true, sort: (flow) => flow.lag, text: (flow) => short(flow.lag), title: (flow) => (flow.lag === null ? "" : `${flow.lag} records`) },
      { key: "latency", label: "Latency p50 / p99", numeric: true, sort: (flow) => flow.latency_p99_ms, text: (flow) => (flow.latency_p50_ms === null ? "–" : `${ms(flow.latency_p50_ms)} / ${ms(flow.latency_p99_ms)}`) },
      { key: "topics", label: "Topics", numeric: true, sort: (flow) => flow.topics, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : String(flow.topics)) },
      { key: "partitions", label: "Partitions", numeric: true, sort: (flow) => flow.partitions, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : String(flow.partitions)) },
    ],
  });
}

const tile = (label) => {
  const value = h("span", { class: "tile-value" });
  return { value, node: h("div", { class: "tile" }, h("span", { class: "tile-label", text: label }), value) };
};

export class Overview {
  constructor() {
    this.problems = new Problems();
    this.diagram = new Diagram();
    this.tiles = { state: tile("Flows"), records: tile("Records"), bytes: tile("Bytes"), lag: tile("Lag"), spark: tile("Spark") };
    this.table = flowTable();
    this.events = eventList();
    this.drawing = h("section", { class: "card diagram-card" }, h("h2", { text: "Clusters and flows" }), h("div", { class: "diagram-box" }, this.diagram.node));
    this.node = h("div", { class: "page" },
      h("h1", { class: "unseen", text: "All flows" }),
      this.problems.node,
      h("section", { class: "tiles", "aria-label": "Totals" }, ...Object.values(this.tiles).map((one) => one.node)),
      this.drawing,
      h("section", { class: "card" }, h("h2", { text: "Flows" }), this.table.node),
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", { text: "Latest events" }), h("a", { href: "#/events", text: "All events" })), this.events.node));
  }

  begin() {
    this.diagram.begin();
  }

  end() {
    this.diagram.end();
  }

  update() {
    const { overview } = store;
    if (!overview) return;
    const { flows, spark } = overview;
    this.problems.update(problems(flows));
    const fares = new Map([["running", 0]]);
    for (const flow of flows) fares.set(fare(flow).word, (fares.get(fare(flow).word) ?? 0) + 1);
    setText(this.tiles.state.value, [...fares].filter(([, many]) => many).map(([word, many]) => `${many} ${word}`).join(", ") || "none");
    setText(this.tiles.records.value, recordsPerS(total(flows, "records_per_s")));
    setText(this.tiles.bytes.value, bytesPerS(total(flows, "bytes_per_s")));
    setText(this.tiles.lag.value, `${short(total(flows, "lag"))} records`);
    this.tiles.spark.node.hidden = spark === null;
    if (spark) setText(this.tiles.spark.value, sparkText(spark));
    this.drawing.hidden = flows.length === 0;
    this.diagram.update(flows);
    this.table.update(flows);
    this.events.update(store.events.slice(0, LAST_EVENTS));
  }

  repaint() {}
}

const total = (flows, name) => flows.reduce((sum, flow) => sum + (flow[name] ?? 0), 0);

export function sparkText(spark) {
  if (!spark.is_up) return spark.reason ? "down" : "starting";
  const slots = spark.slots === null ? `${spark.used} slots in use` : `${spark.used} of ${spark.slots} slots in use`;
  return spark.waiting ? `${slots}, ${spark.waiting} waiting` : slots;
}
