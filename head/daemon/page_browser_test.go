package daemon

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
)

var shots = flag.String("shots", "", "keep pictures of the page in this folder")

// keep saves a screenshot of the page, if screenshots are wanted.
func keep(b *browser.Browser, name string) {
	if *shots != "" {
		b.Settle()
		b.Screenshot(filepath.Join(*shots, name+".png"))
	}
}

func withPage(cfg *Config, _ *Options) {
	if cfg.Page == "" {
		cfg.Page = "127.0.0.1:0"
	}
	cfg.Core.Admins = []string{"root", "alice"}
}

// busyNode greets as a node whose tasks run until they are told to stop, and write much output.
func (c *cluster) busyNode(name string, devices int) *agentAt {
	h := hello(name)
	h.Gateway = "127.0.0.1:1"
	for range devices {
		h.Devices = append(h.Devices, agent.Device{Name: "Soft", Memory: 16 << 30, Speed: 1, Up: true})
	}
	as := c.as("", "")
	a := c.greet(as, h)
	heard[agent.Welcome](a)
	_ = a.conn.SetReadDeadline(time.Time{})
	go obey(a, as)
	return a
}

// obey starts and stops tasks as the head says.
func obey(a *agentAt, as dial.Config) {
	for {
		m, err := agent.ReadToAgent(a.conn)
		if err != nil {
			return
		}
		var answer agent.ToHead
		switch m := m.(type) {
		case agent.Ping:
			answer = agent.Pong{}
		case agent.Start:
			answer = agent.Report{Task: m.Task, State: agent.Running}
		case agent.Stop:
			answer = agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.Stopped, Signal: 15}}
		case agent.Open:
			go writeForEver(a, as, m)
			continue
		default:
			continue
		}
		text, err := agent.Encode(nil, answer)
		if err == nil {
			_, err = a.conn.Write(text)
		}
		if err != nil {
			return
		}
	}
}

// hostile is a job's name with which a user tries to attack other users' browsers.
const hostile = `<img src=x onerror="globalThis.stolen=1"><script>globalThis.stolen=1</script>`

// writeForEver is the output of a task that never ends.
func writeForEver(a *agentAt, as dial.Config, m agent.Open) {
	conn, err := dial.DialStream(a.t.Context(), as, m.Stream)
	if err != nil {
		return
	}
	defer conn.Close()
	if m.File == agent.FileStatus {
		_, _ = conn.Write(agent.AppendOutcome(agent.AppendFrame(nil, agent.FrameOutput, []byte(`{"devices":[],"clients":[]}`)), agent.Outcome{}))
		return
	}
	frame := agent.AppendFrame(nil, agent.FrameOutput, []byte(strings.Repeat(hostile+"\n", 200)))
	for range 80 { // more than a MiB
		if _, err := conn.Write(frame); err != nil {
			return
		}
	}
	_, _ = conn.Read(make([]byte, 1)) // and then nothing, until the reader has gone
}

// openPageAs opens the page for the user who asks.
func openPageAs(t *testing.T, b *browser.Browser, u *asker) {
	t.Helper()
	var p api.Page
	u.must("POST", "/v1/page", nil, &p)
	b.Open(p.Address)
	b.Until("that it is live", `return document.body.dataset.connection === "live"`)
}

// visit goes to a view and waits until it has drawn itself.
func visit(b *browser.Browser, hash string) {
	b.Script(nil, "location.hash = arguments_[0]", hash)
	b.Until("the heading of "+hash, `if (document.querySelector("main h1") === null) return false; for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame); return true`)
}

// Keys of the WebDriver protocol.
const (
	keyTab, keyEnter, keyEscape, keyDown, keyUp, keyRight, keyLeft, keyPageDown, keyHome, keyEnd = "\ue004", "\ue007", "\ue00c", "\ue015", "\ue013", "\ue014", "\ue012", "\ue00f", "\ue011", "\ue010"
)

