// Changes made from the page, through the same REST routes as any other client.

import { ask, flowPath, Refused } from "./api.js";
import { askLimit, askText, confirm, toast, underWay } from "./dialogs.js";
import { h, icon, setAttribute } from "./dom.js";
import { bytesPerS, connector as called, count, plural, recordsPerS } from "./format.js";
import { store } from "./store.js";

export const SOURCE = "MirrorSourceConnector";
/** In a question about many. */
const MOST_NAMES = 8;

export const mayWrite = () => store.who?.mayWrite === true && store.connection === "live";

export function whyNot() {
  if (store.connection !== "live") return "The connection is lost; nothing can be changed now.";
  if (!store.who) return "Your permissions are not known yet.";
  return store.who.mayWrite ? "" : store.who.why || "You have read permission only.";
}

/** Make a change; why it was refused, or "". */
async function attempt(what, method, path, body) {
  const end = underWay(what);
  try {
    await ask(method, path, body);
    toast(`${what}: done.`);
    return "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const problems = error.problems.filter((problem) => !error.message.includes(problem));
    return `${what}: refused. ${[error.message, ...problems].join("; ")}`;
  } finally {
    end();
  }
}

async function change(what, method, path, body) {
  const refusal = await attempt(what, method, path, body);
  if (refusal) toast(refusal, "bad");
  return !refusal;
}

export function button(label, sign, act, { mood = "", small = false } = {}) {
  const node = h("button", { type: "button", class: `act ${mood} ${small ? "small" : ""}`.trim() }, icon(sign, small ? 14 : 15), h("span", { text: label }));
  node.dataset.write = "";
  node.addEventListener("click", async () => {
    if (node.disabled || node.getAttribute("aria-disabled") === "true") return;
    node.setAttribute("aria-busy", "true");
    try {
      await act();
    } finally {
      node.removeAttribute("aria-busy");
    }
  });
  return node;
}

const isReader = () => store.who !== null && !store.who.mayWrite;

/** Hide from readers what they cannot do; while the connection is lost, show it as not to be had now. */
export function guard(root) {
  const reason = whyNot();
  for (const node of root.querySelectorAll("[data-write]")) {
    node.hidden = isReader() || node.dataset.off === "yes";
    node.disabled = Boolean(reason);
    setAttribute(node, "title", reason || null);
  }
}

export function show(node, isShown) {
  node.dataset.off = isShown ? "no" : "yes";
  node.hidden = !isShown || isReader();
}

export async function pauseFlow(flow) {
  if (!await confirm(`Pause ${flow}?`, "Copying, checkpoints and heartbeats stop within seconds, until the flow is resumed. Nothing is lost: it continues where it was.", "Pause")) return;
  await change(`Pausing ${flow}`, "PUT", flowPath(flow, "pause"));
}

export async function resumeFlow(flow) {
  await change(`Resuming ${flow}`, "PUT", flowPath(flow, "resume"));
}

export async function stopFlow(flow) {
  if (!await confirm(`Stop ${flow}?`, "Copying, checkpoints and heartbeats end and release their connections, so that offsets may be altered. They stay stopped until the flow is resumed.", "Stop", "danger")) return;
  await change(`Stopping ${flow}`, "PUT", flowPath(flow, "stop"));
}

export async function stopConnector(flow, name) {
  const text = name === SOURCE
    ? "Copying ends and releases its connections, so that its offsets may be altered. It stays stopped until it is resumed."
    : "It ends and stays stopped until it is resumed; copying continues.";
  if (!await confirm(`Stop ${called(name).toLowerCase()} of ${flow}?`, text, "Stop", "danger")) return;
  await change(`Stopping ${called(name).toLowerCase()} of ${flow}`, "PUT", flowPath(flow, "connectors", name, "stop"));
}

export async function pauseConnector(flow, name) {
  const text = name === SOURCE ? "Copying stops within seconds, until it is resumed. Nothing is lost: it continues where it was." : "It is idle until it is resumed; copying continues.";
  if (!await confirm(`Pause ${called(name).toLowerCase()} of ${flow}?`, text, "Pause")) return;
  await change(`Pausing ${called(name).toLowerCase()} of ${flow}`, "PUT", flowPath(flow, "connectors", name, "pause"));
}

export async function resumeConnector(flow, name) {
  await change(`Resuming ${called(name).toLowerCase()} of ${flow}`, "PUT", flowPath(flow, "connectors", name, "resume"));
}

export async function restartConnector(flow, name) {
  if (!await confirm(`Restart ${called(name).toLowerCase()} of ${flow}?`, "It shuts down cleanly and restarts, which takes some seconds. Nothing is copied twice.", "Restart")) return;
  await change(`Restarting ${called(name).toLowerCase()} of ${flow}`, "POST", `${flowPath(flow, "connectors", name, "restart")}?includeTasks=true`);
}

export async function refreshFlow(flow) {
  await change(`Looking for new topics and groups of ${flow}`, "PUT", flowPath(flow, "refresh"));
}

export async function restartTask(flow, number) {
  await change(`Restarting copy task ${number} of ${flow}`, "POST", flowPath(flow, "connectors", SOURCE, "tasks", String(number), "restart"));
}

export async function drainNode() {
  if (!await confirm("Drain this node?", "Other nodes take its copy tasks of all flows, and it takes none, until it is undrained or restarted. It keeps running.", "Drain")) return;
  await change("Draining this node", "PUT", "node/drain");
}

export async function undrainNode() {
  await change("Undraining this node", "PUT", "node/resume");
}

