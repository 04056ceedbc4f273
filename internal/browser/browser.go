// Package browser drives a real browser like a user, for tests. Of the pages of package report it
// knows how they signal that they are ready and what they show under the pointer, but nothing about
// their content.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"muster/internal/need"
)

// Browser is a session of headless Chromium, driven through chromedriver by the
// W3C WebDriver protocol.
type Browser struct {
	t       *testing.T
	session string // URL
	end     func() // ends it
}

// A package whose TestMain calls Main starts one browser for all its tests: to start one takes three
// seconds of a processor.
var kept struct {
	mu   sync.Mutex
	main bool     // Main ends what is kept
	idle *Browser // nil: none, or a test uses it
}

// Main runs the tests of a package, whose browser is kept from one test to the next, and returns what
// the process is to exit with.
func Main(m *testing.M) int {
	kept.main = true
	defer func() {
		if kept.idle != nil {
			kept.idle.end()
		}
	}()
	return m.Run()
}

// Start starts a browser, or takes the one of an earlier test, which then has forgotten that test's
// pages, cookies and messages. Without Chromium the test is skipped.
func Start(t *testing.T) *Browser {
	t.Helper()
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.idle == nil {
		kept.idle = start(t)
	}
	b := kept.idle.For(t)
	kept.idle = nil
	t.Cleanup(func() {
		if !kept.main || t.Failed() || t.Skipped() { // a test that gave up leaves a browser in any state
			b.end()
			return
		}
		b.forget()
		kept.mu.Lock()
		defer kept.mu.Unlock()
		if kept.idle != nil {
			b.end()
			return
		}
		kept.idle = b
	})
	return b
}

// forget makes the browser as if it had just been started.
func (b *Browser) forget() {
	b.Open("about:blank")
	b.Devtools(nil, "Emulation.clearDeviceMetricsOverride", nil)
	b.Devtools(nil, "Emulation.setTouchEmulationEnabled", map[string]any{"enabled": false})
	b.Devtools(nil, "Emulation.setEmulatedMedia", nil)
	b.Devtools(nil, "Network.clearBrowserCookies", nil)
	b.Devtools(nil, "Network.clearBrowserCache", nil)
	b.call("DELETE", b.session+"/actions", nil) // releases keys and buttons
	_, _ = b.Complaints(), b.Requests()
}

func start(t *testing.T) *Browser {
	t.Helper()
	driver, err := exec.LookPath("chromedriver")
	chromium, err2 := exec.LookPath("chromium")
	if err != nil || err2 != nil {
		need.Missing(t, need.Browser, "apt-get install -y --no-install-recommends chromium chromium-driver")
	}
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	server, stop := startDriver(t, driver)
	b := &Browser{t: t, end: func() {
		stop()
		_ = os.RemoveAll(dir)
	}}
	reply, err := ask("POST", server+"/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"timeouts":    map[string]any{"script": 300_000}, // milliseconds; long, because test machines are busy
		"browserName": "chrome",
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": []string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--window-size=1180,1000", "--force-device-scale-factor=1", "--user-data-dir=" + dir,
		}},
		"goog:loggingPrefs": map[string]string{"browser": "ALL", "performance": "ALL"},
	}}})
	if err != nil {
		b.end()
		t.Fatal(err)
	}
	var created struct{ SessionID string }
	b.decode(reply, &created)
	b.session = server + "/session/" + created.SessionID
	b.end = func() {
		_, _ = ask("DELETE", b.session, nil)
		stop()
		_ = os.RemoveAll(dir)
	}
	return b
}

// For is the same browser for a subtest.
func (b *Browser) For(t *testing.T) *Browser { return &Browser{t: t, session: b.session, end: b.end} }

// startDriver runs chromedriver on a port that it chooses and returns its URL, and what stops it.
func startDriver(t *testing.T, path string) (string, func()) {
	t.Helper()
	cmd := exec.Command(path, "--port=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	started := regexp.MustCompile(`started successfully on port (\d+)`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := started.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, out)
			return "http://127.0.0.1:" + m[1], stop
		}
	}
	stop()
	t.Fatal("chromedriver ended before it was ready")
	return "", nil
}

func (b *Browser) call(method, url string, body any) json.RawMessage {
	b.t.Helper()
	value, err := ask(method, url, body)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// ask sends a request to chromedriver.
func ask(method, url string, body any) (json.RawMessage, error) {
	var payload io.Reader
	if method == "POST" {
		if body == nil {
			body = struct{}{}
		}
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, url, payload)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 6 * time.Minute} // longer than that of a script
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var reply struct{ Value json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, url, reply.Value)
	}
	return reply.Value, nil
}

func (b *Browser) decode(data json.RawMessage, to any) {
	b.t.Helper()
	if err := json.Unmarshal(data, to); err != nil {
		b.t.Fatalf("%v in %s", err, data)
	}
}

