// A flow's task groups: copying, checkpoints and heartbeats; the inner steps of these are folded away.

import * as act from "./actions.js";
import { h, setText } from "./dom.js";
import { ago, connector as called, count, plural, state } from "./format.js";
import { now } from "./store.js";
import { pill, setPill, Table } from "./table.js";

export function connectorsPart(flow) {
  const [table, steps] = [connectorTable(flow), stepTable()];
  const heartbeats = h("p", { class: "faint" });
  const summary = h("summary");
  const inner = h("details", { class: "inner-fold" }, summary, steps.node);
  return {
    nodes: [table.node, heartbeats, inner],
    shown: table,
    label: () => "Task groups",
    update: (line, shown) => {
      const wanted = shown.overrides?.connectors ?? {};
      table.update(line.connectors.map((one) => ({ ...one, wanted: wanted[one.connector] ?? "running" })));
      setText(heartbeats, heartbeatsText(shown));
      const failing = shown.steps.filter((step) => step.error).map((step) => step.step);
      setText(summary, `${plural(shown.steps.length, "inner step")}${failing.length ? `, refused now: ${failing.join(", ")}` : ""}`);
      steps.update(shown.steps);
    },
  };
}

/** What this node has written; of a flow that nodes share, only the owner writes heartbeats. */
function heartbeatsText({ heartbeats, nodes }) {
  if (!heartbeats) return "This flow emits no heartbeats.";
  const written = `${plural(heartbeats.sent, "heartbeat")} written by this node since it was started`;
  if (heartbeats.last_ms !== null) return `${written}, the last one ${ago(heartbeats.last_ms, now())}.`;
  return nodes.length > 1 ? `${written}; the flow's owner writes them now.` : `${written}.`;
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

/** When a step of the flow was last done, such as looking for topics, and a button to look at once. */
export function looked(flow, step, what) {
  const text = h("span", {});
  const look = act.button("Look now", "restart", () => act.refreshFlow(flow), { small: true });
  return {
    node: h("p", { class: "faint" }, text, " ", look),
    update: (shown) => {
      const done_ms = shown.steps.find((one) => one.step === step)?.succeeded_ms ?? null;
      setText(text, done_ms === null ? `The source's ${what} have not been listed yet.` : `The source's ${what} were listed ${ago(done_ms, now())}.`);
    },
  };
}

function stepTable() {
  return new Table({
    name: "steps",
    caption: "Inner steps",
    key: (step) => step.step,
    sort: ["step", "up"],
    empty: "Nothing yet.",
    columns: [
      { key: "step", label: "What", sort: (step) => step.step, text: (step) => step.step },
      { key: "succeeded", label: "Last done", numeric: true, sort: (step) => step.succeeded_ms, text: (step) => ago(step.succeeded_ms, now()) },
      { key: "failures", label: "Failures", numeric: true, sort: (step) => step.failures, text: (step) => count(step.failures), mood: (step) => (step.failures ? "warn" : null) },
      { key: "error", label: "Refused now", sort: (step) => step.error, text: (step) => [step.error, step.hint && `What to try: ${step.hint}`].filter(Boolean).join(". ") || "–" },
    ],
  });
}
