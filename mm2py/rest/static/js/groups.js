// A flow's consumer groups; those of workers, such as Connect's and our own, are folded away.

import { h, setText } from "./dom.js";
import { looked } from "./connectors.js";
import { ago, count, plural } from "./format.js";
import { now } from "./store.js";
import { Table } from "./table.js";

export function groupsPart(flow) {
  const table = groupTable();
  const listed = looked(flow, "list consumer groups", "groups");
  const [names, summary] = [h("p"), h("summary")];
  const inner = h("details", { class: "inner-fold" }, summary, names);
  const split = (shown) => {
    const all = [...shown.groups.values()];
    return [all.filter((group) => !group.is_inner), all.filter((group) => group.is_inner)];
  };
  return {
    nodes: [listed.node, table.node, inner],
    shown: table,
    label: (_line, shown) => `Consumer groups ${count(split(shown)[0].length)}`,
    update: (_line, shown) => {
      const [consumers, others] = split(shown);
      listed.update(shown);
      table.update(consumers);
      inner.hidden = others.length === 0;
      setText(summary, others.length ? `${plural(others.length, "group")} of workers: ${others[0].why}` : "");
      setText(names, others.map((group) => group.group).sort().join(", "));
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
      { key: "move", label: "If moved now", sort: (group) => moved(group.move, group.due_ms), text: (group) => moved(group.move, group.due_ms), mood: (group) => (["", "ready"].includes(group.move) && group.due_ms === null ? null : "warn"), title: () => "What its readers would see if they continued at the target now" },
      { key: "target", label: "At the target", sort: (group) => group.at_target, text: (group) => [group.at_target, group.at_target_why].filter(Boolean).join(": ") || "offsets are not written there" },
      { key: "synced", label: "Written", numeric: true, sort: (group) => group.synced_ms, text: (group) => ago(group.synced_ms, now()) },
    ],
  });
}

function moved(words, due_ms) {
  const due = due_ms === null ? "" : `committed in at most ${Math.max(1, Math.ceil((due_ms - now()) / 1000))} s`;
  return [words, due].filter(Boolean).join(", ") || "–";
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
  const head = ["Topic", "Partition", "Offset at the source", "At the target", "Committed there", "Distance", "How", "If moved now"];
  let shown = "";
  return {
    node: h("div", { class: "under-box" }, h("table", { class: "inner" }, h("thead", {}, h("tr", {}, ...head.map((text, at) => h("th", { scope: "col", class: at > 0 && at < 6 ? "number" : null, text })))), body)),
    update: (group) => {
      const rows = group.offsets.slice(0, 500).map((offset) => [...offset.slice(0, 9), moved(offset[9], offset[10] ? group.due_ms : null)]);
      const now_shown = JSON.stringify(rows);
      if (now_shown === shown) return;
      shown = now_shown;
      body.replaceChildren(...rows.map(([topic, partition, remote, upstream, downstream, distance, isExact, why, committed, move]) => h("tr", {},
        ...[topic, String(partition), count(upstream), count(downstream), count(committed), count(distance), why || (isExact ? "exactly" : "at or before"), move].map((text, at) => h("td", { class: at > 0 && at < 6 ? "number" : null, text, title: at === 0 ? `${remote} at the target` : null })))));
    },
  };
}
