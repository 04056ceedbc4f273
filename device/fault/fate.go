package fault

import (
	"errors"
	"os"

	"muster/device"
)

// fate is what contexts of several processes share by a rule with a shared file. Each fault
// makes the file a byte longer. So a context that was open then sees that it is over, and one
// that is opened later is sound.
type fate struct {
	file string
	fail error
	size int64 // when the context was opened
}

// fateOf is what a new context shares by the rules; nil if nothing. A process that does not use
// the Multi-Process Service shares nothing: there must be a folder of that name.
func fateOf(rules []Rule) *fate {
	info, err := os.Stat(os.Getenv(device.MPSVariable))
	if err != nil || !info.IsDir() {
		return nil
	}
	for _, r := range rules {
		if r.Shared != "" {
			return &fate{file: r.Shared, fail: failures[r.Do.Fail], size: sizeOf(r.Shared)}
		}
	}
	return nil
}

func sizeOf(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// struck is the failure of a context that shares what has faulted since; nil if nothing has.
func (f *fate) struck() error {
	if f == nil || sizeOf(f.file) == f.size {
		return nil
	}
	return f.fail
}

// saw lets all others fault that share a context's fate, if an error is a fault of its own.
func (c *faultyContext) saw(err error) error {
	var fault *device.Fault
	if c.fate == nil || !errors.As(err, &fault) || c.fate.struck() != nil {
		return err
	}
	f, failed := os.OpenFile(c.fate.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if failed != nil {
		return errors.Join(err, failed)
	}
	_, failed = f.Write([]byte{'!'})
	if failed = errors.Join(failed, f.Close()); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}
