// The diagram of clusters and flows. Positions are computed here, for the available width, so that text keeps its size.

import { s, setAttribute, setText } from "./dom.js";
import { atLeast, flowEnds, recordsPerS, short, state } from "./format.js";
import { flowAddress } from "./place.js";

const NODE = { height: 44, least: 96, most: 190 };
/** With more clusters than this they are drawn smaller, with their names alone. */
const ROOMY = 10;
/** So many fit into a circle on a phone. */
const FEW = 5;
/** What is drawn on a line: its numbers, its sign alone, or the dot of one that copies nothing. */
const [PLATE, SIGN, DOT] = [{ width: 118, height: 40 }, { width: 18, height: 18 }, { width: 12, height: 12 }];
/** So many fit as a hub and a column beside it. */
const FAN = 8;
/** Room above and below, for curves that bend out of the circle. */
const EDGE_ROOM = 38;
const ICON_D = {
  ok: "M-3.4 .4l2.4 2.4L3.6-2.6", pause: "M-2-3v6M2-3v6", stop: "M-2.6-2.6h5.2v5.2h-5.2z", bad: "M0-3.2V.8M0 3.2v.1",
  restart: "M3.2 0A3.2 3.2 0 1 1 1.6-2.8M3.4-4v2.4H1", wait: "M0-2.8V0l1.8 1.4", drain: "M0-3.4V3M-2.6.6L0 3.2 2.6.6", none: "M-3 0h6",
};

/** How a flow fares in one word, the daemon's own. */
export function fare(flow) {
  const worst = flow.state === "running" ? flow.issues[0]?.severity : undefined;
  if (worst === "warning") return { word: "running with problems", sign: "bad", mood: "warn" };
  if (flow.state === "running" && isHeartbeatsAlone(flow)) return { word: "heartbeats only", sign: "none", mood: "still" };
  return state(flow.state);
}

/** A direction that copies nothing: it writes heartbeats to its target, and needs nothing else. */
export const isHeartbeatsAlone = (flow) => flow.connectors.length > 0 && flow.connectors.every((one) => one.connector === "MirrorHeartbeatConnector");

/** Give each cluster a place in a box of this width: {alias: {x, y, width}}, and the height that it takes. */
export function layout(aliases, flows, width) {
  const size = Math.max(NODE.least, Math.min(NODE.most, 26 + 8.2 * Math.max(...aliases.map((alias) => alias.length), 4)));
  const nodeWidth = Math.min(size, Math.max(NODE.least, width / 2 - 24)) * (aliases.length > ROOMY && width < 520 ? 0.8 : 1);
  const nodeHeight = aliases.length > ROOMY ? 28 : NODE.height;
  const sources = new Set(flows.map((flow) => flow.source));
  const targets = new Set(flows.map((flow) => flow.target));
  const isTwoSided = aliases.every((alias) => !(sources.has(alias) && targets.has(alias)));
  const places = {};
  const put = (alias, x, y) => { places[alias] = { x, y, width: nodeWidth, height: nodeHeight }; };
  const hub = findHub(aliases, flows);
  const isNarrow = width < 520;
  if (hub && width >= 520 && aliases.length <= 13) return aroundHub(hub, aliases, width, put, places, nodeWidth);
  if (aliases.length === 2 || (isTwoSided && aliases.length > 2 && (!isNarrow || aliases.length <= FEW))) {
    let left = aliases.filter((alias) => sources.has(alias));
    let right = aliases.filter((alias) => !sources.has(alias));
    if (aliases.length === 2) [left, right] = [[aliases[0]], [aliases[1]]];
    if (width < 520 && aliases.length === 2) {
      put(left[0], width / 2, 34);
      put(right[0], width / 2, 226);
      return { places, height: 262, isTall: true };
    }
    const step = aliases.length > 2 ? 74 : 80;
    const height = Math.max(flows.length > 1 ? 150 : 100, Math.max(left.length, right.length) * step + 20);
    const side = nodeWidth / 2 + 8;
    left.forEach((alias, at) => put(alias, side, (height * (at + 0.5)) / left.length));
    right.forEach((alias, at) => put(alias, width - side, (height * (at + 0.5)) / right.length));
    return { places, height, isTall: false };
  }
  const height = isNarrow ? 300 : Math.max(340, Math.min(760, aliases.length * 48 + 120));
  if (isNarrow && hub && aliases.length <= FAN) return asFan(hub, aliases, width, put, places, nodeWidth);
  if (isNarrow && aliases.length > FEW) return inColumns(hub, aliases, width, put, places, nodeWidth);
  const room = aliases.length > 4 ? EDGE_ROOM : 8;
  const [rx, ry] = [(width - nodeWidth) / 2 - (isNarrow ? 4 : room), (height - nodeHeight) / 2 - room];
  aliases.forEach((alias, at) => {
    const angle = (2 * Math.PI * at) / aliases.length - (aliases.length === 3 ? Math.PI / 2 : Math.PI / 2 + 0.0001);
    // A little squarer than an ellipse: nodes are wide, and stay apart at top and bottom this way.
    const round = (value) => Math.sign(value) * Math.abs(value) ** 0.8;
    put(alias, width / 2 + rx * round(Math.cos(angle)), height / 2 + ry * round(Math.sin(angle)));
  });
  return { places, height, isTall: false };
}