// Open navigates to an address.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.call("POST", b.session+"/url", map[string]string{"url": url})
}

// Load loads the page again, as if a user had opened the part of its address after the #.
func (b *Browser) Load(fragment string) {
	b.t.Helper()
	b.Script(nil, `history.replaceState(null, "", arguments_[0])`, fragment)
	b.call("POST", b.session+"/refresh", nil)
}

// Script runs the body of an async function in the page, and decodes its result into to.
func (b *Browser) Script(to any, body string, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	data := b.call("POST", b.session+"/execute/sync", map[string]any{"script": "return (async (...arguments_) => {" + body + "})(...arguments)", "args": args})
	if to != nil {
		b.decode(data, to)
	}
}

// Settle waits until the page has drawn its current state.
func (b *Browser) Settle() {
	b.t.Helper()
	b.Script(nil, "for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)")
}

// Actions performs WebDriver actions.
func (b *Browser) Actions(list ...map[string]any) {
	b.t.Helper()
	b.call("POST", b.session+"/actions", map[string]any{"actions": list})
	b.Settle()
}

// Pointer moves the mouse through positions in the window. With drag, the button is pressed from
// the first to the last.
func (b *Browser) Pointer(drag bool, places ...[2]int) {
	b.t.Helper()
	var steps []map[string]any
	for i, p := range places {
		steps = append(steps, map[string]any{"type": "pointerMove", "duration": 0, "x": p[0], "y": p[1]})
		if drag && i == 0 {
			steps = append(steps, map[string]any{"type": "pointerDown", "button": 0})
		}
	}
	if drag {
		steps = append(steps, map[string]any{"type": "pointerUp", "button": 0})
	}
	b.Actions(map[string]any{"type": "pointer", "id": "mouse", "actions": steps})
}

// Wheel turns the wheel at a position in the window.
func (b *Browser) Wheel(x, y, delta int) {
	b.t.Helper()
	b.Actions(map[string]any{"type": "wheel", "id": "wheel", "actions": []map[string]any{
		{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "duration": 0},
	}})
}

// Keys types text into the focused element.
func (b *Browser) Keys(text string) {
	b.t.Helper()
	var steps []map[string]any
	for _, r := range text {
		steps = append(steps, map[string]any{"type": "keyDown", "value": string(r)}, map[string]any{"type": "keyUp", "value": string(r)})
	}
	b.Actions(map[string]any{"type": "key", "id": "keyboard", "actions": steps})
}

// Complaints lists the console messages since the last call.
func (b *Browser) Complaints() []string {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.decode(b.call("POST", b.session+"/se/log", map[string]string{"type": "browser"}), &entries)
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%s: %s", e.Level, e.Message))
	}
	return list
}

// Requests lists the addresses that the browser has requested since the last call, from any server.
func (b *Browser) Requests() []string {
	b.t.Helper()
	var entries []struct{ Message string }
	b.decode(b.call("POST", b.session+"/se/log", map[string]string{"type": "performance"}), &entries)
	var list []string
	for _, e := range entries {
		var event struct {
			Message struct {
				Method string
				Params struct{ Request struct{ URL string } }
			}
		}
		b.decode(json.RawMessage(e.Message), &event)
		if event.Message.Method == "Network.requestWillBeSent" {
			list = append(list, event.Message.Params.Request.URL)
		}
	}
	return list
}

// Devtools performs a command of the DevTools protocol, and decodes its answer into to.
func (b *Browser) Devtools(to any, command string, params map[string]any) {
	b.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	data := b.call("POST", b.session+"/goog/cdp/execute", map[string]any{"cmd": command, "params": params})
	if to != nil {
		b.decode(data, to)
	}
}

// Memory is what the page uses after garbage collection.
type Memory struct {
	Heap     int // bytes of JavaScript
	Elements int // nodes of the document, and detached ones that are still referenced
	Handlers int // event listeners
}

// Memory collects garbage, and measures what the page uses.
func (b *Browser) Memory() Memory {
	b.t.Helper()
	for range 3 { // one round may make more garbage collectable for the next
		b.Devtools(nil, "HeapProfiler.collectGarbage", nil)
	}
	b.Devtools(nil, "Performance.enable", nil)
	var answer struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.Devtools(&answer, "Performance.getMetrics", nil)
	var m Memory
	for _, one := range answer.Metrics {
		switch one.Name {
		case "JSHeapUsedSize":
			m.Heap = int(one.Value)
		case "Nodes":
			m.Elements = int(one.Value)
		case "JSEventListeners":
			m.Handlers = int(one.Value)
		}
	}
	return m
}

