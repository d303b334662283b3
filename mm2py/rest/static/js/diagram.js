// The diagram of clusters and flows. Positions are computed here, for the available width, so that text keeps its size.

import { s, setAttribute, setText } from "./dom.js";
import { recordsPerS, short, state } from "./format.js";

const NODE = { height: 44, least: 96, most: 190 };
/** With more clusters than this they are drawn smaller, with their names alone. */
const ROOMY = 10;
/** So many fit into a circle on a phone. */
const FEW = 5;
/** Room above and below, for curves that bend out of the circle. */
const EDGE_ROOM = 38;
const ICON_D = {
  ok: "M-3.4 .4l2.4 2.4L3.6-2.6", pause: "M-2-3v6M2-3v6", stop: "M-2.6-2.6h5.2v5.2h-5.2z", bad: "M0-3.2V.8M0 3.2v.1",
  restart: "M3.2 0A3.2 3.2 0 1 1 1.6-2.8M3.4-4v2.4H1", wait: "M0-2.8V0l1.8 1.4", drain: "M0-3.4V3M-2.6.6L0 3.2 2.6.6", none: "M-3 0h6",
};

/** How a flow fares in one word: what is away or has failed counts more than what the flow says of itself. */
export function fare(flow) {
  if (flow.clusters.some((cluster) => !cluster.is_reachable)) return state("unreachable");
  const worst = flow.state === "running" ? flow.issues[0]?.severity : undefined;
  if (worst === "error") return { word: "has failures", sign: "bad", mood: "bad" };
  if (worst === "warning") return { word: "running with problems", sign: "bad", mood: "warn" };
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

/** On a phone: two columns, and what all have to do with above them. */
function inColumns(hub, aliases, width, put, places, nodeWidth) {
  const others = aliases.filter((alias) => alias !== hub);
  const top = hub ? 84 : 0;
  const rows = Math.ceil(others.length / 2);
  if (hub) put(hub, width / 2, 26);
  others.forEach((alias, at) => put(alias, at % 2 ? width - nodeWidth / 2 - 4 : nodeWidth / 2 + 4, top + 30 + Math.floor(at / 2) * 62));
  return { places, height: top + rows * 62, isTall: false };
}

/** Where a line from the middle of a node to a point leaves the node. */
function border(place, towards, gap) {
  const [dx, dy] = [towards.x - place.x, towards.y - place.y];
  const half = { x: place.width / 2 + gap, y: place.height / 2 + gap };
  const scale = Math.min(Math.abs(dx) > 0 ? half.x / Math.abs(dx) : Infinity, Math.abs(dy) > 0 ? half.y / Math.abs(dy) : Infinity);
  return { x: place.x + dx * scale, y: place.y + dy * scale };
}

/** The curve of a flow: to the side where there is one in the other direction too. */
export function curve(from, to, hasTwin, isOnly) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = hasTwin ? Math.min(isOnly ? 62 : 46, length * 0.24) : 0;
  const [nx, ny] = [dy / length, -dx / length];
  const middle = { x: (from.x + to.x) / 2 + nx * bend * 1.6, y: (from.y + to.y) / 2 + ny * bend * 1.6 };
  const shift = hasTwin ? 9 : 0;
  const moved = (place) => ({ ...place, x: place.x + nx * shift, y: place.y + ny * shift });
  const start = border(moved(from), hasTwin ? middle : to, 3);
  const end = border(moved(to), hasTwin ? middle : from, 9);
  return { start, middle, end, at: (t) => ({
    x: (1 - t) ** 2 * start.x + 2 * t * (1 - t) * middle.x + t ** 2 * end.x,
    y: (1 - t) ** 2 * start.y + 2 * t * (1 - t) * middle.y + t ** 2 * end.y,
  }) };
}

