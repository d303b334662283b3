// Numbers, times and states for display.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const THIN = "\u202f";
export const NOTHING = "–";

/** 12345678 -> "12 345 678", with thin spaces, which are a decimal point in no language. */
export function count(number) {
  return number === null || number === undefined ? NOTHING : whole.format(number).replaceAll(",", THIN);
}

/** A figure that may be more than is known: the daemon marks what it shows of those with `_is_least`. */
export const atLeast = (text, isLeast) => (isLeast ? `≥${THIN}${text}` : text);

function scaled(number, units, step) {
  let at = 0;
  let value = Math.abs(number);
  while (value >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  const digits = value >= 100 || (at === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  const text = (at === 0 && value < 10 && !Number.isInteger(value) ? value.toFixed(1) : value.toFixed(digits));
  return (number < 0 ? "-" : "") + text + THIN + units[at];
}

/** 1234567 -> "1.23 M" */
export function short(number) {
  return number === null || number === undefined ? NOTHING : scaled(number, ["", "k", "M", "G", "T"], 1000).trimEnd();
}

export function bytes(number) {
  return number === null || number === undefined ? NOTHING : scaled(number, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
}

export const recordsPerS = (number) => (number === null || number === undefined ? NOTHING : `${short(number)}/s`);
export const bytesPerS = (number) => (number === null || number === undefined ? NOTHING : `${bytes(number)}/s`);

export function ms(number) {
  if (number === null || number === undefined) return NOTHING;
  if (number < 10) return `${number.toFixed(1)}${THIN}ms`;
  if (number < 1000) return `${Math.round(number)}${THIN}ms`;
  return duration(number / 1000);
}

/** Seconds, in at most two units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds === 0) return `0${THIN}s`;
  if (seconds < 9.95) return `${seconds < 0.95 ? seconds.toFixed(1) : Number(seconds.toFixed(1))}${THIN}s`;
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many > 0) parts.push(`${many}${THIN}${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || `0${THIN}s`;
}

export function ago(then_ms, now_ms) {
  if (then_ms === null || then_ms === undefined) return NOTHING;
  const seconds = Math.max(0, (now_ms - then_ms) / 1000);
  return seconds < 1.5 ? "just now" : `${duration(Math.round(seconds))} ago`;
}

export function clock(wall_ms) {
  return new Date(wall_ms).toLocaleTimeString("en-GB");
}

export function dateAndClock(wall_ms) {
  return new Date(wall_ms).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

const FAILING = { unreachable: ["unreachable", "bad", "bad"], has_failures: ["has failures", "bad", "bad"] };

/** What each state is called, how it looks, and how much it worries. */
const STATES = {
  starting: ["starting", "wait", "busy"],
  running: ["running", "ok", "good"],
  draining: ["draining", "drain", "busy"],
  drained: ["drained", "stop", "still"],
  restarting: ["restarting", "restart", "warn"],
  failed: ["failed", "bad", "bad"],
  paused: ["paused", "pause", "still"],
  stopped: ["stopped", "stop", "still"],
  standby: ["standing by", "wait", "warn"],
  ...FAILING,
};

const STAGES = {
  copying: ["copying", "ok", "good"],
  backing_off: ["retrying soon", "restart", "warn"],
  stopped: ["failed", "bad", "bad"],
  paused: ["paused", "pause", "still"],
  missing: ["missing at the target", "bad", "bad"],
  elsewhere: ["on other nodes", "none", "still"],
};

const TASK_STATES = {
  idle: ["idle", "none", "still"],
  running: ["running", "ok", "good"],
  waiting_for_slot: ["waiting for a Spark slot", "wait", "warn"],
  late: ["late: hangs", "bad", "bad"],
  backing_off: ["retrying soon", "restart", "warn"],
  paused: ["paused", "pause", "still"],
};

const NODE_STATES = {
  owner: ["owner", "ok", "good"],
  running: ["running", "ok", "good"],
  standby: ["standing by", "wait", "still"],
  draining: ["draining", "drain", "busy"],
  drained: ["drained", "stop", "still"],
  silent: ["does not answer", "bad", "bad"],
  gone: ["gone", "bad", "warn"],
  ...FAILING,
};

const LEVELS = {
  info: ["info", "none", "still"],
  warn: ["warning", "bad", "warn"],
  error: ["error", "bad", "bad"],
};

const named = (table, name) => {
  const [word, sign, mood] = table[name] ?? [String(name).replaceAll("_", " "), "none", "still"];
  return { word, sign, mood };
};
export const state = (name) => named(STATES, name);
export const stage = (name) => named(STAGES, name);
export const taskState = (name) => named(TASK_STATES, name);
export const nodeState = (name) => named(NODE_STATES, name);
export const level = (name) => named(LEVELS, name);

const CONNECTORS = {
  MirrorSourceConnector: "Copying",
  MirrorCheckpointConnector: "Checkpoints",
  MirrorHeartbeatConnector: "Heartbeats",
};
export const connector = (name) => CONNECTORS[name] ?? name;

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** partition_stopped -> "Partition stopped" */
export function sentence(name) {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** "A->B (NAME)" -> ["A", "B (NAME)"] */
export function flowEnds(flow) {
  const at = flow.indexOf("->");
  return [flow.slice(0, at), flow.slice(at + 2)];
}
