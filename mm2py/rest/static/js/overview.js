// All flows: problems, the diagram, the figures, and the latest events.

import { eventList, folded } from "./events.js";
import { h, setText } from "./dom.js";
import { atLeast, bytesPerS, flowEnds, ms, NOTHING, plural, recordsPerS, short } from "./format.js";
import { fare, isHeartbeatsAlone, Diagram } from "./diagram.js";
import { tile } from "./past.js";
import { address, flowAddress, put } from "./place.js";
import { setSparkline, sparkline } from "./plots.js";
import { Problems, problems, verdict } from "./problems.js";
import { store } from "./store.js";
import { pill, setPill, Table } from "./table.js";

const LAST_EVENTS = 8;

function flowTable() {
  return new Table({
    name: "flows",
    caption: "Flows",
    key: (flow) => flow.flow,
    sort: ["flow", "up"],
    search: { label: "Search flows", text: (flow) => `${flow.flow}\n${flow.source} ${flow.target}` },
    empty: "This node runs no flow. Flows are enabled in the properties file, with lines such as A->B.enabled = true, or created as connectors of a worker.",
    columns: [
      { key: "flow", label: "Flow", sort: (flow) => flow.flow,
        make: (flow) => {
          const [source, target] = flowEnds(flow.flow);
          return h("a", { href: flowAddress(flow.flow), class: "flow-link" }, h("span", { text: source }), h("span", { class: "arrow", "aria-label": "to", text: " → " }), h("span", { text: target }));
        }, update: () => {} },
      { key: "state", label: "State", sort: (flow) => fare(flow).word, make: (flow) => h("span", {}, pill(fare(flow))), update: (node, flow) => setPill(node.firstChild, fare(flow)) },
      { key: "records", label: "Records", numeric: true, sort: (flow) => flow.records_per_s, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : recordsPerS(flow.records_per_s)) },
      { key: "recent", label: "Last 3 min", make: sparkline, update: (node, flow) => setSparkline(node, flow.recent) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (flow) => flow.bytes_per_s, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : bytesPerS(flow.bytes_per_s)) },
      { key: "lag", label: "Lag", numeric: true, sort: (flow) => flow.lag, text: (flow) => atLeast(short(flow.lag), flow.lag_is_least), title: (flow) => (flow.lag === null ? "" : `${atLeast(flow.lag, flow.lag_is_least)} records`) },
      { key: "latency", label: "Latency p50 / p99", numeric: true, sort: (flow) => flow.latency_p99_ms, text: (flow) => (flow.latency_p50_ms === null ? "–" : `${ms(flow.latency_p50_ms)} / ${ms(flow.latency_p99_ms)}`) },
      { key: "topics", label: "Topics", numeric: true, sort: (flow) => flow.topics, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : String(flow.topics)) },
      { key: "partitions", label: "Partitions", numeric: true, sort: (flow) => flow.partitions, text: (flow) => (isHeartbeatsAlone(flow) ? "–" : String(flow.partitions)) },
    ],
  });
}

export class Overview {
  constructor() {
    this.problems = new Problems();
    this.diagram = new Diagram();
    this.tiles = { state: tile("Flows"), alone: tile("Heartbeats only"), records: tile("Records"), bytes: tile("Bytes"), lag: tile("Lag"), spark: tile("Spark") };
    this.table = flowTable();
    this.table.onView = (isStep) => put(address([""], this.table.view), isStep);
    this.events = eventList();
    this.legend = h("p", { class: "legend", text: "heartbeats only: nothing is copied in this direction" });
    this.drawing = h("section", { class: "card diagram-card" }, h("h2", { text: "Clusters and flows" }), h("div", { class: "diagram-box" }, this.diagram.node), this.legend);
    this.node = h("div", { class: "page" },
      h("h1", { class: "unseen", text: "All flows" }),
      this.problems.node,
      h("section", { class: "tiles", "aria-label": "Totals" }, ...Object.values(this.tiles).map((one) => one.node)),
      this.drawing,
      h("section", { class: "card" }, h("h2", { text: "Flows" }), this.table.node),
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", { text: "Latest events" }), h("a", { href: "#/events", text: "All events" })), this.events.node));
  }

  get title() {
    return store.overview ? { ...verdict(store.overview), text: "" } : { word: "", mood: "still", text: "" };
  }

  choose({ query }) {
    this.table.restore(query);
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
    this.problems.update(problems(flows, overview.issues));
    const alone = flows.filter(isHeartbeatsAlone);
    setText(this.tiles.state.value, census(flows.filter((flow) => !isHeartbeatsAlone(flow))));
    // Directions that copy nothing are counted apart.
    setText(this.tiles.alone.value, `${plural(alone.length, "direction")}${alone.every((flow) => fare(flow).mood === "still") ? "" : `: ${census(alone)}`}`);
    this.tiles.alone.node.hidden = this.legend.hidden = alone.length === 0;
    setText(this.tiles.records.value, recordsPerS(total(flows, "records_per_s")));
    setText(this.tiles.bytes.value, bytesPerS(total(flows, "bytes_per_s")));
    // Unknown is not none: the source may be away.
    const copying = flows.filter((flow) => flow.partitions > 0 || flow.lag !== null);
    const isLeast = copying.some((flow) => flow.lag === null || flow.lag_is_least);
    const lag = total(copying, "lag");
    setText(this.tiles.lag.value, copying.length && (lag || !isLeast) ? `${atLeast(short(lag), isLeast)} records` : NOTHING);
    this.tiles.spark.node.hidden = spark === null;
    if (spark) setText(this.tiles.spark.value, sparkText(spark));
    this.drawing.hidden = flows.length === 0;
    this.diagram.update(flows);
    this.table.update(flows);
    this.events.update(folded(store.events).slice(0, LAST_EVENTS));
  }

  repaint() {}
}

/** How many flows are in which state: "3 running, 1 unreachable". */
function census(flows) {
  const fares = new Map([["running", 0]]);
  for (const flow of flows) fares.set(fare(flow).word, (fares.get(fare(flow).word) ?? 0) + 1);
  return [...fares].filter(([, many]) => many).map(([word, many]) => `${many} ${word}`).join(", ") || "none";
}

const total = (flows, name) => flows.reduce((sum, flow) => sum + (flow[name] ?? 0), 0);

export function sparkText(spark) {
  if (!spark.is_up) return spark.reason ? "down" : "starting";
  const slots = spark.slots === null ? `${spark.used} slots in use` : `${spark.used} of ${spark.slots} slots in use`;
  return spark.waiting ? `${slots}, ${spark.waiting} waiting` : slots;
}