const overlaps = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** Find a place on its curve for each label where it covers no other and no cluster; null where there is none. */
export function placeLabels(curves, sizes, places, width, height) {
  const taken = Object.values(places).map((place) => ({ x: place.x - place.width / 2, y: place.y - place.height / 2, width: place.width, height: place.height }));
  return curves.map((one, index) => {
    const size = sizes[index];
    for (const t of [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8]) {
      const middle = one.at(t);
      const x = Math.min(Math.max(middle.x - size.width / 2, 2), width - size.width - 2);
      const y = Math.min(Math.max(middle.y - size.height / 2, 2), height - size.height - 2);
      const box = { x: x - 2, y: y - 2, width: size.width + 4, height: size.height + 4 };
      if (!taken.some((other) => overlaps(box, other))) {
        taken.push(box);
        return { x: x + size.width / 2, y: y + size.height / 2 };
      }
    }
    return null;
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
    const { places, height } = layout(aliases, flows, width);
    setAttribute(this.node, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this.node, "width", width);
    setAttribute(this.node, "height", height);
    const pairs = new Set(flows.map((flow) => `${flow.source}\n${flow.target}`));
    const curves = flows.map((flow) => curve(places[flow.source], places[flow.target], pairs.has(`${flow.target}\n${flow.source}`), aliases.length === 2));
    const isRoomy = width >= 520 || flows.length <= 2;
    const size = { width: 118, height: 40 };
    const found = isRoomy ? placeLabels(curves, flows.map(() => size), places, width, height) : [];
    // A diagram where only some arrows have numbers is harder to read than one with signs only.
    const spots = found.length && found.every(Boolean) ? found : flows.map(() => null);
    this.edges.clear();
    this.nodes.clear();
    const edges = flows.map((flow, at) => this.edge(flow, curves[at], spots[at]));
    const nodes = aliases.map((alias) => this.cluster(alias, places[alias]));
    // Labels are above all lines.
    this.node.replaceChildren(...edges.map((parts) => parts.lines), ...nodes, ...edges.map((parts) => parts.node));
  }

  edge(flow, one, spot) {
    const d = `M${one.start.x} ${one.start.y}Q${one.middle.x} ${one.middle.y} ${one.end.x} ${one.end.y}`;
    const angle = (Math.atan2(one.end.y - one.middle.y, one.end.x - one.middle.x) * 180) / Math.PI;
    const sign = one.at(0.5);
    const at = spot ?? sign;
    const parts = {
      node: s("a", { class: "edge", href: `#/flow/${encodeURIComponent(flow.flow)}` }),
      lines: s("a", { class: "edge", href: `#/flow/${encodeURIComponent(flow.flow)}`, tabindex: "-1", "aria-hidden": "true" }),
      title: s("title"),
      rate: s("text", { class: "edge-rate", x: 10, y: -4 }),
      lag: s("text", { class: "edge-lag", x: 10, y: 12 }),
      sign: s("path", { class: "edge-sign" }),
      label: s("g", { transform: `translate(${at.x} ${at.y})` }),
    };
    if (spot) {
      const [x, y] = [-59, -20];
      parts.label.append(
        s("rect", { class: "edge-plate", x, y, width: 118, height: 40, rx: 8 }),
        s("g", { transform: "translate(-44 -8)" }, s("circle", { class: "edge-dot", r: 8 }), parts.sign),
        parts.rate, parts.lag,
      );
    } else parts.label.append(s("circle", { class: "edge-dot", r: 9 }), parts.sign);
    parts.node.append(parts.title, parts.label);
    parts.lines.append(
      s("path", { class: "edge-wide", d }),
      s("path", { class: "edge-line", d }),
      s("path", { class: "edge-head", d: "M0 0L-10-5.5L-7.5 0L-10 5.5z", transform: `translate(${one.end.x} ${one.end.y}) rotate(${angle})` }));
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
    setText(parts.rate, isAlone ? "heartbeats" : recordsPerS(flow.records_per_s));
    setText(parts.lag, mood !== "good" ? word : isAlone ? "only" : `lag ${short(flow.lag)}`);
    setAttribute(parts.sign, "d", ICON_D[sign] ?? ICON_D.none);
    const numbers = isAlone ? "heartbeats only" : `${recordsPerS(flow.records_per_s)}, lag ${short(flow.lag)}`;
    const text = `${flow.source} to ${flow.target}: ${word}, ${numbers}`;
    setText(parts.title, text);
    setAttribute(parts.node, "aria-label", text);
  }

  showClusters(flows) {
    const away = new Set(flows.flatMap((flow) => flow.clusters.filter((one) => !one.is_reachable).map((one) => one.alias)));
    for (const [alias, { node, word, name, shown, title }] of this.nodes) {
      const fares = away.has(alias) ? "unreachable" : "reachable";
      setAttribute(node, "data-mood", away.has(alias) ? "bad" : "good");
      if (word) setText(word, fares);
      setText(name, word || !away.has(alias) ? shown : `✕ ${shown}`);
      setText(title, `${alias}: ${fares}`);
    }
  }
}
