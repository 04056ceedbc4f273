// The map of the cluster: nodes, what they have, and who has it.

import { el, text, attribute, fill, bar, pill, colour, legend, note, confirm, table, stateWord } from "./dom.js";
import { bytes, count, percent, clock, duration, jobName } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe, now } from "./store.js";
import { Virtual } from "./virtual.js";

const jobLink = j => el("a", { href: `#/job/${jobName(j)}` }, jobName(j));
export const nodeLink = name => el("a", { href: `#/node/${encodeURIComponent(name)}` }, name);

// usage is what jobs have of a node: of its cores and memory, and of each device.
export function usage(node) {
  const u = { cores: 0, memory: 0, devices: (node.devices || []).map(() => []), jobs: [...(store.onNode.get(node.node)?.values() || [])] };
  for (const j of u.jobs) {
    for (const p of j.parts) if (p.node === node.node) { u.cores += p.cores; u.memory += p.memory_bytes; }
    for (const d of j.devices) {
      const device = node.devices?.[d.device];
      if (d.node === node.node && device) u.devices[d.device].push({ job: j, for: d.for, borrowed: Boolean(d.borrowed), share: d.memory_bytes ? d.memory_bytes / device.memory_bytes : 1, memory: d.memory_bytes || device.memory_bytes });
    }
  }
  return u;
}

// Nodes change what they say of themselves only where it matters to the head. Whether a
// jobs' node is idle or not follows from the jobs.
export function stateOf(node, u) {
  if (node.state === "IDLE" || node.state === "MIXED" || node.state === "ALLOCATED") return u.jobs.length === 0 ? "IDLE" : u.cores >= node.cores ? "ALLOCATED" : "MIXED";
  if (node.state === "DRAINING" || node.state === "DRAINED") return u.jobs.length > 0 ? "DRAINING" : "DRAINED";
  return node.state;
}

// How busy devices are, as their nodes report to the head. The head tells no changes of that, so it is asked
// for the nodes in sight, one after the other. A node that is looked at is also asked for its programs.
const busy = new Map(); // by node: {at, load, notices, devices: [{part, used}], status}

async function measure(name, signal, programs) {
  const path = `/v1/nodes/${encodeURIComponent(name)}`;
  const node = await ask(path, { signal }), status = programs ? await ask(`${path}/status`, { signal }) : null;
  busy.set(name, { at: performance.now(), load: node.load, notices: (node.notices || []).map(n => n.text).join("; "), status, devices: (node.devices || []).map(d => ({ part: d.load ? d.load.use_pct / 100 : null, used: d.load?.used_bytes })) });
  if (busy.size > 200) busy.delete(busy.keys().next().value);
}

// Why a node is drained or down, and what it has a notice of.
const remark = node => [node.reason, node.connected && busy.get(node.node)?.notices].filter(Boolean).join("; ");

// gauge asks for the nodes that next() names, in turn, while the page is seen.
function gauge(next, then, programs) {
  const stop = new AbortController();
  let ended = false, wake = () => {};
  (async () => {
    while (!ended) {
      const name = document.hidden || store.connection !== "live" ? null : next();
      if (name) {
        try { await measure(name, stop.signal, programs); } catch { busy.delete(name); }
        if (!ended) then();
      }
      await new Promise(done => {
        const timer = setTimeout(done, name ? 250 : 1000);
        wake = () => { clearTimeout(timer); done(); };
      });
    }
  })();
  return () => { ended = true; wake(); stop.abort(); };
}

function deviceLine(node, i, device, users) {
  const line = el("div", { class: "device", "data-up": device.up ? "true" : "false" });
  const stack = el("span", { class: "bar" });
  for (const u of users) {
    const part = el("i", { "data-user": colour(u.job.user), class: u.borrowed ? "borrowed" : undefined });
    part.style.width = `${Math.min(1, u.share) * 100}%`;
    stack.append(part);
  }
  const first = users[0], measured = busy.get(node.node)?.devices[i];
  const who = !device.up ? "down" : !first ? "free" : users.length > 1 ? `${users.length} jobs` : `${jobName(first.job)} ${first.job.user}`;
  const use = measured && measured.part !== null ? ` · ${percent(measured.part)}` : "";
  line.append(el("span", { class: "no" }, i), stack, el("span", { class: "who" }, (first?.borrowed && users.every(u => u.for === first.for) ? `→ ${first.for} · ` : "") + who + use));
  line.title = `${device.name}, ${bytes(device.memory_bytes)}` + users.map(u => `\n${jobName(u.job)} ${u.job.name} of ${u.job.user}: ${bytes(u.memory)}${u.borrowed ? `, lent to ${u.for}` : ""}`).join("");
  return line;
}

