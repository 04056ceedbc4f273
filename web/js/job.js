// One job: how it came to be as it is, what it has, what it writes.

import { el, text, fill, pill, table, confirm, note, stateWord } from "./dom.js";
import { bytes, clock, count, duration, jobName, ordinal, span } from "./format.js";
import { ask, send } from "./api.js";
import { store, subscribe, now, isOver, isActive, unseen } from "./store.js";
import { nodeLink } from "./cluster.js";

// memory is how much of a node's a job may use; 0 is as much as there is.
const memory = n => n ? `${bytes(n)} of memory` : "any memory";

export function show(main, route) {
  const id = route.argument;
  main.classList.add("flow");
  const head = el("p"), buttons = el("div", { class: "buttons" }), body = el("div"), outputPlace = el("section", { "aria-label": "Output" });
  const title = el("h1", { tabindex: "-1" }, `Job ${id}`);
  main.append(title, head, buttons, body, outputPlace);
  let job = null, output = null, closed = false, asking = false, stale = false, seen = "", history = [];

  async function load() {
    if (asking) { stale = true; return; }
    asking = true;
    try {
      do {
        stale = false;
        const answer = await ask(`/v1/jobs/${encodeURIComponent(id)}`);
        if (closed) return;
        if (answer.jobs) return several(answer.jobs);
        if (job && job.state !== answer.state) history.push({ at: now(), state: answer.state });
        history = history.slice(-50);
        job = answer;
      } while (stale);
      draw();
    } catch (e) {
      if (!closed && !job) fill(body, el("p", {}, e.message));
    } finally { asking = false; }
  }

  // An array has no page of its own, but those of its tasks.
  function several(jobs) {
    text(title, `Array ${id}`);
    fill(head);
    fill(buttons);
    fill(body, table("Tasks", ["Task", "Name", "User", "State", "Where, or why not yet"], jobs.slice(0, 1000).map(j => [el("a", { href: `#/job/${jobName(j)}` }, jobName(j)), j.name, j.user, pill(j.state), j.node_list || j.why || ""])),
      jobs.length > 1000 ? el("p", {}, `and ${jobs.length - 1000} more`) : null);
  }

  const may = () => store.cluster && (store.cluster.admin || store.cluster.user === job.user);

  async function act(action, question, word) {
    if (!await confirm(question, word)) return;
    try {
      await ask(action === "cancel" ? `/v1/jobs/${id}` : `/v1/jobs/${id}/${action}`, { method: action === "cancel" ? "DELETE" : "POST" });
      note(`${word}: done`);
      load();
    } catch (e) { note(e.message, true); }
  }

  function actions() {
    if (!may() || isOver(job)) return [];
    const b = (action, word, question) => el("button", { type: "button", class: action === "cancel" ? "danger" : undefined, onclick: () => act(action, question, word) }, word);
    const list = [];
    if (job.state === "PENDING") list.push(job.held ? b("release", "Release", `Let job ${id} be started?`) : b("hold", "Hold", `Keep job ${id} from being started until it is released?`));
    if (job.state === "RUNNING") list.push(b("suspend", "Suspend", `Stop the processes of job ${id} where they are?`), b("requeue", "Requeue", `End the processes of job ${id}, and let it wait again? What they have not saved is lost.`));
    if (job.state === "SUSPENDED") list.push(b("resume", "Resume", `Let job ${id} go on?`));
    list.push(b("cancel", "Cancel job", `Cancel job ${id} (${job.name})? Its processes are ended.`));
    return list;
  }

  // timeline is what is known of when the job was how; what this page saw itself is added.
  function timeline() {
    const steps = [[job.submit_at, "submitted"]];
    if (job.eligible_at && job.eligible_at - job.submit_at > 1) steps.push([job.eligible_at, "could be started"]);
    for (const p of job.preempted || []) steps.push([p.preempted_at, `preempted on ${p.nodes.join(", ")} (${p.how}): ${p.reason}${p.by_user ? `, of ${p.by_user}` : ""}`]);
    if (job.start_at) steps.push([job.start_at, job.attempt > 1 ? `started for the ${ordinal(job.attempt)} time` : "started"]);
    for (const h of history) if (!steps.some(s => Math.abs(s[0] - h.at) < 1.5)) steps.push([h.at, `seen ${stateWord(h.state)}`]);
    if (job.end_at) steps.push([job.end_at, `ended: ${stateWord(job.state)}`]);
    else steps.push([now(), `now: ${stateWord(job.state)}`]);
    steps.sort((a, b) => a[0] - b[0]);
    const from = steps[0][0], to = Math.max(from + 1, steps.at(-1)[0]);
    const waited = (job.start_at || job.end_at || now()) - job.submit_at;
    const bar = el("div", { class: "timeline", role: "img", "aria-label": `waited ${duration(waited)}` + (job.start_at ? `, ran ${duration((job.end_at || now()) - job.start_at)}` : "") });
    const part = (className, a, b) => {
      const i = el("i", { class: className });
      i.style.left = `${(a - from) / (to - from) * 100}%`;
      i.style.width = `${Math.max(0, b - a) / (to - from) * 100}%`;
      bar.append(i);
    };
    part("waits", job.submit_at, job.start_at || job.end_at || now());
    if (job.start_at) part("runs", job.start_at, job.end_at || now());
    return el("div", {}, bar, el("ol", { class: "steps" }, ...steps.map(([at, what], i) => el("li", {}, el("time", {}, clock(at)), ` ${what}`, i ? el("span", { class: "muted" }, ` after ${duration(at - steps[i - 1][0])}`) : ""))));
  }

  function facts() {
    const rows = [
      ["User", job.user + (job.account ? `, account ${job.account}` : "")], ["Asks for", job.options || "–"],
      [isOver(job) ? "Had" : "Has", job.start_at ? `${count(job.num_nodes, "node")}, ${count(job.cores, "core")}, ${memory(job.memory_bytes)}, ${count(job.gpus, "GPU")}` : ""],
      ["Priority", job.priority || ""], ["Time limit", job.time_limit_s ? duration(job.time_limit_s) : "none"], ["Waits for", job.dependency || ""],
      ["Directory", job.directory || ""], ["Output", job.output || ""], ["Command", job.command ? job.command.join(" ") : ""], ["Comment", job.comment || ""],
      ["Exit", isOver(job) ? job.signal ? `signal ${job.signal}` : `status ${job.exit_code}` : ""], ["Processor time", job.cpu_s ? span(job.cpu_s) : ""], ["Peak memory", job.memory_peak_bytes ? bytes(job.memory_peak_bytes) : ""],
      ["On GPUs", job.measured ? `${span(job.measured.gpu_s || 0)} in ${count(job.measured.kernels || 0, "kernel")}, ${span(job.measured.waited_s || 0)} waiting for one, ${span(job.measured.moving_s || 0)} moving memory` : ""],
      ["Copied", job.measured ? `${bytes(job.measured.copied_in_bytes || 0)} to GPUs, ${bytes(job.measured.copied_out_bytes || 0)} from them; swapped ${bytes(job.measured.swap_in_bytes || 0)} in, ${bytes(job.measured.swap_out_bytes || 0)} out` : ""],
    ];
    return el("dl", { class: "facts" }, ...rows.filter(r => r[1] !== "").flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  }

  function draw() {
    if (!job) return;
    text(title, `Job ${jobName(job)}: ${job.name}`);
    fill(head, pill(job.state), " ", el("span", {}, isActive(job) ? `on ${job.node_list}${job.why ? `; ${job.why}` : ""}` : job.why || job.reason || ""));
    const stamp = `${job.state} ${job.held} ${may()}`;
    if (buttons.stamp !== stamp) {
      buttons.stamp = stamp;
      const had = buttons.contains(document.activeElement);
      fill(buttons, ...actions());
      if (had) buttons.querySelector("button")?.focus();
    }
    fill(body, timeline(), facts(),
      job.devices?.length ? table("GPUs", ["On node", "GPU of", ">No.", ">Memory", ""], job.devices.map(d => [nodeLink(d.for), nodeLink(d.node), String(d.device), d.memory_bytes ? bytes(d.memory_bytes) : "all", d.borrowed ? "borrowed" : ""])) : null,
      job.parts?.length ? table("Nodes", ["Node", ">Cores", ">Memory", "Processes"], job.parts.map(p => [nodeLink(p.node), String(p.cores), p.memory_bytes ? bytes(p.memory_bytes) : "any", p.state || ""])) : null);
    if (!output && job.parts?.length && may()) {
      output = new Output(outputPlace, job, job.parts.length);
    }
  }

  load();
  const leave = subscribe(() => {
    const known = job && store.jobs.get(job.job);
    const stamp = known ? `${known.state} ${known.reason} ${known.start_at} ${known.priority} ${known.node_list}` : "";
    if (known && stamp !== seen) { seen = stamp; load(); }
  });
  const clockTimer = setInterval(() => { if (job && !isOver(job)) { draw(); load(); } }, 5000);
  return { close() { closed = true; leave(); clearInterval(clockTimer); output?.close(); } };
}

// How many bytes of a job's output a page keeps: its end. All of it is what muster logs has.
const keep = 128 << 10;

// How many bytes it takes before it lets the browser draw: some 15 MB a second.
const perFrame = 256 << 10;

// Output follows what a job writes. A job that writes without end costs the page no more
// than one that does not: only the last bytes are kept, and drawn at most once a frame.
class Output {
  constructor(place, job, parts) {
    this.job = job;
    this.id = jobName(job);
    this.pre = el("pre", { class: "output", tabindex: "0", role: "log", "aria-label": "What the job has written", "aria-live": "off" });
    this.state = el("span", { class: "muted", role: "status" });
    this.stream = el("select", { "aria-label": "Which output", onchange: () => this.open() }, el("option", { value: "output" }, "output"), el("option", { value: "error" }, "errors"));
    this.part = el("select", { "aria-label": "Of which node", onchange: () => this.open(), hidden: parts < 2 }, ...Array.from({ length: Math.min(parts, 1000) }, (_, i) => el("option", { value: i }, `part ${i}`)));
    place.append(el("h2", {}, "Output"), el("div", { class: "tools" }, this.stream, this.part, this.state), this.pre);
    this.look = () => {
      clearTimeout(this.timer);
      if (document.hidden) this.timer = setTimeout(() => { this.away = true; this.stop.abort(); }, unseen);
      else if (this.away) this.open();
    };
    this.gone = () => this.stop.abort();
    document.addEventListener("visibilitychange", this.look);
    addEventListener("pagehide", this.gone);
    this.open();
  }

  close() {
    document.removeEventListener("visibilitychange", this.look);
    removeEventListener("pagehide", this.gone);
    clearTimeout(this.timer);
    this.stop.abort();
  }

  async open() {
    this.stop?.abort();
    this.away = false;
    const stop = this.stop = new AbortController();
    let chunks = [], size = 0, total = 0, taken = 0, waiting = false;
    const draw = () => {
      waiting = false;
      const all = new Uint8Array(size);
      let at = 0;
      for (const c of chunks) { all.set(c, at); at += c.length; }
      let last = all.length > keep ? all.subarray(all.length - keep) : all;
      chunks = [last];
      size = last.length;
      if (total > size) { // begin with a whole line
        const line = last.indexOf(10);
        if (line >= 0) last = last.subarray(line + 1);
      }
      const atEnd = this.pre.scrollTop + this.pre.clientHeight >= this.pre.scrollHeight - 4;
      this.pre.textContent = new TextDecoder().decode(last);
      this.pre.dataset.kept = size;
      if (atEnd) this.pre.scrollTop = this.pre.scrollHeight;
      if (total > size) text(this.state, `the last ${bytes(size)} of ${bytes(total)}: muster logs ${this.id} has all`);
    };
    this.pre.textContent = "";
    this.pre.hidden = false;
    text(this.state, "follows what is written");
    try {
      const answer = await send(`/v1/jobs/${encodeURIComponent(this.id)}/output?follow=true&stream=${this.stream.value}&part=${this.part.value || 0}`, { signal: stop.signal });
      const reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        chunks.push(value);
        size += value.length;
        total += value.length;
        while (chunks.length > 1 && size - chunks[0].length >= keep) size -= chunks.shift().length;
        if (!waiting) { waiting = true; requestAnimationFrame(draw); }
        if ((taken += value.length) > perFrame) { // the browser has other things to do
          taken = 0;
          await new Promise(requestAnimationFrame);
        }
      }
      if (total <= size) text(this.state, total ? "this is all" : "it has written nothing");
    } catch (e) {
      if (stop.signal.aborted) return;
      text(this.state, e.status ? e.message : "the output broke off");
      this.pre.hidden = !total;
    }
  }
}
