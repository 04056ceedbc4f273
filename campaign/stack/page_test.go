package stack

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/internal/ports"
	"muster/node/gateway"
	"muster/wire/api"
)

var shots = flag.String("shots", "", "keep pictures of the page of a real cluster in this folder")

// pageMachines are a cluster like that of the demonstration: one node has no GPU.
var pageMachines = []struct{ name, devices string }{
	{"login", "none"},
	{"gpu1", "soft:name=Fast,memory=96M,workers=1;soft:name=Other,memory=96M,workers=1"},
	{"gpu2", "soft:name=Slow,memory=64M,speed=0.5,workers=1"},
}

// realCluster is a head and nodes, as processes, and a user's commands.
type realCluster struct {
	t    *testing.T
	dir  string
	head string
}

func (r *realCluster) launch(args ...string) {
	r.t.Helper()
	log, err := os.Create(filepath.Join(r.dir, args[0]+rand.Text()[:4]+".log"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(made("muster"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		if r.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			r.t.Logf("%s:\n%s", strings.Join(args[:1], " "), text)
		}
	})
}

// muster runs a command of the user's, and returns what it prints.
func (r *realCluster) muster(args ...string) (string, error) {
	cmd := exec.Command(made("muster"), args...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "MUSTER_HEAD="+r.head)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return errs.String(), err
	}
	return string(out), nil
}

