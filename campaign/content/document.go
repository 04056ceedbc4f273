package content

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// Document writes a document as JSON, mostly nearly right. An object's names may come twice, in
// another case or be unknown; values may be of another type, deep, or cut off.
func (s *Source) Document(of any) (Kind, []byte) {
	text, err := json.Marshal(of)
	if err != nil || len(text) < 3 || text[0] != '{' {
		return JSON, text
	}
	name := s.nameIn(text)
	before := func(more string) []byte { return append([]byte("{"+more+","), text[1:]...) }
	after := func(more string) []byte {
		return append(bytes.TrimSuffix(bytes.Clone(text), []byte("}")), []byte(","+more+"}")...)
	}
	switch s.r.IntN(14) {
	case 0:
		return JSON, before(`"` + name + `":` + s.value())
	case 1:
		return JSON, after(`"` + name + `":` + s.value())
	case 2:
		return JSON, bytes.Replace(text, []byte(`"`+name+`"`), []byte(`"`+strings.ToUpper(name)+`"`), 1)
	case 3:
		return JSON, after(`"` + strings.ToUpper(name[:1]) + name[1:] + `":` + s.value())
	case 4:
		return JSON, after(`"` + pick(s, "unknown", "__proto__", "kind", "user\\u0000", "") + `":` + s.value())
	case 5:
		return JSON, text[:s.r.IntN(len(text))]
	case 6:
		return JSON, append(bytes.Clone(text), pick(s, "{}", "]", "\x00", "x", " \n\t", strings.Repeat(" ", 70_000))...)
	case 7:
		n := pick(s, 100, 1000, 9_999, 10_001, 100_000)
		return JSON, after(`"` + name + `":` + strings.Repeat("[", n) + strings.Repeat("]", n*s.r.IntN(2)))
	case 8:
		n := pick(s, 100, 10_001)
		return JSON, []byte(strings.Repeat(`{"`+name+`":`, n) + "1" + strings.Repeat("}", n))
	case 9:
		i := s.r.IntN(len(text))
		out := bytes.Clone(text)
		out[i] ^= byte(1 << s.r.IntN(8))
		return JSON, out
	case 10:
		return JSON, append([]byte(pick(s, "\ufeff", "\x00", "\xff\xfe", "[", "null", "\"")), text...)
	case 11:
		return JSON, []byte(s.value())
	case 12:
		return Many, []byte("[" + strings.TrimSuffix(strings.Repeat(string(text)+",", pick(s, 2, 50, 500)), ",") + "]")
	}
	return Sound, text
}

// nameIn draws one of the names of an object.
func (s *Source) nameIn(text []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || len(fields) == 0 {
		return "options"
	}
	names := make([]string, 0, len(fields))
	dec := json.NewDecoder(bytes.NewReader(text)) // in the order of the text: a map has none
	depth := 0
	for isName := true; ; {
		t, err := dec.Token()
		if err != nil {
			break
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			isName = true
			continue
		case string:
			if depth == 1 && isName {
				names = append(names, t)
				isName = false
				continue
			}
		}
		isName = true
	}
	return pick(s, names...)
}

// value draws a value of any type.
func (s *Source) value() string {
	_, text := s.Text()
	quoted, _ := json.Marshal(text)
	return pick(s, "null", "true", "{}", "[]", "[[]]", "0", "-1", "1e999", "1E400", "0.1", "18446744073709551616", `""`, `"\ud800"`, `"\u0000"`, string(quoted), `{"a":{"a":[]}}`, "[null,null]", "nul", "'x'", "01")
}

// Request is a request to a head.
type Request struct {
	Kind         Kind
	Method, Path string
	Body         []byte
}

// Request draws a request to a head, mostly a submission.
func (s *Source) Request() Request {
	for range draws {
		if r := s.request(); s.wanted(r.Kind) {
			return r
		}
	}
	return Request{Sound, "GET", "/v1/cluster", nil}
}

