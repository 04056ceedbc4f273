package stack

import "testing"

// What a copy has brought to pinned memory is there when the program hears, in whatever
// way, that the copy is done: here, and on a node of another machine.
func TestPinnedMemoryIsThere(t *testing.T) {
	if err := compile("afar"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w)
	for _, where := range [][]string{{"--socket", n.socket}, {"--node", n.gateway, "--tls-dir", users[0]}} {
		n.launchWith(where, made("afar")).right()
	}
	n.idle()
}
