// A flow's topics, and the partitions of expanded ones.

import * as act from "./actions.js";
import { looked } from "./connectors.js";
import { h, setAttribute, setText } from "./dom.js";
import { ago, atLeast, bytesPerS, count, duration, ms, plural, recordsPerS, stage } from "./format.js";
import { part } from "./nodes.js";
import { setSparkline, sparkline } from "./plots.js";
import { now, store } from "./store.js";
import { pill, setPill, Table } from "./table.js";

const WORST = ["copying", "paused", "backing_off", "stopped", "missing"];

/** Put partitions together to topics, also those of which other nodes copy all. */
function topicsOf(flow) {
  const topics = new Map();
  const paused = new Set(flow.overrides?.topics ?? []);
  const found = (name, remote) => {
    let topic = topics.get(name);
    if (!topic) {
      topic = { topic: name, remote, partitions: [], nodes: [], elsewhere: 0, missing: 0, why: "", hint: "", lag: null, lag_s: null, lag_is_least: false, lag_s_is_least: false, age_ms: null, latency_ms: null, records_per_s: 0, bytes_per_s: 0, worst: 0, failed: 0,
        isPaused: paused.has(name), limit: flow.overrides?.topic_limits?.[name] ?? null };
      topics.set(name, topic);
    }
    return topic;
  };
  for (const { topic: name, remote, nodes } of flow.elsewhere.values()) {
    const topic = found(name, remote);
    topic.nodes = nodes;
    topic.elsewhere = nodes.reduce((many, [, here]) => many + here, 0);
  }
  for (const { topic: name, remote, many, why, hint } of flow.missing.values()) {
    Object.assign(found(name, remote), { missing: many, why, hint, worst: WORST.indexOf("missing") });
  }
  for (const partition of flow.partitions.values()) {
    const topic = found(partition.topic, partition.remote_topic);
    topic.partitions.push(partition);
    topic.lag = sum(topic.lag, partition.lag);
    topic.lag_s = most(topic.lag_s, partition.lag_s);
    topic.lag_is_least ||= partition.lag === null || partition.lag_is_least;
    topic.lag_s_is_least ||= partition.lag_s === null || partition.lag_is_least;
    topic.age_ms = most(topic.age_ms, partition.age_ms);
    topic.latency_ms = most(topic.latency_ms, partition.latency_ms);
    topic.records_per_s += partition.records_per_s ?? 0;
    topic.bytes_per_s += partition.bytes_per_s ?? 0;
    topic.worst = Math.max(topic.worst, WORST.indexOf(partition.stage));
    if (partition.stage === "stopped") topic.failed += 1;
  }
  for (const topic of topics.values()) {
    // Other nodes know theirs; and of what is not known, 0 would say that nothing is left.
    if (topic.elsewhere) topic.lag_is_least = topic.lag_s_is_least = true;
    for (const name of ["lag", "lag_s"]) if (topic[`${name}_is_least`] && !topic[name]) Object.assign(topic, { [name]: null, [`${name}_is_least`]: false });
  }
  return [...topics.values()];
}

const sum = (a, b) => (b === null ? a : (a ?? 0) + b);
const most = (a, b) => (b === null ? a : Math.max(a ?? 0, b));

const isHeld = (topic) => topic.isPaused || topic.partitions.some((partition) => partition.stage === "paused");

/** Whether any of a topic is in a state; "paused" and "limited" are overrides of operators. */
function isIn(topic, name) {
  if (name === "limited") return topic.limit !== null;
  if (name === "paused") return isHeld(topic);
  if (name === "elsewhere") return isElsewhere(topic);
  if (name === "missing") return topic.missing > 0;
  return !topic.isPaused && topic.partitions.some((partition) => partition.stage === name);
}

const named = (topic) => h("span", { class: "named" }, h("span", { text: topic.topic }), h("span", { class: "remote" }));

const isElsewhere = (topic) => topic.elsewhere > 0 && topic.partitions.length === 0 && !topic.isPaused;

