// Package recordfile opens and writes files that a daemon records to, for as long as it runs. A file that is
// there already is emptied only if it is an earlier recording of the same kind, so that a mistyped
// name destroys nothing.
//
// It does not know what is recorded: its callers make the lines.
package recordfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens an empty file, and locks it. prefix is how recordings of the kind begin, and daemon what
// the caller is called in errors: node or head.
func Open(path, prefix, daemon string) (*os.File, error) {
	flags := os.O_RDWR
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		return nil, notRegular(path, info)
	case errors.Is(err, fs.ErrNotExist):
		flags |= os.O_CREATE | os.O_EXCL
	case err != nil:
		return nil, err
	}
	// If it has become a link or a pipe since Lstat, the link is not followed, and
	// opening the pipe does not block.
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := makeEmpty(file, prefix, daemon); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func notRegular(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is no ordinary file (%s): give the name of one, or of none that is there", path, info.Mode().Type())
}

// isOwn says whether a file is this user's and no other user may write to it.
func isOwn(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && owner.Uid == uint32(os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

func makeEmpty(file *os.File, prefix, daemon string) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return notRegular(file.Name(), info)
	case !isOwn(info):
		return fmt.Errorf("%s is another user's, or others may write to it: they could read and change what is recorded; give another name, or a folder of the %s's own", file.Name(), daemon)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another %s records to %s: give another name (%w)", daemon, file.Name(), err)
	}
	first := make([]byte, len(prefix))
	n, err := io.ReadFull(file, first)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if n > 0 && string(first) != prefix {
		return fmt.Errorf("%s is there already and is no recording, so it is not replaced: give another name, or remove it", file.Name())
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}
