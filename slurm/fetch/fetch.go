// Package fetch brings a release of Slurm onto this machine without installing it. apt fetches the
// packages of the Debian distribution that carries the release, and checks their signatures; the
// packages are unpacked into a folder below the user's cache. No package's scripts run, nothing
// outside that folder changes, and no special rights are needed.
//
// The folder is a whole system with its own C library, so that any release runs on any machine:
// package emulate makes it the root of a namespace. This package knows no cluster and starts no
// daemon.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"muster/slurm/release"
)

// Options say where a release comes from and goes to. The zero value suits most callers.
type Options struct {
	// Cache is the folder of all fetched releases; "" is $XDG_CACHE_HOME/muster/slurm.
	Cache string
	// Mirror is the address of a Debian archive; "" is the one that apt on this machine uses, or
	// else Debian's own.
	Mirror string
	// Log receives a line for each step; nil discards them.
	Log io.Writer
	// Thoroughly compares the contents of a release that is present with what was unpacked.
	// Otherwise only names, kinds, sizes and times of its files are compared.
	Thoroughly bool
}

// Tree is a release of Slurm in a folder.
type Tree struct {
	Release *release.Release
	// Folder is the root of the system: Folder/usr/sbin/slurmctld.
	Folder string
	// Version is the version of the packages: "26.05.5-1".
	Version string
	// Fetched says that Get has just fetched it.
	Fetched bool
}

// Include is the folder with slurm/slurm.h and slurm/spank.h of the release, for gcc -isystem.
func (t *Tree) Include() string { return filepath.Join(t.Folder, "usr", "include") }

// ErrNoMirror is wrapped by errors which say that no archive of packages can be reached.
var ErrNoMirror = errors.New("no archive of Debian packages can be reached")

// Get returns a release of Slurm, and fetches it first if it is missing or damaged.
func Get(ctx context.Context, r *release.Release, o Options) (*Tree, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	cache, err := o.cache()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("a folder for Slurm's releases: %w: set XDG_CACHE_HOME to one that can be written", err)
	}
	t := &Tree{Release: r, Folder: filepath.Join(cache, r.Name)}
	if t.Version, err = check(t.Folder, o.Thoroughly); err == nil {
		return t, nil
	}
	// Of two processes that start at the same time, one fetches and the other waits.
	unlock, err := lock(ctx, filepath.Join(cache, r.Name+".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch t.Version, err = check(t.Folder, o.Thoroughly); {
	case err == nil:
		return t, nil
	case !errors.Is(err, os.ErrNotExist):
		fmt.Fprintf(o.Log, "Slurm %s in %s is not as it was unpacked (%v): it is fetched again\n", r.Name, t.Folder, err)
	}
	t.Fetched = true
	if t.Version, err = fetch(ctx, r, cache, t.Folder, o); err != nil {
		return nil, fmt.Errorf("fetching Slurm %s: %w", r.Name, err)
	}
	return t, nil
}

// Cached returns a release that is present and undamaged, or an error; it fetches nothing.
func Cached(r *release.Release, o Options) (*Tree, error) {
	cache, err := o.cache()
	if err != nil {
		return nil, err
	}
	t := &Tree{Release: r, Folder: filepath.Join(cache, r.Name)}
	if t.Version, err = check(t.Folder, o.Thoroughly); err != nil {
		return nil, fmt.Errorf("Slurm %s is not in %s (%w): muster slurm fetch --version %s brings it", r.Name, cache, err, r.Name)
	}
	return t, nil
}

func (o Options) cache() (string, error) {
	if o.Cache != "" {
		return filepath.Abs(o.Cache)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a folder for Slurm's releases: %w: set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(dir, "muster", "slurm"), nil
}

// fetch unpacks a release into a folder beside its place and moves it there when it is complete.
func fetch(ctx context.Context, r *release.Release, cache, place string, o Options) (version string, err error) {
	if err := enoughRoom(cache); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, r.Name+".new-")
	if err != nil {
		return "", err
	}
	defer removeTree(work)
	packages, version, err := download(ctx, r, filepath.Join(work, "apt"), o)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(o.Log, "unpacking %d packages\n", len(packages))
	tree := filepath.Join(work, "tree")
	if err := unpack(ctx, packages, tree, version); err != nil {
		return "", noRoom(err, cache)
	}
	if err := removeTree(place); err != nil {
		return "", fmt.Errorf("removing what was there: %w", err)
	}
	if err := os.Rename(tree, place); err != nil {
		return "", err
	}
	return check(place, false)
}

// roomNeeded is a generous estimate of what packages, lists and the unpacked release take together.
const roomNeeded = 400 << 20

func enoughRoom(cache string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(cache, &s); err != nil {
		return fmt.Errorf("%s: %w", cache, err)
	}
	if free := s.Bavail * uint64(s.Bsize); free < roomNeeded {
		return fmt.Errorf("%s has %d MB left and a release needs %d: make room, or set XDG_CACHE_HOME to a folder on another disk", cache, free>>20, roomNeeded>>20)
	}
	return nil
}

func noRoom(err error, cache string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: make room in %s, or set XDG_CACHE_HOME to a folder on another disk", err, cache)
	}
	return err
}

// lock waits for a file's lock. The kernel releases it when the process ends, however that happens.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			if err == syscall.EINTR {
				continue
			}
			locked <- err
			return
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { <-locked; f.Close() }()
		return nil, fmt.Errorf("waiting for another fetch of the same release: %w", context.Cause(ctx))
	}
}

// removeTree removes a folder, even if its owner may not write to some folders in it.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