// The page is used with the keyboard alone, on a cluster some of whose users are malicious; and on
// a phone, in dark mode, and while the head is away.
func TestPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	b := browser.Start(t)
	c := start(t, withPage)
	for i, devices := range []int{0, 2, 4, 1} {
		c.busyNode(fmt.Sprintf("gpu%d", i), devices)
	}
	u := c.user("")
	job := func(name string, options ...string) uint64 {
		return u.submit(api.Submission{Arguments: []string{"sleep", hostile}, Directory: "/tmp", Options: append([]string{"-n1", "-J", name}, options...)})
	}
	first := job("train", "--gres=rgpu:1", "--comment="+hostile)
	for i := range 12 {
		job(fmt.Sprintf("train-%d", i), "--gres=rgpu:1")
	}
	held := job(hostile, "--hold", "--gres=rgpu:6")
	u.must("POST", "/v1/nodes/gpu3/drain", api.Drain{Reason: hostile}, nil)
	openPageAs(t, b, u)

	t.Run("text is text", func(t *testing.T) { onlyText(t, b.For(t), first, held) })
	t.Run("keyboard", func(t *testing.T) { byKeys(t, b.For(t), u, held) })
	t.Run("output is bounded", func(t *testing.T) { boundedOutput(t, b.For(t), first) })
	t.Run("addresses", func(t *testing.T) { addresses(t, b.For(t)) })
	t.Run("gantt", func(t *testing.T) { ganttByHand(t, b.For(t)) })
	t.Run("what if", func(t *testing.T) { whatIf(t, b.For(t), c, u) })
	t.Run("phone and dark", func(t *testing.T) { everySize(t, b.For(t), c, u, first) })
	t.Run("restart", func(t *testing.T) { restart(t, b.For(t), c, u) })

	// No request has left this machine, and the console has no messages except for what the test
	// itself caused.
	for _, asked := range b.Requests() {
		if at, err := url.Parse(asked); err != nil || at.Hostname() != "127.0.0.1" && at.Hostname() != "localhost" && at.Scheme != "data" && at.Scheme != "chrome" {
			t.Errorf("the browser asked for %s", asked)
		}
	}
}

// The page of a head without nodes and jobs says what to do, and its views stand in one line on
// a phone.
func TestEmptyPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	b := browser.Start(t)
	openPageAs(t, b, start(t, withPage).user(""))
	for hash, want := range map[string]string{
		"#/cluster": "run muster node --head", "#/queue": "muster submit", "#/queue?q=x": "No job here matches the filter.", "#/queue?show=running": "There is no such job.", "#/gantt": "No node has joined yet.", "#/history": "No job has ended in this time.", "#/history?q=x": "No job here matches the filter.",
	} {
		visit(b, hash)
		b.Until(hash+" to say "+want, `return document.querySelector("main").innerText.includes(arguments[0])`, want)
	}
	b.Phone(true)
	defer b.Phone(false)
	var lines, hidden int
	b.Script(&lines, `return new Set([...document.querySelectorAll("nav a")].map(a => a.offsetTop)).size`)
	b.Script(&hidden, `const n = document.querySelector("nav"); return n.scrollWidth - n.clientWidth`)
	if lines != 1 || hidden > 0 {
		t.Errorf("the views stand in %d lines on a phone, and %d pixels of them are not to be seen", lines, hidden)
	}
	quiet(t, b)
}

// quiet requires that the console is silent. On a busy machine the head may ask the page to retry
// later, which it does.
func quiet(t *testing.T, b *browser.Browser) {
	t.Helper()
	later := func(complaint string) bool { return strings.Contains(complaint, "status of 503") }
	if list := slices.DeleteFunc(b.Complaints(), later); len(list) > 0 {
		t.Errorf("the console says %v", list)
	}
}

// onlyText: text that users wrote is shown literally everywhere, and is never markup.
func onlyText(t *testing.T, b *browser.Browser, first, held uint64) {
	for hash, want := range map[string]string{
		"#/queue?q=onerror": "table", fmt.Sprintf("#/job/%d", held): "heading", fmt.Sprintf("#/job/%d", first): "command", "#/cluster": "a node's reason", "#/node/gpu3": "a reason", "#/node/" + url.PathEscape(hostile): "an address",
	} {
		visit(b, hash)
		b.Until("the hostile text as "+want, `return document.querySelector("main").innerText.includes("<img src=x onerror=")`)
	}
	// The browser itself would refuse, if the page forgot.
	var refused bool
	b.Script(&refused, `try { document.body.innerHTML = "<b>x</b>"; return false } catch { return true }`)
	if !refused {
		t.Error("text can become markup in this page")
	}
	_ = b.Complaints() // of that attempt
	var stolen bool
	b.Script(&stolen, `return "stolen" in globalThis || document.querySelector("img, iframe, main script") !== null`)
	if stolen {
		t.Error("what a user wrote ran as a script, or became an element")
	}
	quiet(t, b)
}

