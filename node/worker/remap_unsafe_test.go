package worker

import (
	"fmt"
	"os"
	"reflect"
	"syscall"

	"muster/wire"
)

// remap puts other memory at the addresses of what a program shares with its worker, as
// happens to a program whose processes are restored.
func remap(s *wire.Shared, ring, arena *os.File) error {
	for name, f := range map[string]*os.File{"ring": ring, "arena": arena} {
		was := reflect.ValueOf(s).Elem().FieldByName(name)
		const fixed = 0x10
		_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, was.Pointer(), uintptr(was.Len()),
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|fixed, f.Fd(), 0)
		if errno != 0 {
			return fmt.Errorf("mapping the %s: %w", name, errno)
		}
	}
	return nil
}
