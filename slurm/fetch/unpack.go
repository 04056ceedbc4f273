package fetch

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// merged are the folders of the root that are links into usr. Packages of older distributions still
// have files there, and installing them would make the links.
var merged = []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"}

// unneeded are parts of packages that neither Slurm nor a job reads.
var unneeded = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bash-completion", "usr/lib/systemd", "var", "etc"}

// unpack unpacks packages into a folder, adds the links that their installation would have made,
// and writes the manifest.
func unpack(ctx context.Context, packages []string, folder, version string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root}
	for _, dir := range merged {
		if err := errors.Join(u.folder("usr/"+dir), u.link(dir, "usr/"+dir)); err != nil {
			return err
		}
	}
	if err := u.all(ctx, packages); err != nil {
		return err
	}
	if err := u.links(folder); err != nil {
		return err
	}
	for _, needed := range []string{"usr/sbin/slurmctld", "usr/sbin/slurmd", "usr/sbin/slurmrestd", "usr/sbin/munged", "usr/bin/sbatch", "usr/bin/bash", "usr/include/slurm/spank.h"} {
		if _, err := os.Stat(filepath.Join(folder, needed)); err != nil {
			return fmt.Errorf("the packages have no %s: another release of Debian may have moved it; please report this", needed)
		}
	}
	return writeManifest(folder, version, u.entries)
}

// unpacker writes the files of packages below a root that no path can leave.
type unpacker struct {
	root *os.Root

	mu      sync.Mutex // guards entries
	entries []entry
}

// all unpacks the packages, a few at a time.
func (u *unpacker) all(ctx context.Context, packages []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan string)
	var group sync.WaitGroup
	for range min(4, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for p := range work {
				if err := u.one(ctx, p); err != nil {
					cancel(fmt.Errorf("%s: %w", filepath.Base(p), err))
				}
			}
		})
	}
	for _, p := range packages {
		if ctx.Err() != nil {
			break
		}
		work <- p
	}
	close(work)
	group.Wait()
	return context.Cause(ctx)
}

// one unpacks one package with dpkg-deb, which knows the format.
func (u *unpacker) one(ctx context.Context, deb string) error {
	c := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		return err
	}
	if err := u.files(tar.NewReader(out)); err != nil {
		c.Process.Kill()
		c.Wait()
		return err
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		return err
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func (u *unpacker) files(from *tar.Reader) error {
	for {
		h, err := from.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name, wanted := placeOf(h.Name)
		if !wanted {
			continue
		}
		if err := u.file(h, name, from); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// placeOf is where a file of a package goes, and whether it is wanted at all.
func placeOf(name string) (string, bool) {
	name = path.Clean(strings.TrimPrefix(name, "/"))
	first, rest, below := strings.Cut(name, "/")
	if slices.Contains(merged, first) {
		if !below {
			return "", false // the link exists
		}
		name = "usr/" + first + "/" + rest
	}
	for _, dir := range unneeded {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return "", false
		}
	}
	return name, name != "." && filepath.IsLocal(name)
}

func (u *unpacker) file(h *tar.Header, name string, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name)
	case tar.TypeSymlink:
		return u.link(name, h.Linkname)
	case tar.TypeLink:
		target, _ := placeOf(h.Linkname)
		return u.hardLink(name, target)
	case tar.TypeReg:
		return u.regular(name, h.FileInfo().Mode(), h.ModTime, content)
	}
	return nil // devices: the machine's own are used
}

func (u *unpacker) folder(name string) error { return u.root.MkdirAll(name, 0o755) }

// regular writes a file, without the setuid and setgid bits: nothing in an emulated cluster needs
// them, and the cache may belong to another user than the one who runs the files.
func (u *unpacker) regular(name string, mode fs.FileMode, modified time.Time, content io.Reader) error {
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm()|0o200)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, sum), content)
	if err != nil {
		return err
	}
	if err := f.Chmod(mode.Perm() | 0o644); err != nil {
		return err
	}
	if err := u.root.Chtimes(name, modified, modified); err != nil {
		return err
	}
	u.note(entry{path: name, size: size, modified: modified.Unix(), sum: hex.EncodeToString(sum.Sum(nil))})
	return f.Close()
}

func (u *unpacker) link(name, target string) error {
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Symlink(target, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	u.note(entry{path: name, target: target})
	return nil
}

// hardLink makes a second name for a file of the same package.
func (u *unpacker) hardLink(name, target string) error {
	if err := errors.Join(u.folder(path.Dir(name)), u.root.Link(target, name)); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.entries {
		if e.path == target {
			e.path = name
			u.entries = append(u.entries, e)
			return nil
		}
	}
	return fmt.Errorf("is a second name of %s, which is not there", target)
}

func (u *unpacker) note(e entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.entries = append(u.entries, e)
}

// links makes the links that the packages' scripts would have made.
func (u *unpacker) links(folder string) error {
	alternatives, err := filepath.Glob(filepath.Join(folder, "usr", "sbin", "*-wlm"))
	if err != nil {
		return err
	}
	wanted := map[string]string{"usr/bin/sh": "bash", "usr/bin/awk": "mawk"}
	for _, a := range alternatives {
		wanted["usr/sbin/"+strings.TrimSuffix(filepath.Base(a), "-wlm")] = filepath.Base(a)
	}
	for name, target := range wanted {
		if _, err := u.root.Lstat(name); err == nil {
			continue
		}
		if err := u.link(name, target); err != nil {
			return err
		}
	}
	return nil
}
