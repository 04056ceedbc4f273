package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"muster/internal/units"
)

// tryFile does what workers do: it makes a file without a name that is mostly holes,
// writes to it and maps it. It leaves nothing behind. Without this check, a node with
// an unusable folder would start and then fail every program.
func tryFile(dir string, size int64) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such folder: make it, or name another")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is no folder: name one")
	}
	f, err := os.CreateTemp(dir, "muster-swap-*")
	if err != nil {
		return fmt.Errorf("no file can be made there: %w: give the node's user the right to, or name a folder on another disk", withoutPath(err))
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("no file can be removed there: %w: name another folder", withoutPath(err))
	}
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("no file there can have %s, mostly holes: %w: raise the limit of file sizes (ulimit -f), or name a folder on another filesystem", units.FormatSize(size), withoutPath(err))
	}
	if _, err := f.WriteAt(make([]byte, 2<<20), 0); err != nil {
		return fmt.Errorf("nothing can be written there: %w: make room, or name another folder", withoutPath(err))
	}
	mapped, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("files there cannot be mapped into memory: %w: name a folder on another filesystem", err)
	}
	return syscall.Munmap(mapped)
}

// withoutPath is an error of the system without the file's name, which is random here.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
