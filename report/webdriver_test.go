package report

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"
)

// browser is a session of headless Chromium, driven through chromedriver by the
// W3C WebDriver protocol.
type browser struct {
	t       *testing.T
	session string // URL
}

// startBrowser starts one. Without Chromium the test is skipped, unless the
// environment says that there must be one.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	driver, err := exec.LookPath("chromedriver")
	chromium, err2 := exec.LookPath("chromium")
	if err != nil || err2 != nil {
		const remedy = "needs chromium and chromedriver: apt-get install -y --no-install-recommends chromium chromium-driver"
		if os.Getenv("MUSTER_REQUIRE_BROWSER") == "1" {
			t.Fatal(remedy)
		}
		t.Skip(remedy)
	}
	b := &browser{t: t}
	server := startDriver(t, driver)
	reply := b.call("POST", server+"/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome",
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": []string{
			"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--window-size=1180,1000", "--force-device-scale-factor=1", "--user-data-dir=" + t.TempDir(),
		}},
		"goog:loggingPrefs": map[string]string{"browser": "ALL"},
	}}})
	var created struct{ SessionID string }
	b.decode(reply, &created)
	b.session = server + "/session/" + created.SessionID
	t.Cleanup(func() { b.call("DELETE", b.session, nil) })
	return b
}

// startDriver runs chromedriver on a port that it chooses and returns its URL.
func startDriver(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(path, "--port=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	started := regexp.MustCompile(`started successfully on port (\d+)`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := started.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, out)
			return "http://127.0.0.1:" + m[1]
		}
	}
	t.Fatal("chromedriver ended before it was ready")
	return ""
}

func (b *browser) call(method, url string, body any) json.RawMessage {
	b.t.Helper()
	var payload io.Reader
	if method == "POST" {
		if body == nil {
			body = struct{}{}
		}
		data, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, url, payload)
	if err != nil {
		b.t.Fatal(err)
	}
	client := http.Client{Timeout: 60 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var reply struct{ Value json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s", method, url, reply.Value)
	}
	return reply.Value
}

func (b *browser) decode(data json.RawMessage, to any) {
	b.t.Helper()
	if err := json.Unmarshal(data, to); err != nil {
		b.t.Fatalf("%v in %s", err, data)
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.call("POST", b.session+"/url", map[string]string{"url": url})
}

// script runs the body of an async function in the page; what it returns lands in to.
func (b *browser) script(to any, body string, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	data := b.call("POST", b.session+"/execute/sync", map[string]any{"script": "return (async (...arguments_) => {" + body + "})(...arguments)", "args": args})
	if to != nil {
		b.decode(data, to)
	}
}

// settle waits until the page has drawn what it was told.
func (b *browser) settle() {
	b.t.Helper()
	b.script(nil, "for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame)")
}

func (b *browser) actions(list ...map[string]any) {
	b.t.Helper()
	b.call("POST", b.session+"/actions", map[string]any{"actions": list})
	b.settle()
}

// pointer moves the mouse through places of the window, and presses it at the
// first until it is at the last where drag is set.
func (b *browser) pointer(drag bool, places ...[2]int) {
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
	b.actions(map[string]any{"type": "pointer", "id": "mouse", "actions": steps})
}

func (b *browser) wheel(x, y, delta int) {
	b.t.Helper()
	b.actions(map[string]any{"type": "wheel", "id": "wheel", "actions": []map[string]any{
		{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "duration": 0},
	}})
}

// keys types into what has the focus.
func (b *browser) keys(text string) {
	b.t.Helper()
	var steps []map[string]any
	for _, r := range text {
		steps = append(steps, map[string]any{"type": "keyDown", "value": string(r)}, map[string]any{"type": "keyUp", "value": string(r)})
	}
	b.actions(map[string]any{"type": "key", "id": "keyboard", "actions": steps})
}

// complaints lists what the console has heard since last asked.
func (b *browser) complaints() []string {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.decode(b.call("POST", b.session+"/se/log", map[string]string{"type": "browser"}), &entries)
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%s: %s", e.Level, e.Message))
	}
	return list
}

// scheme makes the browser prefer "light" or "dark".
func (b *browser) scheme(name string) {
	b.t.Helper()
	b.call("POST", b.session+"/goog/cdp/execute", map[string]any{"cmd": "Emulation.setEmulatedMedia", "params": map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}},
	}})
	b.settle()
}

func (b *browser) screenshot(file string) {
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
