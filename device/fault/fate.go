package fault

import (
	"errors"
	"os"

	"muster/device"
)

// fate makes contexts of several processes fault together, by a rule with a shared file. The
// process in which a context faults appends a byte to the file. A context that was open then
// sees that the size has changed and faults too; one that is opened later starts with the new
// size and is not affected.
type fate struct {
	file string
	fail error
	size int64 // of the file when the context was opened
}

// fateOf returns the fate of a new context; nil if no rule has a shared file. A process that does
// not use the Multi-Process Service shares no fate: the folder named by device.MPSVariable must
// exist.
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

// struck returns the context's failure if a context with the same fate has faulted since it was
// opened, or nil.
func (f *fate) struck() error {
	if f == nil || sizeOf(f.file) == f.size {
		return nil
	}
	return f.fail
}

// saw returns err. If err is a fault that began in this context, it first makes all contexts with
// the same fate fault.
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