const manyOf = (topic) => topic.partitions.length + topic.elsewhere + topic.missing;

function pausedBy(topic) {
  const pause = store.flow?.overrides?.pauses?.[`topic ${topic.topic}`];
  return pause ? `paused ${ago(pause.at_ms, now())} by ${pause.by || "an operator"}` : null;
}

/** Which nodes copy what this one does not. */
const otherNodes = (topic) => topic.nodes.map(([node, many]) => `${plural(many, "partition")} on ${node || "no node yet"}`).join(", ");

function fare(topic) {
  if (isElsewhere(topic)) return stage("elsewhere");
  if (topic.isPaused && !topic.partitions.length) return stage("paused");
  const name = topic.isPaused ? "paused" : WORST[topic.worst];
  const found = stage(name);
  const all = topic.partitions.length + topic.missing;
  const many = topic.isPaused ? all : name === "missing" ? topic.missing : topic.partitions.filter((partition) => partition.stage === name).length;
  return many === all ? found : { ...found, word: `${many} of ${all} ${found.word}` };
}

/** The tab with all topics. */
export function topicsPart(flow) {
  const table = topicTable(flow);
  const here = h("p", { class: "faint" });
  const listed = looked(flow, "refresh topics", "topics");
  return {
    nodes: [listed.node, here, table.node],
    shown: table,
    label: ({ topics, stages }) => `Topics ${count(topics)}${stages.stopped ? ` (${stages.stopped} failed)` : ""}`,
    update: (line, shown) => {
      setText(here, part(shown.nodes, line.partitions));
      here.hidden = here.textContent === "";
      listed.update(shown);
      table.update(topicsOf(shown));
    },
  };
}

