package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"muster/ivm/core"
	"muster/ivm/proto"
)

// withoutPages is an object's master in memory that is mapped, but for which the system has no page.
func withoutPages(t *testing.T, m *member) *object {
	t.Helper()
	const size = 4 * core.Page
	file, err := os.CreateTemp(t.TempDir(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size + core.Page); err != nil {
		t.Fatal(err)
	}
	all, err := syscall.Mmap(int(file.Fd()), 0, size+core.Page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	o := &object{Object: core.Object{Number: 1, Size: size}, all: all, mirrors: map[core.NodeID]bool{}}
	o.master = core.NewMaster(all[:size:size], make([]byte, size))
	m.mu.Lock()
	m.objects[1] = o
	m.mu.Unlock()
	return o
}

// An object for whose memory the system has no page fails what another node asks of it, and nothing
// else: the daemon goes on, and nothing stays locked.
func TestObjectsWithoutPages(t *testing.T) {
	m, err := newProgram(t, newService(t), "ada")
	if err != nil {
		t.Fatal(err)
	}
	o := withoutPages(t, m)
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	for range 2 {
		var why *core.Failure
		err := m.serveOne(near, &proto.Frame{Op: proto.GetPages, Args: [6]uint64{1, 0}, Tail: make([]byte, 4*4)}, 0)
		if !errors.As(err, &why) || why.Code != core.NoMemory {
			t.Errorf("a get: %v", err)
		}
	}
	o.lockPages(0, 4)()
	done, err := o.use()
	if err != nil {
		t.Fatal(err)
	}
	done()
}