// focus says what has the focus, and whether that is visible.
func focus(b *browser.Browser) (what string, seen bool) {
	var answer struct {
		What string
		Seen bool
	}
	b.Script(&answer, `
		const e = document.activeElement, s = getComputedStyle(e);
		return {What: e.getAttribute("aria-label") || e.textContent.trim().slice(0, 40) || e.tagName, Seen: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2}`)
	return answer.What, answer.Seen
}

// byKeys uses the page without a pointer, and holds and cancels a job.
func byKeys(t *testing.T, b *browser.Browser, u *asker, held uint64) {
	b.Load("#/cluster")
	b.Until("that it is live", `return document.body.dataset.connection === "live"`)
	var path []string
	for range 11 {
		b.Keys(keyTab)
		what, seen := focus(b)
		if !seen {
			t.Errorf("one cannot see that %s has the focus", what)
		}
		path = append(path, what)
	}
	if got, want := strings.Join(path, "|"), "Skip to the content|Cluster|Queue|Gantt|History|What if|Users|Sign out|Help, keys|Filter nodes|Nodes"; got != want {
		t.Errorf("Tab goes %s, want %s", got, want)
	}
	b.Script(nil, `document.getElementById("skip").focus()`)
	b.Keys(keyEnter)
	if what, _ := focus(b); what != "Nodes" {
		t.Errorf("the skip link goes to %s", what)
	}
	b.Keys(keyDown + keyRight + keyEnter)
	b.Until("the second node", `return document.querySelector("h1").textContent === "Node gpu1"`)

	// The queue: filter, sort by a head's button, go down, open.
	b.Keys("2")
	b.Until("the queue", `return document.title.startsWith("Queue")`)
	b.Keys("/train-")
	b.Until("twelve jobs", `return document.querySelector("output").textContent.startsWith("12 jobs")`)
	b.Keys(keyEscape + keyEnd)
	var active string
	b.Script(&active, `const g = document.activeElement; return g.getAttribute("role") + " " + document.getElementById(g.getAttribute("aria-activedescendant")).children[1].textContent + " of " + g.getAttribute("aria-rowcount")`)
	if !strings.HasPrefix(active, "grid train-") || !strings.HasSuffix(active, " of 13") {
		t.Errorf("after End the active row is %s", active)
	}
	b.Script(nil, `document.querySelector(".heads .c-name button").focus()`)
	b.Keys(keyEnter + keyEnter)
	b.Until("the names, backwards", `return document.querySelector(".heads .c-name").getAttribute("aria-sort") === "descending" && document.querySelector('[aria-rowindex="2"] .c-name').textContent === "train-9"`)
	var hash string
	b.Script(&hash, "return location.hash")
	if hash != "#/queue?q=train-&sort=-name" {
		t.Errorf("the address is %s", hash)
	}
	b.Script(nil, `document.querySelector("[role=grid]").focus()`)
	b.Keys(keyHome + keyEnter)
	b.Until("the job", `return document.querySelector("h1").textContent.endsWith("train-9")`)

	// Help, and an action whose question is answered with no, and then with yes.
	b.Keys("?")
	b.Until("the help", `return document.querySelector("dialog[open] kbd") !== null`)
	b.Keys(keyEscape)
	b.Until("no help", `return document.querySelector("dialog") === null`)
	visit(b, fmt.Sprintf("#/job/%d", held))
	b.Until("its buttons", `return document.querySelectorAll("main .buttons button").length === 2`)
	press := func(index int, answer string) {
		b.Script(nil, `document.querySelectorAll("main .buttons button")[arguments_[0]].focus()`, index)
		b.Keys(keyEnter)
		b.Until("a question", `return document.querySelector("dialog[open]") !== null`)
		b.Keys(answer)
	}
	state := func() (j api.Job) {
		u.must("GET", fmt.Sprintf("/v1/jobs/%d", held), nil, &j)
		return j
	}
	press(1, keyEnter) // the focus is on no
	b.Until("no question", `return document.querySelector("dialog") === null`)
	if j := state(); j.State != api.Pending {
		t.Errorf("a job that was not to be cancelled is %s", j.State)
	}
	press(0, keyTab+keyEnter) // to yes
	b.Until("that it can be held again", `return document.querySelector("main .buttons button")?.textContent === "Hold"`)
	if state().Held {
		t.Error("the job is still held")
	}
	press(1, keyTab+keyEnter)
	b.Until("that it is cancelled", `return document.querySelector(".pill")?.textContent === "cancelled"`)
	quiet(t, b)
}