/** Give the cluster that all flows begin or end at, where there are three or more. */
function findHub(aliases, flows) {
  if (aliases.length < 4) return null;
  return aliases.find((alias) => flows.every((flow) => flow.source === alias || flow.target === alias)) ?? null;
}

function aroundHub(hub, aliases, width, put, places, nodeWidth) {
  const others = aliases.filter((alias) => alias !== hub);
  const rows = Math.ceil(others.length / 2);
  const height = Math.max(230, rows * 88);
  put(hub, width / 2, height / 2);
  // Left and right alternately, from top to bottom: lines do not cross, and labels have room.
  others.forEach((alias, at) => {
    const isLeft = at % 2 === 0;
    const here = Math.floor(at / 2);
    const many = isLeft ? rows : others.length - rows;
    put(alias, isLeft ? nodeWidth / 2 + 8 : width - nodeWidth / 2 - 8, (height * (here + 0.5)) / many);
  });
  return { places, height, isTall: false };
}

/** On a phone: the hub at the left, all others below each other at the right. */
function asFan(hub, aliases, width, put, places, nodeWidth) {
  const others = aliases.filter((alias) => alias !== hub);
  put(hub, nodeWidth / 2 + 4, others.length * 28);
  others.forEach((alias, at) => put(alias, width - nodeWidth / 2 - 4, at * 56 + 28));
  return { places, height: others.length * 56, isTall: false };
}

/** On a phone: two columns, and what all have to do with above them. */
function inColumns(hub, aliases, width, put, places, nodeWidth) {
  const others = aliases.filter((alias) => alias !== hub);
  const top = hub ? 84 : 0;
  const rows = Math.ceil(others.length / 2);
  if (hub) put(hub, width / 2, 26);
  others.forEach((alias, at) => put(alias, at % 2 ? width - nodeWidth / 2 - 4 : nodeWidth / 2 + 4, top + 30 + Math.floor(at / 2) * 62));
  return { places, height: top + rows * 62, isTall: false };
}

/** How far the middle of a line leaves the straight one where another comes back: labels of both need room there. */
function bow(from, to, { isOnly, isTall, isNarrow }) {
  if (isOnly) return isTall ? 68 : 42;
  return Math.min(26, Math.hypot(to.x - from.x, to.y - from.y) * (isNarrow ? 0.05 : 0.09));
}

const isInside = (place, point) => Math.abs(point.x - place.x) <= place.width / 2 && Math.abs(point.y - place.y) <= place.height / 2;

/** The border between *inner*, where the curve is inside the node, and *outer*, where it is not. */
function border(at, place, inner, outer) {
  for (let step = 0; step < 24; step += 1) {
    const half = (inner + outer) / 2;
    if (isInside(place, at(half))) inner = half;
    else outer = half;
  }
  return outer;
}

/** The curve of a flow, from border to border; to the side by *bend* where there is one in the other direction too. */
export function curve(from, to, bend) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const [nx, ny] = [dy / length, -dx / length];
  const shift = bend ? 7 : 0;
  const points = [
    { x: from.x + nx * shift, y: from.y + ny * shift },
    { x: (from.x + to.x) / 2 + nx * bend * 2, y: (from.y + to.y) / 2 + ny * bend * 2 },
    { x: to.x + nx * shift, y: to.y + ny * shift },
  ];
  // The polar form of the curve: its points where both numbers are one, and the handle of a part of it otherwise.
  const polar = (t, u) => {
    const [a, b, c] = [(1 - t) * (1 - u), (1 - t) * u + t * (1 - u), t * u];
    return { x: a * points[0].x + b * points[1].x + c * points[2].x, y: a * points[0].y + b * points[1].y + c * points[2].y };
  };
  const on = (t) => polar(t, t);
  const [first, last] = [border(on, from, 0, 0.5), border(on, to, 1, 0.5)];
  return { start: on(first), middle: polar(first, last), end: on(last), at: (t) => on(first + (last - first) * t) };
}