func (s *Source) request() Request {
	if s.r.IntN(4) > 0 {
		kind, doc := s.Submission()
		k, body := s.Document(doc)
		if k == Sound || s.r.IntN(3) > 0 { // else two things are odd
			if k != Sound {
				body, _ = json.Marshal(doc)
			}
			return Request{kind, "POST", "/v1/jobs", body}
		}
		return Request{k, "POST", "/v1/jobs", body}
	}
	kind, text := s.Text()
	id := pick(s, "0", "1", "17", "1_0", "1_99999", "1_", "_", "18446744073709551615", "18446744073709551616", "-1", "1,2,3", url.PathEscape(text))
	if len(s.Jobs) > 0 && s.r.IntN(2) == 0 {
		kind, id = Whose, fmt.Sprint(pick(s, s.Jobs...))
	}
	if len(id) > 16<<10 {
		id = id[:16<<10]
	}
	var document any = map[string]any{}
	action := pick(s, "hold", "release", "suspend", "resume", "requeue", "priority", "limit")
	switch action {
	case "priority":
		document = map[string]any{pick(s, "priority", "nice"): s.Count()}
	case "limit":
		document = map[string]any{"devices": s.Count()}
	}
	k, body := s.Document(document)
	if k != Sound && kind != Whose {
		kind = k
	}
	query := "?" + pick(s, "user", "state", "node", "name", "account", "job", "after", "since", "limit", "x") + "=" + url.QueryEscape(cut(text, 4<<10))
	switch s.r.IntN(6) {
	case 0:
		return Request{kind, "DELETE", "/v1/jobs/" + id + pick(s, "", "?signal="+url.QueryEscape(cut(text, 4<<10)), "?signal="+url.QueryEscape(s.Number())), nil}
	case 1:
		return Request{kind, "GET", pick(s, "/v1/jobs", "/v1/history", "/v1/nodes", "/v1/usage", "/v1/priorities") + query, nil}
	case 2:
		return Request{kind, "GET", "/v1/jobs/" + id + pick(s, "", "/output", "/output?offset="+url.QueryEscape(s.Number()), "/exec"), nil}
	case 3:
		return Request{kind, "POST", "/v1/nodes/" + pick(s, "n1", "n2", url.PathEscape(cut(text, 4<<10))) + "/" + pick(s, "drain", "resume", "remove"), body}
	case 4:
		return Request{kind, pick(s, "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"), pick(s, "/v1/jobs", "/", "/v2", "/v1/backup", "/v1/snapshot", "/v1/whatif"), body}
	}
	return Request{kind, "POST", "/v1/jobs/" + id + "/" + action, body}
}

func cut(text string, n int) string { return text[:min(n, len(text))] }

// requests are what a node's socket answers.
var requests = []string{
	"status", "monitor", "move", "end", "device-drain", "device-resume", "device-remove", "device-add", "stop", "adopt", "grant-admit", "grant-revoke", "grant-limit", "grants", "peer",
	"", "STATUS", "statu\u017f", "unknown",
}

// Line draws a request to a node's socket. It asks for nothing that would stop or change the node
// if it were sound.
func (s *Source) Line() (Kind, []byte) {
	kind, text := s.Text()
	text = cut(text, 16<<10)
	request := pick(s, requests...)
	fields := map[string]any{"request": request}
	switch request {
	case "stop", "device-remove", "device-drain", "end", "move", "adopt", "device-add": // of what there is not
		fields["device"], fields["client"], fields["unknown"] = text, s.Number(), true
	case "grant-admit", "grant-revoke", "grant-limit", "peer":
		fields["id"], fields["limit"], fields["grant"] = text, s.Count(), map[string]any{"id": text}
	}
	k, line := s.Document(fields)
	if k != Sound {
		kind = k
	}
	return kind, append(line, '\n')
}

