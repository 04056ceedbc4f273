package node

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"muster/wire/control"
)

// beginWith begins with a worker that says something before it answers the first ping.
func beginWith(t *testing.T, says ...control.ToDaemon) (*workerProcess, error) {
	t.Helper()
	own, child, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	theirs, err := control.OpenWorkerEnd(child)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close(); theirs.Close() })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{
		process: self, control: own, queue: make(chan parcel), exited: make(chan struct{}),
		words: &words{log: slog.New(slog.DiscardHandler), room: maxWords},
	}
	for _, m := range append(says, control.Pong{Number: firstPing}) {
		if err := theirs.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	return w, w.begin(control.Serve{Client: 1, Devices: []control.DeviceConfig{{Kind: "soft", Name: "GPU"}}}, nil, nil)
}

// A worker that rebuilds a client asks for a device before it has answered its first
// ping, or just after: the daemon hears it either way.
func TestWordsBeforeTheFirstPong(t *testing.T) {
	want := control.Want{Memory: 2 << 20, Pinned: -1}
	w, err := beginWith(t, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.receive(); err != nil || got != control.ToDaemon(want) {
		t.Errorf("the daemon hears %v, %v, want %v", got, err, want)
	}
	close(w.exited)
	many := make([]control.ToDaemon, maxEarly+1)
	for i := range many {
		many[i] = want
	}
	if _, err := beginWith(t, many...); err == nil || !strings.Contains(err.Error(), "says much before it is ready") {
		t.Errorf("a worker that talks and talks: %v", err)
	}
}
