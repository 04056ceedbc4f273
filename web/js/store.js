// What the page knows of the cluster: lists that were asked for once, and changes since.
// It is bounded: of jobs that have ended the last ones are kept.

import { ask, events, Problem } from "./api.js";

const maxEnded = 3000;
const over = new Set(["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"]);
export const isOver = job => over.has(job.state);
export const isActive = job => job.state === "RUNNING" || job.state === "SUSPENDED" || job.state === "COMPLETING";

// The state of the connection: connecting, live, lost or signedOut; retryAt is when it is
// tried again.
export const store = {
  connection: "connecting", why: "", retryAt: 0,
  asOf: 0, // when the head last said anything, on this machine's clock; 0 if it has not
  cluster: null, skew: 0,
  jobs: new Map(), // by number
  nodes: new Map(), // by name
  onNode: new Map(), // by node's name: the jobs that have something of it, by number
  counts: { pending: 0, active: 0, ended: 0 },
  changes: 0, // how many were heard of
};

// now is the head's time.
export const now = () => Date.now() / 1000 + store.skew;

const listeners = new Set();

// subscribe has a function called when something has changed, at most once a frame; it
// returns what ends that.
export function subscribe(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

let scheduled = false;

function changed() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const f of listeners) f();
  });
}

// slim keeps of a job what lists and charts show. All have the same shape.
function slim(j) {
  return {
    job: j.job, array_job: j.array_job, array_task: j.array_task, array_tasks: j.array_tasks || "", array_count: j.array_count || 1, name: j.name, user: j.user, account: j.account || "", partition: j.partition || "", qos: j.qos || "", state: j.state,
    reason: j.reason || "", why: j.why || "", asked: 0, priority: j.priority, submit_at: j.submit_at, start_at: j.start_at || 0, end_at: j.end_at || 0,
    cores: j.cores, memory_bytes: j.memory_bytes, gpus: j.gpus, num_nodes: j.num_nodes, node_list: j.node_list || "", parts: j.parts || none, devices: j.devices || none, preempted: j.preempted || none, seen: "",
  };
}

const none = Object.freeze([]);

const count = (j, by) => {
  if (isOver(j)) store.counts.ended += by;
  else if (isActive(j)) store.counts.active += by;
  else store.counts.pending += by * j.array_count;
};

function place(j, add) {
  if (!isActive(j)) return;
  for (const list of [j.parts, j.devices]) {
    for (const { node } of list) {
      let there = store.onNode.get(node);
      if (add) {
        if (!there) store.onNode.set(node, there = new Map());
        there.set(j.job, j);
      } else if (there) {
        there.delete(j.job);
        if (there.size === 0) store.onNode.delete(node);
      }
    }
  }
}

function put(document) {
  const j = slim(document), old = store.jobs.get(j.job);
  if (old) {
    count(old, -1);
    place(old, false);
    if (!j.why && j.state === old.state && j.reason === old.reason) {
      j.why = old.why;
      j.asked = old.asked;
    }
    if (isOver(j)) store.jobs.delete(j.job); // so that those which ended stand in that order
  }
  store.jobs.set(j.job, j);
  count(j, 1);
  place(j, true);
}

// prune forgets the jobs that ended first. Maps keep the order in which things were put in.
function prune() {
  let surplus = store.counts.ended - maxEnded;
  if (surplus <= maxEnded / 10) return;
  for (const [id, j] of store.jobs) {
    if (surplus <= 0) break;
    if (isOver(j)) {
      store.jobs.delete(id);
      count(j, -1);
      surplus--;
    }
  }
}

function apply(change) {
  store.changes++;
  if (change.job) put(change.job);
  if (change.node) store.nodes.set(change.node.node, change.node);
  prune();
  changed();
}

function replace(cluster, nodes, jobs) {
  store.cluster = cluster;
  store.skew = cluster.now_at - Date.now() / 1000;
  store.nodes = new Map(nodes.map(n => [n.node, n]));
  store.jobs = new Map();
  store.onNode = new Map();
  store.counts = { pending: 0, active: 0, ended: 0 };
  for (const j of jobs) put(j);
  prune();
}

