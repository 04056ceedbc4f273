package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	"muster/internal/wholefile"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// The names in a spool.
const (
	lockName        = "lock"
	incarnationName = "incarnation"
	clusterName     = "cluster"
	tasksName       = "tasks"
	scriptsName     = "scripts"
	pastName        = "past"
	loansName       = "loans"
	damagedName     = "damaged"
)

// The names in a task's folder.
const (
	taskName      = "task"      // the start request
	stopName      = "stop"      // present if the head wants it to end
	begunName     = "begun"     // present once a supervisor has begun
	openedName    = "opened"    // the task has opened its output
	endName       = "end"       // how it ended
	roomName      = "end.room"  // room on the disk for the end
	processesName = "processes" // the processes that the supervisor last saw
	markerFile    = "marker"    // of a task that was restored: the marker that its processes have
	socketName    = "socket"
	logName       = "log"
	partSuffix    = ".part" // a file that is being written
	newPrefix     = ".new-" // a folder that is being written
)

// endRoom is larger than any encoded end.
const endRoom = 64 << 10

var (
	taskLimit  = wholefile.Limit{Bytes: 2 * wire.MaxMessage, Remedy: "no agent wrote it: remove it"}
	smallLimit = wholefile.Limit{Bytes: 1 << 20, Remedy: "no agent wrote it: remove it"}
)

// maxDamaged is how many damaged files are kept for a person to look at.
const maxDamaged = 64

// spool is an agent's folder.
type spool struct {
	dir  string
	lock *os.File
	log  *slog.Logger
}

// spoolWait is how long an agent waits for another one to release the spool, as when a
// node hands over to the next.
const spoolWait = 30 * time.Second

// openSpool opens and locks a spool, which it makes if there is none.
func openSpool(ctx context.Context, dir string, log *slog.Logger) (*spool, error) {
	s := &spool{dir: dir, log: log}
	// Users must reach their scripts, and nothing else.
	outer := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		outer = 0o711
	}
	for _, d := range []struct {
		name string
		mode fs.FileMode
	}{{"", outer}, {tasksName, 0o700}, {scriptsName, outer}, {pastName, 0o700}, {loansName, 0o700}, {damagedName, 0o700}} {
		if err := makeOwn(filepath.Join(dir, d.name), d.mode); err != nil {
			return nil, err
		}
	}
	for end, told := time.Now().Add(spoolWait), false; ; told = true {
		lock, err := lockFile(filepath.Join(dir, lockName))
		if err == nil {
			s.lock = lock
			return s, nil
		}
		if !errors.Is(err, errLocked) || time.Now().After(end) {
			return nil, fmt.Errorf("the spool %s: %w", dir, err)
		}
		if !told {
			log.Warn("the spool is in use: waiting for the node that has it, which may be ending", "spool", dir, "for", spoolWait.String())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// makeOwn makes a folder, or checks that the existing one is this user's alone.
func makeOwn(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("making the spool: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || owner.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("the spool's %s is no folder of user %d: remove it, or name another spool", dir, os.Geteuid())
	}
	return os.Chmod(dir, mode)
}

var errLocked = errors.New("another node of this machine has it: give each a folder of its own, with --spool DIR")

// lockFile opens a file and locks it for as long as it is open.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, err
	}
	return f, nil
}

func (s *spool) close() { s.lock.Close() }

// task is the folder of a task.
func (s *spool) task(id wire.Task) string { return filepath.Join(s.dir, tasksName, id.String()) }

func (s *spool) script(id wire.Task) string { return filepath.Join(s.dir, scriptsName, id.String()) }

// ---- files ----