const overlaps = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** Where on a line a label may be, from the middle outwards. */
const SPOTS = Array.from({ length: 27 }, (_, at) => 0.5 + (at % 2 ? 1 : -1) * Math.ceil(at / 2) * 0.03);

/**
 * Find a place on its curve for each label where it covers no other and no cluster, and as little as can be of other
 * lines; null where there is none.
 */
export function placeLabels(curves, sizes, places, width, height) {
  const taken = Object.values(places).map((place) => ({ x: place.x - place.width / 2, y: place.y - place.height / 2, width: place.width, height: place.height }));
  const drawn = curves.map((one) => Array.from({ length: 25 }, (_, at) => one.at(at / 24)));
  return curves.map((one, index) => {
    const size = sizes[index];
    let best = null;
    for (const t of SPOTS) {
      const middle = one.at(t);
      const x = Math.min(Math.max(middle.x - size.width / 2, 2), width - size.width - 2);
      const y = Math.min(Math.max(middle.y - size.height / 2, 2), height - size.height - 2);
      const box = { x: x - 2, y: y - 2, width: size.width + 4, height: size.height + 4 };
      if (taken.some((other) => overlaps(box, other))) continue;
      const dot = { width: 0, height: 0 };
      const covered = drawn.reduce((sum, points, other) => sum + (other === index ? 0 : points.filter((point) => overlaps(box, { ...dot, ...point })).length), 0);
      const cost = covered + Math.abs(t - 0.5);
      if (!best || cost < best.cost) best = { cost, box, spot: { x: x + size.width / 2, y: y + size.height / 2 } };
    }
    if (best) taken.push(best.box);
    return best?.spot ?? null;
  });
}

export class Diagram {
  constructor(open) {
    this.open = open;
    this.node = s("svg", { class: "diagram", role: "group", "aria-label": "Clusters and the flows between them" });
    this.width = 0;
    this.shape = "";
    this.flows = [];
    this.edges = new Map();
    this.nodes = new Map();
    this.watcher = new ResizeObserver(() => {
      const width = Math.floor(this.node.parentNode?.clientWidth ?? 0);
      if (width && width !== this.width) {
        this.width = width;
        this.shape = "";
        if (this.flows.length) this.update(this.flows);
      }
    });
  }

  /** To be called once it has its place in the page. */
  begin() {
    this.watcher.observe(this.node.parentNode);
  }

  end() {
    this.watcher.disconnect();
  }

