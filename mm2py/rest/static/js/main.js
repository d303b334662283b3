// The current page, the header, and the one stream that feeds them.

import { guard } from "./actions.js";
import { ask, basic, bearer, hasAuthorization, Refused, setAuthorization } from "./api.js";
import { askWho } from "./dialogs.js";
import { Docs, documentNamed } from "./docs.js";
import { h, icon, setAttribute, setText } from "./dom.js";
import { Events } from "./events.js";
import { FlowPage } from "./flow.js";
import { clock, duration } from "./format.js";
import { Live } from "./live.js";
import { Overview } from "./overview.js";
import { place } from "./place.js";
import { verdict } from "./problems.js";
import { find, now, store, take } from "./store.js";
import { pill, setPill } from "./table.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const notices = document.getElementById("notices");
const judged = document.getElementById("verdict");
const nodeName = document.getElementById("node");
const themeButton = document.getElementById("theme");

let page = null;
let route = "";
let isDrawing = false;
let isAsking = false;
let lostAt = 0;

const live = new Live({
  told: (messages) => {
    take(messages);
    // It may have been added to the file meanwhile.
    if (store.isGone && find(page.flow)) live.follow(page.flow);
    draw();
  },
  changed: (state, error) => {
    if (state === "unknown") {
      store.isGone = true;
      live.follow(null);
      return;
    }
    if (state === "lost" && store.connection !== "lost") lostAt = Date.now();
    // It could not be asked for, or was not answered, when the page was loaded.
    if (state === "live" && store.connection !== "live" && !store.who) whoAmI().catch(login);
    // While reconnecting, it is still lost.
    if (!(state === "connecting" && store.connection === "lost")) store.connection = state;
    store.error = error ?? null;
    if (state === "refused") login(error);
    draw();
  },
});

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    header();
    if (page && (store.overview || store.isGone)) {
      if (!page.node.isConnected) {
        main.replaceChildren(page.node);
        page.begin();
      }
      page.update();
      guard(main);
    }
  });
}

const CONNECTION = {
  connecting: ["Connecting…", "busy"],
  live: ["Live", "good"],
  lost: ["Connection lost, retrying", "bad"],
  refused: ["Not logged in", "bad"],
};

function header() {
  const [word, mood] = CONNECTION[store.connection];
  setAttribute(connection, "data-mood", mood);
  setText(connection, word);
  const isStale = store.overview !== null && store.connection !== "live";
  setAttribute(document.body, "data-stale", isStale ? "yes" : null);
  notice("lost", store.connection === "lost" && store.overview !== null, "bad",
    `Connection lost, retrying. The data is from ${clock(lostAt)}.${store.hasEnded ? " The daemon was stopping." : ""}`);
  const reason = store.error instanceof Refused ? `There is nothing to show: ${store.error.message}` : "The daemon does not respond";
  notice("never", store.connection === "lost" && store.overview === null, "bad", `${reason}. Retrying.`);
  const overview = store.overview;
  const states = new Set((overview?.flows ?? []).map((flow) => flow.state));
  const isDraining = states.has("draining") && !states.has("running") && !states.has("starting");
  notice("starting", Boolean(overview) && !overview.is_ready && !isDraining && !isStale, "busy",
    overview?.spark && !overview.spark.is_up && overview.spark.reason ? `Spark is down and is being restarted: ${overview.spark.reason}` : "The daemon is starting: Spark or clusters are not ready yet.");
  notice("draining", isDraining && !isStale, "busy", "The daemon is stopping: records in flight are still being written.");
  setText(document.getElementById("who"), store.who?.name ? `${store.who.name}${store.who.mayWrite ? "" : " (read only)"}` : "");
  if (overview) {
    const since = overview.started_ms ? `, up for ${duration((now() - overview.started_ms) / 1000)}` : "";
    const { worker_id: name, host, id } = overview.node;
    setText(nodeName.firstChild, name);
    setText(nodeName.lastChild, host && !name.startsWith(host) ? ` on ${host}` : "");
    setAttribute(nodeName, "title", `This node: ${id || name}`);
    setText(document.getElementById("footer"), `mm2py ${overview.version}, node ${id || name}${since}`);
  }
  const fares = overview && !isStale ? verdict(overview) : null;
  judged.hidden = !fares;
  if (fares) {
    setPill(judged.firstChild, fares);
    setAttribute(judged, "aria-label", `This node: ${fares.word}`);
  }
  title(isStale);
}

