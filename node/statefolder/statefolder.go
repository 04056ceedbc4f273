package statefolder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"muster/internal/strictjson"
	"muster/internal/wholefile"
	"muster/wire"
)

// Folder is where the daemon writes down what the next one must know of its
// clients, should it be killed or hand over: a file for each client, one for the node,
// and the devices' locks. Only the daemon's user may use it. A daemon holds a lock on
// the folder while it runs and removes the folder at its end: so a folder that is there
// and not locked was left by a daemon that was killed or has handed over.
type Folder struct {
	Dir  string
	lock *os.File // the folder itself
	own  bool     // its parent is Muster's too, and is removed at the end if empty

	stopTouching func()
}

const (
	LockPrefix = "lock-"
	PartPrefix = ".part-" // a file that is being written

	// How long to wait for a daemon that hands over to release the folder.
	folderWait = 10 * time.Second

	// A daemon touches its folder so often that others see how long ago it was killed. After
	// deadTime nobody waits for the next daemon any more. The library in C has the same limit.
	touchEvery = 5 * time.Second
	DeadTime   = 2 * time.Minute
)

// Limit is larger than any file of a state.
var Limit = wholefile.Limit{Bytes: 4 << 20, Remedy: "no daemon wrote it: remove it"}

// Open opens the folder that a configuration names, or the usual one.
func Open(dir, socket string) (*Folder, error) {
	f := &Folder{Dir: dir}
	if dir == "" {
		f.Dir, f.own = filepath.Join(Parent(), Key(socket)), true
		if err := MakeParent(Parent()); err != nil {
			return nil, err
		}
	}
	for end := time.Now().Add(folderWait); ; {
		err := f.take()
		if err == nil || !errors.Is(err, ErrTaken) || time.Now().After(end) {
			return f, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// MakeParent makes the folder in which the states of nodes are. Other users may list
// it, so that their programs know to wait for a node that comes back; a folder in /tmp
// is closed to them.
func MakeParent(dir string) error {
	mode := fs.FileMode(0o755)
	if strings.HasPrefix(dir, "/tmp/") {
		mode = 0o700
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkOwn(dir, 0o022)
}

// checkOwn refuses a folder that is another user's, or that others have rights to which
// the mask forbids.
func checkOwn(dir string, mask fs.FileMode) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case !ok || owner.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%s is another user's", dir)
	case info.Mode().Perm()&mask != 0:
		return fmt.Errorf("others may use %s: chmod %04o %s", dir, info.Mode().Perm()&^mask, dir)
	}
	return nil
}

var ErrTaken = errors.New("another node uses it")

// take opens and locks the folder, which it makes if it is not there.
func (f *Folder) take() error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	if err := checkOwn(f.Dir, 0o077); err != nil {
		return err
	}
	lock, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && !isSame(lock, f.Dir) { // the daemon that held the lock has just removed the folder
		err = syscall.EWOULDBLOCK
	}
	if err != nil {
		lock.Close()
		return fmt.Errorf("%w (%s: %w)", ErrTaken, f.Dir, err)
	}
	f.lock = lock
	f.keepTouching()
	return nil
}

// keepTouching touches the folder at once and then regularly, until the daemon leaves or removes it.
func (f *Folder) keepTouching() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.stopTouching = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		for {
			now := time.Now()
			_ = os.Chtimes(f.Dir, now, now) // if it fails, nobody waits for the next daemon
			select {
			case <-ctx.Done():
				return
			case <-time.After(touchEvery):
			}
		}
	}()
}

func isSame(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// Leave unlocks the folder for the next daemon.
func (f *Folder) Leave() {
	if f != nil {
		f.stopTouching()
		f.lock.Close()
	}
}

// Remove removes the folder, of a node that has ended.
func (f *Folder) Remove() error {
	if f == nil {
		return nil
	}
	defer f.lock.Close()
	f.stopTouching()
	err := f.Clear("")
	if err == nil {
		err = os.Remove(f.Dir)
	}
	if f.own {
		_ = os.Remove(filepath.Dir(f.Dir)) // unless another node has its state there
	}
	return err
}

// Clear removes the files of the folder whose names begin with prefix.
func (f *Folder) Clear(prefix string) error {
	var errs []error
	for _, name := range f.Names(prefix) {
		errs = append(errs, os.Remove(filepath.Join(f.Dir, name)))
	}
	return errors.Join(errs...)
}

// Names lists the files of the folder whose names begin with prefix.
func (f *Folder) Names(prefix string) []string {
	entries, _ := os.ReadDir(f.Dir)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Write replaces a file of the folder, whole or not at all.
func (f *Folder) Write(name string, document any) error { return Write(f.Dir, name, document) }

// Write replaces a file in a folder, whole or not at all: it writes another one and renames it.
func Write(dir, name string, document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	part := filepath.Join(dir, PartPrefix+name)
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, name))
}

// Read reads what write wrote.
func (f *Folder) Read(name string, into any) error {
	text, err := Limit.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		return err
	}
	if err := strictjson.Decode(text, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *Folder) Drop(name string) error {
	err := os.Remove(filepath.Join(f.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// DeviceLock opens the lock of a device: the same file that workers of an earlier
// daemon have, if there are any. Without a folder no worker outlives its daemon, so a
// new lock will do.
func (f *Folder) DeviceLock(number int) (*os.File, error) {
	if f == nil {
		return wire.CreateLock()
	}
	lock, err := os.OpenFile(filepath.Join(f.Dir, fmt.Sprint(LockPrefix, number)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a device's lock: %w", err)
	}
	return lock, nil
}

// Key turns a socket's address into the name of a folder. The library in C does
// the same.
func Key(socket string) string {
	if !strings.HasPrefix(socket, "@") {
		if path, err := filepath.Abs(socket); err == nil {
			socket = path
		}
	}
	var key strings.Builder
	for _, c := range []byte(socket) {
		switch {
		case c == '/':
			key.WriteByte('+')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '@', c == '_', c == '-':
			key.WriteByte(c)
		default: // a dot too: "." and ".." are no names
			fmt.Fprintf(&key, "%%%02X", c)
		}
	}
	return key.String()
}

// stateParents lists the folders in which the state of a node may be by default:
// root's, then the user's.
func stateParents() []string {
	parents := []string{"/run/muster"}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(runtime); err == nil && info.IsDir() && filepath.IsAbs(runtime) {
		parents = append(parents, filepath.Join(runtime, "muster"))
	}
	return append(parents, fmt.Sprintf("/tmp/muster-%d", os.Getuid()))
}

// Parent is the one for nodes of this process's user.
func Parent() string {
	parents := stateParents()
	if os.Geteuid() == 0 {
		return parents[0]
	}
	return parents[1]
}

// Restarting says whether a node that does not answer at the moment may be back soon: one that was
// killed, or hands over, leaves its state behind. If that was a while ago, no service manager is
// about to start another.
func Restarting(socket string) bool {
	for _, parent := range stateParents() {
		info, err := os.Stat(filepath.Join(parent, Key(socket)))
		if err == nil && info.IsDir() && time.Since(info.ModTime()) < DeadTime {
			return true
		}
	}
	return false
}
