package survival

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/node/proc"
	"muster/node/settings"
	"muster/node/vgpu"
)

func newKeeper(t *testing.T, dir string) *Keeper {
	t.Helper()
	k, err := Open(dir, "@keeper", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A client whose worker lives is inherited, one whose worker has ended is counted among the past, and what is
// no client's is removed.
func TestInherit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k := newKeeper(t, dir)
	start, _ := proc.Start(os.Getpid())
	for id, process := range map[vgpu.ClientID]WorkerFile{3: {Pid: os.Getpid(), Start: start}, 4: {Pid: os.Getpid(), Start: start + 1}} {
		standing, err := k.Standing(id)
		if err != nil {
			t.Fatal(err)
		}
		k.WriteStanding(standing, &ClientState{Kernels: 7, Pinned: vgpu.AnyDevice})
		if err := k.WriteClient(&ClientFile{Version: StateVersion, Boot: proc.Boot(), Client: id, User: "ann", Worker: process}); err != nil {
			t.Fatal(err)
		}
	}
	k.WriteNode(&NodeStateFile{Version: StateVersion, Boot: proc.Boot(), Last: 2})
	if err := k.Unwritten(); err != nil {
		t.Fatal(err)
	}
	k.Leave()
	next := newKeeper(t, dir)
	defer next.Remove()
	left, err := next.Inherit()
	if err != nil || len(left.Heirs) != 1 || left.Heirs[0].Client != 3 || left.Heirs[0].Kernels != 7 || !left.IsAny() {
		t.Fatalf("%+v, %v", left, err)
	}
	if left.Node.Last != 4 || left.Node.Past.Clients != 1 || left.Node.Usage.Kernels != 7 {
		t.Errorf("%+v", left.Node)
	}
	if names := strings.Join(next.Names(""), " "); names != "client-3.json node.json standing-3" {
		t.Errorf("the folder has %s", names)
	}
}

// Statistics are written a while after the first that has changed.
func TestWhenStatisticsAreWritten(t *testing.T) {
	k := newKeeper(t, filepath.Join(t.TempDir(), "state"))
	defer k.Remove()
	if _, any := k.Next(); any || k.TakeDue(time.Hour) {
		t.Error("nothing has changed")
	}
	k.Touch(time.Second)
	k.Touch(2 * time.Second)
	if at, any := k.Next(); !any || at != time.Second+saveEvery || k.TakeDue(at-1) || !k.TakeDue(at) || k.TakeDue(at) {
		t.Error("it is written at", at)
	}
	if k.Wrote("a file", errors.New("no room")) == nil || k.Unwritten() == nil || k.Wrote("a file", nil) != nil || k.Unwritten() != nil {
		t.Error("whether files can be written is not known")
	}
}

// Without a folder clients end with the daemon, and nothing is written.
func TestNoKeeper(t *testing.T) {
	var k *Keeper
	k.Touch(0)
	if _, any := k.Next(); any || k.TakeDue(time.Hour) || k.Unwritten() != nil {
		t.Error("there is something to do")
	}
	lock, err := k.DeviceLock(settings.MaxDevices)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}
