// Who uses the cluster now, and who did.

import { el, fill, table, bar } from "./dom.js";
import { percent } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe, isActive, isOver } from "./store.js";

export function show(main) {
  main.classList.add("flow");
  const present = el("div"), account = el("div");
  main.append(el("h1", { tabindex: "-1" }, "Users"), el("h2", {}, "Now"), present, el("h2", {}, "Shares and use"), account,
    el("p", { class: "muted" }, "Used is the part of all that was used lately, and hours are what it is made of: of cores, or of what the file of priorities bills; older use counts less. The factor, from 0 to 1, is what follows for a user's jobs that wait."));
  let closed = false, timer, drawTimer, last = "";

  function draw() {
    drawTimer = undefined;
    const users = new Map();
    for (const j of store.jobs.values()) {
      if (isOver(j)) continue;
      let u = users.get(j.user);
      if (!u) users.set(j.user, u = { running: 0, waiting: 0, gpus: 0, cores: 0 });
      if (isActive(j)) { u.running++; u.gpus += j.gpus; u.cores += j.cores; }
      else u.waiting++;
    }
    const rows = [...users].sort((a, b) => b[1].gpus - a[1].gpus || b[1].cores - a[1].cores || b[1].waiting - a[1].waiting || (a[0] < b[0] ? -1 : 1)).slice(0, 500);
    const most = Math.max(1, ...rows.map(r => r[1].gpus)), stamp = JSON.stringify(rows);
    if (present.stamp === stamp) return;
    present.stamp = stamp;
    fill(present, rows.length ? table("Users now", ["User", ">Running", ">Waiting", ">Cores", ">GPUs", ""], rows.map(([name, u]) => [
      el("a", { href: `#/queue?q=${encodeURIComponent(name)}` }, name), String(u.running), String(u.waiting), String(u.cores), String(u.gpus), bar(u.gpus / most, "plain", `${u.gpus} GPUs`)])) : el("p", {}, "Nobody has a job."));
  }

  async function load() {
    try {
      const { usage } = await ask("/v1/usage");
      if (closed) return;
      const hours = s => (s / 3600).toFixed(s < 3600 ? 2 : 1), stamp = JSON.stringify(usage);
      if (stamp !== last) {
        last = stamp;
        fill(account, usage?.length ? table("Shares and use", ["Account", "User", ">Share", ">Used", "", ">Hours", ">Factor"], usage.slice(0, 2000).map(l => [
          l.account || "–", l.user || "all", percent(l.shares), percent(l.used), bar(l.used, "plain", `used ${percent(l.used)}`), hours(l.raw_usage_s), l.factor?.toFixed(2) ?? "–"]))
          : el("p", {}, "The head keeps no account: it does with a file of priorities (muster head --priority)."));
      }
    } catch (e) { if (!closed && last === "") fill(account, el("p", {}, e.message)); }
    timer = setTimeout(load, 30000);
  }

  draw();
  load();
  const leave = subscribe(() => { drawTimer ??= setTimeout(draw, 200); });
  return { close() { closed = true; clearTimeout(timer); clearTimeout(drawTimer); leave(); } };
}
