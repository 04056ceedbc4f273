package nodetable

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"muster/wire/status"
)

// crowded is a node with long names and many clients.
func crowded() *status.Node {
	s := &status.Node{Node: "n1", Up: 2, Policy: "fcfs"}
	for i := range 2 {
		s.Devices = append(s.Devices, status.Device{Name: "NVIDIA H200 NVL with a long name", Kind: "cuda", State: "up", Speed: 1, Memory: 141 << 30, Free: uint64(i) << 30, Slots: 4, BusyTime: 1})
	}
	for i := range 30 {
		device := i % 2
		s.Clients = append(s.Clients, status.Client{ID: uint64(i + 1), Pid: 99, User: fmt.Sprintf("user-%d", 9-i%10), Program: "/opt/site/bin/simulation-of-something", Class: "batch",
			Device: &device, State: "assigned", Allocated: uint64(i) << 30, BusyTime: float64(30 - i), Turn: 2, TurnUsed: 1})
	}
	return s
}

// Nothing that muster top shows of a node sticks out of 80 columns.
func TestTopFitsEightyColumns(t *testing.T) {
	p := Picture{Columns: 80}
	before, now := crowded(), crowded()
	before.Up = 1
	var b bytes.Buffer
	for _, s := range []*status.Node{before, now} {
		b.Reset()
		if err := p.WriteNode(&b, s); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	if !strings.Contains(b.String(), "1.0s/2.0s") || !strings.Contains(b.String(), "29 GiB") {
		t.Errorf("numbers are cut:\n%s", b.String())
	}
}

func TestTopKeys(t *testing.T) {
	first := func(v *Picture) string {
		s := crowded()
		v.sort(s)
		return fmt.Sprintf("%d of %s", s.Clients[0].ID, s.Clients[0].User)
	}
	var v Picture
	for _, c := range []struct{ key, first string }{{"m", "30 of user-0"}, {"g", "1 of user-9"}, {"u", "10 of user-0"}, {"c", "1 of user-9"}} {
		if !v.Press(c.key) || first(&v) != c.first || v.Press(c.key) {
			t.Errorf("%s: got %s, want %s", c.key, first(&v), c.first)
		}
	}
	text := "heading\n1\n2\n3\n"
	for _, c := range []struct{ keys, want string }{{"", "heading\n1\n2\n3"}, {"j", "heading\n2\n3"}, {"jjjjj", "heading\n3"}, {"k", "heading\n2\n3"}, {"kkkk", "heading\n1\n2\n3"}, {"h", topKeys}, {"h", "heading\n1\n2\n3"}} {
		for _, key := range c.keys {
			v.Press(string(key))
			v.Seen(text)
		}
		if got := v.Seen(text); got != c.want {
			t.Errorf("after %q: got %q, want %q", c.keys, got, c.want)
		}
	}
}

func TestChosenClients(t *testing.T) {
	for _, c := range []struct {
		chosen ClientView
		want   int
	}{
		{ClientView{Device: -1}, 30},
		{ClientView{Device: 0}, 15},
		{ClientView{Device: -1, Users: []string{"user-3", "user-4"}}, 6},
		{ClientView{Device: 0, Users: []string{"user-3"}}, 3},
		{ClientView{Device: -1, States: []string{"ready"}}, 0},
	} {
		if got := len(c.chosen.Of(crowded()).Clients); got != c.want {
			t.Errorf("%+v: got %d clients, want %d", c.chosen, got, c.want)
		}
	}
}
