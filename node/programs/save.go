package programs

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/node/ask"
	"muster/node/checkpoint"
	"muster/wire/client"
	"muster/wire/status"
)

// Saving says what to save, and how.
type Saving struct {
	Socket  string // of the node
	CRIU    *CRIU
	Hook    []string // a command that calls Hook
	Pid     int      // the process that the others descend from
	Dir     string
	Stop    bool          // end the program after the save
	Options []string      // further ones for CRIU
	Holding time.Duration // how long it may take until all clients are held
	// Between is the process that stands between the program and the node, as the supervisor of a job's task
	// does, and Links its connections; 0 and nil if there is none.
	Between int
	Links   func() client.Links
}

// Saved is what was saved.
type Saved struct {
	Dir       string   `json:"dir"`
	Processes int      `json:"processes"`
	Clients   []uint64 `json:"clients"`
	Bytes     uint64   `json:"bytes"` // on the disk
}

// Save saves a program, and returns when it goes on or has ended.
func Save(ctx context.Context, s Saving) (*Saved, error) {
	var err error
	if s.Dir, err = filepath.Abs(s.Dir); err != nil { // CRIU works in another folder
		return nil, err
	}
	draft, err := checkpoint.Begin(s.Dir, checkpoint.OfProgram, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	p := &saving{Saving: s, draft: draft}
	defer p.letGo()
	if err := p.save(ctx); err != nil {
		draft.Drop()
		return nil, err
	}
	if err := draft.Commit(); err != nil {
		return nil, err
	}
	return p.saved()
}

// saving is a program that is being saved.
type saving struct {
	Saving
	draft   *checkpoint.Draft
	clients []*heldClient
	others  []uint64 // clients whose process number is the program's by coincidence
}

// heldClient is one of the program's clients.
type heldClient struct {
	status.Client
	uid  uint32
	file *os.File
	held *ask.Held
}

// letGo lets all clients go on that are still held.
func (p *saving) letGo() {
	for _, c := range p.clients {
		c.letGo()
	}
}

func (c *heldClient) letGo() {
	if c.held != nil {
		c.held.Close()
	}
	c.file.Close()
}

func (p *saving) save(ctx context.Context) error {
	all, err := tree(p.Pid)
	if err != nil {
		return err
	}
	running, err := p.clientsOf(all)
	if err != nil {
		return err
	}
	if err := servedHere(all, running, p.Socket); err != nil {
		return err
	}
	if err := p.hold(ctx, running); err != nil {
		return err
	}
	name, images, err := p.draft.Images()
	if err != nil {
		return err
	}
	external, err := p.connections(all)
	if err != nil {
		return err
	}
	if inSessionOfOthers(p.Pid, all) {
		p.Options = append([]string{"--shell-job"}, p.Options...)
	}
	program := &checkpoint.Program{Images: name, Root: p.Pid, Pids: all, Stdio: stdio(p.Pid), Options: p.Options}
	for _, inode := range external {
		if !slices.ContainsFunc(p.draft.Manifest.Clients, func(c checkpoint.Client) bool { return c.Socket == inode }) {
			program.Sockets = append(program.Sockets, inode)
		}
	}
	p.draft.Manifest.Program = program
	return p.dump(ctx, images, all, external)
}

// clientsOf returns the clients of processes, by their numbers. A process of another
// machine may have the same number: connections sorts these clients out.
func (p *saving) clientsOf(pids []int) ([]status.Client, error) {
	s, err := ask.Status(p.Socket)
	if errors.Is(err, ask.ErrNoNode) {
		return nil, nil // the program may have a private node among its own processes
	}
	if err != nil {
		return nil, err
	}
	var found []status.Client
	for _, c := range s.Clients {
		if slices.Contains(pids, int(c.Pid)) {
			found = append(found, c)
		}
	}
	return found, nil
}

// hold has the node write the clients and hold them, all in parallel: one client may be
// waiting for another, and could not be held before that one goes on.
func (p *saving) hold(ctx context.Context, running []status.Client) error {
	for _, c := range running {
		uid, err := ownerOf(int(c.Pid))
		if err != nil {
			return err
		}
		file, err := p.draft.Create(c.ID)
		if err != nil {
			return err
		}
		p.clients = append(p.clients, &heldClient{Client: c, uid: uid, file: file})
	}
	type outcome struct {
		client *heldClient
		held   *ask.Held
		err    error
	}
	outcomes := make(chan outcome, len(p.clients))
	for _, c := range p.clients {
		go func() {
			held, err := ask.Hold(p.Socket, c.ID, c.file)
			outcomes <- outcome{c, held, err}
		}()
	}
	missing := len(p.clients)
	defer func() {
		go func() { // whatever hold returned for, clients that are held later are let go
			for range missing {
				if o := <-outcomes; o.held != nil {
					o.held.Close()
				}
			}
		}()
	}()
	late := time.After(p.Holding)
	for range p.clients {
		select {
		case o := <-outcomes:
			missing--
			if o.err != nil {
				return o.err
			}
			o.client.held = o.held
		case <-late:
			return fmt.Errorf("%d of the program's %d clients could not be held within %v: functions of the program's that streams call do not return; try again", missing, len(p.clients), p.Holding)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ownerOf is the user of a process.
func ownerOf(pid int) (uint32, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			fields := strings.Fields(rest)
			uid, err := strconv.ParseUint(fields[0], 10, 32)
			return uint32(uid), err
		}
	}
	return 0, fmt.Errorf("the system does not tell whose process %d is", pid)
}

// connections notes in the manifest by which sockets and files the program knows its
// clients, and returns all of its sockets whose other end is the node's. Clients that it
// finds not to be the program's are let go.
func (p *saving) connections(all []int) ([]uint64, error) {
	s, err := ask.Status(p.Socket)
	if errors.Is(err, ask.ErrNoNode) {
		return nil, nil // there is no node, and so no clients
	}
	if err != nil {
		return nil, err
	}
	other, err := peers()
	if err != nil {
		return nil, err
	}
	theirs, links := sockets(s.Pid), client.Links{}
	if p.Links != nil {
		theirs, links = append(theirs, sockets(p.Between)...), p.Links()
	}
	var external []uint64
	for _, pid := range all {
		for _, inode := range sockets(pid) {
			if links.Borrowed[other[inode]] {
				return nil, fmt.Errorf("process %d uses a GPU that is borrowed from another node: such a program cannot be saved as a whole; it can save its device memory itself, with musterCheckpoint", pid)
			}
			if slices.Contains(theirs, other[inode]) && !slices.Contains(external, inode) {
				external = append(external, inode)
			}
		}
	}
	// The program's end of a client's connection.
	end := func(c *heldClient) uint64 {
		if near, passed := links.Passed[other[c.held.Socket]]; passed {
			return other[near]
		}
		return other[c.held.Socket]
	}
	p.clients = slices.DeleteFunc(p.clients, func(c *heldClient) bool {
		mine := slices.Contains(external, end(c))
		if !mine {
			p.others = append(p.others, c.ID)
			c.letGo()
		}
		return !mine
	})
	for _, c := range p.clients {
		p.draft.Manifest.Clients = append(p.draft.Manifest.Clients, checkpoint.Client{
			File: filepath.Base(c.file.Name()), Client: c.ID, Pid: int(c.Pid), UID: c.uid, Name: c.Program, Virtual: c.Virtual, Memory: c.Limit,
			Socket: end(c), Ring: c.held.Ring, Arena: c.held.Arena, Shown: c.held.Shown,
		})
	}
	return external, nil
}

// dump has CRIU save the processes, and the node what they share with it while they are
// stopped.
func (p *saving) dump(ctx context.Context, images string, all []int, external []uint64) error {
	args := []string{"-t", strconv.Itoa(p.Pid), "--file-locks", "--ghost-limit", "64M"}
	for _, inode := range external {
		args = append(args, fmt.Sprintf("--ext-unix-sk=%d", inode))
	}
	if !p.Stop {
		args = append(args, "--leave-running")
	}
	hook, err := p.listen(all)
	if err != nil {
		return err
	}
	defer hook.close()
	script := filepath.Join(images, "hook")
	if err := os.WriteFile(script, []byte(hookScript(p.Hook)), 0o700); err != nil {
		return err
	}
	args = append(append(args, "--action-script", script), p.Options...)
	err = p.CRIU.run(ctx, images, "dump", args, []string{hookVariable + "=" + hook.name}, nil)
	_ = os.Remove(script)
	return hook.outcome(err)
}

// hookVariable is the environment variable by which the hook finds this process's
// socket.
const hookVariable = "MUSTER_CHECKPOINT_HOOK"

// hookScript is the script that CRIU calls. CRIU takes one file without arguments, so
// the command is written into it.
func hookScript(command []string) string {
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return "#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0\nexec " + strings.Join(quoted, " ") + "\n"
}

// Hook is what CRIU runs when the processes are stopped and written. An error makes CRIU
// give up, and the processes go on.
func Hook() error {
	conn, err := net.Dial("unix", os.Getenv(hookVariable))
	if err != nil {
		return fmt.Errorf("whoever saves the program is gone: %w", err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "saved\n" {
		return errors.New("the GPU's side of the program was not saved")
	}
	return nil
}

// hook is the socket to which Hook connects, and what came of it.
type hook struct {
	name     string
	listener net.Listener
	done     chan struct{}

	mu    sync.Mutex
	came  bool
	wrong error
}

func (p *saving) listen(all []int) (*hook, error) {
	h := &hook{name: "@muster-checkpoint-" + rand.Text(), done: make(chan struct{})}
	var err error
	if h.listener, err = net.Listen("unix", h.name); err != nil {
		return nil, err
	}
	go func() {
		defer close(h.done)
		conn, err := h.listener.Accept()
		if err != nil {
			return // closed: CRIU failed before it called the hook
		}
		defer conn.Close()
		wrong := p.whileStopped(all)
		h.mu.Lock()
		h.came, h.wrong = true, wrong
		h.mu.Unlock()
		if wrong == nil {
			_, _ = conn.Write([]byte("saved\n"))
		}
	}()
	return h, nil
}

// outcome is how a save ended, given CRIU's error: a failure of the hook comes first,
// since it is what made CRIU fail.
func (h *hook) outcome(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.wrong != nil:
		return h.wrong
	case err == nil && !h.came:
		return errors.New("CRIU has not stopped the program as it was to: it has no --action-script, or is none")
	}
	return err
}

func (h *hook) close() {
	h.listener.Close()
	<-h.done
}

// whileStopped has the node write the memory that the program shares with its workers.
// The processes are stopped now, so it checks first that no process and no client has
// been added since the clients were held.
func (p *saving) whileStopped(all []int) error {
	now, err := tree(p.Pid)
	if err != nil {
		return err
	}
	running, err := p.clientsOf(now)
	if err != nil {
		return err
	}
	if !slices.Equal(now, all) || !p.areAll(running) {
		return errors.New("the program has started or ended processes, or begun to use a device, while it was to be saved: try again")
	}
	for _, c := range p.clients {
		if _, err := c.held.Save(); err != nil {
			return fmt.Errorf("client %d: %w", c.ID, err)
		}
	}
	return nil
}

// areAll says whether the running clients are exactly those that are held.
func (p *saving) areAll(running []status.Client) bool {
	running = slices.DeleteFunc(running, func(c status.Client) bool { return slices.Contains(p.others, c.ID) })
	for _, c := range running {
		if !slices.ContainsFunc(p.clients, func(held *heldClient) bool { return held.ID == c.ID }) {
			return false
		}
	}
	return len(running) == len(p.clients)
}

// saved describes what is in the folder now.
func (p *saving) saved() (*Saved, error) {
	s := &Saved{Dir: p.Dir, Processes: len(p.draft.Manifest.Program.Pids), Clients: []uint64{}}
	for _, c := range p.clients {
		s.Clients = append(s.Clients, c.ID)
	}
	err := filepath.WalkDir(p.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			s.Bytes += uint64(info.Size())
		}
		return err
	})
	return s, err
}
