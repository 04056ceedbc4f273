package held

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/worker"
	"muster/node/worker/hostcopy"
	"muster/wire"
	"muster/wire/control"
)

// Brought is a worker that has come back, with what it brought.
type Brought struct {
	Control *control.DaemonEnd
	Shared  *wire.Shared
	Program *net.UnixConn
	Words   *os.File // the reading end of its standard error
	Kept    []control.Held
}

func (b *Brought) Close() {
	if b.Control != nil {
		b.Control.Close()
		b.Words.Close()
	}
	if b.Program != nil {
		b.Program.Close()
	}
	b.Shared.Unmap()
	Close(b.Kept)
}

func Close(held []control.Held) {
	for _, h := range held {
		h.File.Close()
	}
}

// sameFiles checks that a worker brings exactly the files that it was given.
func sameFiles(given, brought map[string]proc.FileID, count int) error {
	if len(brought) != count || count != len(given) {
		return fmt.Errorf("%d where %d are due", count, len(given))
	}
	for name, id := range given {
		if brought[name] != id {
			return fmt.Errorf("the %s is another one", name)
		}
	}
	return nil
}

// takeBack opens what a worker holds, and gives the worker its end of a new control
// connection.
func takeBack(conn *net.UnixConn, held []control.Held) (*Brought, error) {
	b, err := Open(held)
	if err != nil {
		return nil, err
	}
	own, child, err := control.Pair()
	if err != nil {
		b.Close()
		return nil, err
	}
	defer child.Close()
	words, errors, err := os.Pipe()
	if err != nil {
		own.Close()
		b.Close()
		return nil, err
	}
	defer errors.Close()
	b.Control, b.Words = own, words
	if err := control.Adopt(conn, child, errors); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// keptNames are the descriptors that are kept for recovery beside those of the ring and
// the arena, in the order in which workers get them.
var keptNames = []string{"host0", "host1", "journal"}

// Copy duplicates descriptors. The caller owns the copies.
func Copy(held []control.Held) ([]control.Held, error) {
	var copies []control.Held
	for _, h := range held {
		fd, err := proc.Dup(h.File)
		if err != nil {
			Close(copies)
			return nil, fmt.Errorf("the descriptor of the %s: %w", h.Name, err)
		}
		copies = append(copies, control.Held{Name: h.Name, File: os.NewFile(fd, h.Name)})
	}
	return copies, nil
}

// Files lists files in the order in which workers get them.
func Files(held []control.Held) []*os.File {
	files := make([]*os.File, len(held))
	for i, h := range held {
		files[i] = h.File
	}
	return files
}

// CanOutlive says whether the files are all that a client needs to outlive its worker.
func CanOutlive(held []control.Held) bool {
	return slices.EqualFunc(held, append([]string{"ring", "arena"}, keptNames...), func(h control.Held, name string) bool { return h.Name == name })
}

// kept selects the files that a client needs to outlive its worker.
func kept(files map[string]*os.File) []control.Held {
	var kept []control.Held
	for _, name := range append([]string{"ring", "arena"}, keptNames...) {
		if f := files[name]; f != nil {
			kept = append(kept, control.Held{Name: name, File: f})
		}
	}
	return kept
}

// Process is a process that holds files.
type Process interface {
	PID() int
	IsRunning() bool // it has not ended, and its number is no other's
}

// Take copies the descriptors of a process that refer to the given files.
func Take(w Process, files map[string]proc.FileID) ([]control.Held, error) {
	process, err := proc.Open(w.PID())
	if err != nil {
		return nil, err
	}
	defer process.Close()
	if !w.IsRunning() { // the number belongs to another process now
		return nil, os.ErrProcessDone
	}
	numbers := map[proc.FileID]int{}
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.PID()))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var stat syscall.Stat_t
		if n, err := strconv.Atoi(filepath.Base(path)); err == nil && syscall.Stat(path, &stat) == nil {
			numbers[proc.FileID{Device: uint64(stat.Dev), Number: stat.Ino}] = n
		}
	}
	var held []control.Held
	for name, id := range files {
		number, ok := numbers[id]
		if !ok {
			Close(held)
			return nil, fmt.Errorf("it has no %s", name)
		}
		f, err := proc.CopyOf(process, number, name)
		if err != nil {
			Close(held)
			return nil, fmt.Errorf("the descriptor of the %s: %w", name, err)
		}
		held = append(held, control.Held{Name: name, File: f})
	}
	ids, err := Identify(held)
	if err == nil { // the process may have closed and reused a descriptor since it was listed
		err = sameFiles(files, ids, len(held))
	}
	if err != nil {
		Close(held)
		return nil, err
	}
	return held, nil
}

