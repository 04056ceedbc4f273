package settings

import (
	"fmt"
	"syscall"

	"muster/internal/machine"
	"muster/internal/units"
)

// Swap is where the memory of programs goes that have no device.
type Swap struct {
	Size uint64 // bytes for all clients together
	Dir  string // "" for memory
}

// Look compares the swap area with the place where it is to be. An error means that it
// can never fit, a warning that it may not get all of its room.
func (s Swap) Look() (warning string, err error) {
	if s.Dir == "" {
		total, err := machine.MemoryAndSwap()
		if err != nil {
			return "", err
		}
		return s.inMemory(total), nil
	}
	if err := tryFile(s.Dir, MinArena); err != nil {
		return "", fmt.Errorf("the swap area cannot be in %s (swap.dir, --swap-dir): %w", s.Dir, err)
	}
	free, total, err := roomIn(s.Dir)
	if err != nil {
		return "", err
	}
	return s.onDisk(free, total)
}

// onDisk judges a swap area on a disk. Programs are refused memory when the disk
// is full, so one that is full for now is no reason not to start.
func (s Swap) onDisk(free, total uint64) (warning string, err error) {
	switch {
	case s.Size > total:
		return "", fmt.Errorf("the swap area is to have %s (swap.size, --swap), and the disk of %s has %s in all: give it less, or another folder (swap.dir, --swap-dir)",
			size(s.Size), s.Dir, size(total))
	case s.Size > free:
		return fmt.Sprintf("the swap area may have %s and the disk of %s has %s free: programs are refused memory when it is full; make room there, or give the swap area less (swap.size, --swap)",
			size(s.Size), s.Dir, size(free)), nil
	}
	return "", nil
}

// inMemory judges a swap area in memory. The system promises more memory than it has,
// and when none is left, its OOM killer may choose any process.
func (s Swap) inMemory(total uint64) (warning string) {
	if s.Size <= total {
		return ""
	}
	return fmt.Sprintf("the swap area may have %s and is in memory, of which the machine has %s: when that is used up, the system kills programs; give the swap area less (swap.size, --swap) or a folder on a disk (swap.dir, --swap-dir)",
		size(s.Size), size(total))
}

func size(n uint64) string { return units.BriefSize(n) }

// roomIn is what the disk of a folder has for users other than root, since workers are
// not root.
func roomIn(dir string) (free, total uint64, err error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, 0, fmt.Errorf("asking how much room there is in %s: %w", dir, err)
	}
	unit := uint64(disk.Bsize)
	return disk.Bavail * unit, disk.Blocks * unit, nil
}