// Message draws a frame as agents and heads exchange: a length of four bytes, and a message.
func (s *Source) Message() (Kind, []byte) {
	kind, text := s.Text()
	text = cut(text, 64<<10)
	task := map[string]any{"job": s.Count(), "attempt": s.Count(), "part": s.Count()}
	end := map[string]any{"cause": pick(s, "exited", "stopped", "not begun", "lost", text), "exit": s.Count(), "reason": text}
	message := pick[any](s,
		map[string]any{"task": task, "state": pick(s, "running", "ended", "unknown", text)},
		map[string]any{"task": task, "state": "ended", "end": end},
		map[string]any{"id": text, "error": text},
		map[string]any{"devices": []any{map[string]any{"name": text, "memory": s.Count(), "speed": s.Count(), "up": true}}},
		map[string]any{"version": s.Count(), "node": text, "incarnation": text, "cores": s.Count(), "memory": s.Count()},
		map[string]any{})
	inner, err := json.Marshal(message)
	if err == nil {
		_, inner = s.Document(json.RawMessage(inner))
	}
	outer := fmt.Appendf(nil, `{"kind":%q,"message":%s}`, pick(s, "report", "report", "lent", "inventory", "hello", "pong", "ask_peers", "load", "profiles", "start", "", "REPORT", cut(text, 40)), inner)
	return kind, s.frame(outer)
}

// frame puts a length before bytes, which may not be true.
func (s *Source) frame(body []byte) []byte {
	n := uint32(len(body))
	switch s.r.IntN(8) {
	case 0:
		n = pick(s, uint32(0), 1, n+1, n-1, 16<<20, 16<<20+1, 1<<31, 1<<32-1)
	case 1:
		body = body[:s.r.IntN(len(body)+1)]
	}
	return append(binary.LittleEndian.AppendUint32(nil, n), body...)
}

// Bytes draws bytes for a connection whose other side expects a protocol of its own.
func (s *Source) Bytes() (Kind, []byte) {
	switch s.r.IntN(4) {
	case 0:
		_, line := s.Line()
		return Frame, line
	case 1:
		_, frame := s.Message()
		return Frame, frame
	case 2:
		return Frame, []byte(pick(s, "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x05hello", "SSH-2.0-x\r\n", "\x00", strings.Repeat("\x00", 4096), strings.Repeat("\xff", 4096)))
	}
	out := make([]byte, 1+s.r.IntN(2000))
	for i := range out {
		out[i] = byte(s.r.Uint32())
	}
	return Frame, out
}

// policies are scripts that do too much in one call, or at the wrong time.
var policies = []string{
	"def schedule(view, plan):\n  while True: pass\n", "def schedule(view, plan):\n  schedule(view, plan)\n", "def schedule(view, plan):\n  x = [0]\n  for i in range(100): x = x + x\n",
	"def schedule(view, plan):\n  plan.wake(view.now + 1)\n", "def schedule(view, plan):\n  plan.wake(view.now)\n", "def schedule(view, plan):\n  plan.wake(-1)\n", "def schedule(view, plan):\n  plan.wake(1 << 100)\n",
	"def schedule(view, plan):\n  for j in view.queue: plan.start(j)\n", "def schedule(view, plan):\n  for j in view.queue: plan.start(j); plan.start(j)\n", "def schedule(view, plan):\n  fail('x' * 100000)\n",
	"def schedule(view, plan):\n  return 1 // 0\n", "def schedule():\n  pass\n", "schedule = 1\n", "load('x', 'y')\n", "x = 'a' * 1000000000\n", "def f(n): return f(n + 1)\nf(0)\n", "", "\x00", "def schedule(view, plan)\n",
	"def schedule(view, plan):\n  print('x' * 1000000)\n", "def schedule(view, plan):\n  {}[[]] = 1\n",
}

// Policy draws a policy script. Texts of the source are put into some.
func (s *Source) Policy() (Kind, []byte) {
	text := pick(s, policies...)
	if s.r.IntN(4) == 0 {
		_, odd := s.Text()
		quoted, _ := json.Marshal(cut(odd, 4<<10))
		text = "# " + strings.ReplaceAll(cut(odd, 200), "\n", " ") + "\nname = " + string(quoted) + "\n" + text
	}
	return Script, []byte(text)
}
