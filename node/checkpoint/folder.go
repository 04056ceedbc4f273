package checkpoint

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/internal/strictjson"
)

// ManifestName is the file that makes a folder a checkpoint.
const ManifestName = "checkpoint.json"

// What a folder is a checkpoint of.
const (
	OfClient  = "client"  // the GPU's side of one client
	OfProgram = "program" // processes, with the GPU's side of their clients
)

// Manifest says what is in a folder.
type Manifest struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"` // OfClient or OfProgram
	Taken   time.Time `json:"taken"`
	Clients []Client  `json:"clients"`
	Program *Program  `json:"program,omitempty"`
}

// Client is one client of a checkpoint.
type Client struct {
	File    string `json:"file"`   // in the folder
	Client  uint64 `json:"client"` // its number on the node
	Pid     int    `json:"pid"`
	UID     uint32 `json:"uid"`
	Name    string `json:"program"`
	Virtual int    `json:"virtual_device"`
	Memory  uint64 `json:"memory"` // how much device memory the program sees
	// By what the program's processes know the connection and the shared memory; only if
	// the checkpoint is of a program.
	Socket uint64 `json:"socket,omitempty"` // the number of its inode
	Ring   string `json:"ring,omitempty"`   // the names of the memory files, which are in no folder
	Arena  string `json:"arena,omitempty"`
	// Shown are the attributes of devices that the program counts on, by CUDA's numbers;
	// only if the checkpoint is of a program.
	Shown map[int]int `json:"shown,omitempty"`
}

// Program is what CRIU has saved.
type Program struct {
	Images  string   `json:"images"` // the folder with CRIU's images, in this folder
	Root    int      `json:"root"`   // the process that the others descend from
	Pids    []int    `json:"pids"`
	Stdio   []string `json:"stdio"`             // the targets of the root's descriptors 0 to 2, as /proc shows them
	Sockets []uint64 `json:"sockets,omitempty"` // connections to the node that belong to no client
	Options []string `json:"options,omitempty"` // for CRIU, at the restore as at the dump
}

// maxManifest is how long a manifest may be.
const maxManifest = 16 << 20

// ReadManifest reads the manifest of a folder.
func ReadManifest(dir string) (*Manifest, error) {
	f, err := os.Open(filepath.Join(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no checkpoint in %s: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return m, nil
}

func decodeManifest(text []byte) (*Manifest, error) {
	if len(text) > maxManifest {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrFile, maxManifest)
	}
	m := &Manifest{}
	if err := strictjson.Decode(text, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	switch {
	case m.Version != Version:
		return fmt.Errorf("it has version %d, and this program knows version %d: use the Muster that wrote it", m.Version, Version)
	case m.Kind != OfClient && m.Kind != OfProgram:
		return fmt.Errorf("it is of a %q: it must be of a %s or a %s", m.Kind, OfClient, OfProgram)
	case m.Kind == OfClient && (len(m.Clients) != 1 || m.Program != nil):
		return fmt.Errorf("a client's has one client, and this has %d", len(m.Clients))
	case m.Kind == OfProgram && m.Program == nil:
		return errors.New("of a program it says nothing")
	}
	seen := map[string]bool{}
	for _, name := range m.files() {
		if name != filepath.Base(name) || !isOurs(name) || name == ManifestName {
			return fmt.Errorf("%q is no name of a file of a checkpoint", name)
		}
		if seen[name] {
			return fmt.Errorf("it names %s twice", name)
		}
		seen[name] = true
	}
	return nil
}

// files lists the names of all files and folders that the manifest refers to.
func (m *Manifest) files() (names []string) {
	for _, c := range m.Clients {
		names = append(names, c.File)
	}
	if m.Program != nil {
		names = append(names, m.Program.Images)
	}
	return names
}

// Draft is a checkpoint that is being written into a folder, beside an older one if
// there is one.
type Draft struct {
	Manifest Manifest
	dir      string
	lock     *os.File
	suffix   string
	mine     []string // files and folders made so far
}

// Begin begins a checkpoint in a folder, which is made if it is not there. A folder with
// anything else in it is refused, because Commit removes what is left of old
// checkpoints.
func Begin(dir, kind string, taken time.Time) (*Draft, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for the checkpoint: %w", err)
	}
	lock, err := Lock(dir, true)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !isOurs(e.Name()) {
			err = fmt.Errorf("%s has something in it that is no checkpoint (%s): give a folder that is empty or not there", dir, e.Name())
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Draft{Manifest: Manifest{Version: Version, Kind: kind, Taken: taken}, dir: dir, lock: lock, suffix: rand.Text()[:8]}, nil
}

// Lock keeps other processes from writing to a folder until the returned file is closed;
// with alone, also from reading it.
func Lock(dir string, alone bool) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use: another checkpoint or restore is under way there", dir)
		}
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}

// isOurs says whether a name in a folder is one that checkpoints use.
func isOurs(name string) bool {
	return name == ManifestName || strings.HasPrefix(name, "client-") || strings.HasPrefix(name, "images-") || strings.HasPrefix(name, "new-")
}

// Create makes the file of a client, which is private to the user.
func (d *Draft) Create(client uint64) (*os.File, error) {
	name := fmt.Sprintf("client-%d-%s", client, d.suffix)
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		d.mine = append(d.mine, name)
	}
	return f, err
}

// Images makes the folder for CRIU's images, and returns its name and path.
func (d *Draft) Images() (name, path string, err error) {
	name = "images-" + d.suffix
	path = filepath.Join(d.dir, name)
	if err = os.Mkdir(path, 0o700); err == nil {
		d.mine = append(d.mine, name)
	}
	return name, path, err
}

// Commit makes the draft the folder's checkpoint. All files are synced before the
// manifest is renamed into place, and only then is the older checkpoint removed. After
// an error the draft is dropped.
func (d *Draft) Commit() error {
	defer d.lock.Close()
	err := d.commit()
	if err != nil {
		d.Drop()
	}
	return err
}

func (d *Draft) commit() error {
	if err := d.Manifest.check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d.Manifest, "", "  ")
	if err != nil {
		return err
	}
	fresh := filepath.Join(d.dir, "new-"+d.suffix)
	d.mine = append(d.mine, filepath.Base(fresh))
	if err := writeAll(fresh, append(text, '\n')); err != nil {
		return err
	}
	for _, name := range d.mine {
		if err := syncFile(filepath.Join(d.dir, name)); err != nil {
			return err
		}
	}
	if err := os.Rename(fresh, filepath.Join(d.dir, ManifestName)); err != nil {
		return err
	}
	if err := syncFile(d.dir); err != nil {
		return err
	}
	d.tidy()
	return nil
}

// tidy removes what the manifest does not name.
func (d *Draft) tidy() {
	keep := append(d.Manifest.files(), ManifestName)
	entries, _ := os.ReadDir(d.dir)
	for _, e := range entries {
		if isOurs(e.Name()) && !slices.Contains(keep, e.Name()) {
			_ = os.RemoveAll(filepath.Join(d.dir, e.Name())) // ignored: the next Commit tries again
		}
	}
}

// Drop removes what was written, and the folder if it is empty then.
func (d *Draft) Drop() {
	defer d.lock.Close()
	for _, name := range d.mine {
		_ = os.RemoveAll(filepath.Join(d.dir, name))
	}
	_ = os.Remove(d.dir)
}

func writeAll(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// syncFile flushes a file to the disk or, if it is a folder, the folder and the files in
// it.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := f.ReadDir(-1)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			if err := syncFile(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s to the disk: %w", path, err)
	}
	return nil
}
