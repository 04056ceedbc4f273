// Package scriptfile makes policies of files: wherever a policy is named, a name that
// ends in .star is the path of a script, as in ./mine.star:depth=20. It also notices
// that a file has changed, and keeps the one in force if the new one is wrong.
//
// It is handed a function that reads, so that it stays as pure as the policies.
package scriptfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/script"
)

// Read reads a file whole.
type Read func(path string) ([]byte, error)

// MaxBytes is the size of a script.
const MaxBytes = script.MaxSource

const ending = ".star"

// Is says whether a spec names a file.
func Is(spec string) bool {
	path, _ := split(spec)
	return path != ""
}

// split parts a spec into path and settings; the path is empty if it names no file.
func split(spec string) (path, settings string) {
	if at := strings.Index(spec, ending+":"); at >= 0 {
		return spec[:at+len(ending)], spec[at+len(ending)+1:]
	}
	if strings.HasSuffix(spec, ending) {
		return spec, ""
	}
	return "", ""
}

// Make makes a policy of a spec: a file's, or one of the catalogue.
func Make(spec string, read Read) (policy.Policy, error) {
	if !Is(spec) {
		return catalog.New(spec)
	}
	l, err := Load(spec, read)
	if err != nil {
		return nil, err
	}
	return l.Policy, nil
}

// Loaded is a policy that a script decides.
type Loaded struct {
	// Policy is what decides: the script, with classes around it where the spec has some.
	Policy policy.Policy
	Script *script.Policy
	Source []byte
}

// Load makes a policy of a file.
func Load(spec string, read Read) (*Loaded, error) {
	path, _ := split(spec)
	source, err := read(path)
	if err != nil {
		return nil, err
	}
	return load(spec, source)
}

func load(spec string, source []byte) (*Loaded, error) {
	path, settings := split(spec)
	p, inner, err := catalog.Script(path, source, settings)
	if err != nil {
		return nil, err
	}
	return &Loaded{p, inner, source}, nil
}

// File is a file that is looked at again and again.
type File struct {
	spec   string
	read   Read
	source []byte // in force
	seen   []byte // what was read last
	wrong  error  // about what was seen
}

// Open loads a file for the first time.
func Open(spec string, read Read) (*File, *Loaded, error) {
	if !Is(spec) {
		return nil, nil, fmt.Errorf("%s is no file of a policy: its name must end in %s", spec, ending)
	}
	l, err := Load(spec, read)
	if err != nil {
		return nil, nil, err
	}
	return &File{spec: spec, read: read, source: l.Source, seen: l.Source}, l, nil
}

// Path is the file's.
func (f *File) Path() string {
	path, _ := split(f.spec)
	return path
}

// Fresh makes another instance of the policy in force, for a different state.
func (f *File) Fresh() (policy.Policy, error) {
	l, err := load(f.spec, f.source)
	if err != nil {
		return nil, err
	}
	return l.Policy, nil
}

// Wrong is what keeps the file as it is now from being in force; nil if it is.
func (f *File) Wrong() error { return f.wrong }

// Look reads the file again. If it has changed it returns the policy that it makes now,
// or what is wrong with it; then the one before stays in force. Nothing is returned while
// the file is as it was the last time.
func (f *File) Look() (*Loaded, error) {
	source, err := f.read(f.Path())
	if err != nil {
		return nil, f.isWrong(nil, err)
	}
	if bytes.Equal(source, f.seen) && (f.wrong == nil || f.seen != nil) {
		return nil, nil
	}
	f.seen = append([]byte{}, source...) // not nil, even if it is empty
	if bytes.Equal(source, f.source) {
		f.wrong = nil // it was put back
		return nil, nil
	}
	l, err := load(f.spec, source)
	if err != nil {
		return nil, f.isWrong(f.seen, err)
	}
	f.source, f.wrong = source, nil
	return l, nil
}

// isWrong notes what is wrong, and returns it if it is news.
func (f *File) isWrong(seen []byte, err error) error {
	was := f.wrong
	f.seen, f.wrong = seen, err
	if was != nil && was.Error() == err.Error() {
		return nil
	}
	return err
}

// Place is where in a file an error is; ok is false if it is not one of a script.
func Place(err error) (e *script.Error, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}