const SIGNS = { good: "\u2713", warn: "!", bad: "\u2715", busy: "\u2026", still: "\u2016" };

/** What a row of the browser's tabs shows: first how it is, then what it is. */
function title(isStale) {
  const { overview } = store;
  const { text, word, mood } = page?.title ?? { text: "", word: "", mood: "still" };
  const fares = isStale ? { word: CONNECTION[store.connection][0].toLowerCase(), mood: "bad" } : overview && !word ? { word, mood: verdict(overview).mood } : { word, mood };
  const wanted = [[overview ? SIGNS[fares.mood] : "", text, fares.word].filter(Boolean).join(" "), `mm2py ${overview?.node.worker_id ?? ""}`.trim()].filter(Boolean).join(" \u00b7 ");
  if (document.title !== wanted) document.title = wanted;
}

function notice(name, isShown, mood, text) {
  let node = notices.querySelector(`[data-name="${name}"]`);
  if (!isShown) {
    node?.remove();
    return;
  }
  if (!node) {
    node = h("div", { class: "notice", "data-name": name, "data-mood": mood }, icon(mood === "bad" ? "bad" : "wait"), h("span"));
    notices.append(node);
  }
  setText(node.lastChild, text);
}

// Pages.

const PAGES = {
  flow: ([, flow]) => new FlowPage(flow),
  docs: ([, name, at]) => new Docs(documentNamed(name), at ?? ""),
  events: () => new Events(),
  overview: () => new Overview(),
};

/** What a place is a part of: on another tab it is the same page. */
function pageOf([name, first = "", second = ""]) {
  if (name === "flow" && first) return ["flow", first];
  if (name === "docs") return ["docs", first, first === "event" ? second : ""];
  return [name === "events" ? name : "overview"];
}

function go() {
  const here = place();
  const [name, flow = ""] = pageOf(here.parts);
  const wanted = pageOf(here.parts).join(" ");
  for (const link of document.querySelectorAll("header nav a")) setAttribute(link, "aria-current", link.dataset.page === name ? "page" : null);
  if (wanted !== route) {
    const isFirst = route === "";
    route = wanted;
    page?.end();
    page = PAGES[name](here.parts);
    if (!isFirst) {
      window.scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
    live.follow(name === "flow" ? flow : null);
  }
  page.choose(here);
  draw();
}

// The user.

async function whoAmI() {
  try {
    const told = await ask("GET", "whoami");
    store.who = { name: told.name ?? "", mayWrite: told.may_write === true, why: told.why_not ?? "" };
  } catch (error) {
    store.who = null;
    if (error instanceof Refused && error.status === 401) throw error;
  }
  draw();
}

async function login(refusal) {
  if (isAsking) return;
  isAsking = true;
  let message = hasAuthorization() || refusal.status === 403 ? refusal.message : "";
  const send = async ({ name, password, token }) => {
    setAuthorization(token ? bearer(token) : basic(name, password));
    try {
      await whoAmI();
      return "";
    } catch (error) {
      setAuthorization(null);
      return error.message;
    }
  };
  while (!await askWho(message, send)) message = "Log in with a name or a token to see anything.";
  isAsking = false;
  if (live.path !== null) live.join();
}

async function begin() {
  try {
    await whoAmI();
  } catch (error) {
    await login(error);
  }
  go();
}

// Colours.

const THEMES = { auto: ["System default", "auto"], light: ["Light", "light"], dark: ["Dark", "dark"] };

function showTheme() {
  const chosen = document.documentElement.dataset.theme ?? "auto";
  const [word, sign] = THEMES[chosen];
  themeButton.replaceChildren(icon(sign, 18));
  setAttribute(themeButton, "title", `Colours: ${word.toLowerCase()}`);
  setAttribute(themeButton, "aria-label", `Colours: ${word.toLowerCase()}. Change`);
}

themeButton.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem("mm2py-theme");
    else localStorage.setItem("mm2py-theme", next);
  } catch { /* storage may be off: then it holds until the page is loaded again */ }
  showTheme();
  page?.repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page?.repaint());

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, select, textarea")) return;
  const field = [...main.querySelectorAll("input[type=search]")].find((node) => node.checkVisibility());
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
});
window.addEventListener("hashchange", go);
// A hidden page needs no updates from the daemon.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) live.rest();
  else if (live.path !== null && !isAsking) live.join();
});
// Times such as "3 s ago" advance even if nothing else changes.
setInterval(draw, 1_000);

judged.append(pill({ word: "", sign: "none", mood: "still" }));
showTheme();
begin();