// told puts in what the policy says of jobs that wait. Every change of a job that the page hears
// of puts a new object into the store: an answer about a job that has changed since it was asked
// for may be older than the change, and is left.
export function told(asked, jobs) {
  const same = new Map(asked.map(j => [j.job, j]));
  for (const d of jobs) {
    const j = store.jobs.get(d.job);
    if (!j || j !== same.get(d.job) || j.state !== d.state) continue;
    j.reason = d.reason || "";
    j.why = d.why || "";
    j.asked = Date.now();
  }
  changed();
}

function become(connection, why = "") {
  store.connection = connection;
  store.why = why;
  changed();
}

const shortest = 500, longest = 15000;
let pause = shortest;
let wake = null;

// retry tries again at once.
export const retry = () => wake?.();

const rest = ms => new Promise(done => {
  const timer = setTimeout(done, ms);
  wake = () => { clearTimeout(timer); done(); };
});

const visible = () => new Promise(done => {
  if (!document.hidden) return done();
  document.addEventListener("visibilitychange", function look() {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", look);
    done();
  });
});

// A page that nobody sees lets go of its connections after a while, and one that was left
// at once: browsers keep pages for the way back, and have few connections.
export const unseen = 60000;

// follow keeps the store as the cluster is, until the session ends.
export async function follow() {
  for (;;) {
    await visible();
    const stop = new AbortController();
    let timer;
    const hide = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => stop.abort(), unseen);
    };
    const gone = () => stop.abort();
    document.addEventListener("visibilitychange", hide);
    addEventListener("pagehide", gone);
    try {
      await once(stop);
    } catch (e) {
      if (e.status === 401) return become("signedOut", e.message);
      if (!stop.signal.aborted || !document.hidden) become("lost", e instanceof Problem ? e.message : "the page and the head do not understand each other: load it anew");
      if (!(e instanceof Problem) && !stop.signal.aborted) console.error(e);
    } finally {
      document.removeEventListener("visibilitychange", hide);
      removeEventListener("pagehide", gone);
      clearTimeout(timer);
      stop.abort();
    }
    if (document.hidden) { become("connecting"); continue; } // until it is seen again: what it has is old then
    const time = pause * (0.75 + Math.random() / 2);
    store.retryAt = Date.now() + time;
    pause = Math.min(2 * pause, longest);
    changed();
    await rest(time);
  }
}

// once listens first and asks for the lists then, so that no change is missed; what was
// heard meanwhile is put in behind them.
async function once(stop) {
  let early = [];
  let begun;
  const listening = new Promise(done => { begun = done; });
  const alive = () => { if (!early) store.asOf = Date.now(); };
  const heard = change => early ? early.push(change) : apply(change);
  const ended = events(stop.signal, begun, heard, alive);
  await Promise.race([listening, ended]);
  const load = (async () => {
    const [cluster, nodes, jobs] = await Promise.all(["/v1/cluster", "/v1/nodes", "/v1/jobs"].map(path => ask(path, { signal: stop.signal })));
    replace(cluster, nodes.nodes, jobs.jobs);
    const late = early;
    early = null;
    late.forEach(apply);
    store.asOf = Date.now();
    pause = shortest;
    become("live");
    performance.mark("live"); // for those who measure
    for (;;) { // nodes that were removed, and the clock
      await restUnless(60000, stop.signal);
      const [c, n] = await Promise.all([ask("/v1/cluster", { signal: stop.signal }), ask("/v1/nodes", { signal: stop.signal })]);
      store.cluster = c;
      store.skew = c.now_at - Date.now() / 1000;
      store.nodes = new Map(n.nodes.map(x => [x.node, x]));
      changed();
    }
  })();
  await Promise.race([ended, load.catch(e => { if (!stop.signal.aborted) throw e; return ended; })]);
}

const restUnless = (ms, signal) => new Promise((done, fail) => {
  const end = () => { clearTimeout(timer); fail(new Problem(0, "")); };
  const timer = setTimeout(() => { signal.removeEventListener("abort", end); done(); }, ms);
  signal.addEventListener("abort", end);
});
