package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_AARCH64

// refusedHere are those of this architecture.
var refusedHere = []uintptr{unix.SYS_KEXEC_FILE_LOAD}
