// A flow's copy tasks, with their last epochs, and the Spark that runs them.

import * as act from "./actions.js";
import { h, setText } from "./dom.js";
import { bytes, bytesPerS, clock, count, duration, ms, recordsPerS, taskState } from "./format.js";
import { sparkText } from "./overview.js";
import { store } from "./store.js";
import { pill, setPill, Table } from "./table.js";

export function tasksPart(flow) {
  const table = taskTable(flow);
  const spark = h("p", { class: "faint spark-line" });
  let shown = "";
  return {
    nodes: [spark, table.node],
    shown: table,
    label: (_line, { tasks }) => `Copy tasks ${count(tasks.length)}`,
    update: (_line, { tasks }) => {
      table.update(tasks);
      const now = JSON.stringify(store.overview.spark);
      if (now === shown) return;
      shown = now;
      spark.replaceChildren(...sparkLine(store.overview.spark));
    },
  };
}

function sparkLine(spark) {
  if (!spark) return ["Nothing here needs Spark."];
  const link = /^https?:\/\//.test(spark.ui) ? h("a", { href: spark.ui, target: "_blank", rel: "noopener noreferrer", text: "Spark's own UI" }) : "";
  const word = spark.is_up ? `Spark runs${spark.master ? ` at ${spark.master}` : ""}` : spark.reason ? `Spark is down: ${spark.reason}` : "Spark is starting";
  return [h("strong", { text: word }), spark.is_up ? `, ${sparkText(spark)}. ` : ". ", link];
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