func currentAddress(b *browser.Browser) (address string) {
	b.Script(&address, "return location.href")
	return address
}

// boundedOutput follows a job that writes without end.
func boundedOutput(t *testing.T, b *browser.Browser, first uint64) {
	visit(b, fmt.Sprintf("#/job/%d", first))
	b.Until("more output than is kept", `return /the last \d+ KiB of [\d.]+ MiB/.test(document.querySelector("main section")?.innerText)`)
	var kept struct {
		Bytes int
		Lines string
	}
	b.Script(&kept, `const p = document.querySelector(".output"); return {Bytes: new TextEncoder().encode(p.textContent).length, Lines: p.textContent.slice(0, 5)}`)
	if kept.Bytes > 128<<10 || kept.Lines != "<img " {
		t.Errorf("%d bytes are shown, from %q on", kept.Bytes, kept.Lines)
	}
	visit(b, "#/usage")
	quiet(t, b)
}

// addresses: each view can be loaded by its address, and an unknown address shows the first.
func addresses(t *testing.T, b *browser.Browser) {
	for hash, want := range map[string]string{
		"#/queue?show=running&q=train-1": "Queue", "#/gantt?by=node&span=600": "Gantt", "#/history?user=nobody": "History", "#/usage": "Users", "#/node/gpu2": "Node gpu2", "#/nonsense": "Cluster", "#/job/99999": "Job 99999",
	} {
		b.Load(hash)
		b.Until(want, `return document.body.dataset.connection === "live" && document.querySelector("h1").textContent === arguments_[0]`, want)
	}
	_ = b.Complaints() // job 99999 does not exist, and the browser says so
}

// ganttByHand zooms by keys and by fingers, and finds a job.
func ganttByHand(t *testing.T, b *browser.Browser) {
	visit(b, "#/gantt")
	b.Until("blocks", `return document.querySelector("canvas.gantt").dataset.blocks > 0`)
	span := func() (s float64) {
		b.Settle()
		b.Script(&s, `const d = document.querySelector("canvas.gantt").dataset; return d.to - d.from`)
		return s
	}
	b.Script(nil, `document.querySelector("canvas.gantt").focus()`)
	b.Keys("0")
	all := span()
	b.Keys("+++")
	if in := span(); in > all/2 {
		t.Errorf("after +++ %v s are visible, before %v", in, all)
	}
	b.Keys("0]")
	b.Until("a job", `return /^Job \d+ train.* of .* on gpu\d : \d: running/.test(document.querySelector(".told").textContent)`)
	b.Keys(keyEnter)
	b.Until("its page", `return document.querySelector("h1").textContent.startsWith("Job ")`)
	visit(b, "#/gantt")
	b.Until("blocks", `return document.querySelector("canvas.gantt").dataset.blocks > 0`)
	b.Script(nil, `document.querySelector("canvas.gantt").focus()`)
	b.Keys("0")
	all = span()
	finger := func(id string, from, to int) map[string]any {
		return map[string]any{"type": "pointer", "id": id, "parameters": map[string]string{"pointerType": "touch"}, "actions": []map[string]any{
			{"type": "pointerMove", "duration": 0, "x": from, "y": 300}, {"type": "pointerDown", "button": 0},
			{"type": "pointerMove", "duration": 50, "x": to, "y": 300}, {"type": "pointerUp", "button": 0},
		}}
	}
	b.Actions(finger("one", 560, 400), finger("two", 640, 800))
	if in := span(); in > all/2 {
		t.Errorf("two fingers from 80 to 400 px apart: %v s are visible, before %v", in, all)
	}
	quiet(t, b)
}

