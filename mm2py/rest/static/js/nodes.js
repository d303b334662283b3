// The nodes that run a flow together: a table, and what a node of several does not show.

import * as act from "./actions.js";
import { h } from "./dom.js";
import { atLeast, bytesPerS, count, duration, nodeState, plural, recordsPerS } from "./format.js";
import { pill, setPill, Table } from "./table.js";

/** What a node does for the flow, in a word. */
function role(node) {
  if (!node.answers) return node.is_member ? "silent" : "gone";
  if (node.is_drained) return node.assigned.length ? "draining" : "drained";
  if (["unreachable", "has_failures"].includes(node.state)) return node.state;
  if (node.is_owner) return "owner";
  return node.assigned.length ? "running" : "standby";
}

const remarks = (node) => [
  node.is_this ? "this node" : "",
  node.is_owner && role(node) !== "owner" ? "owner" : "",
  node.differs.length ? `other settings: ${node.differs.join(", ")}` : "",
  ...node.issues,
].filter(Boolean).join("; ");

/** Which part of the flow the tables of topics and partitions have; nothing where that is all of it. */
export function part(nodes, all) {
  const own = nodes.find((node) => node.is_this);
  if (nodes.length < 2 || !own) return "";
  const silent = nodes.filter((node) => node.is_member && !node.answers);
  const unknown = silent.length ? ` ${silent.map((node) => node.worker_id).join(", ")} ${silent.length === 1 ? "does" : "do"} not answer and ${silent.length === 1 ? "is" : "are"} in no figure.` : "";
  return `This node copies ${count(own.partitions)} of ${plural(all, "partition")}. Topics are listed with the figures of these; the plots have those of all nodes.${unknown}`;
}

/** The tab with all nodes, where there are several. */
export function nodesPart() {
  const table = nodeTable();
  return {
    nodes: [table.node],
    shown: table,
    label: (_line, { nodes }) => `Nodes ${count(nodes.length)}`,
    isHidden: ({ nodes }) => nodes.length < 2,
    update: (_line, { nodes }) => table.update(nodes),
  };
}

function nodeTable() {
  const acts = () => {
    const drain = act.button("Drain", "drain", act.drainNode, { small: true });
    const undrain = act.button("Undrain", "run", act.undrainNode, { small: true });
    const node = h("span", { class: "acts" }, drain, undrain);
    node.buttons = { drain, undrain };
    return node;
  };
  return new Table({
    name: "nodes",
    caption: "Nodes",
    key: (node) => node.id,
    sort: ["node", "up"],
    empty: "This node is the only one.",
    columns: [
      { key: "node", label: "Node", sort: (node) => node.worker_id, text: (node) => node.worker_id, title: (node) => `${node.host}, process ${node.pid}` },
      { key: "state", label: "State", sort: role, make: (node) => h("span", {}, pill(nodeState(role(node)))), update: (cell, node) => setPill(cell.firstChild, nodeState(role(node))) },
      { key: "tasks", label: "Copy tasks", sort: (node) => node.assigned.length, text: (node) => (node.assigned.length ? `${plural(node.assigned.length, "task")} (${node.assigned.join(", ")})` : "–") },
      { key: "partitions", label: "Partitions", numeric: true, sort: (node) => node.partitions, text: (node) => count(node.partitions) },
      { key: "records", label: "Records", numeric: true, sort: (node) => node.records_per_s, text: (node) => recordsPerS(node.records_per_s) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (node) => node.bytes_per_s, text: (node) => bytesPerS(node.bytes_per_s) },
      { key: "lag", label: "Lag", numeric: true, sort: (node) => node.lag, text: (node) => atLeast(count(node.lag), node.lag !== null && node.lag_is_least) },
      { key: "heard", label: "Last heard", numeric: true, sort: (node) => node.heard_s, text: (node) => (node.is_this || node.heard_s === null ? "–" : `${duration(node.heard_s)} ago`), mood: (node) => (node.answers ? null : "warn") },
      { key: "remarks", label: "Remarks", sort: remarks, text: (node) => remarks(node) || "–", mood: (node) => (node.differs.length || node.issues.length ? "warn" : null) },
      { key: "acts", label: "", make: acts, update: (cell, node) => {
        act.show(cell.buttons.drain, node.is_this && !node.is_drained);
        act.show(cell.buttons.undrain, node.is_this && node.is_drained);
      } },
    ],
  });
}