function topicTable(flow) {
  const acts = (topic) => {
    const pause = act.button("Pause", "pause", () => act.pauseTopic(flow, topic.topic), { small: true });
    const resume = act.button("Resume", "run", () => act.resumeTopic(flow, topic.topic), { small: true });
    const limit = act.button("Limit", "limit", () => act.limitTopic(flow, topic.topic, store.flow?.overrides?.topic_limits?.[topic.topic]), { small: true });
    const node = h("span", { class: "acts" }, pause, resume, limit);
    node.buttons = { pause, resume };
    return node;
  };
  const pauseAll = act.button("Pause all", "pause", () => act.pauseTopics(flow, table.matching.filter((topic) => !topic.isPaused).map((topic) => topic.topic)), { small: true });
  const resumeAll = act.button("Resume all", "run", () => act.resumeTopics(flow, table.matching.filter(isHeld).map((topic) => topic.topic)), { small: true });
  const table = new Table({
    name: "topics",
    caption: "Topics",
    key: (topic) => topic.topic,
    sort: ["topic", "up"],
    page: 50,
    search: { label: "Search topics", text: (topic) => `${topic.topic}\n${topic.remote}` },
    filters: [{ name: "state", label: "State", options: [["", "All states"], ...[...WORST, "elsewhere"].map((name) => [name, stage(name).word]), ["limited", "limited"]], accepts: isIn }],
    bulk: [h("span", { class: "acts bulk", role: "group", "aria-label": "All topics that match" }, pauseAll, resumeAll)],
    empty: "No topic is mirrored yet: the flow's topics setting matches none at the source, or topics have not been listed yet.",
    detail: partitionDetail(flow),
    columns: [
      { key: "topic", label: "Topic", sort: (topic) => topic.topic, make: named, update: (node, topic) => setText(node.lastChild, topic.remote === topic.topic ? "" : `→ ${topic.remote}`) },
      { key: "state", label: "State", title: pausedBy, sort: (topic) => topic.worst, make: (topic) => h("span", {}, pill(fare(topic))), update: (node, topic) => setPill(node.firstChild, fare(topic)) },
      { key: "records", label: "Records", numeric: true, sort: (topic) => topic.records_per_s, text: (topic) => (isElsewhere(topic) ? "–" : recordsPerS(topic.records_per_s)) },
      { isWide: true, key: "recent", label: "Last 2 min", make: sparkline, update: (node, topic) => setSparkline(node, store.rates.get(topic.topic) ?? []) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (topic) => topic.bytes_per_s, text: (topic) => (isElsewhere(topic) ? "–" : bytesPerS(topic.bytes_per_s)) },
      { key: "lag", label: "Lag", numeric: true, sort: (topic) => topic.lag, text: (topic) => atLeast(count(topic.lag), topic.lag_is_least) },
      { key: "behind", label: "Behind", numeric: true, sort: (topic) => topic.lag_s, text: (topic) => atLeast(duration(topic.lag_s), topic.lag_s_is_least) },
      { isWide: true, key: "age", label: "Age", numeric: true, sort: (topic) => topic.age_ms, text: (topic) => ms(topic.age_ms), title: () => "Age of records when they are read: the maximum of the partitions' means" },
      { isWide: true, key: "latency", label: "Latency", numeric: true, sort: (topic) => topic.latency_ms, text: (topic) => ms(topic.latency_ms), title: () => "Age of records when the target has them" },
      { isWide: true, key: "partitions", label: "Partitions", numeric: true, sort: manyOf, text: (topic) => (topic.elsewhere && topic.partitions.length ? `${count(topic.partitions.length)} of ${count(manyOf(topic))}` : count(manyOf(topic))), title: otherNodes },
      { isWide: true, key: "limit", label: "Limit", sort: (topic) => topic.limit?.bytes_per_s ?? null, text: (topic) => act.limitText(topic.limit) || "–" },
      { key: "acts", label: "", make: acts, update: (node, topic) => {
        act.show(node.buttons.pause, !topic.isPaused);
        act.show(node.buttons.resume, isHeld(topic));
      } },
    ],
  });
  const update = table.update.bind(table);
  table.update = (topics) => {
    update(topics);
    const [running, held] = [table.matching.filter((topic) => !topic.isPaused).length, table.matching.filter(isHeld).length];
    setText(pauseAll.lastChild, `Pause ${count(running)}`);
    setAttribute(pauseAll, "aria-label", `Pause ${plural(running, "topic")} that match`);
    setText(resumeAll.lastChild, `Resume ${count(held)}`);
    setAttribute(resumeAll, "aria-label", `Resume ${plural(held, "topic")} that match`);
    act.show(pauseAll, running > 1);
    act.show(resumeAll, held > 1);
  };
  return table;
}

/** With nothing left to copy the daemon answers with what retention leaves the next record; there is none to lose. */
const loss = (partition) => (partition.lag === 0 ? null : partition.seconds_until_loss);

/** As the daemon judges it: however short its retention is, what waits for less than half of it is in no danger. */
const isLossNear = ({ seconds_until_loss: loss_s, lag_s: waited_s }) => loss_s !== null && waited_s !== null && loss_s < 3600 && loss_s < waited_s;