// writeFile writes a file, whole or not at all: it writes and syncs another one,
// renames it, and syncs the folder. When it returns, the file is on the disk.
func writeFile(dir, name string, text []byte) error {
	part := filepath.Join(dir, name+partSuffix)
	if err := writeSynced(part, text); err != nil {
		_ = os.Remove(part)
		return err
	}
	if err := os.Rename(part, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncFolder(dir)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ---- what is in a task's folder ----

// taskFile is a start request, with what the agent decided about it.
type taskFile struct {
	// Start is the message, as it was sent.
	Start []byte `json:"start"`
	Cores []int  `json:"cores"`
	// Pin says that the cores are real, so that processes are pinned to them.
	Pin bool `json:"pin"`
	// Marker is the random value of markerName by which the task's processes are
	// recognised.
	Marker string `json:"marker"`
	// Cgroup is where the task's control group is made; "" is none.
	Cgroup string `json:"cgroup,omitempty"`
	// Script is the folder of the task's script.
	Script string `json:"script"`
	// Node is this node's name, and Socket its daemon's.
	Node   string `json:"node"`
	Socket string `json:"socket,omitempty"`
	// Restore is from where the task's processes go on; nil for one that begins.
	Restore *agentcore.SaveIn `json:"restore,omitempty"`

	start wire.Start
}

// scriptName is the file of a job's script, in a folder of its own.
const scriptName = "script"

const (
	markerBytes = 16
	maxCores    = 1 << 20
)

// parseTaskFile reads what encode wrote.
func parseTaskFile(b []byte) (*taskFile, error) {
	var f taskFile
	if err := strictjson.Decode(b, &f); err != nil {
		return nil, err
	}
	m, err := onlyMessage(f.Start, wire.ReadToAgent)
	if err != nil {
		return nil, err
	}
	start, ok := m.(wire.Start)
	if !ok {
		return nil, fmt.Errorf("a message %s in place of a start", m.Kind())
	}
	if marker, err := hex.DecodeString(f.Marker); err != nil || len(marker) != markerBytes {
		return nil, fmt.Errorf("a marker %.40q", f.Marker)
	}
	if r := f.Restore; r != nil && !filepath.IsAbs(r.Folder) {
		return nil, fmt.Errorf("a folder %.80q", r.Folder)
	}
	for _, n := range f.Cores {
		if n < 0 || n >= maxCores {
			return nil, fmt.Errorf("a core %d", n)
		}
	}
	f.start = start
	return &f, nil
}

// onlyMessage reads a message and nothing behind it.
func onlyMessage[M any](b []byte, read func(io.Reader) (M, error)) (M, error) {
	r := bytes.NewReader(b)
	m, err := read(r)
	if err == nil && r.Len() > 0 {
		err = errors.New("something follows")
	}
	return m, err
}

func readTask(dir string) (*taskFile, error) {
	b, err := taskLimit.ReadFile(filepath.Join(dir, taskName))
	if err != nil {
		return nil, err
	}
	f, err := parseTaskFile(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", taskName, err)
	}
	if f.start.Task.String() != filepath.Base(dir) {
		return nil, fmt.Errorf("task %v in the folder %s", f.start.Task, filepath.Base(dir))
	}
	return f, nil
}

// parseEnd reads how a task ended.
func parseEnd(b []byte, id wire.Task) (*wire.End, error) {
	m, err := onlyMessage(b, wire.ReadToHead)
	if err != nil {
		return nil, err
	}
	r, ok := m.(wire.Report)
	if !ok || r.State != wire.Ended || r.Task != id {
		return nil, errors.New("no end of this task")
	}
	return r.End, nil
}

// readEnd reads how a task ended; nil if it has not.
func readEnd(dir string, id wire.Task) (*wire.End, error) {
	b, err := smallLimit.ReadFile(filepath.Join(dir, endName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseEnd(b, id)
}

// writeEnd writes how a task ended. It overwrites the file that keeps room for that and
// renames it, so that it succeeds on a full disk; without that file it writes a new
// one.
func writeEnd(dir string, id wire.Task, end wire.End) error {
	b, err := wire.Encode(nil, wire.Report{Task: id, State: wire.Ended, End: &end})
	if err != nil {
		return err
	}
	room := filepath.Join(dir, roomName)
	f, err := os.OpenFile(room, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return writeFile(dir, endName, b)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Truncate(int64(len(b))), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(room, filepath.Join(dir, endName)); err != nil {
		return err
	}
	return syncFolder(dir)
}

// keepRoom reserves room on the disk for the end of a task, which must be written even
// when the disk is full.
func keepRoom(dir string) error {
	return os.WriteFile(filepath.Join(dir, roomName), make([]byte, endRoom), 0o600)
}

// leastRoom is how many bytes must be free for a node to take tasks: room for the end of one, its
// script, and what else is written of it.
const leastRoom = 4 * endRoom

// room says why no task can be put into the spool; nil if one can. A disk that could not be written, for
// whatever reason, is tried: the number of free bytes does not tell all.
func (s *spool) room(try bool) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err != nil {
		return fmt.Errorf("the spool %s: %w", s.dir, err)
	}
	if disk.Blocks > 0 && int64(disk.Bavail)*disk.Bsize < leastRoom {
		return fmt.Errorf("the disk of the spool %s is full: less than %d KiB are free", s.dir, leastRoom>>10)
	}
	if !try {
		return nil
	}
	part := filepath.Join(s.dir, roomName+partSuffix)
	if err := errors.Join(writeSynced(part, make([]byte, endRoom)), os.Remove(part)); err != nil {
		return fmt.Errorf("the spool cannot be written: %w", err)
	}
	return nil
}

func readStop(dir string, id wire.Task) (*wire.Stop, error) {
	b, err := smallLimit.ReadFile(filepath.Join(dir, stopName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseStop(b, id)
}

func parseStop(b []byte, id wire.Task) (*wire.Stop, error) {
	m, err := onlyMessage(b, wire.ReadToAgent)
	if err != nil {
		return nil, err
	}
	stop, ok := m.(wire.Stop)
	if !ok || stop.Task != id {
		return nil, errors.New("no stop of this task")
	}
	return &stop, nil
}

// writeBegun records that a supervisor is about to start processes. That the file is there says so;
// its text says that the supervisor will write openedName, which those of earlier versions do not.
func writeBegun(dir string) error { return writeMark(dir, begunName, opensWord) }

// writeOpened records that the task has opened its output, and emptied the file if it should.
func writeOpened(dir string) error { return writeMark(dir, openedName, "") }

// opensWord is the text of begunName.
const opensWord = "opened follows\n"

// writeMark writes a file that must not be there yet. Readers see it whole, or not at all.
func writeMark(dir, name, text string) error {
	part := filepath.Join(dir, name+partSuffix)
	err := os.WriteFile(part, []byte(text), 0o600)
	if err == nil {
		err = os.Link(part, filepath.Join(dir, name))
	}
	return errors.Join(err, os.Remove(part), syncFolder(dir))
}

// hasOpened says whether what is in a task's output is the task's. An earlier supervisor does not say,
// and is taken to have opened it when it began.
func hasOpened(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, openedName)); err == nil {
		return true
	}
	text, err := smallLimit.ReadFile(filepath.Join(dir, begunName))
	return err == nil && string(text) != opensWord
}

func hasBegun(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, begunName))
	return err == nil
}

// ---- what the agent writes ----

// addTask puts a task into the spool.
func (s *spool) addTask(f *taskFile) error {
	message, err := wire.Encode(nil, f.start)
	if err != nil {
		return err
	}
	f.Start = message
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	fresh := filepath.Join(s.dir, tasksName, newPrefix+f.start.Task.String())
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	// The new folder itself is not synced. If the machine fails and the folder comes
	// back without the file, the task counts as lost.
	err = keepRoom(fresh)
	if err == nil {
		err = writeSynced(filepath.Join(fresh, taskName), text)
	}
	if err == nil {
		err = os.Rename(fresh, s.task(f.start.Task))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return syncFolder(filepath.Join(s.dir, tasksName))
}

func (s *spool) addStop(m wire.Stop) error {
	b, err := wire.Encode(nil, m)
	if err != nil {
		return err
	}
	return writeFile(s.task(m.Task), stopName, b)
}

// forget removes a task. The rename makes that atomic: restore removes folders with the
// other name.
func (s *spool) forget(id wire.Task) error {
	gone := filepath.Join(s.dir, tasksName, newPrefix+id.String())
	_ = os.RemoveAll(gone)
	if err := os.Rename(s.task(id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(gone), os.RemoveAll(s.script(id)))
}

func (s *spool) mark(id wire.Task, p agentcore.Past) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(s.dir, pastName), id.String(), text)
}

func (s *spool) unmark(id wire.Task) error {
	return os.Remove(filepath.Join(s.dir, pastName, id.String()))
}

func parsePast(b []byte) (p agentcore.Past, err error) {
	if err := strictjson.Decode(b, &p); err != nil {
		return p, err
	}
	if p.At < 0 {
		return p, errors.New("a time before 1970")
	}
	if p.End == nil {
		return p, nil
	}
	// The end is checked as strictly as one in a message.
	id := wire.Task{Job: 1, Attempt: 1}
	message, err := wire.Encode(nil, wire.Report{Task: id, State: wire.Ended, End: p.End})
	if err == nil {
		_, err = parseEnd(message, id)
	}
	return p, err
}

// loanFile is the name of a loan's file: a hash, since a grant's name may have any
// character.
func loanFile(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (s *spool) addLoan(loan grant.Loan) error {
	b, err := wire.Encode(nil, wire.Lend{Loan: loan})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(s.dir, loansName), loanFile(loan.ID), b)
}

// hasLoan says whether the spool has a loan of this name.
func (s *spool) hasLoan(id string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, loansName, loanFile(id)))
	return err == nil
}