  update(flows) {
    this.flows = flows;
    if (!this.width) return;
    const shape = flows.map((flow) => flow.flow).join("\n") + this.width;
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(flows);
    }
    for (const flow of flows) this.show(flow);
    this.showClusters(flows);
  }

  build(flows) {
    const aliases = [...new Set(flows.flatMap((flow) => [flow.source, flow.target]))];
    // Two clusters at the far ends of a wide screen would look unrelated.
    const width = aliases.length === 2 ? Math.min(this.width, 860) : this.width;
    const { places, height, isTall } = layout(aliases, flows, width);
    setAttribute(this.node, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this.node, "width", width);
    setAttribute(this.node, "height", height);
    const pairs = new Set(flows.map((flow) => `${flow.source}\n${flow.target}`));
    const curves = flows.map(({ source, target }) => {
      const [from, to] = [places[source], places[target]];
      return curve(from, to, pairs.has(`${target}\n${source}`) ? bow(from, to, { isOnly: aliases.length === 2, isTall, isNarrow: width < 520 }) : 0);
    });
    const isRoomy = width >= 520 || flows.filter((flow) => !isHeartbeatsAlone(flow)).length <= 2;
    const sign = (flow) => (isHeartbeatsAlone(flow) ? DOT : SIGN);
    const found = isRoomy ? placeLabels(curves, flows.map((flow) => (isHeartbeatsAlone(flow) ? DOT : PLATE)), places, width, height) : [];
    // A diagram where only some arrows have numbers is harder to read than one with signs only.
    const hasNumbers = found.length > 0 && found.every(Boolean);
    const spots = hasNumbers ? found : placeLabels(curves, flows.map(sign), places, width, height);
    this.edges.clear();
    this.nodes.clear();
    const edges = flows.map((flow, at) => this.edge(flow, curves[at], spots[at] ?? curves[at].at(0.5), hasNumbers && !isHeartbeatsAlone(flow)));
    const nodes = aliases.map((alias) => this.cluster(alias, places[alias]));
    // Labels are above all lines.
    this.node.replaceChildren(...edges.map((parts) => parts.lines), ...nodes, ...edges.map((parts) => parts.node));
  }

  edge(flow, one, at, hasNumbers) {
    const d = `M${one.start.x} ${one.start.y}Q${one.middle.x} ${one.middle.y} ${one.end.x} ${one.end.y}`;
    const angle = (Math.atan2(one.end.y - one.middle.y, one.end.x - one.middle.x) * 180) / Math.PI;
    const isAlone = isHeartbeatsAlone(flow);
    const link = { class: isAlone ? "edge alone" : "edge", href: flowAddress(flow.flow) };
    const parts = {
      node: s("a", link),
      lines: s("a", { ...link, tabindex: "-1", "aria-hidden": "true" }),
      title: s("title"),
      rate: s("text", { class: "edge-rate", x: 10, y: -4 }),
      lag: s("text", { class: "edge-lag", x: 10, y: 12 }),
      sign: s("path", { class: "edge-sign" }),
      label: s("g", { class: "edge-label", transform: `translate(${at.x} ${at.y})` }),
    };
    if (hasNumbers) {
      parts.label.append(
        s("rect", { class: "edge-plate", x: -PLATE.width / 2, y: -PLATE.height / 2, ...PLATE, rx: 8 }),
        s("g", { transform: "translate(-44 -8)" }, s("circle", { class: "edge-dot", r: 8 }), parts.sign),
        parts.rate, parts.lag,
      );
    } else parts.label.append(s("circle", { class: "edge-dot", r: (isAlone ? DOT : SIGN).width / 2 }), parts.sign);
    parts.node.append(parts.title, parts.label);
    parts.lines.append(
      s("path", { class: "edge-wide", d }),
      s("path", { class: "edge-line", d }),
      s("path", { class: "edge-head", d: isAlone ? "M0 0L-7-3.5L-7 3.5z" : "M0 0L-10-5.5L-7.5 0L-10 5.5z", transform: `translate(${one.end.x} ${one.end.y}) rotate(${angle})` }));
    this.edges.set(flow.flow, parts);
    return parts;
  }

  cluster(alias, place) {
    const isSmall = place.height < NODE.height;
    const word = isSmall ? null : s("text", { class: "node-word", x: place.x, y: place.y + 14 });
    const name = s("text", { class: "node-name", x: place.x, y: place.y + (isSmall ? 5 : -1) });
    const longest = Math.floor((place.width - 18) / 8);
    const shown = alias.length > longest ? `${alias.slice(0, longest - 1)}…` : alias;
    const title = s("title");
    const node = s("g", { class: "node" }, title,
      s("rect", { class: "node-box", x: place.x - place.width / 2, y: place.y - place.height / 2, width: place.width, height: place.height, rx: isSmall ? 7 : 9 }), name, word);
    this.nodes.set(alias, { node, word, name, shown, title });
    return node;
  }

  show(flow) {
    const parts = this.edges.get(flow.flow);
    const { word, sign, mood } = fare(flow);
    for (const node of [parts.node, parts.lines]) setAttribute(node, "data-mood", mood);
    setAttribute(parts.node, "data-state", flow.state);
    const isAlone = isHeartbeatsAlone(flow);
    setText(parts.rate, recordsPerS(flow.records_per_s));
    setText(parts.lag, mood !== "good" ? word : `lag ${atLeast(short(flow.lag), flow.lag_is_least)}`);
    setAttribute(parts.sign, "d", isAlone && mood === "still" ? "" : ICON_D[sign] ?? ICON_D.none);
    const numbers = isAlone ? "" : `, ${recordsPerS(flow.records_per_s)}, lag ${atLeast(short(flow.lag), flow.lag_is_least)}`;
    const text = `${flowEnds(flow.flow).join(" to ")}: ${isAlone && mood !== "still" ? `heartbeats only, ${word}` : word}${numbers}`;
    setText(parts.title, text);
    setAttribute(parts.node, "aria-label", text);
  }

  showClusters(flows) {
    const seen = flows.flatMap((flow) => flow.clusters.filter((one) => one.is_asked));
    const asked = new Set(seen.map((one) => one.alias));
    // What lets one flow in is there, whatever keeps another one out.
    const there = new Set(seen.filter((one) => one.is_reachable).map((one) => one.alias));
    const away = new Set([...asked].filter((alias) => !there.has(alias)));
    for (const [alias, { node, word, name, shown, title }] of this.nodes) {
      const fares = away.has(alias) ? "unreachable" : asked.has(alias) ? "reachable" : "not asked";
      setAttribute(node, "data-mood", away.has(alias) ? "bad" : "good");
      if (word) setText(word, fares);
      setText(name, word || !away.has(alias) ? shown : `✕ ${shown}`);
      setText(title, `${alias}: ${fares}`);
    }
  }
}
