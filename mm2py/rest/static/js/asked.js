// Settings and offsets of a flow: what the daemon answers when asked, while their tab is shown.

import * as act from "./actions.js";
import { ask, flowPath } from "./api.js";
import { h, setText } from "./dom.js";
import { connector as called, count } from "./format.js";
import { pill, setPill, Table } from "./table.js";

/** A table of rows that are asked for when it is shown, again after a change, and every *every_ms*. */
class Asked {
  constructor(title, table, load, every_ms, ...before) {
    Object.assign(this, { table, load, every_ms });
    this.shown = table;
    this.label = () => title;
    this.rows = null;
    this.askedAt = -Infinity;
    this.said = h("p", { class: "loading", role: "status", text: "Loading…" });
    this.nodes = [...before, this.said, table.node];
    table.node.hidden = true;
  }

  /** Ask again at the next update. */
  expire() {
    this.askedAt = -Infinity;
  }

  update() {
    if (performance.now() - this.askedAt > this.every_ms) {
      this.askedAt = performance.now();
      this.reload();
    }
    if (this.rows) this.table.update(this.rows);
  }

  async reload() {
    try {
      this.rows = await this.load();
      this.table.update(this.rows);
      this.said.hidden = true;
    } catch (error) {
      setText(this.said, `This cannot be shown now: ${error.message}`);
      this.said.hidden = false;
    }
    this.table.node.hidden = this.rows === null;
  }
}

const ORIGINS = {
  override: { rank: 0, word: "override", sign: "restart", mood: "busy" },
  file: { rank: 1, word: "file", sign: "ok", mood: "good" },
  default: { rank: 2, word: "default", sign: "none", mood: "still" },
};

function originOf(setting) {
  if (setting.origin === "override" || setting.origin === "default") return ORIGINS[setting.origin];
  return ORIGINS.file;
}

/** Every setting of a flow: what counts, where it comes from, and a change of it. */
export function settings(flow) {
  const origin = (one) => h("span", { class: "named" }, h("span", {}, pill(originOf(one))), h("span", { class: "remote" }));
  const acts = (one) => {
    const node = h("span", { class: "acts" });
    // A row stays, its setting changes.
    node.setting = one;
    const then = async (change) => { if (await change) asked.expire(); };
    node.change = act.button("Change", "limit", () => then(act.changeSetting(flow, node.setting)), { small: true });
    node.revert = act.button("Revert", "restart", () => then(act.revertSetting(flow, node.setting)), { small: true });
    node.append(node.change, node.revert);
    return node;
  };
  const table = new Table({
    name: "settings",
    caption: "Settings",
    key: (one) => one.key,
    sort: ["origin", "up"],
    search: { label: "Search settings", text: (one) => `${one.key}\n${one.value}\n${one.documentation}` },
    filters: [{ name: "origin", label: "Origin", options: [["", "All origins"], ["override", "overrides"], ["file", "from the file"], ["default", "defaults"]], accepts: (one, word) => originOf(one).word === word }],
    empty: "This flow has no settings.",
    detail: settingDetail,
    columns: [
      { key: "key", label: "Setting", sort: (one) => one.key, text: (one) => one.key },
      { key: "value", label: "Value", sort: (one) => one.value, text: (one) => one.value || "–" },
      { key: "origin", label: "From", sort: (one) => originOf(one).rank, make: origin, update: (node, one) => {
        setPill(node.firstChild.firstChild, originOf(one));
        setText(node.lastChild, originOf(one) === ORIGINS.file ? one.origin : one.origin === "override" ? `instead of ${one.file_value ?? "nothing"}` : "");
      } },
      { key: "connector", label: "Task group", sort: (one) => one.connector, text: (one) => called(one.connector) },
      { key: "acts", label: "", make: acts, update: (node, one) => {
        node.setting = one;
        act.show(node.change, one.why_not === "");
        act.show(node.revert, one.origin === "override");
      } },
    ],
  });
  const asked = new Asked("Settings", table, () => ask("GET", `${flowPath(flow, "config")}?all=true`), 10_000);
  return asked;
}

const effectOf = ({ restarts }) => {
  if (restarts === "flow") return "A change drains and restarts the flow, within seconds; no record is lost or repeated.";
  if (restarts === "MirrorSourceConnector") return `A change drains and restarts ${restarts} alone, within seconds; no record is lost or repeated.`;
  return `A change restarts ${restarts} alone; copying continues.`;
};

function settingDetail() {
  const [about, why] = [h("p"), h("p", { class: "faint" })];
  return {
    node: h("div", { class: "under-box" }, about, why),
    update: (one) => {
      setText(about, one.documentation || "It has no description.");
      setText(why, one.why_not ? `It cannot be changed here: ${one.why_not}.` : effectOf(one));
    },
  };
}

const placeOf = (row) => `${row.partition.topic ?? JSON.stringify(row.partition)}-${row.partition.partition ?? ""}`;

/** The stored offsets of a flow's copying, which can be altered while it is stopped. */
export function offsets(flow) {
  let isStopped = false;
  const note = h("p", { class: "faint" });
  const path = flowPath(flow, "connectors", act.SOURCE, "offsets");
  const then = async (change) => { if (await change) asked.expire(); };
  const acts = (row) => {
    const node = act.button("Change", "limit", () => then(act.alterOffset(flow, placeOf(node.row), node.row)), { small: true });
    node.row = row;
    return h("span", { class: "acts" }, node);
  };
  const reset = act.button("Reset all", "restart", () => then(act.resetOffsets(flow)), { small: true, mood: "danger" });
  const table = new Table({
    name: "offsets",
    caption: "Offsets",
    key: placeOf,
    sort: ["topic", "up"],
    search: { label: "Search topics", text: (row) => row.partition.topic ?? "" },
    bulk: [h("span", { class: "acts bulk" }, h("button", { type: "button", class: "act small", on: { click: () => asked.expire() } }, h("span", { text: "Reload" })), reset)],
    empty: "No offset is stored yet.",
    columns: [
      { key: "topic", label: "Topic", sort: placeOf, text: (row) => row.partition.topic ?? "–" },
      { key: "partition", label: "Partition", numeric: true, sort: (row) => row.partition.partition, text: (row) => String(row.partition.partition ?? "–") },
      { key: "offset", label: "Last copied offset", numeric: true, sort: (row) => row.offset?.offset, text: (row) => count(row.offset?.offset) },
      { key: "acts", label: "", make: acts, update: (node, row) => {
        node.firstChild.row = row;
        act.show(node.firstChild, isStopped);
      } },
    ],
  });
  const asked = new Asked("Offsets", table, async () => (await ask("GET", path)).offsets, 60_000, note);
  const update = asked.update.bind(asked);
  asked.update = (line) => {
    const isNow = line.connectors.find((one) => one.connector === act.SOURCE)?.state === "stopped";
    if (isNow !== isStopped) asked.expire();
    isStopped = isNow;
    setText(note, `Offsets of the last copied records, as stored on the target at the last flush. ${isStopped ? "Copying is stopped: they can be changed." : "To change them, stop copying first."}`);
    act.show(reset, isStopped);
    update();
  };
  return asked;
}
