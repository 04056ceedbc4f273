package daemon

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/browser"
	"muster/internal/need"
	"muster/wire/agent"
	"muster/wire/api"
)

// The page of a large cluster, of nodes with two GPUs each and ten jobs for each node: 300 nodes, or
// a thousand if the long campaigns are wanted. The times are logged; the test asserts that everything is
// there, and that the document stays small.
func TestLargePage(t *testing.T) {
	if testing.Short() {
		t.Skip("has many nodes")
	}
	raise(t, 8192)
	nodes := need.Rounds(300, 1000)
	jobs := 10 * nodes
	b := browser.Start(t)
	c := start(t, func(cfg *Config, o *Options) {
		withPage(cfg, o)
		cfg.Connections.User, cfg.Policy = 4*nodes, "first-fit"
	})
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range nodes {
		turns <- struct{}{}
		all.Go(func() { c.busyNode(nodeName(i), 2); <-turns })
	}
	all.Wait()
	u := c.user("")
	list := make([]api.Submission, jobs)
	for i := range list {
		list[i] = api.Submission{Arguments: []string{"sleep"}, Directory: "/home/somebody/project", Options: []string{"-n2", "--gres=gpu:1", "-J", fmt.Sprintf("train-%05d", i)}}
	}
	u.must("POST", "/v1/jobs", list, nil)
	openPageAs(t, b, u)
	var paints, lives, lists []float64
	for range need.Rounds(1, 3) {
		b.Load("#/cluster")
		b.Until("all nodes", `return document.querySelector("output")?.textContent.replaceAll(",", "").startsWith(arguments[0])`, fmt.Sprintf("%d nodes; %d of %d GPUs", nodes, 2*nodes, 2*nodes))
		var at [3]float64
		b.Script(&at, `
			const one = n => performance.getEntriesByName(n)[0]?.startTime || 0, last = performance.getEntriesByType("resource").find(e => e.name.endsWith("/v1/jobs"));
			return [one("first-contentful-paint"), one("live"), last.responseEnd - last.startTime]`)
		paints, lives, lists = append(paints, at[0]), append(lives, at[1]), append(lists, at[2])
	}
	t.Logf("first paint after %.0f ms; everything there after %.0f ms, of which the list of jobs took %.0f ms", slices.Min(paints), slices.Min(lives), slices.Min(lists))

	visit(b, "#/queue?show=waiting")
	b.Until("all that wait", `return document.querySelector("output").textContent.replaceAll(",", "").startsWith(arguments[0])`, fmt.Sprintf("%d jobs", jobs-2*nodes))
	var elements int
	b.Script(&elements, `return document.querySelectorAll("*").length`)
	if elements > 2000 {
		t.Errorf("the queue of %d has %d elements", jobs-2*nodes, elements)
	}
	b.Until("what the first waits for", `return document.querySelector('[aria-rowindex="2"] .c-where').textContent.includes("GPU")`)
	b.Script(nil, `document.querySelector("[role=grid]").focus()`)
	b.Keys(keyEnd)
	b.Until("the last", `return document.querySelector('[aria-rowindex="' + arguments[0] + '"] .c-name')?.textContent === arguments[1]`, jobs-2*nodes+1, fmt.Sprintf("train-%05d", jobs-1))
	b.Keys(fmt.Sprintf("/train-%04d", jobs/10-1) + keyEnter)
	b.Until("ten", `return document.querySelector("output").textContent.startsWith("10 jobs")`)

	// A change, from the click that asks for it to the frame that shows it.
	var times []float64
	b.Script(&times, `
		const { ask } = await import("/js/api.js"), row = () => document.querySelector('[aria-rowindex="2"]'), id = row().children[0].textContent, times = [];
		for (let i = 0; i < 12; i++) {
			const held = i % 2 === 0, begin = performance.now();
			ask("/v1/jobs/" + id + (held ? "/hold" : "/release"), { method: "POST" });
			for (const late = begin + 20000; row().lastChild.textContent.includes("holds") !== held && performance.now() < late;) await new Promise(requestAnimationFrame);
			times.push(performance.now() - begin);
		}
		return times`)
	slices.Sort(times)
	t.Logf("a change is asked for, made, on disk and in sight after %.0f ms (half of 12), %.0f ms (all)", times[6], times[11])
	m := b.Memory()
	t.Logf("the tab has %.1f MB of JavaScript, %d elements", float64(m.Heap)/1e6, m.Elements)
	visit(b, "#/gantt")
	b.Until("all blocks", `return document.querySelector("canvas.gantt").dataset.blocks === arguments[0]`, fmt.Sprint(2*nodes))
	visit(b, "#/cluster")
	b.Until("the overview", `return !document.querySelector(".overview").hidden`)
	keep(b, "page-large")
	quiet(t, b)
}