// Open opens what a worker holds: the ring, to tell the program of its end, and the
// program's connection; and copies what another worker would need.
func Open(held []control.Held) (*Brought, error) {
	b, files := &Brought{}, map[string]*os.File{}
	for _, h := range held {
		files[h.Name] = h.File
	}
	shared, err := wire.Map(files["ring"], nil)
	if err != nil {
		return nil, err
	}
	b.Shared = shared
	program, err := net.FileConn(files["program"])
	conn, ok := program.(*net.UnixConn) // it is the one that was accepted
	if err == nil && !ok {
		err = errors.New("the program's connection is none")
	}
	b.Program = conn
	if kept := kept(files); err == nil && CanOutlive(kept) {
		b.Kept, err = Copy(kept)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Identify notes which files a worker holds.
func Identify(held []control.Held) (map[string]proc.FileID, error) {
	ids := map[string]proc.FileID{}
	for _, h := range held {
		id, err := proc.Identify(h.File)
		if err != nil {
			return nil, fmt.Errorf("the descriptor of the %s: %w", h.Name, err)
		}
		ids[h.Name] = id
	}
	return ids, nil
}

// Shared makes the memory that a client shares with its program.
func Shared() ([]control.Held, error) {
	ring, arena, err := wire.Create(wire.DefaultGeometry)
	if err != nil {
		return nil, err
	}
	return []control.Held{{Name: "ring", File: ring}, {Name: "arena", File: arena}}, nil
}

// Make makes the files that a client needs to outlive its worker, beside those that it shares with its program.
// The memory of an arena of that size is in the folder dir if it is not in memory.
func Make(arena uint64, dir string, cuda bool) ([]control.Held, error) {
	var kept []control.Held
	for _, name := range keptNames {
		create := worker.CreateJournal
		if name != "journal" {
			create = func() (*os.File, error) { return hostcopy.CreateFile(arena, dir, cuda) }
		}
		made, err := create()
		if err != nil {
			Close(kept)
			return nil, refusal.New(refusal.SystemNotReady, "no worker can serve the program: %v", err)
		}
		kept = append(kept, control.Held{Name: name, File: made})
	}
	return kept, nil
}

// Receive talks to the worker of a client that came, and returns what it brings, which must be what it
// was given. If the error is
// a NotAdopted, the worker has been told so and ends: it need not try again. After any
// other error it may come again.
func Receive(conn *net.UnixConn, client uint64, given map[string]proc.FileID) (*Brought, error) {
	refuse := func(format string, args ...any) error {
		refused := &control.NotAdopted{Reason: fmt.Sprintf(format, args...)}
		_ = control.RefuseAdoption(conn, refused.Reason)
		return refused
	}
	request, err := control.ReadAdoption(conn)
	switch {
	case err != nil:
		return nil, err
	case request.Client != client:
		return nil, refuse("it is the worker of client %d and says that it is that of client %d", client, request.Client)
	case request.Protocol != control.Protocol:
		return nil, refuse("it is of another version of Muster, whose messages are not understood")
	}
	held, err := control.ReceiveHeld(conn)
	if err != nil {
		return nil, err
	}
	defer Close(held)
	ids, err := Identify(held)
	if err == nil {
		err = sameFiles(given, ids, len(held))
	}
	if err != nil {
		return nil, refuse("it brings other descriptors than it was given: %v", err)
	}
	return takeBack(conn, held)
}
