package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/node/ask"
	"muster/node/checkpoint"
)

// Restoring says what to restore, and how.
type Restoring struct {
	Socket  string
	CRIU    *CRIU
	Dir     string
	Options []string    // for CRIU, in addition to those of the save
	Stdio   [3]*os.File // for a program whose input and outputs were pipes or a terminal
	// Under is the grant for a client, by the number of the program's device; nil is none for all.
	Under func(virtual int) (ask.Under, error)
	// Sibling makes the program a child of the process that starts CRIU, and not one that the system gives
	// to somebody when CRIU has ended: only then a program that is to die with its parent survives that.
	Sibling bool
}

// Restored is what was restored.
type Restored struct {
	Dir       string   `json:"dir"`
	Pid       int      `json:"pid"` // the process that the others descend from
	Processes int      `json:"processes"`
	Clients   []uint64 `json:"clients"` // their numbers on the node now
}

// Restore restores a program, and returns when it goes on.
func Restore(ctx context.Context, r Restoring) (*Restored, error) {
	var err error
	if r.Dir, err = filepath.Abs(r.Dir); err != nil { // CRIU works in another folder
		return nil, err
	}
	lock, err := checkpoint.Lock(r.Dir, false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	m, err := checkpoint.ReadManifest(r.Dir)
	if err != nil {
		return nil, err
	}
	if m.Kind != checkpoint.OfProgram {
		return nil, fmt.Errorf("%s has a client alone, and no program", r.Dir)
	}
	if err := numbersAreFree(ctx, m.Program.Pids); err != nil {
		return nil, err
	}
	p := &restoring{Restoring: r, manifest: m}
	defer p.letGo()
	if err := p.restore(ctx); err != nil {
		return nil, err
	}
	result := &Restored{Dir: r.Dir, Pid: m.Program.Root, Processes: len(m.Program.Pids), Clients: []uint64{}}
	for _, c := range p.clients {
		result.Clients = append(result.Clients, c.Client)
	}
	return result, nil
}

// endingTime is how long processes that were killed may take to be gone; tests have less.
var endingTime = 5 * time.Second

// numbersAreFree refuses if a process has a number that the program needs. It waits for
// processes that are just ending.
func numbersAreFree(ctx context.Context, pids []int) error {
	late := time.After(endingTime)
	for _, pid := range pids {
		for !ProcessGone(pid) {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			case <-late:
				return fmt.Errorf("the program's processes get their old numbers, and there is a process %d: if it is the program itself, end it first (one that has ended must have been waited for by its parent); else restore it among numbers of its own, with unshare -p -m --fork --mount-proc muster restore", pid)
			}
		}
	}
	return nil
}

// restoring is a program that is being restored.
type restoring struct {
	Restoring
	manifest *checkpoint.Manifest
	clients  []*ask.Revived
	closed   []*os.File
}

// letGo closes what this process has of the clients. A client that was not told to go on
// ends.
func (p *restoring) letGo() {
	for _, c := range p.clients {
		c.Close()
	}
	for _, f := range p.closed {
		f.Close()
	}
}

func (p *restoring) restore(ctx context.Context) error {
	h := &handed{}
	for _, c := range p.manifest.Clients {
		revived, err := p.revive(c)
		if err != nil {
			return fmt.Errorf("client %d (%s): %w", c.Client, c.Name, err)
		}
		p.clients = append(p.clients, revived)
		h.give(revived.Socket, fmt.Sprintf("socket:[%d]", c.Socket))
		h.give(revived.Ring, "/memfd:"+c.Ring)
		h.give(revived.Arena, "/memfd:"+c.Arena)
	}
	for _, inode := range p.manifest.Program.Sockets {
		f, err := deadConnection()
		if err != nil {
			return err
		}
		p.closed = append(p.closed, f)
		h.give(f, fmt.Sprintf("socket:[%d]", inode))
	}
	p.giveStdio(h)
	args := []string{"--restore-detached", "--file-locks"}
	if p.Sibling {
		args = append(args, "--restore-sibling")
	}
	if len(h.files) > 0 {
		args = append(args, "--ext-unix-sk")
	}
	args = append(append(args, h.args...), append(p.manifest.Program.Options, p.Options...)...)
	images := filepath.Join(p.Dir, p.manifest.Program.Images)
	if err := p.CRIU.run(ctx, images, "restore", args, nil, h.files); err != nil {
		return err
	}
	var all error
	for _, c := range p.clients {
		all = errors.Join(all, c.Go())
	}
	return all
}

// revive has the node make a client of a file.
func (p *restoring) revive(c checkpoint.Client) (*ask.Revived, error) {
	f, err := os.Open(filepath.Join(p.Dir, c.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := checkpoint.ReadAbout(f)
	if err != nil {
		return nil, err
	}
	under := ask.Under{}
	if p.Under != nil {
		if under, err = p.Under(c.Virtual); err != nil {
			return nil, err
		}
	}
	return ask.Revive(p.Socket, c, about.ArenaSize, under, f)
}

// handed are descriptors for CRIU, with what each replaces in its images.
type handed struct {
	files []*os.File
	args  []string
}

func (h *handed) give(f *os.File, as string) {
	const first = 3 // the first descriptor after the standard ones
	h.args = append(h.args, "--inherit-fd", fmt.Sprintf("fd[%d]:%s", first+len(h.files), as))
	h.files = append(h.files, f)
}

// giveStdio gives the program this process's input and outputs, where those that it had
// were pipes. CRIU handles a terminal by itself.
func (p *restoring) giveStdio(h *handed) {
	given := map[string]bool{}
	for i, name := range p.manifest.Program.Stdio {
		if i < len(p.Stdio) && p.Stdio[i] != nil && strings.HasPrefix(name, "pipe:[") && !given[name] {
			given[name] = true
			h.give(p.Stdio[i], name)
		}
	}
}

// deadConnection makes a connection whose other end is closed. It replaces connections to
// the node that the program had not begun to use: the library makes a new one when it
// needs to.
func deadConnection() (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@muster-dead-" + strconv.Itoa(os.Getpid()), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.File()
}
