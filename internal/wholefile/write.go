package wholefile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write writes a file whole, or leaves what was there: the bytes go to a file beside it, which takes
// its name in the end. A path that ends in .gz is compressed. Devices and pipes are written directly.
func Write(path string, write func(io.Writer) error) (err error) {
	partial := path + ".partial"
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		partial = path // a device or a pipe
	}
	f, err := os.Create(partial)
	if err != nil {
		return CannotWrite(path, err)
	}
	to := &sink{File: f}
	defer func() {
		err = errors.Join(err, f.Close())
		if to.failed != nil { // whatever else went wrong followed from it
			err = CannotWrite(path, to.failed)
		}
		switch {
		case partial == path:
		case err != nil:
			err = errors.Join(err, os.Remove(partial))
		default:
			err = os.Rename(partial, path)
		}
	}()
	buffered := bufio.NewWriter(to)
	if !strings.HasSuffix(path, ".gz") {
		return errors.Join(write(buffered), buffered.Flush())
	}
	zipped := gzip.NewWriter(buffered)
	return errors.Join(write(zipped), zipped.Close(), buffered.Flush())
}

// Replace gives a file new content. No reader sees it half written, though others may write it at the
// same time; after a crash of the machine it may be empty.
func Replace(path string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.partial")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// sink keeps the first error of writing a file.
type sink struct {
	*os.File
	failed error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.File.Write(b)
	if s.failed == nil {
		s.failed = err
	}
	return n, err
}

// CheckFolder returns an error if the folder of a file is not there, so that a caller finds out before
// long work that it could not write the file after it.
func CheckFolder(file string) error {
	info, err := os.Stat(filepath.Dir(file))
	if err != nil || !info.IsDir() {
		return CannotWrite(file, err)
	}
	return nil
}

// CannotWrite says why a file cannot be made: what is wrong is mostly its folder.
func CannotWrite(file string, err error) error {
	folder := filepath.Dir(file)
	info, missing := os.Stat(folder)
	var path *fs.PathError
	switch {
	case errors.Is(missing, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be written: there is no folder %s", file, folder)
	case missing == nil && !info.IsDir():
		return fmt.Errorf("%s cannot be written: %s is no folder", file, folder)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be written: you may not make files in %s", file, folder)
	case errors.As(err, &path):
		return fmt.Errorf("%s cannot be written: %w", file, path.Err)
	}
	return fmt.Errorf("%s cannot be written: %w", file, err)
}
