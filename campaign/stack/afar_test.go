package stack

import "testing"

// Data that a copy has brought to pinned memory are there when the program learns, in whatever way,
// that the copy is done: on this machine, and with a remote node.
func TestPinnedMemoryIsThere(t *testing.T) {
	t.Parallel()
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
