// What needs attention: the daemon's judgement, a card for each kind of problem, the worst first, with what can be done.

import * as act from "./actions.js";
import { h, setAttribute, setText } from "./dom.js";
import { count, plural, sentence } from "./format.js";
import { flowAddress } from "./place.js";
import { pill, setPill } from "./table.js";

const MOODS = { error: "bad", warning: "warn", note: "note" };
const ORDER = Object.values(MOODS);
const WORDS = { bad: "action needed", warn: "watch", note: "note" };
/** Of a kind, so many are shown at once. */
const MOST = 3;

const rank = (one) => ORDER.indexOf(one.mood);
const begun = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Problems by kind, worst first: {code, mood, items: [{mood, title, text, hint, about, flows}]}. Flows share a cluster's. */
export function problems(flows, ofNode = []) {
  const kinds = new Map();
  const add = (issue, flow) => {
    const kind = kinds.get(issue.code) ?? { code: issue.code, items: new Map() };
    kinds.set(issue.code, kind);
    const isCluster = issue.code === "cluster_unreachable";
    const key = isCluster ? issue.about : `${issue.about}\n${issue.message}\n${issue.cause}`;
    const known = kind.items.get(key);
    if (known) known.flows.push(flow);
    else kind.items.set(key, {
      mood: MOODS[issue.severity],
      title: isCluster ? `Cluster ${issue.about} is unreachable` : begun(issue.message),
      text: isCluster ? issue.message : issue.cause,
      hint: issue.hint, about: issue.about, flows: flow ? [flow] : [],
    });
  };
  for (const issue of ofNode) add(issue, null);
  for (const flow of flows) for (const issue of flow.issues) add(issue, flow.flow);
  const found = [...kinds.values()].map(({ code, items }) => {
    const sorted = [...items.values()].sort((one, other) => rank(one) - rank(other));
    return { code, mood: sorted[0].mood, items: sorted };
  });
  return found.sort((one, other) => rank(one) - rank(other));
}

/** How the node fares in a few words, as `mm2py status --check` judges it. */
export function verdict({ is_ready, issues, flows }) {
  const moods = problems(flows, issues).flatMap(({ items }) => items.map(({ mood }) => mood));
  const [errors, warnings] = ["bad", "warn"].map((mood) => moods.filter((one) => one === mood).length);
  const parts = [errors && plural(errors, "error"), warnings && plural(warnings, "warning")].filter(Boolean).join(", ");
  if (parts) return { word: `needs attention: ${parts}`, sign: "bad", mood: errors ? "bad" : "warn" };
  if (!is_ready) return { word: "not ready", sign: "wait", mood: "busy" };
  const held = flows.filter((flow) => ["paused", "stopped"].includes(flow.state)).length;
  return held ? { word: `${held} of ${plural(flows.length, "flow")} paused`, sign: "pause", mood: "still" } : { word: "healthy", sign: "ok", mood: "good" };
}

const link = (text, ...where) => h("a", { class: "act small", href: flowAddress(...where), text });
const restart = (flow, connector) => act.button("Restart", "restart", () => act.restartConnector(flow, connector), { small: true });

/** What can be done at once, or where the rest of it is. */
const REMEDIES = {
  paused: (flow) => [act.button("Resume", "run", () => act.resumeFlow(flow), { small: true })],
  partitions_stopped: (flow) => [link("Topics", flow, "topics", { state: "stopped" }), restart(flow, act.SOURCE)],
  partitions_delayed: (flow) => [link("Topics", flow, "topics", { state: "backing_off" })],
  partitions_missing: (flow) => [link("Topics", flow, "topics", { state: "missing" })],
  topics_refused: (flow) => [link("Topics", flow, "topics", { state: "missing" })],
  step_failed: (flow) => [link("Task groups", flow, "connectors")],
  lag_unknown: (flow) => [link("Topics", flow, "topics", { sort: "lag" })],
  loss_near: (flow) => [link("Topics", flow, "topics", { sort: "-behind" })],
  connector_failed: (flow, about) => [link("Task groups", flow, "connectors"), ...(about ? [restart(flow, about)] : [])],
  connector_not_running: (flow) => [link("Task groups", flow, "connectors")],
  tasks_late: (flow) => [link("Copy tasks", flow, "tasks")],
  tasks_waiting: (flow) => [link("Copy tasks", flow, "tasks")],
  node_silent: (flow) => [link("Nodes", flow, "nodes")],
  node_unhealthy: (flow) => [link("Nodes", flow, "nodes")],
  node_drained: (flow) => [link("Nodes", flow, "nodes")],
  settings_differ: (flow) => [link("Nodes", flow, "nodes")],
};

