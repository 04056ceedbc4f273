package stack

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// wordsProgram is the program whose streams write and wait for words, built once.
func wordsProgram(t *testing.T) string {
	t.Helper()
	if err := compile("words"); err != nil {
		t.Fatal(err)
	}
	return made("words")
}

// Streams write words and wait for them, in device memory and in host memory, without blocking
// other streams; hints are stored.
func TestWordsOfStreams(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	program := wordsProgram(t)
	for _, what := range []string{"device", "host", "batches", "attributes", "pools", "copies", "green", "nodes"} {
		t.Run(what, func(t *testing.T) {
			if got := n.launch(program, what).right(); !strings.HasSuffix(got, "right\n") {
				t.Errorf("it said %q", got)
			}
		})
	}
	n.idle()
}

// A client whose streams wait for words of the device moves, and is rebuilt when its worker
// dies.
func TestWordsMoveAndAreRebuilt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(wordsProgram(t), "rounds")
	p.says("begun")
	for round := 1; round <= 4; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
		if round == 2 {
			n.killWorkers()
		}
		for _, device := range []string{"a", "b"} { // it is on one of them
			n.tries("move", fmt.Sprint(n.status().Clients[0].ID), device, "--socket", n.socket)
		}
	}
	p.stdin.Close()
	p.right()
	n.idle()
}

// Streams of programs on other machines have words of the device, too.
func TestWordsElsewhere(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	for _, what := range []string{"device", "batches", "green", "nodes"} {
		w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, wordsProgram(t), what).right()
	}
	n.idle()
}