const shown = 8; // devices of a node in its tile

function tile(e, node) {
  const u = usage(node), state = stateOf(node, u), devices = node.devices || [];
  const measured = busy.get(node.node);
  const stamp = JSON.stringify([node.node, state, remark(node), u.cores, u.memory, measured?.load, measured?.devices, u.devices.map(d => d.map(x => [x.job.job, x.share])), devices.map(d => d.up)]);
  if (e.stamp === stamp) return; // what has not changed costs nothing
  e.stamp = stamp;
  const inner = e.firstChild;
  attribute(inner, "data-state", state);
  fill(inner, el("div", { class: "title" }, el("b", {}, node.node), pill(state)),
    el("div", { class: "meter" }, el("span", {}, "cores"), bar(u.cores / node.cores, "plain", `${u.cores} of ${node.cores} cores`), el("span", {}, `${u.cores}/${node.cores}`)),
    el("div", { class: "meter" }, el("span", {}, "memory"), bar(u.memory / node.memory_bytes, "plain", `${bytes(u.memory)} of ${bytes(node.memory_bytes)}`), el("span", {}, bytes(node.memory_bytes))),
    ...devices.slice(0, shown).map((d, i) => deviceLine(node, i, d, u.devices[i])),
    devices.length > shown ? el("div", { class: "muted" }, `and ${devices.length - shown} more`) : null,
    remark(node) ? el("div", { class: "muted reason" }, remark(node)) : null);
}