// limitLoan changes the limit of a loan.
func (s *spool) limitLoan(id string, limit int) error {
	b, err := smallLimit.ReadFile(filepath.Join(s.dir, loansName, loanFile(id)))
	if err != nil {
		return err
	}
	loan, err := parseLoan(b)
	if err != nil || loan.Limit == limit {
		return err
	}
	loan.Limit = limit
	return s.addLoan(*loan)
}

func (s *spool) dropLoan(id string) error {
	err := os.Remove(filepath.Join(s.dir, loansName, loanFile(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func parseLoan(b []byte) (*grant.Loan, error) {
	m, err := onlyMessage(b, wire.ReadToAgent)
	if err != nil {
		return nil, err
	}
	lend, ok := m.(wire.Lend)
	if !ok {
		return nil, errors.New("no loan")
	}
	return &lend.Loan, nil
}

// ---- what the next agent finds ----

// incarnation reads this spool's incarnation, and makes one for a new spool.
func (s *spool) incarnation() (string, error) {
	path := filepath.Join(s.dir, incarnationName)
	text, err := smallLimit.ReadFile(path)
	if err == nil && goodIncarnation(string(text)) {
		return string(text), nil
	}
	if err == nil {
		s.setAside(path, errors.New("no incarnation"))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	fresh := rand.Text()
	return fresh, writeFile(s.dir, incarnationName, []byte(fresh))
}

func goodIncarnation(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

func (s *spool) cluster() string {
	text, err := smallLimit.ReadFile(filepath.Join(s.dir, clusterName))
	if err != nil || len(text) > 256 {
		return ""
	}
	return string(text)
}

// restore reads all that is in the spool. What is damaged is moved aside.
func (s *spool) restore() agentcore.Restored {
	r := agentcore.Restored{Marks: map[wire.Task]agentcore.Past{}}
	for _, name := range s.list(tasksName) {
		path := filepath.Join(s.dir, tasksName, name)
		id, ok := parseTaskID(name)
		switch {
		case strings.HasPrefix(name, newPrefix):
			if err := os.RemoveAll(path); err != nil {
				s.log.Warn("what an earlier agent left in the spool cannot be removed", "folder", path, "error", err)
			}
		case !ok:
			s.setAside(path, errors.New("no name of a task"))
		case len(r.Tasks) >= agentcore.MaxTasks:
			s.setAside(path, errors.New("there are too many"))
		default:
			r.Tasks = append(r.Tasks, s.restoreTask(id, path))
		}
	}
	s.sweep(r.Tasks)
	s.restoreMarks(&r)
	s.restoreLoans(&r)
	return r
}

// sweep removes what an agent that was killed while it forgot a task, or wrote a file, has left:
// scripts of tasks that are gone, and files that were not finished.
func (s *spool) sweep(tasks []agentcore.Known) {
	s.list("")
	of := map[string]bool{}
	for i := range tasks {
		of[tasks[i].Task.String()] = true
	}
	for _, name := range s.list(scriptsName) {
		if of[name] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, scriptsName, name)); err != nil {
			s.log.Warn("a script of an earlier job cannot be removed from the spool", "script", name, "error", err)
		}
	}
}

func (s *spool) restoreLoans(r *agentcore.Restored) {
	for _, name := range s.list(loansName) {
		path := filepath.Join(s.dir, loansName, name)
		b, err := smallLimit.ReadFile(path)
		var loan *grant.Loan
		if err == nil {
			loan, err = parseLoan(b)
		}
		if err == nil && loanFile(loan.ID) != name {
			err = errors.New("it has another loan's name")
		}
		if err != nil {
			s.setAside(path, err)
			continue
		}
		r.Loans = append(r.Loans, *loan)
	}
}

func (s *spool) restoreMarks(r *agentcore.Restored) {
	for _, name := range s.list(pastName) {
		path := filepath.Join(s.dir, pastName, name)
		id, ok := parseTaskID(name)
		if !ok {
			s.setAside(path, errors.New("no name of a task"))
			continue
		}
		b, err := smallLimit.ReadFile(path)
		if err != nil {
			s.setAside(path, err)
			continue
		}
		past, err := parsePast(b)
		if err != nil { // what matters is that the task is over, and the file's name alone says that
			s.log.Warn("a mark in the spool is damaged: its task counts as over", "task", name, "error", err)
			past = agentcore.Past{}
		}
		r.Marks[id] = past
	}
}

// restoreTask reads a task's folder. If it is damaged, the task may have begun and must
// not begin again: it counts as lost.
func (s *spool) restoreTask(id wire.Task, dir string) agentcore.Known {
	k := agentcore.Known{Task: id, Begun: hasBegun(dir)}
	f, err := readTask(dir)
	if err == nil {
		k.Cores = f.Cores
		if f.start.Grant != nil {
			k.Grant = f.start.Grant.ID
		}
		k.Stop, err = readStop(dir, id)
	}
	if err == nil {
		k.End, err = readEnd(dir, id)
	}
	if err == nil {
		return k
	}
	s.log.Warn("a task's folder in the spool is damaged: the task is lost", "task", id, "error", err)
	k.End = &wire.End{Cause: wire.NodeLost, Reason: "what the node had written down of the task is damaged"}
	s.leftovers(dir, f)
	if err := s.mark(id, agentcore.Past{End: k.End}); err != nil {
		s.log.Warn("the spool cannot be written", "error", err)
		return k // the folder stays, and the next agent finds it again
	}
	s.setAside(dir, err)
	return k
}

// leftovers ends the processes of a task whose folder is damaged, as far as they are
// known.
func (s *spool) leftovers(dir string, f *taskFile) {
	if pid, err := lockHolder(filepath.Join(dir, lockName)); err == nil && pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if f != nil {
		endLeftovers(dir, f, s.log)
	}
}

// lockHolder is the process number that a supervisor wrote into the lock that it holds;
// 0 if the lock is free.
func lockHolder(path string) (int, error) {
	f, err := lockFile(path)
	if err == nil {
		f.Close()
		return 0, nil
	}
	if !errors.Is(err, errLocked) {
		return 0, err
	}
	text, err := smallLimit.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (s *spool) list(name string) []string {
	entries, err := os.ReadDir(filepath.Join(s.dir, name))
	if err != nil {
		s.log.Warn("the spool cannot be read", "folder", name, "error", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partSuffix) {
			_ = os.Remove(filepath.Join(s.dir, name, e.Name()))
			continue
		}
		names = append(names, e.Name())
	}
	return names
}

// setAside moves a damaged file or folder to where a person can look at it, or removes
// it if there are maxDamaged already.
func (s *spool) setAside(path string, why error) {
	to := filepath.Join(s.dir, damagedName, filepath.Base(path)+"."+rand.Text()[:8])
	s.log.Warn("what is damaged in the spool is moved aside", "what", path, "to", to, "error", why)
	if entries, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err == nil && len(entries) >= maxDamaged {
		to = ""
	}
	var err error
	if to == "" {
		err = os.RemoveAll(path)
	} else {
		err = os.Rename(path, to)
	}
	if err != nil {
		s.log.Warn("it cannot be moved", "error", err)
	}
}

// parseTaskID reads the name of a task's folder.
func parseTaskID(name string) (id wire.Task, ok bool) {
	n, err := fmt.Sscanf(name, "%d.%d.%d", &id.Job, &id.Attempt, &id.Part)
	return id, err == nil && n == 3 && id.String() == name && id.Job > 0 && id.Attempt > 0 && id.Part >= 0
}
