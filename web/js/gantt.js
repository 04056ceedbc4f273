// What ran where, and runs: a row for each GPU, or for each node; time goes on by itself.

import { el, text, colour, legend, stateWord } from "./dom.js";
import { clock, count, duration, jobName } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe, now, isActive, isOver } from "./store.js";

// inkOn is black or white, whichever is easier to read on a colour.
function inkOn(colour) {
  const n = parseInt(colour.slice(1), 16), f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * f(n >> 16) + 0.7152 * f(n >> 8 & 255) + 0.0722 * f(n & 255);
  return light > 0.179 ? "#000000" : "#ffffff";
}

const left = () => Math.min(150, innerWidth / 4), axis = 24, rowHeight = 22;
const shortest = 10, longest = 40 * 86400;
const maxPast = 10000; // ended jobs that are asked for

export function show(main, route) {
  let from, to, following = true, firstRow = 0, rows = [], blocks = [], past = new Map(), chosen = null, dirty = true, frame = 0, closed = false, reached = Infinity, asking = false;
  let fresh = !route.query.get("span") && !route.query.get("to");
  const span = Math.max(shortest, Math.min(longest, Number(route.query.get("span")) || 3600));
  to = Number(route.query.get("to")) || 0;
  if (to > 0) following = false;
  else to = now() + span * 0.05;
  from = to - span;

  const by = el("select", { "aria-label": "Rows", onchange: () => { remember(); rebuild(); } }, el("option", { value: "" }, "by GPU"), el("option", { value: "node", selected: route.query.get("by") === "node" }, "by node"));
  const filter = el("input", { type: "search", "aria-label": "Filter by user, job or node", placeholder: "Filter: user, job, node  ( / )", value: route.query.get("q") || "", "data-filter": true, oninput: () => { remember(); rebuild(); } });
  const button = (word, label, f) => el("button", { type: "button", "aria-label": label, title: label, onclick: f }, word);
  const told = el("output", { class: "told", "aria-live": "polite" });
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Gantt chart. Plus and minus zoom, arrows move, brackets choose a job, Enter opens it, 0 goes back to now.", class: "gantt" });
  const users = el("div", { class: "legend", role: "group", "aria-label": "Colours of users" });
  main.append(el("h1", { tabindex: "-1" }, "Gantt"), el("div", { class: "tools" }, filter, by, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("now", "Back to now", home)), users, canvas, told);

  function remember() {
    route.remember({ q: filter.value.trim(), by: by.value, span: fresh ? "" : Math.round(to - from), to: following ? "" : Math.round(to) });
  }

  // rebuild makes rows and blocks of what is known. Blocks that share a row at a time lie
  // in lanes below each other.
  function rebuild() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const byNode = by.value === "node", index = new Map();
    rows = [];
    const row = (name, key) => {
      if (!index.has(key)) { index.set(key, rows.length); rows.push({ name, key, lanes: [], blocks: [] }); }
      return rows[index.get(key)];
    };
    // Jobs without a GPU have a row of their own beside the GPUs of a node, if there are any.
    const coresOf = node => store.nodes.get(node)?.devices?.length ? `${node}\ncores` : node;
    const hit = (...texts) => words.every(w => texts.some(t => t.toLowerCase().includes(w)));
    for (const n of store.nodes.values()) {
      if (byNode || !n.devices?.length) row(n.node, n.node);
      else n.devices.forEach((d, i) => row(`${n.node} : ${i}`, `${n.node}\n${i}`));
    }
    const all = [];
    // An attempt that made way and left its place is a block of its own, unless it is the job's last.
    const addPreempted = (j, p) => {
      if (p.how === "suspend" || p.start_at === j.start_at) return;
      for (const key of byNode ? p.nodes : p.devices?.length ? p.devices.map(d => d.replace(/:(\d+)$/, "\n$1")) : p.nodes.map(coresOf)) {
        const r = row(key.replace("\n", " : "), key);
        if (hit(r.name, j.user, j.name, jobName(j))) all.push({ r, job: j, from: p.start_at, to: p.preempted_at, preempted: p });
      }
    };
    const add = j => {
      for (const p of j.preempted) addPreempted(j, p);
      if (!j.start_at) return;
      const preempted = j.preempted.findLast(p => p.start_at === j.start_at);
      const places = new Set();
      if (byNode) { for (const p of j.parts) places.add(p.node); for (const d of j.devices) places.add(d.node); }
      else if (j.devices.length) for (const d of j.devices) places.add(`${d.node}\n${d.device}`);
      else for (const p of j.parts) places.add(coresOf(p.node));
      for (const key of places) {
        const r = row(key.replace("\n", " : "), key);
        if (!hit(r.name, j.user, j.name, jobName(j))) continue;
        all.push({ r, job: j, from: j.start_at, to: isOver(j) ? j.end_at : Infinity, preempted, borrowed: j.devices.some(d => d.borrowed && (key === d.node || key === `${d.node}\n${d.device}`)) });
      }
    };
    for (const j of past.values()) if (!store.jobs.has(j.job)) add(j);
    for (const j of store.jobs.values()) if (isActive(j) || isOver(j) || j.preempted.length) add(j);
    all.sort((a, b) => a.from - b.from || a.job.job - b.job.job);
    for (const b of all) {
      let lane = b.r.lanes.findIndex(end => end <= b.from);
      if (lane < 0) lane = b.r.lanes.length;
      b.r.lanes[lane] = b.to;
      b.lane = lane;
      b.r.blocks.push(b);
    }
    blocks = all;
    if (!byNode) { // the cores of a node stand behind its GPUs
      const place = new Map([...store.nodes.keys()].map((name, i) => [name, i])), of = r => place.get(r.key.split("\n")[0]) ?? Infinity;
      rows.sort((a, b) => of(a) - of(b) || 0);
    }
    legend(users, all.map(b => b.job.user));
    if (words.length) rows = rows.filter(r => r.blocks.length > 0 || hit(r.name));
    firstRow = Math.max(0, Math.min(firstRow, rows.length - 1));
    dirty = false;
    fit();
    if (chosen) choose(all.find(b => b.job.job === chosen.job.job && b.r.key === chosen.r.key) || null);
    else choose(null);
    later();
  }

  // fit shows no more of the past than there is, until somebody chooses a time.
  function fit() {
    if (!fresh || !blocks.length) return;
    const age = Math.max(15, (now() - blocks[0].from) * 1.15);
    if (age < to - from) from = to - age;
  }

  // load asks for jobs that ended in the window and that the page does not know.
  async function load() {
    if (asking || from >= reached) return;
    asking = true;
    try {
      const since = from - (to - from);
      let after = "";
      for (let pages = 0; pages < 10 && !closed; pages++) {
        const answer = await ask(`/v1/history?since=${Math.max(0, Math.floor(since))}&limit=1000${after}`);
        for (const j of answer.jobs) past.set(j.job, { job: j.job, array_job: j.array_job, array_task: j.array_task, array_tasks: j.array_tasks, name: j.name, user: j.user, state: j.state, start_at: j.start_at || 0, end_at: j.end_at || 0, submit_at: j.submit_at, parts: j.parts || [], devices: j.devices || [], preempted: j.preempted || [] });
        if (!answer.next) { reached = since; break; }
        after = `&after=${answer.next}`;
      }
      while (past.size > maxPast) past.delete(past.keys().next().value);
      if (!closed) rebuild();
    } catch { /* what is known is shown */ } finally { asking = false; }
  }

  function zoom(factor, at = following ? to : (from + to) / 2) {
    fresh = false;
    const size = Math.max(shortest, Math.min(longest, (to - from) * factor)), share = (at - from) / (to - from);
    from = at - share * size;
    to = from + size;
    settled();
  }

  function pan(seconds) {
    from += seconds;
    to += seconds;
    following = fresh = false;
    settled();
  }

  function home() {
    fresh = false;
    following = true;
    to = now() + 180;
    from = to - 3600;
    settled();
  }

  let settleTimer;
  function settled() {
    later();
    clearTimeout(settleTimer);
    settleTimer = setTimeout(() => { remember(); load(); }, 300);
  }

  const inView = () => Math.max(1, Math.floor((canvas.clientHeight - axis) / rowHeight));
  const scroll = n => { firstRow = Math.max(0, Math.min(Math.max(0, rows.length - inView()), firstRow + n)); later(); };
  const later = () => { if (!frame && !closed) frame = requestAnimationFrame(() => { frame = 0; draw(); }); };

  function draw() {
    if (dirty) return rebuild();
    if (following) { const size = to - from; to = now() + size * 0.05; from = to - size; }
    const wide = canvas.clientWidth, high = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) { canvas.width = Math.round(wide * ratio); canvas.height = Math.round(high * ratio); }
    const g = canvas.getContext("2d"), style = getComputedStyle(canvas), c = n => style.getPropertyValue("--" + n).trim();
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, wide, high);
    const l = left(), x = t => l + (Math.min(t, to + (to - from)) - from) / (to - from) * (wide - l), seen = Math.ceil((high - axis) / rowHeight), end = now();
    const colours = Array.from({ length: 8 }, (_, i) => c("c" + i)), rule = c("rule"), ink = c("ink"), muted = c("muted"), paper = c("paper");
    g.font = "12px " + style.fontFamily;
    g.textBaseline = "middle";
    let named = 0;
    for (let i = 0; i < seen && firstRow + i < rows.length; i++) {
      const r = rows[firstRow + i], y = i * rowHeight, lanes = Math.max(1, r.lanes.length), h = (rowHeight - 4) / lanes;
      g.fillStyle = rule;
      g.fillRect(0, y + rowHeight - 1, wide, 1);
      for (const b of r.blocks) {
        const stop = Math.min(b.to, end);
        if (stop < from || b.from > to) continue;
        const x0 = Math.max(l, x(b.from)), x1 = Math.max(x0 + 1.5, x(stop)), top = y + 2 + b.lane * h;
        g.globalAlpha = chosen && chosen.job.job !== b.job.job ? 0.35 : 1;
        g.fillStyle = colours[colour(b.job.user)];
        g.fillRect(x0, top, x1 - x0, Math.max(1, h - 1));
        if (b.borrowed) {
          g.fillStyle = paper;
          for (let s = x0 + 3; s < x1 - 1; s += 7) g.fillRect(s, top, 1.5, Math.max(1, h - 1));
        }
        if (b.preempted) { // where it made way
          g.fillStyle = c("bad");
          g.fillRect(Math.max(x0, Math.min(x1, x(b.preempted.preempted_at)) - 2), top, 2, Math.max(1, h - 1));
        }
        const begins = Math.max(l, x0), room = Math.min(x1, wide) - begins;
        if (h >= 12 && room > 26) named += write(g, b, begins, top, room, h, colours[colour(b.job.user)]);
        if (chosen === b) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(x0, top, x1 - x0, Math.max(1, h - 1)); }
      }
      g.globalAlpha = 1;
      g.fillStyle = paper;
      g.fillRect(0, y, l - 4, rowHeight - 1);
      g.fillStyle = ink;
      g.fillText(clip(g, r.name, l - 10), 4, y + rowHeight / 2);
    }
    drawAxis(g, x, l, wide, high, muted, rule);
    g.fillStyle = c("bad");
    if (end > from && end < to) g.fillRect(x(end), 0, 1, high - axis);
    Object.assign(canvas.dataset, { from, to, rows: rows.length, blocks: blocks.length, first: firstRow, named });
  }

  function clip(g, name, wide) {
    while (name.length > 3 && g.measureText(name).width > wide) name = name.slice(0, -2) + "…";
    return name;
  }

  // write puts a job's number and name onto its block, as much of it as fits, and says whether that is anything.
  function write(g, b, x, top, wide, h, ground) {
    const label = clip(g, `${jobName(b.job)} ${b.job.name}`, wide - 8), size = g.measureText(label).width;
    if (size > wide - 8) return 0;
    if (b.borrowed) { // without the stripes
      g.fillStyle = ground;
      g.fillRect(x + 2, top, size + 4, Math.max(1, h - 1));
    }
    g.fillStyle = inkOn(ground);
    g.fillText(label, x + 4, top + (h - 1) / 2 + 0.5);
    return 1;
  }

  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

  function drawAxis(g, x, l, wide, high, muted, rule) {
    const step = steps.find(s => s / (to - from) * (wide - l) > 90) || 604800, zone = new Date(to * 1000).getTimezoneOffset() * 60;
    g.fillStyle = muted;
    for (let t = Math.ceil((from - zone) / step) * step + zone; t < to; t += step) {
      const d = new Date(t * 1000), pad = n => String(n).padStart(2, "0");
      const label = step >= 86400 ? `${d.getMonth() + 1}-${pad(d.getDate())}` : step < 60 ? `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}` : `${pad(d.getHours())}:${pad(d.getMinutes())}`;
      g.fillStyle = rule;
      g.fillRect(x(t), 0, 1, high - axis + 4);
      g.fillStyle = muted;
      g.fillText(label, Math.min(x(t) + 3, wide - 40), high - axis / 2);
    }
  }

  function at(px, py) {
    const r = rows[firstRow + Math.floor(py / rowHeight)], l = left();
    if (!r || px < l || py > canvas.clientHeight - axis) return null;
    const t = from + (px - l) / (canvas.clientWidth - l) * (to - from), slack = 3 / (canvas.clientWidth - l) * (to - from);
    const lane = Math.floor((py % rowHeight - 2) / ((rowHeight - 4) / Math.max(1, r.lanes.length)));
    return r.blocks.findLast(b => b.lane === lane && b.from - slack <= t && Math.min(b.to, now()) + slack >= t) || null;
  }

  function choose(b) {
    chosen = b;
    if (!b) text(told, blocks.length ? `${count(rows.length, "row")}, ${count(blocks.length, "block")}. A colour is a user; striped: lent to another node. + and − zoom, arrows move, [ and ] choose a job, Enter or a double click opens it.` : rows.length ? "Nothing runs or ran here in this time." : filter.value.trim() ? "Nothing matches the filter." : "No node has joined yet.");
    else {
      const j = b.job;
      text(told, `Job ${jobName(j)} ${j.name} of ${j.user} on ${b.r.name}: ${stateWord(j.state)}, from ${clock(b.from)}${isOver(j) ? ` to ${clock(b.to)}` : ""}, ${duration(Math.min(b.to, now()) - b.from)}${b.borrowed ? ", borrowed" : ""}${b.preempted ? `; preempted (${b.preempted.how}): ${b.preempted.reason}${b.preempted.by_user ? `, of ${b.preempted.by_user}` : ""}` : ""}`);
    }
    later();
  }

  // next goes from job to job, row by row.
  function next(step) {
    const visible = rows.flatMap(r => r.blocks.filter(b => Math.min(b.to, now()) >= from && b.from <= to));
    if (!visible.length) return;
    const i = visible.indexOf(chosen);
    const b = visible[(i < 0 ? (step > 0 ? 0 : visible.length - 1) : i + step + visible.length) % visible.length];
    const row = rows.indexOf(b.r);
    if (row < firstRow || row >= firstRow + inView()) firstRow = Math.max(0, row - 2);
    choose(b);
  }

  canvas.addEventListener("keydown", e => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    const size = to - from;
    const keys = {
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: home, ArrowLeft: () => pan(-size / 10), ArrowRight: () => pan(size / 10), ArrowUp: () => scroll(-1), ArrowDown: () => scroll(1),
      PageUp: () => scroll(-inView()), PageDown: () => scroll(inView()), Home: () => scroll(-rows.length), End: () => scroll(rows.length), "[": () => next(-1), "]": () => next(1),
      Enter: () => { if (chosen) location.hash = `#/job/${jobName(chosen.job)}`; }, Escape: () => choose(null),
    };
    if (!keys[e.key]) return;
    keys[e.key]();
    e.preventDefault();
    e.stopPropagation();
  });
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    if (e.shiftKey) return scroll(Math.sign(e.deltaY || e.deltaX) * 3);
    const l = left(), box = canvas.getBoundingClientRect();
    zoom(Math.exp(e.deltaY / 400), following ? to : from + (e.clientX - box.left - l) / (box.width - l) * (to - from));
  }, { passive: false });

  // One finger or the mouse moves, two fingers zoom.
  const fingers = new Map();
  let moved = 0, rowRest = 0;
  canvas.addEventListener("pointerdown", e => { fingers.set(e.pointerId, [e.offsetX, e.offsetY]); moved = 0; rowRest = 0; try { canvas.setPointerCapture(e.pointerId); } catch { /* it has gone */ } });
  canvas.addEventListener("pointermove", e => {
    const was = fingers.get(e.pointerId), is = [e.offsetX, e.offsetY];
    if (!was) return choose(at(...is) || chosen);
    const wide = canvas.clientWidth - left(), perPixel = (to - from) / wide;
    if (fingers.size === 1) {
      moved += Math.abs(is[0] - was[0]) + Math.abs(is[1] - was[1]);
      if (is[0] !== was[0]) pan((was[0] - is[0]) * perPixel);
      rowRest += (was[1] - is[1]) / rowHeight;
      if (Math.abs(rowRest) >= 1) { scroll(Math.trunc(rowRest)); rowRest -= Math.trunc(rowRest); }
    } else {
      moved = 100;
      const other = [...fingers].find(([id]) => id !== e.pointerId)[1];
      const before = Math.abs(was[0] - other[0]), after = Math.abs(is[0] - other[0]);
      if (before > 8 && after > 8) zoom(before / after, from + ((other[0] + is[0]) / 2 - left()) * perPixel);
    }
    fingers.set(e.pointerId, is);
  });
  const up = e => {
    if (fingers.delete(e.pointerId) && moved < 6 && e.type === "pointerup") {
      const b = at(e.offsetX, e.offsetY);
      if (b && b === chosen && e.pointerType !== "mouse") location.hash = `#/job/${jobName(b.job)}`;
      choose(b);
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("dblclick", () => { if (chosen) location.hash = `#/job/${jobName(chosen.job)}`; });

  choose(null);
  rebuild();
  load();
  let due = 0;
  const leave = subscribe(() => { // many changes at once are one rebuild
    if (!due) due = setTimeout(() => { due = 0; dirty = true; later(); }, 100);
  });
  const clockTimer = setInterval(() => { if (following) later(); }, 1000);
  const observer = new ResizeObserver(later);
  observer.observe(canvas);
  return { filter, focus: canvas, close() { closed = true; leave(); clearInterval(clockTimer); clearTimeout(due); clearTimeout(settleTimer); cancelAnimationFrame(frame); observer.disconnect(); } };
}