// The page asks for the policy's reason for a job while it also receives changes. An answer that is
// older than a change does not undo it.
func TestAnOldAnswerDoesNotUndoAChange(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	b := browser.Start(t)
	c := start(t, withPage)
	c.busyNode(nodeName(0), 1)
	u := c.user("")
	u.must("POST", "/v1/jobs", []api.Submission{{Arguments: []string{"sleep"}, Directory: "/", Options: []string{"-n1", "--gres=gpu:1"}}, {Arguments: []string{"sleep"}, Directory: "/", Options: []string{"-n1", "--gres=gpu:1"}}}, nil)
	openPageAs(t, b, u)
	// Answers about single jobs are read at once, and given to the page when the test says so.
	b.Script(nil, `
		const real = window.fetch;
		window.kept = [];
		window.fetch = async (path, ...rest) => {
			const answer = await real(path, ...rest);
			if (!String(path).startsWith("/v1/jobs?job=")) return answer;
			const text = await answer.text();
			await new Promise(done => window.kept.push(done));
			return new Response(text, { status: answer.status });
		}`)
	visit(b, "#/queue?show=waiting")
	b.Until("that the page asks", `return window.kept.length > 0`)
	var held string
	b.Script(&held, `
		const { ask } = await import("/js/api.js"), { store } = await import("/js/store.js"), frames = async n => { while (n-- > 0) await new Promise(requestAnimationFrame); };
		const id = [...store.jobs.values()].find(j => j.state === "PENDING").job, reason = () => store.jobs.get(id).reason;
		await ask("/v1/jobs/" + id + "/hold", { method: "POST" });
		while (reason() === "Resources") await frames(1);
		const held = reason();
		for (const give of window.kept.splice(0)) give();
		await frames(20);
		return held + ", then " + reason()`)
	if was, is, _ := strings.Cut(held, ", then "); was != is {
		t.Errorf("the job's reason is %s", held)
	}
	quiet(t, b)
}

// Twenty thousand changes do not make the tab larger.
func TestPageMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("has twenty thousand changes")
	}
	b := browser.Start(t)
	c := start(t, withPage)
	for i := range 8 {
		h := hello(nodeName(i))
		h.Devices = []agent.Device{{Name: "Soft", Memory: 1 << 30, Speed: 1, Up: true}}
		a := c.greet(c.as("", ""), h)
		heard[agent.Welcome](a)
		_ = a.conn.SetReadDeadline(time.Time{})
		go simulate(a.conn)
	}
	u := c.user("")
	openPageAs(t, b, u)
	list := make([]api.Submission, 100)
	for i := range list {
		list[i] = api.Submission{Arguments: []string{"true"}, Directory: "/", Options: []string{"-n1", "-J", strings.Repeat("x", 40)}}
	}
	views := []string{"#/queue?show=ended", "#/gantt", "#/cluster", "#/usage", "#/queue"}
	jobs, each := 0, need.Rounds(7, 10) // a round is more than the page keeps
	round := func() {
		for _, v := range views {
			visit(b, v)
			for range each {
				u.must("POST", "/v1/jobs", list, nil)
				jobs += len(list)
			}
			b.Until("that all have ended", `const { store } = await import("/js/store.js"); let last = 0; for (const id of store.jobs.keys()) last = Math.max(last, id); return last >= `+fmt.Sprint(jobs)+` && store.counts.pending + store.counts.active === 0`)
		}
		visit(b, "#/queue")
	}
	// Requests of a view that was left may still be in progress.
	settled := func() browser.Memory {
		least := b.Memory()
		for range 5 {
			b.Script(nil, "await new Promise(done => setTimeout(done, 100))")
			if m := b.Memory(); m.Elements < least.Elements || m.Elements == least.Elements && m.Heap < least.Heap {
				least = m
			}
		}
		return least
	}
	round()
	before := settled()
	round()
	after := settled()
	var changes, kept int
	b.Script(&changes, `return (await import("/js/store.js")).store.changes`)
	b.Script(&kept, `return (await import("/js/store.js")).store.jobs.size`)
	t.Logf("%d jobs, %d changes were heard of, %d jobs are kept; JavaScript %.1f MB, then %.1f MB; elements %d, then %d; listeners %d, then %d", jobs, changes, kept, float64(before.Heap)/1e6, float64(after.Heap)/1e6, before.Elements, after.Elements, before.Handlers, after.Handlers)
	if after.Heap > before.Heap*5/4+1<<20 || after.Elements > before.Elements+50 || after.Handlers > before.Handlers+4 {
		t.Errorf("the tab grows: %+v, then %+v", before, after)
	}
	if kept > 3300 || jobs != 2*len(views)*each*len(list) {
		t.Errorf("%d of %d jobs are kept", kept, jobs)
	}
	quiet(t, b)
}
