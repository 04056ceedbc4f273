// A form that submits a job: a script, with its options in lines of #MUSTER, as muster submit takes it.

import { el, note } from "./dom.js";
import { ask } from "./api.js";

const template = `#!/bin/bash
#MUSTER -J my-job -n 1 -c 1 --mem=1G -t 30
#MUSTER --gres=gpu:1
nvidia-smi
`;

const remembered = "muster-submit"; // the last script and directory, in this browser

export function show(main) {
  main.classList.add("flow");
  let last = {};
  try { last = JSON.parse(localStorage.getItem(remembered)) || {}; } catch { /* as if there were none */ }
  const script = el("textarea", { required: true, spellcheck: "false", "aria-label": "Script" }), directory = el("input", { required: true, placeholder: "/home/…", "aria-label": "Directory" });
  script.value = last.script || template;
  directory.value = last.directory || "";
  const said = el("p", { class: "wrong", role: "alert" });
  const button = el("button", { type: "submit" }, "Submit job");
  // Whoever presses twice, or again when no answer came, submits one job.
  const key = "page-" + [...crypto.getRandomValues(new Uint8Array(12))].map(b => b.toString(16).padStart(2, "0")).join("");

  async function submit(e) {
    e.preventDefault();
    said.textContent = "";
    button.disabled = true;
    try { localStorage.setItem(remembered, JSON.stringify({ script: script.value, directory: directory.value })); } catch { /* then not */ }
    try {
      const done = await ask("/v1/jobs", { method: "POST", body: { script: script.value, directory: directory.value.trim(), key } });
      note([done.tasks ? `Job ${done.job}, an array of ${done.tasks} tasks, is submitted` : `Job ${done.job} is submitted`, ...(done.notes || [])].join("; "));
      location.hash = `#/job/${done.job}`;
    } catch (problem) {
      said.textContent = problem.message;
      button.disabled = false;
    }
  }

  main.append(el("h1", { tabindex: "-1" }, "Submit a job"),
    el("form", { onsubmit: submit },
      el("label", {}, el("span", {}, "Script: lines that begin with #MUSTER or #SBATCH hold its options"), script),
      el("label", {}, el("span", {}, "Directory on the nodes, in which it runs and writes"), directory),
      said, el("div", { class: "buttons" }, button)));
  return { focus: script, close() {} };
}
