package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"muster/wire/agent"
	"muster/wire/dial"
	"muster/wire/status"
)

// Every user may ask for a node's status. It is checked, and a node that is away or sends nonsense
// is an error of that request alone.
func TestNodeStatus(t *testing.T) {
	c := start(t, nil)
	alice, as := c.user("alice"), c.as("node", "n1")
	if code, _ := alice.do("GET", "/v1/nodes/n1/status", nil, nil); code != http.StatusNotFound {
		t.Errorf("a node that is not known: %d", code)
	}
	n1 := c.greet(as, hello("n1"))
	heard[agent.Welcome](n1)
	whole, err := json.Marshal(status.Node{Node: "n1", Clients: []status.Client{{ID: 3, User: "bob"}}})
	if err != nil {
		t.Fatal(err)
	}
	two := agent.AppendFrame(agent.AppendFrame(nil, agent.FrameOutput, whole[:5]), agent.FrameOutput, whole[5:])
	var flood []byte
	for range maxStatus/agent.MaxFrame + 1 {
		flood = agent.AppendFrame(flood, agent.FrameOutput, make([]byte, agent.MaxFrame))
	}
	type answer struct {
		code     int
		problem  string
		document status.Node
	}
	for _, test := range []struct {
		frames []byte
		code   int
		want   string
	}{
		{agent.AppendOutcome(two, agent.Outcome{}), http.StatusOK, ""},
		{agent.AppendOutcome(nil, agent.Outcome{Exit: 1, Reason: "its daemon has ended"}), http.StatusBadGateway, "node n1 does not say how it is: its daemon has ended"},
		{agent.AppendOutcome(agent.AppendFrame(nil, agent.FrameOutput, []byte("[1]")), agent.Outcome{}), http.StatusBadGateway, "does not say how it is"},
		{agent.AppendFrame(nil, agent.FrameOutput, whole), http.StatusBadGateway, "does not say how it is"},
		{flood, http.StatusBadGateway, "does not say how it is"},
		{[]byte("nonsense"), http.StatusBadGateway, "does not say how it is"},
	} {
		answers := make(chan answer, 1)
		go func() {
			var a answer
			a.code, a.problem = alice.do("GET", "/v1/nodes/n1/status", nil, &a.document)
			answers <- a
		}()
		open := heard[agent.Open](n1)
		if open.File != agent.FileStatus || open.Task != (agent.Task{}) {
			t.Errorf("asked for %+v", open)
		}
		conn, err := dial.DialStream(context.Background(), as, open.Stream)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(test.frames) // the head may hang up before the end
		_ = conn.Close()
		got := <-answers
		if got.code != test.code || !strings.Contains(got.problem, test.want) {
			t.Errorf("got %d %s, want %d %s", got.code, got.problem, test.code, test.want)
		}
		if test.code == http.StatusOK && (len(got.document.Clients) != 1 || got.document.Clients[0].User != "bob") {
			t.Errorf("the status is %+v", got.document)
		}
	}
	n1.conn.Close()
	for range 2000 {
		code, problem := alice.do("GET", "/v1/nodes/n1/status", nil, nil)
		if code == http.StatusServiceUnavailable && strings.Contains(problem, "node n1 is away") {
			return
		}
	}
	t.Error("a node that is away is asked again and again")
}