func (r *realCluster) must(args ...string) string {
	r.t.Helper()
	out, err := r.muster(args...)
	if err != nil {
		r.t.Fatalf("muster %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func anyPort(t *testing.T) string {
	t.Helper()
	address, err := ports.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// startRealCluster starts a head and its nodes, with more options, and waits until they know each
// other.
func startRealCluster(t *testing.T, more ...string) *realCluster {
	t.Helper()
	r := &realCluster{t: t, dir: t.TempDir()}
	authority, _, err := gateway.OpenAuthority(filepath.Join(r.dir, "certs"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	headDir, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	socket, port := "@muster-stack-page-"+rand.Text()[:8], anyPort(t)
	r.head = "unix:" + socket
	r.launch("head", "--policy", "easy", "--socket", socket, "--listen", port, "--tls-dir", headDir, "--state", filepath.Join(r.dir, "head"), "--page", "127.0.0.1:0")
	for _, m := range pageMachines {
		folder, err := authority.Node([]string{m.name, "127.0.0.1"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.launch(append([]string{"node", "--name", m.name, "--devices", m.devices, "--socket", socket + "-" + m.name, "--state", filepath.Join(r.dir, m.name), "--spool", filepath.Join(r.dir, m.name+"-spool"),
			"--listen", anyPort(t), "--tls-dir", folder, "--head", port}, more...)...)
	}
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // asking again, as a user does
		var nodes api.Nodes
		if out, err := r.muster("nodes", "--json"); err == nil && json.Unmarshal([]byte(out), &nodes) == nil && len(nodes.Nodes) == len(pageMachines) {
			return r
		}
		if time.Now().After(late) {
			t.Fatal("the nodes did not come")
		}
	}
}

// The page shows the state of a real cluster: jobs that borrow and share software GPUs, their
// output, the load of the GPUs, which jobs wait and why, and what has ended.
func TestPageOfARealCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("drives a browser")
	}
	b := browser.Start(t)
	programs := filepath.Dir(example(t, "mm"))
	r := startRealCluster(t)
	picture := func(name string) {
		if *shots != "" {
			b.Devtools(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 1000, "height": 560, "deviceScaleFactor": 1, "mobile": false})
			b.Settle()
			b.Screenshot(filepath.Join(*shots, name+".png"))
		}
	}
	submit := func(words ...string) { r.must(append([]string{"submit"}, words...)...) }
	// The jobs go on while this file is there, and end with the test's folder whatever happens.
	goesOn := filepath.Join(r.dir, "goes-on")
	if err := os.WriteFile(goesOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(programs, "mm") + " --repeat 2 --memory 4M"
	submit("-J", "borrows", "-n1", "-w", "login", "--gres=rgpu:1", "--wrap", "echo it has begun; while test -e "+goesOn+"; do "+program+"; done; echo it has ended")
	submit("-J", "shares", "-n1", "-w", "gpu1", "--array=1-2", "--gres=rgpu:1:24M", "--rcuda-mode=shar", "--wrap", "while test -e "+goesOn+"; do "+program+"; done")
	submit("-J", "wants-three", "-n1", "--gres=rgpu:3", "--wrap", program)
	submit("-J", "after", "-n1", "-w", "login", "--dependency=afterany:1", "--wrap", "echo all is done")

	b.Open(strings.TrimSpace(r.must("page")))
	b.Until("that it is live", `return document.body.dataset.connection === "live"`)
	b.Until("that a GPU is lent to login", `return /→ login · 1 /.test(document.querySelector("main").innerText)`)
	b.Until("how busy a GPU is", `return [...document.querySelectorAll(".device .who")].some(e => /\d %$/.test(e.textContent))`)
	picture("page-cluster")

	b.Script(nil, `location.hash = "#/queue"`)
	b.Until("why a job waits", `const rows = [...document.querySelectorAll(".row")].map(r => r.innerText).join("\n"); return /wants-three[^]*GPU/.test(rows) && rows.includes("waits for other jobs")`)
	picture("page-queue")
	b.Script(nil, `location.hash = "#/job/1"`)
	b.Until("what it writes", `return document.querySelector(".output")?.textContent.includes("it has begun")`)
	b.Until("what it borrows", `return document.querySelector("main").innerText.includes("borrowed")`)
	picture("page-job")
	b.Script(nil, `location.hash = "#/node/gpu1"`)
	b.Until("a program on a GPU", `return [...document.querySelectorAll("table[aria-label=Programs] tr")].some(e => /mm.*\d [KM]?i?B/.test(e.innerText))`)

	// Everything is let go; the chart and the history have it.
	b.Script(nil, `location.hash = "#/gantt"`)
	b.Until("three blocks", `return document.querySelector("canvas.gantt").dataset.blocks >= 3`)
	if err := os.Remove(goesOn); err != nil {
		t.Fatal(err)
	}
	b.Until("that all have ended", `const { store } = await import("/js/store.js"); return store.counts.pending + store.counts.active === 0 && store.counts.ended === 5`)
	b.Until("all blocks", `return document.querySelector("canvas.gantt").dataset.blocks >= 7`)
	b.Settle()
	picture("page-gantt")
	b.Script(nil, `location.hash = "#/history"`)
	b.Until("five jobs", `return document.querySelector("output").textContent.startsWith("5 jobs")`)
	var states []string
	b.Script(&states, `return [...document.querySelectorAll(".row:not(.heads) .c-state")].map(e => e.textContent)`)
	if got := strings.Join(states, " "); got != strings.TrimSpace(strings.Repeat("completed ", 5)) {
		t.Errorf("the history says %s", got)
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the console says %v", list)
	}
	b.Script(nil, `location.hash = "#/node/gpu1"`)
	b.Until("since when the node is connected", `return /connected since \d/.test(document.querySelector("main").innerText)`)
	b.Script(nil, `location.hash = "#/job/1"`)
	b.Until("the output of a job that has ended", `const t = document.querySelector("main").innerText; return t.includes("muster-1.out") && t.includes("it has ended") && t.includes("any memory")`)

	// What if, as the head really answers it: each policy has all its figures.
	b.Script(nil, `location.hash = "#/whatif"`)
	b.Until("when it is simulated", `return document.querySelector("main").innerText.includes("Not simulated yet. The head does it at ")`)
	b.Script(nil, `[...document.querySelectorAll("main button")].find(b => b.textContent === "Simulate now").click(); document.querySelector("dialog .danger").click()`)
	b.Until("both periods", `return document.querySelectorAll("main section table[aria-label^=The]").length === 2`)
	var wrong []string
	b.Script(&wrong, `
		const wrong = [], tables = [...document.querySelectorAll("main section table[aria-label^=The]")];
		for (const t of tables) {
			const rows = [...t.querySelectorAll("tbody tr")].map(r => [...r.children].map(c => c.textContent));
			const names = rows.map(r => r[0]);
			const all = names.join(", ").split(/[,;:] /);
			if (names[0] !== "measured" || !names[1].startsWith("easy, in force") || !all.includes("mosaic") || !all.includes("mccs-latency")) wrong.push("policies " + names);
			for (const r of rows) if (r.slice(1).some(c => !/^(\d[\d.,]*( (s|ms|min|h|d|%)( \d+ (s|min|h))?)?)(, better|, worse)?$/.test(c))) wrong.push(r.join(" | "));
		}
		if (!document.querySelector("main").innerText.includes("start within a second")) wrong.push("nothing on how far to believe it");
		return wrong`)
	if len(wrong) > 0 {
		t.Errorf("what if: %v", wrong)
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the console says %v", list)
	}
	for _, asked := range b.Requests() {
		if !strings.HasPrefix(asked, "http://127.0.0.1:") && !strings.HasPrefix(asked, "data:") && !strings.HasPrefix(asked, "chrome:") {
			t.Errorf("the browser asked for %s", asked)
		}
	}
}