// Phone gives the window the size of a phone's, with a touch screen; false restores its own size.
func (b *Browser) Phone(on bool) {
	b.t.Helper()
	if !on {
		b.Devtools(nil, "Emulation.clearDeviceMetricsOverride", nil)
		b.Devtools(nil, "Emulation.setTouchEmulationEnabled", map[string]any{"enabled": false})
	} else {
		b.Devtools(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 375, "height": 740, "deviceScaleFactor": 1, "mobile": true})
		b.Devtools(nil, "Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true})
	}
	b.Settle()
}

// Until runs the body of an async function in the page, in each frame, until it returns true.
func (b *Browser) Until(what, body string, args ...any) {
	b.t.Helper()
	var ok bool
	for late := time.Now().Add(4 * time.Minute); time.Now().Before(late); {
		b.Script(&ok, "for (let i = 0; i < 200; i++) { if (await (async () => {"+body+"})()) return true; await new Promise(r => setTimeout(r, 10)); } return false", args...)
		if ok {
			return
		}
	}
	var seen string
	b.Script(&seen, "return location.href + ' ' + document.body.innerText")
	b.t.Fatalf("the page never showed %s: %s; console: %v", what, seen, b.Complaints())
}

// Scheme makes the browser prefer "light" or "dark".
func (b *Browser) Scheme(name string) {
	b.t.Helper()
	b.call("POST", b.session+"/goog/cdp/execute", map[string]any{"cmd": "Emulation.setEmulatedMedia", "params": map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}},
	}})
	b.Settle()
}

// Width sets the width of the window; 0 restores its own width.
func (b *Browser) Width(pixels int) {
	b.t.Helper()
	b.call("POST", b.session+"/goog/cdp/execute", map[string]any{"cmd": "Emulation.setDeviceMetricsOverride", "params": map[string]any{
		"width": pixels, "height": 0, "deviceScaleFactor": 0, "mobile": false,
	}})
	b.Settle()
}

// Screenshot saves a picture of the window.
func (b *Browser) Screenshot(file string) {
	b.t.Helper()
	var text string
	b.decode(b.call("GET", b.session+"/screenshot", nil), &text)
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Served is a page on a local server that records what else the browser requests.
type Served struct {
	url    string
	mu     sync.Mutex
	others []string // paths
}

// Serve serves a page from a local server.
func Serve(t *testing.T, write func(io.Writer) error) *Served {
	t.Helper()
	s := &Served{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/report.html" {
			s.mu.Lock()
			s.others = append(s.others, r.URL.Path)
			s.mu.Unlock()
			http.NotFound(w, r)
			return
		}
		if err := write(w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/report.html"
	return s
}

// Show opens the page and waits for its Gantt charts.
func (b *Browser) Show(s *Served) {
	b.t.Helper()
	b.Open(s.url)
	var missing int
	b.Script(&missing, `
		for (let i = 0; i < 600 && document.querySelector("figure.gantt:not([data-ready])"); i++) await new Promise(requestAnimationFrame);
		return document.querySelectorAll("figure.gantt:not([data-ready])").length`)
	if missing > 0 {
		b.t.Fatalf("%d Gantts are not ready; console: %v", missing, b.Complaints())
	}
	b.Settle()
}

// GanttState is the state of a Gantt chart in the page.
type GanttState struct {
	From, To, FirstRow, LastRow float64
	// Plot is the blocks' area in the window: left, top, width, height.
	Plot [4]float64
}

// Gantt is the state of the i-th Gantt chart of the page.
func (b *Browser) Gantt(i int) GanttState {
	b.t.Helper()
	var s GanttState
	b.Script(&s, `
		const f = document.querySelectorAll("figure.gantt")[arguments_[0]], c = f.querySelector("canvas").getBoundingClientRect();
		const d = f.dataset, left = Number(d.left);
		return {From: +d.from, To: +d.to, FirstRow: +d.firstRow, LastRow: +d.lastRow, Plot: [c.left + left, c.top, c.width - left, c.height - 26]}`, i)
	return s
}

// At is the position in the window of a time and a row.
func (s GanttState) At(t, row float64) (int, int) {
	x := s.Plot[0] + (t-s.From)/(s.To-s.From)*s.Plot[2]
	y := s.Plot[1] + (row-s.FirstRow)/(s.LastRow-s.FirstRow)*s.Plot[3]
	return int(math.Round(x)), int(math.Round(y))
}

// Tip is what the page shows about the thing under the pointer.
func (b *Browser) Tip() string {
	b.t.Helper()
	var text string
	b.Script(&text, `const t = document.getElementById("tip"); return t.hidden ? "" : t.innerText`)
	return text
}

// ScrollTo scrolls the i-th Gantt chart into the window.
func (b *Browser) ScrollTo(i int) {
	b.t.Helper()
	b.Script(nil, `document.querySelectorAll("figure.gantt")[arguments_[0]].scrollIntoView()`, i)
	b.Settle()
}

// Others lists what else the browser requested from the server.
func (s *Served) Others() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others
}
