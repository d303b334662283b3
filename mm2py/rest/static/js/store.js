// The page's data: the latest state, assembled from snapshots and changes.

const KEPT_EVENTS = 500;
/** As the daemon does: a thousand new topics displace nothing else. */
const KEPT_OF_RUN = 20;
const KEPT_POINTS = 1_200;
/** Of each topic's rate: two minutes, a sample every two seconds. */
const KEPT_RATES = 60;
const RATE_EVERY_MS = 2_000;

export const store = {
  overview: null,
  /** The flow that is looked at, null before its first snapshot. */
  flow: null,
  history: null,
  /** The last rates of each topic of the flow, since the page is open. */
  rates: new Map(),
  /** Newest first. */
  events: [],
  /** The daemon knew no such flow when it was asked for. */
  isGone: false,
  hasEnded: false,
  connection: "connecting",
  error: null,
  who: null,
  /** What the daemon's clock is ahead of ours. */
  ahead_ms: 0,
};

export const now = () => Date.now() + store.ahead_ms;

export function find(flow) {
  return store.overview?.flows.find((one) => one.flow === flow) ?? null;
}

export function forgetFlow() {
  store.flow = null;
  store.history = null;
  store.rates = new Map();
  store.isGone = false;
}

export function take(messages) {
  const fresh = [];
  for (const { kind, value } of messages) {
    if (kind === "overview") takeOverview(value);
    else if (kind === "flow") takeFlow(value);
    else if (kind === "history") store.history = value;
    else if (kind === "point") takePoint(value);
    else if (kind === "event") fresh.push(value);
    else if (kind === "end") store.hasEnded = true;
  }
  if (fresh.length) {
    // A restarted daemon sends its events from the beginning.
    const known = new Set(store.events.map((event) => event.mark));
    const added = fresh.filter((event) => !known.has(event.mark)).reverse();
    const lengths = new Map();
    const isKept = ({ run }) => {
      lengths.set(run, (lengths.get(run) ?? 0) + 1);
      return lengths.get(run) <= KEPT_OF_RUN;
    };
    store.events = [...added, ...store.events].filter(isKept).slice(0, KEPT_EVENTS);
  }
}

function takeOverview(value) {
  store.ahead_ms = value.wall_ms - Date.now();
  store.overview = value;
  store.hasEnded = false;
}

function takeFlow(value) {
  const isSnapshot = value.partitions?.all === true;
  if (isSnapshot || store.flow === null || store.flow.flow !== value.flow) {
    store.flow = { flow: value.flow, columns: value.partition_columns ?? [], partitions: new Map(), groups: new Map(), elsewhere: new Map(), missing: new Map() };
    store.isGone = false;
  }
  const { partitions, groups, elsewhere, missing, partition_columns: _columns, ...rest } = value;
  Object.assign(store.flow, rest);
  if (partitions) {
    for (const key of partitions.gone) store.flow.partitions.delete(key);
    for (const row of partitions.set) store.flow.partitions.set(`${row[0]}-${row[1]}`, named(store.flow.columns, row));
  }
  if (groups) {
    for (const key of groups.gone) store.flow.groups.delete(key);
    for (const row of groups.set) store.flow.groups.set(row.group, row);
  }
  if (elsewhere) {
    for (const topic of elsewhere.gone) store.flow.elsewhere.delete(topic);
    for (const [topic, remote, nodes] of elsewhere.set) store.flow.elsewhere.set(topic, { topic, remote, nodes });
  }
  if (missing) {
    for (const topic of missing.gone) store.flow.missing.delete(topic);
    for (const [topic, remote, many, why, hint] of missing.set) store.flow.missing.set(topic, { topic, remote, many, why, hint });
  }
}

function named(columns, row) {
  const value = {};
  for (let at = 0; at < columns.length; at += 1) value[columns[at]] = row[at];
  return value;
}

function takePoint(value) {
  sampleTopics();
  const history = store.history;
  if (history === null || history.flow !== value.flow) return;
  store.ahead_ms = value.wall_ms - Date.now();
  for (const [name, column] of Object.entries(history)) {
    if (!Array.isArray(column)) continue;
    column.push(value[name]);
    if (column.length > KEPT_POINTS) column.shift();
  }
}

let sampled_ms = -RATE_EVERY_MS;

function sampleTopics() {
  // Points come once a second, not to the millisecond.
  if (!store.flow || performance.now() - sampled_ms < RATE_EVERY_MS - 500) return;
  sampled_ms = performance.now();
  const sums = new Map();
  for (const { topic, records_per_s } of store.flow.partitions.values()) sums.set(topic, (sums.get(topic) ?? 0) + (records_per_s ?? 0));
  const before = store.rates;
  store.rates = new Map();
  for (const [topic, sum] of sums) {
    const rates = before.get(topic) ?? [];
    rates.push(sum);
    if (rates.length > KEPT_RATES) rates.shift();
    store.rates.set(topic, rates);
  }
}
