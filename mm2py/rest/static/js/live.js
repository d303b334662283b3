// Server-sent events over fetch: EventSource cannot send credentials in a header.

import { read, Refused, send } from "./api.js";

const SILENCE_MS = 6_000;
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000];

/** Puts lines together to messages (HTML standard, chapter 9.2). */
export class Messages {
  constructor() {
    this.rest = "";
  }

  take(text) {
    const whole = (this.rest + text).split("\n\n");
    this.rest = whole.pop();
    const found = [];
    for (const block of whole) {
      let kind = "message";
      let id = "";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
        else if (line.startsWith("id: ")) id = line.slice(4);
      }
      if (data.length) found.push({ kind, id, value: JSON.parse(data.join("\n")) });
    }
    return found;
  }
}

/**
 * One stream at a time, reopened whenever it ends. `told` gets lists of messages; `changed` gets "connecting", "live",
 * "lost", "refused" or "unknown", and an error with the last three.
 */
export class Live {
  constructor({ told, changed }) {
    this.told = told;
    this.changed = changed;
    this.after = "";
    this.path = null;
    this.flow = null;
    this.failures = 0;
    this.abort = null;
    this.timer = 0;
  }

  /** Follow *flow*, or all flows where it is null. */
  follow(flow) {
    const path = flow === null ? "stream?" : `stream?flow=${encodeURIComponent(flow)}&`;
    if (path === this.path && this.abort) return;
    this.path = path;
    this.flow = flow;
    this.failures = 0;
    this.join();
  }

  rest() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
  }

  join() {
    this.rest();
    const abort = new AbortController();
    this.abort = abort;
    if (this.failures === 0) this.changed("connecting");
    this.run(abort).then(
      () => this.again(abort, null),
      (error) => this.again(abort, error),
    );
  }

  again(abort, error) {
    if (abort !== this.abort) return; // we closed it ourselves
    const isRefused = error instanceof Refused && (error.status === 401 || error.status === 403);
    const isUnknown = error instanceof Refused && error.status === 404 && this.flow !== null;
    if (isRefused || isUnknown) {
      this.abort = null;
      this.changed(isRefused ? "refused" : "unknown", error);
      return;
    }
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    this.failures += 1;
    this.changed("lost", error);
    this.timer = setTimeout(() => this.join(), pause);
  }

  async run(abort) {
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    heard();
    try {
      const response = await send(`${this.path}after=${encodeURIComponent(this.after)}`, {
        signal: abort.signal,
        headers: { Accept: "text/event-stream" },
      });
      if (!response.ok) await read(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const messages = new Messages();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        heard();
        if (abort !== this.abort) return;
        const told = messages.take(value);
        if (this.failures > 0 || told.length) {
          this.failures = 0;
          this.changed("live");
        }
        for (const message of told) if (message.id) this.after = message.id;
        if (told.length) this.told(told);
      }
    } finally {
      clearTimeout(silence);
    }
  }
}