export function show(main, route) {
  let nodes = [], sight = [], turn = 0, timer, drawn = 0;
  const filter = el("input", { type: "search", "aria-label": "Filter nodes", placeholder: "Filter: node, state, user  ( / )", value: route.query.get("q") || "", "data-filter": true, oninput: () => { route.remember({ q: filter.value.trim() }); draw(); } });
  const total = el("output", { class: "muted", "aria-live": "polite" });
  const overview = el("canvas", { class: "overview", role: "img", "aria-label": "All nodes by their use", hidden: true, onclick: e => {
    const i = cellAt(e);
    if (i >= 0) { list.go(i); list.element.focus(); }
  } });
  const list = new Virtual({
    label: "Nodes", role: "listbox", itemRole: "option",
    height: () => 74 + 23 * Math.min(shown, most()) + (nodes.some(remark) ? 22 : 0) + (most() > shown ? 20 : 0),
    columns: width => Math.max(1, Math.floor(width / 250)),
    make: () => el("div", { role: "option", class: "cell" }, el("div", { class: "tile" })),
    show: (e, i) => tile(e, nodes[i]),
    open: i => { location.hash = `#/node/${encodeURIComponent(nodes[i].node)}`; },
    empty: () => store.connection !== "live" ? "…" : filter.value.trim() ? "No node matches the filter." : "No node has joined yet. On the machine that is to be one, run muster node --head with the name of the head's machine.",
    seen: (first, last) => { sight = nodes.slice(first, last).filter(n => n.devices?.length && n.connected); },
  });
  const users = el("div", { class: "legend", role: "group", "aria-label": "Colours of users" });
  main.append(el("h1", { tabindex: "-1" }, "Cluster"), el("div", { class: "tools" }, filter, total), el("div", { class: "legend muted" },
    el("span", {}, el("i", { class: "key plain" }), "used by a job, a colour for each user"), el("span", {}, el("i", { class: "key borrowed" }), "lent to another node")), users, overview, list.element);

  function most() { return nodes.reduce((m, n) => Math.max(m, n.devices?.length || 0), 0); }

  function draw() {
    clearTimeout(timer);
    timer = undefined;
    drawn = performance.now();
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    nodes = [...store.nodes.values()].filter(n => words.every(w => `${n.node} ${n.state} ${n.reason || ""}`.toLowerCase().includes(w) || [...(store.onNode.get(n.node)?.values() || [])].some(j => j.user.toLowerCase().includes(w))));
    let gpus = 0, used = 0, down = 0, cores = 0, coresUsed = 0;
    const states = [], whose = [];
    for (const n of nodes) {
      const u = usage(n);
      for (const j of u.jobs) whose.push(j.user);
      states.push([n, u]);
      if (n.state === "DOWN") { down++; continue; }
      cores += n.cores;
      coresUsed += u.cores;
      gpus += n.devices?.filter(d => d.up).length || 0;
      used += u.devices.filter(d => d.length > 0).length;
    }
    text(total, `${count(nodes.length, "node")}${down ? `, ${down} down` : ""}; ${used} of ${count(gpus, "GPU")} and ${coresUsed} of ${count(cores, "core")} in use`);
    paint(states);
    legend(users, whose);
    list.set(nodes.length);
  }

  // The overview has a square for each node of a large cluster.
  const square = 11;
  const across = () => Math.max(1, Math.floor(overview.clientWidth / square));

  function paint(states) {
    overview.hidden = states.length <= 24;
    if (overview.hidden) return;
    const style = getComputedStyle(document.documentElement), ratio = devicePixelRatio || 1;
    const high = Math.ceil(states.length / across()) * square;
    overview.style.height = `${high}px`;
    overview.width = overview.clientWidth * ratio;
    overview.height = high * ratio;
    const g = overview.getContext("2d"), colours = Object.fromEntries(["rule", "c0", "bad", "warn"].map(c => [c, style.getPropertyValue("--" + c)]));
    g.scale(ratio, ratio);
    states.forEach(([n, u], i) => {
      const x = (i % across()) * square, y = Math.floor(i / across()) * square, side = square - 2;
      const part = n.devices?.length ? u.devices.reduce((s, d) => s + Math.min(1, d.reduce((t, x) => t + x.share, 0)), 0) / n.devices.length : u.cores / n.cores;
      g.fillStyle = n.state === "DOWN" ? colours.bad : n.state.startsWith("DRAIN") ? colours.warn : colours.rule;
      g.fillRect(x, y, side, side);
      g.fillStyle = colours.c0;
      g.fillRect(x, y + side * (1 - part), side, side * part);
    });
  }

  function cellAt(e) {
    const box = overview.getBoundingClientRect();
    const i = Math.floor((e.clientY - box.top) / square) * across() + Math.floor((e.clientX - box.left) / square);
    return i < nodes.length ? i : -1;
  }

  function soon() {
    if (timer) return;
    const wait = Math.min(150, (store.jobs.size + 4 * store.nodes.size) / 60) - (performance.now() - drawn);
    if (wait <= 0) draw();
    else timer = setTimeout(draw, wait);
  }

  draw();
  const leave = subscribe(soon);
  const stop = gauge(() => sight.length ? sight[turn++ % sight.length].node : null, () => list.later());
  return { filter, focus: list.element, close() { leave(); stop(); clearTimeout(timer); list.close(); } };
}

// whereOf names the device of a program, and how many of its kernels ran on which if that are several.
function whereOf(c, said) {
  if (c.device === null) return "–";
  const lender = said.devices[c.device]?.lender;
  return `${c.device}${lender ? ` at ${lender}` : ""}${c.ran?.length > 1 ? ` (kernels by GPU: ${c.ran.map(r => `${r.device}: ${r.kernels.toLocaleString("en")}`).join(", ")})` : ""}`;
}

// loansOf lists the devices that the node has of others, and what others have of it; nothing where that is
// nothing.
function loansOf(said) {
  const rows = [];
  said?.devices.forEach((d, i) => { if (d.lender && d.state !== "removed") rows.push([`GPU ${i} (${d.name})`, `borrowed of ${d.lender}`, String(d.vgpus), String(d.assigned)]); });
  for (const l of said?.lent || []) rows.push([`GPU ${l.device}`, `lent to ${l.node}${l.recalled ? ", wanted back" : ""}`, String(l.vgpus), String(l.clients)]);
  return rows.length ? table("Borrowed and lent", ["GPU", "", ">vGPUs", ">Programs"], rows) : null;
}

