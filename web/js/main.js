// The page: its views by address, its keys, and how the connection is.

import { el, text, fill, attribute, note, confirm } from "./dom.js";
import { clock } from "./format.js";
import { signIn, signOut, Problem } from "./api.js";
import { store, subscribe, follow, retry } from "./store.js";
import * as cluster from "./cluster.js";
import * as queue from "./queue.js";
import * as job from "./job.js";
import * as submit from "./submit.js";
import * as gantt from "./gantt.js";
import * as past from "./history.js";
import * as whatif from "./whatif.js";
import * as usage from "./usage.js";

const views = [
  ["cluster", "Cluster", cluster.show], ["queue", "Queue", queue.show], ["gantt", "Gantt", gantt.show], ["history", "History", past.show], ["whatif", "What if", whatif.show], ["usage", "Users", usage.show],
];
const pages = { job: ["queue", job.show], submit: ["queue", submit.show], node: ["cluster", cluster.showNode] };

const main = document.getElementById("main"), nav = document.getElementById("nav"), statusLine = document.getElementById("status"), problems = document.getElementById("problems");
let view = null, shown = null;

views.forEach(([id, title], i) => nav.append(el("a", { href: `#/${id}`, "data-id": id, title: `${title} (${i + 1})` }, title)));

// parse reads an address: #/view/argument?query.
function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name = "", argument = ""] = path.split("/", 2);
  let decoded = argument;
  try { decoded = decodeURIComponent(argument); } catch { /* as it is */ }
  return { name, argument: decoded, query: new URLSearchParams(query) };
}

function go(moveFocus) {
  if (store.connection === "signedOut") return door();
  const route = parse(location.hash);
  const one = views.find(v => v[0] === route.name), page = pages[route.name];
  if (!one && !page) return location.replace("#/cluster");
  const owner = one ? one[0] : page[0], path = location.hash.split("?")[0];
  // remember puts what was chosen into the address, so that it can be shared and loaded.
  route.remember = values => {
    if (shown !== path) return;
    const q = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== "" && v !== undefined));
    history.replaceState(null, "", path + (q.size ? `?${q}` : ""));
  };
  view?.close();
  shown = path;
  main.className = `view-${route.name}`;
  fill(main);
  for (const a of nav.children) attribute(a, "aria-current", a.dataset.id === owner ? "page" : null);
  view = (one ? one[2] : page[1])(main, route);
  title();
  if (moveFocus) main.querySelector("h1")?.focus();
}

function title() {
  const heading = main.querySelector("h1")?.textContent || "";
  const name = store.cluster?.cluster || "Muster";
  text(document.getElementById("brand"), name);
  const wanted = heading ? `${heading} – ${name}` : name;
  if (document.title !== wanted) document.title = wanted;
}

// door says how to come in.
function door(why) {
  view?.close();
  view = shown = null;
  main.className = "flow";
  fill(main, el("h1", { tabindex: "-1" }, "Who is there?"), why ? el("p", { class: "wrong", role: "alert" }, why) : null,
    el("p", {}, "This browser is not signed in, or no longer. In a terminal, run"), el("pre", {}, "muster page"), el("p", {}, "and open the address that it prints. It is good once, and for a minute."));
  title();
}

// isStale says whether what is shown may be old: the page has no connection to the head, and had one.
const isStale = () => store.asOf > 0 && (store.connection === "lost" || store.connection === "connecting");

let lastStatus = "";

function connection() {
  const c = store.connection, seconds = Math.max(0, Math.ceil((store.retryAt - Date.now()) / 1000));
  const said = { live: store.cluster ? `${store.cluster.user}${store.cluster.admin ? ", administrator" : ""}` : "", connecting: "connecting …", signedOut: "not signed in", lost: `no connection, again in ${seconds} s` }[c] + (isStale() ? ` · data of ${clock(store.asOf / 1000)}` : "");
  attribute(document.body, "data-connection", c);
  attribute(document.body, "data-stale", isStale() ? "" : null);
  if (`${c} ${said}` === lastStatus) return;
  lastStatus = `${c} ${said}`;
  fill(statusLine, el("i", { class: "lamp", "aria-hidden": "true" }), el("span", {}, said),
    c === "lost" ? el("button", { type: "button", onclick: retry }, "Try now") : null,
    c === "live" ? el("button", { type: "button", class: "quiet", onclick: leave }, "Sign out") : null);
}

async function leave() {
  if (!await confirm("Sign out? To come back, run muster page.", "Sign out")) return;
  try { await signOut(); location.reload(); } catch (e) { note(e.message, true); }
}

function troubles() {
  const list = [...(store.connection === "lost" ? [`The head cannot be reached (${store.why}). What is shown is old${store.asOf ? `, of ${clock(store.asOf / 1000)}` : ""}.`] : []), ...(store.cluster?.problems || [])];
  problems.hidden = list.length === 0;
  text(problems, list.join(" "));
}

subscribe(() => {
  if (store.connection === "signedOut" && shown !== null) door();
  connection();
  troubles();
  title();
});
setInterval(() => { if (store.connection === "lost") connection(); }, 1000);

const keys = [["1 … 6", "go to a view"], ["/", "filter"], ["arrows, Page up and down, Home, End", "move in a list"], ["Enter", "open what is chosen"], ["+ − 0", "zoom the chart, back to now"], ["[ ]", "choose a job in the chart"], ["Esc", "leave a field, close a window"], ["?", "this help"]];

function help() {
  const d = el("dialog", { "aria-label": "Help", onclose: () => d.remove() }, el("h2", {}, "Keys"), el("dl", { class: "facts" }, ...keys.flatMap(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)])),
    el("p", { class: "muted" }, "Addresses can be shared: whoever opens one signs in as himself."), el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => d.close() }, "Close")));
  document.body.append(d);
  d.showModal();
}

document.getElementById("help").addEventListener("click", help);
document.getElementById("skip").addEventListener("click", e => {
  e.preventDefault();
  (view?.focus || main).focus();
});
document.addEventListener("keydown", e => {
  const typing = e.target.closest?.("input, select, textarea");
  if (e.key === "Escape" && typing) {
    e.preventDefault(); // browsers would empty the field
    return (view?.focus || main).focus();
  }
  if (typing || e.ctrlKey || e.altKey || e.metaKey || document.querySelector("dialog[open]")) return;
  if (e.key === "/" && view?.filter) { e.preventDefault(); view.filter.focus(); view.filter.select(); }
  else if (e.key === "?") help();
  else if (e.key >= "1" && e.key <= String(views.length)) location.hash = `#/${views[e.key - 1][0]}`;
});
addEventListener("hashchange", () => { if (/^#ticket=/.test(location.hash)) begin(); else go(true); });

addEventListener("pageshow", e => { if (e.persisted) location.reload(); });

let following = false;

async function begin() {
  try {
    await signIn();
    if (store.connection === "signedOut") return location.reload();
  } catch (e) {
    return door(e instanceof Problem && e.status ? e.message : "The head does not answer.");
  }
  go(false);
  if (following) return;
  following = true;
  follow();
}

begin();
connection();