// proxied is the head's page behind another server, which answers some requests itself.
func proxied(t *testing.T, c *cluster, answers map[string]any) string {
	t.Helper()
	target, err := url.Parse(c.at.Page)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := answers[r.URL.Path]; ok {
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	// Browsers have one set of cookies for all ports of a name.
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// whatIfDocument is what GET /v1/whatif may answer: made of the types of the interface, so
// that the page is tested with the names that the head really uses.
func whatIfDocument() api.WhatIf {
	figures := func(wait, use float64) *api.WhatIfFigures {
		return &api.WhatIfFigures{MeanWait: wait, MedianWait: wait / 3, P95Wait: wait * 4, MeanSlowdown: 1 + wait/600, Use: use, CoreUse: use / 2, Makespan: 86400 / use * 0.7}
	}
	policy := func(name string, wait, use float64) api.WhatIfPolicy {
		return api.WhatIfPolicy{
			Policy: name, Figures: figures(wait, use), Took: 0.4, UsersLeftOut: 3,
			Users: []api.WhatIfUser{{User: "alice", Jobs: 210, MeanWait: wait, MeanWaitMeasured: 1800}, {User: hostile, Jobs: 12, MeanWait: wait * 2, MeanWaitMeasured: 1800}},
		}
	}
	inForce := policy("easy", 1860, 0.62)
	inForce.InForce = true
	partly := policy("g-queue", 0.25, 0.4) // the best wait of all, for it leaves jobs out
	partly.Figures.Impossible = 6
	return api.WhatIf{
		Next: 1.9e9 + 100000,
		Periods: []api.WhatIfPeriod{
			{
				Name: "day", From: 1.9e9, To: 1.9e9 + 86400, Jobs: 412, MadeAt: 1.9e9 + 90000, Policy: "easy", Measured: *figures(1800, 0.62),
				Model: &api.WhatIfAccuracy{MeanWait: 60, StartedTogether: 0.98}, Notes: []string{"a note"},
				Policies: []api.WhatIfPolicy{
					inForce, policy("conservative", 2100, 0.6), policy("fcfs", 1900, 0.62), policy("r-queue", 690, 0.81), policy("r-queue:x", 690, 0.81), partly, policy("mosaic", 540, 0.84),
					{Policy: "./mine.star", Error: "mine.star:3:7: " + hostile},
				},
			},
			{Name: "week"},
		},
	}
}

// whatIf shows each policy beside what was measured, and calls it better or worse than the
// policy in force, simulated as well, where the difference is larger than the simulation's
// error.
func whatIf(t *testing.T, b *browser.Browser, c *cluster, u *asker) {
	back := currentAddress(b)
	var p api.Page
	u.must("POST", "/v1/page", nil, &p)
	_, ticket, _ := strings.Cut(p.Address, "#")
	b.Open(proxied(t, c, map[string]any{"/v1/whatif": whatIfDocument()}) + "/#" + ticket)
	b.Until("that it is live", `return document.body.dataset.connection === "live"`)
	visit(b, "#/whatif")
	b.Until("a table", `return document.querySelectorAll("main table:first-of-type tbody tr").length > 4`)
	var rows []string
	b.Script(&rows, `return [...document.querySelector("main table").querySelectorAll("tbody tr")].map(r => r.children[0].textContent + ": " + r.children[1].textContent)`)
	if got, want := strings.Join(rows, "; "), "measured: 30 min 00 s; easy, in force: 31 min 00 s; mosaic: 9 min 00 s, better; r-queue; the same: r-queue:x: 11 min 30 s, better; fcfs: 31 min 40 s; conservative: 35 min 00 s, worse; g-queue: 250 ms"; got != want {
		t.Errorf("the table says %s\nwant           %s", got, want)
	}
	var said string
	b.Script(&said, `return document.querySelector("main").innerText`)
	for _, want := range []string{"Impossible", "without the 6 jobs that it could never start", "mean wait is 1 min 00 s longer than measured", "98 % of the jobs", "Not simulated yet", "The head does it at"} {
		if !strings.Contains(said, want) {
			t.Errorf("the page does not say %q:\n%s", want, said)
		}
	}
	for _, phone := range []bool{false, true} {
		b.Phone(phone)
		var size []int
		b.Script(&size, `const s = document.scrollingElement; return [s.scrollWidth - innerWidth, s.scrollHeight - innerHeight]`)
		if size[0] > 0 || size[1] > 0 {
			t.Errorf("phone %v: the page is larger than the window by %v: there are two bars to scroll with", phone, size)
		}
	}
	b.Phone(false)
	b.Script(nil, `document.querySelectorAll("details").forEach(d => d.open = true)`)
	b.Until("a user's gain and an error", `const t = document.querySelector("main").innerText; return t.includes("alice") && t.includes("21 min 00 s less") && t.includes("and 3 users with few jobs") && t.includes("mine.star:3:7: <img")`)
	b.Script(nil, `document.querySelectorAll("details").forEach(d => d.open = false); document.querySelector("main .wrong").remove()`)
	keep(b, "page-whatif")
	quiet(t, b)
	b.Open(back)
	b.Until("that it is live", `return document.body.dataset.connection === "live"`)
}

// contrasts finds text whose colour is too close to its background.
const contrasts = `
	const channels = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
	const light = ([r, g, b]) => { const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const ground = e => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
	const bad = new Set();
	let looked = 0;
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walker.nextNode(); n; n = walker.nextNode()) {
		const e = n.parentElement;
		if (!n.data.trim() || !e.checkVisibility()) continue;
		looked++;
		const a = light(channels(getComputedStyle(e).color)), b = light(ground(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.add(n.data.trim().slice(0, 30) + " " + ratio.toFixed(2));
	}
	return [String(looked), ...bad]`

// readable is how many texts there are to be seen, and then those that are hard to read.
func readable(b *browser.Browser) (found []string) {
	b.Script(&found, contrasts)
	return found
}

// everySize looks at every view in light mode, in dark mode and on a phone: text is readable,
// nothing needs sideways scrolling, and everything has a name.
func everySize(t *testing.T, b *browser.Browser, c *cluster, u *asker, first uint64) {
	defer b.Phone(false)
	defer b.Scheme("light")
	for _, phone := range []bool{false, true} {
		b.Phone(phone)
		for _, hash := range []string{"#/cluster", "#/queue", fmt.Sprintf("#/job/%d", first), "#/gantt", "#/history", "#/usage", "#/node/gpu2", "#/whatif", "#/submit"} {
			b.Scheme("light")
			visit(b, hash)
			where := fmt.Sprintf("%s, phone %v", hash, phone)
			light := readable(b)
			b.Scheme("dark")
			if dark := readable(b); len(light) > 1 || len(dark) > 1 || light[0] == "0" || dark[0] == "0" {
				t.Errorf("%s: hard to read: light %v, dark %v", where, light[1:], dark[1:])
			}
			var wide []string
			b.Script(&wide, `
				const over = document.scrollingElement.scrollWidth > innerWidth || document.querySelector("main").scrollWidth > document.querySelector("main").clientWidth;
				return over ? [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest(".scroll")).map(e => e.tagName + "." + e.className).slice(0, 5).concat("page") : []`)
			if len(wide) > 0 {
				t.Errorf("%s: must be scrolled sideways: %v", where, wide)
			}
			var nameless []string
			b.Script(&nameless, `return [...document.querySelectorAll("button, a, input, select, canvas, [role=grid], [role=listbox], dialog")].filter(e => e.checkVisibility() && !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML.slice(0, 80))`)
			if len(nameless) > 0 {
				t.Errorf("%s: has no name: %v", where, nameless)
			}
			if phone && hash == "#/queue" {
				keep(b, "page-phone")
			}
		}
	}
	_ = b.Complaints() // there is no /v1/whatif at this head
}

// restart stops the head and starts it again: the page says that it is away, and then that
// its user is to sign in again.
func restart(t *testing.T, b *browser.Browser, c *cluster, u *asker) {
	visit(b, "#/queue")
	cfg := c.cfg
	cfg.Page = strings.TrimPrefix(c.at.Page, "http://")
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	b.Until("that the head is away", `return document.body.dataset.connection === "lost" && document.getElementById("problems").innerText.includes("cannot be reached")`)
	again := startIn(t, cfg, withPage)
	_ = b.Complaints()
	b.Until("that it is back", `return document.body.dataset.connection === "signedOut" && document.querySelector("main").innerText.includes("muster page")`)
	_ = b.Complaints()
	openPageAs(t, b, again.user(""))
	visit(b, "#/queue")
	b.Until("that it is back", `return document.body.dataset.connection === "live" && document.getElementById("problems").hidden`)
	id := again.user("").submit(api.Submission{Arguments: []string{"true"}, Directory: "/", Options: []string{"-J", "after-the-restart"}})
	b.Until("a new job", `return document.querySelector("main").innerText.includes("after-the-restart")`)
	again.user("").must("DELETE", fmt.Sprintf("/v1/jobs/%d", id), nil, nil)
	b.Until("that it has gone", `return !document.querySelector("main").innerText.includes("after-the-restart")`)
	_ = b.Complaints()
}