function itemNode(code, { about, flows }, isOfFlow) {
  const [title, text, hint] = [h("strong"), h("p"), h("p", { class: "hint" })];
  const acts = h("span", { class: "acts" }, ...(flows.length === 1 && REMEDIES[code] ? REMEDIES[code](flows[0], about) : []));
  const names = isOfFlow ? [] : flows.map((flow) => h("a", { href: flowAddress(flow), text: flow }));
  const node = h("div", { class: "problem-item" }, h("div", {}, title, text, hint, names.length ? h("p", { class: "flows" }, ...names) : null), acts);
  return {
    node,
    update: (item, isAlone) => {
      setText(title, item.title);
      setText(text, item.text);
      setText(hint, item.hint ? `What to try: ${item.hint}` : "");
      for (const line of [text, hint]) line.hidden = line.textContent === "";
      setAttribute(node, "data-alone", isAlone ? "yes" : null);
    },
  };
}

/** A card of one kind. What is there stays: a button must not go from under the pointer. */
function card(code, isOfFlow) {
  const made = new Map();
  const head = h("div", { class: "problem-head" }, pill({ word: "", sign: "none", mood: "" }), h("strong", { class: "problem-kind" }));
  const [first, rest] = [h("div"), h("div")];
  const more = h("details", {}, h("summary"), rest);
  const node = h("section", { class: "problem" }, head, h("div", {}, first, more));
  return {
    node,
    update: ({ mood, items }) => {
      setAttribute(node, "data-mood", mood);
      setPill(head.firstChild, { word: WORDS[mood], sign: mood === "note" ? "none" : "bad", mood: mood === "note" ? "still" : mood });
      setText(head.lastChild, items.length > 1 ? sentence(code) : "");
      const keys = new Set();
      items.forEach((item, at) => {
        let key = `${item.flows.join(" ")} ${item.about}`;
        while (keys.has(key)) key += "+";
        keys.add(key);
        if (!made.has(key)) made.set(key, itemNode(code, item, isOfFlow));
        const { node: line, update } = made.get(key);
        update(item, items.length === 1);
        const into = at < MOST ? first : rest;
        if (line.parentNode !== into) into.append(line);
      });
      for (const [key, { node: line }] of made) {
        if (keys.has(key)) continue;
        line.remove();
        made.delete(key);
      }
      more.hidden = items.length <= MOST;
      setText(more.firstChild, `${count(items.length - MOST)} more`);
    },
  };
}

/** The cards, on the page of one flow or of all. */
export class Problems {
  constructor({ isOfFlow = false } = {}) {
    this.isOfFlow = isOfFlow;
    this.node = h("div", { class: "problems" });
    this.cards = new Map();
  }

  update(found) {
    const codes = new Set(found.map((one) => one.code));
    for (const [code, { node }] of this.cards) {
      if (codes.has(code)) continue;
      node.remove();
      this.cards.delete(code);
    }
    let before = this.node.firstChild;
    for (const one of found) {
      if (!this.cards.has(one.code)) this.cards.set(one.code, card(one.code, this.isOfFlow));
      const { node, update } = this.cards.get(one.code);
      update(one);
      if (node === before) before = before.nextSibling;
      else this.node.insertBefore(node, before);
    }
  }
}