// showNode is one node: its devices, the programs on them, its jobs.
export function showNode(main, route) {
  const name = route.argument;
  const facts = el("div"), buttons = el("div", { class: "buttons" });
  main.append(el("h1", { tabindex: "-1" }, "Node ", name), buttons, facts);
  main.classList.add("flow");

  async function act(action, body, question) {
    if (question && !await confirm(question, action)) return;
    try {
      await ask(`/v1/nodes/${encodeURIComponent(name)}/${action}`, { method: "POST", body });
      note(`${action}: done`);
    } catch (e) { note(e.message, true); }
  }

  function draw() {
    const node = store.nodes.get(name);
    if (!node) return fill(facts, el("p", {}, store.connection === "live" ? "There is no such node." : "…"));
    const u = usage(node), state = stateOf(node, u), said = busy.get(name)?.status;
    const mayChange = Boolean(store.cluster?.admin), drained = state.startsWith("DRAIN");
    if (buttons.stamp !== `${mayChange} ${drained}`) {
      buttons.stamp = `${mayChange} ${drained}`;
      fill(buttons, mayChange && (drained ? el("button", { type: "button", onclick: () => act("resume") }, "Take into use")
        : el("button", { type: "button", onclick: () => act("drain", { reason: `drained from the page by ${store.cluster.user}` }, `Take ${name} out of use? What runs there goes on, and nothing new starts.`) }, "Drain")));
    }
    const stamp = JSON.stringify([state, node, u.cores, u.memory, u.jobs.map(j => [j.job, j.state]), busy.get(name)?.at]);
    if (facts.stamp === stamp) return;
    facts.stamp = stamp;
    const keep = document.activeElement?.getAttribute("aria-label");
    fill(facts, el("p", {}, pill(state), remark(node) ? ` ${remark(node)}` : "", ` ${node.connected ? "connected" : "away"} since ${clock(node.since_at)}`,
        Object.entries(node.labels || {}).map(([k, v]) => `, ${k}=${v}`).join("")),
      el("p", {}, `${u.cores} of ${count(node.cores, "core")}, ${bytes(u.memory)} of ${bytes(node.memory_bytes)} of memory promised to ${count(u.jobs.length, "job")}.`),
      el("h2", {}, "GPUs"),
      node.devices?.length ? table("GPUs", ["GPU", "Kind", ">Memory", ">Of jobs", ">Used", ">Busy", "Jobs"], node.devices.map((d, i) => {
        const m = busy.get(name)?.devices[i];
        return [String(i), d.name + (d.up ? "" : " (down)"), bytes(d.memory_bytes), bytes(u.devices[i].reduce((s, x) => s + x.memory, 0)), m?.used !== undefined ? bytes(m.used) : "–", m && m.part !== null ? percent(m.part) : "–",
          el("span", {}, ...u.devices[i].flatMap((x, k) => [k ? ", " : "", jobLink(x.job), ` ${x.job.user}, ${bytes(x.memory)}${x.borrowed ? `, lent to ${x.for}` : ""}`]))];
      })) : el("p", {}, "It has none."),
      el("h2", {}, "Programs on its GPUs"),
      said?.clients?.length ? table("Programs", ["Program", "User", "GPU", "State", ">Memory", ">Kernels"], said.clients.map(c => [c.program, c.user, whereOf(c, said), c.state, bytes(c.memory_allocated_bytes), c.kernels.toLocaleString("en")]))
        : el("p", { class: "muted" }, said ? "None at the moment." : "…"),
      busy.get(name)?.load?.waiting ? el("p", {}, `${count(busy.get(name).load.waiting, "program")} waiting for a GPU.`) : null,
      loansOf(said),
      el("h2", {}, "Jobs"),
      u.jobs.length ? table("Jobs here", ["Job", "Name", "User", "State", ">Runs for"], u.jobs.map(j => [jobLink(j), j.name, j.user, stateWord(j.state), duration(now() - j.start_at)])) : el("p", {}, "None."));
    if (keep) facts.querySelector(`.scroll[aria-label="${CSS.escape(keep)}"]`)?.focus();
  }

  draw();
  const leave = subscribe(draw);
  let last = 0;
  const stop = gauge(() => Date.now() - last > 2000 && store.nodes.get(name)?.connected ? (last = Date.now(), name) : null, draw, true);
  return { close() { leave(); stop(); } };
}