export async function pauseTopic(flow, topic) {
  if (!await confirm(`Pause topic ${topic}?`, `${flow} does not copy it until it is resumed. Its other topics continue.`, "Pause")) return;
  await change(`Pausing topic ${topic}`, "PUT", flowPath(flow, "topics", topic, "pause"));
}

export async function resumeTopic(flow, topic) {
  await change(`Resuming topic ${topic}`, "PUT", flowPath(flow, "topics", topic, "resume"));
}

/** Names for a question: the first ones, and how many there are besides. */
const listed = (names) => `${names.slice(0, MOST_NAMES).join(", ")}${names.length > MOST_NAMES ? ` and ${count(names.length - MOST_NAMES)} more` : ""}`;

export async function pauseTopics(flow, topics) {
  if (!await confirm(`Pause ${plural(topics.length, "topic")}?`, `${flow} does not copy them until they are resumed: ${listed(topics)}. Its other topics continue.`, "Pause")) return;
  await change(`Pausing ${plural(topics.length, "topic")}`, "PUT", flowPath(flow, "topics", "pause"), { topics });
}

export async function resumeTopics(flow, topics) {
  if (!await confirm(`Resume ${plural(topics.length, "topic")}?`, `${flow} copies them again, from where it was: ${listed(topics)}.`, "Resume")) return;
  await change(`Resuming ${plural(topics.length, "topic")}`, "PUT", flowPath(flow, "topics", "resume"), { topics });
}

export async function revertAll(flow, note) {
  if (!await confirm(`Revert all overrides of ${flow}?`, `It runs with the file's settings again, all of its topics are copied, and nothing limits it. Reverted: ${note}.`, "Revert all")) return;
  await change(`Reverting all overrides of ${flow}`, "DELETE", flowPath(flow, "overrides"));
}

export async function pausePartition(flow, topic, partition) {
  if (!await confirm(`Pause ${topic}-${partition}?`, "This partition is not copied until it is resumed.", "Pause")) return;
  await change(`Pausing ${topic}-${partition}`, "PUT", flowPath(flow, "topics", topic, "partitions", String(partition), "pause"));
}

export async function resumePartition(flow, topic, partition) {
  await change(`Resuming ${topic}-${partition}`, "PUT", flowPath(flow, "topics", topic, "partitions", String(partition), "resume"));
}

export async function limitFlow(flow, before) {
  await askLimit(`Rate limit of ${flow}`, before, (limit) => setLimit(flow, limit, flowPath(flow, "limit")));
}

export async function limitTopic(flow, topic, before) {
  await askLimit(`Rate limit of topic ${topic}`, before, (limit) => setLimit(`topic ${topic}`, limit, flowPath(flow, "topics", topic, "limit")));
}

function setLimit(what, limit, path) {
  if (limit.bytes_per_s === null && limit.records_per_s === null) return attempt(`Removing the limit of ${what}`, "DELETE", path);
  return attempt(`Limiting ${what} to ${limitText(limit)}`, "PUT", path, limit);
}

const THEN = "It takes effect within seconds: what reads it restarts, and continues where it was. It stays in force until it is reverted, also across restarts of the daemon.";

export async function changeSetting(flow, { connector, key, value, documentation }) {
  const send = (answer) => attempt(`Setting ${key} to ${answer.value || "nothing"}`, "PATCH", flowPath(flow, "connectors", connector, "config"), { [key]: answer.value });
  return askText(`Change ${key}`, [documentation, THEN].filter(Boolean), [{ name: "value", label: "Value", value }], "Set", { send });
}

export async function revertSetting(flow, { connector, key, file_value }) {
  if (!await confirm(`Revert ${key}?`, `Its value is ${file_value ?? "the default"} again. What reads it restarts, and continues where it was.`, "Revert")) return false;
  return change(`Reverting ${key}`, "PATCH", flowPath(flow, "connectors", connector, "config"), { [key]: null });
}

export async function alterOffset(flow, place, { partition, offset }) {
  const send = ({ offset: number, timestamp }) => {
    const wanted = timestamp ? { timestamp } : number === "" ? null : { offset: Number(number) };
    return attempt(`Changing the offset of ${place}`, "PATCH", flowPath(flow, "connectors", SOURCE, "offsets"), { offsets: [{ partition, offset: wanted }] });
  };
  return askText(`Change the offset of ${place}`, [
    "Set back, records are copied again and are at the target twice. Set forward, the records in between are never copied. With a timestamp, copying continues at the first record of that time or later; without either, where the settings say.",
  ], [
    { name: "offset", label: "Last copied offset", value: offset?.offset ?? "", type: "number", min: "0", step: "1" },
    { name: "timestamp", label: "Or a timestamp instead, such as 2026-11-01T00:00:00Z", value: "" },
  ], "Set", { mood: "danger", send });
}

export async function resetOffsets(flow) {
  if (!await confirm(`Reset all offsets of ${flow}?`, "Copying starts where the settings say, by default at the oldest record: all that is copied again is at the target twice.", "Reset all", "danger")) return false;
  return change(`Resetting all offsets of ${flow}`, "DELETE", flowPath(flow, "connectors", SOURCE, "offsets"));
}

export function limitText(limit) {
  const parts = [];
  if (limit?.bytes_per_s !== null && limit?.bytes_per_s !== undefined) parts.push(bytesPerS(limit.bytes_per_s));
  if (limit?.records_per_s !== null && limit?.records_per_s !== undefined) parts.push(`${recordsPerS(limit.records_per_s).replace("/s", "")} records/s`);
  return parts.join(" and ");
}