const partitionDetail = (flow) => (topic) => {
  const acts = (partition) => {
    const pause = act.button("Pause", "pause", () => act.pausePartition(flow, partition.topic, partition.partition), { small: true });
    const resume = act.button("Resume", "run", () => act.resumePartition(flow, partition.topic, partition.partition), { small: true });
    const node = h("span", { class: "acts" }, pause, resume);
    node.buttons = { pause, resume };
    return node;
  };
  const table = new Table({
    name: "partitions",
    caption: `Partitions of ${topic.topic}`,
    key: (partition) => String(partition.partition),
    sort: ["partition", "up"],
    page: 50,
    empty: "It has no partitions.",
    opens: (partition) => Boolean(partition.message),
    detail: failureDetail,
    columns: [
      { key: "partition", label: "Partition", sort: (partition) => partition.partition, text: (partition) => String(partition.partition) },
      { key: "stage", label: "State", sort: (partition) => WORST.indexOf(partition.stage), make: (partition) => h("span", {}, pill(stage(partition.stage))), update: (node, partition) => setPill(node.firstChild, stage(partition.stage)) },
      { key: "position", label: "Position", numeric: true, sort: (partition) => partition.position, text: (partition) => count(partition.position), title: () => "The next offset to read at the source" },
      { key: "end", label: "End", numeric: true, sort: (partition) => partition.end_offset, text: (partition) => count(partition.end_offset) },
      { key: "lag", label: "Lag", numeric: true, sort: (partition) => partition.lag, text: (partition) => atLeast(count(partition.lag), partition.lag_is_least) },
      { key: "behind", label: "Behind", numeric: true, sort: (partition) => partition.lag_s, text: (partition) => atLeast(duration(partition.lag_s), partition.lag_s !== null && partition.lag_is_least) },
      { key: "age", label: "Age", numeric: true, sort: (partition) => partition.age_ms, text: (partition) => ms(partition.age_ms) },
      { key: "records", label: "Records", numeric: true, sort: (partition) => partition.records_per_s, text: (partition) => recordsPerS(partition.records_per_s) },
      { key: "bytes", label: "Bytes", numeric: true, sort: (partition) => partition.bytes_per_s, text: (partition) => bytesPerS(partition.bytes_per_s) },
      { key: "level", label: "Level in", numeric: true, sort: (partition) => partition.seconds_until_level, text: (partition) => duration(partition.seconds_until_level), title: () => "When nothing will be left to copy, at the rates of the last minutes" },
      { key: "loss", label: "Until loss", numeric: true, sort: loss, text: (partition) => duration(loss(partition)), title: () => "Time until, at the earliest, the source may delete records that are not copied yet",
        mood: (partition) => (isLossNear(partition) ? "bad" : null) },
      { key: "task", label: "Task", numeric: true, sort: (partition) => partition.task, text: (partition) => (partition.task === null ? "–" : String(partition.task)) },
      { key: "acts", label: "", make: acts, update: (node, partition) => {
        act.show(node.buttons.pause, partition.stage !== "paused");
        act.show(node.buttons.resume, partition.stage === "paused");
      } },
    ],
  });
  // Failures are shown expanded.
  for (const partition of topic.partitions) if (partition.stage === "stopped") table.opened.add(String(partition.partition));
  const [others, lacking, hint] = [h("p", { class: "faint" }), h("p", { class: "bad-text" }), h("p", { class: "hint" })];
  const update = (row) => {
    table.node.hidden = !row.partitions.length && row.elsewhere + row.missing > 0;
    setText(lacking, row.missing ? `${plural(row.missing, "partition")} of it ${row.missing === 1 ? "is" : "are"} missing at the target${row.why ? `: ${row.why}` : "."}` : "");
    setText(hint, row.hint ? `What to try: ${row.hint}` : "");
    lacking.hidden = !row.missing;
    hint.hidden = !row.missing || !row.hint;
    setText(others, row.elsewhere ? `${row.partitions.length ? "Other nodes copy" : "This node copies none of it:"} ${otherNodes(row)}. Their pages have the figures.` : "");
    others.hidden = !row.elsewhere;
    table.update(row.partitions);
  };
  return { node: h("div", { class: "under-box" }, lacking, hint, table.node, others), update };
};

function failureDetail() {
  const [message, hint, next] = [h("p", { class: "bad-text" }), h("p", { class: "hint" }), h("p", { class: "faint" })];
  return {
    node: h("div", { class: "failure" }, message, hint, next),
    update: (partition) => {
      setText(message, partition.message);
      setText(hint, partition.hint ? `What to try: ${partition.hint}` : "");
      hint.hidden = !partition.hint;
      setText(next, partition.stage === "copying" ? "" : partition.retry_in_s === null ? "It is not retried by itself." : partition.retry_in_s <= 0 ? "It is being retried." : `It is retried in ${duration(partition.retry_in_s)}.`);
    },
  };
}

