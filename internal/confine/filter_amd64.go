package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// refusedHere are those that newer architectures do not have.
var refusedHere = []uintptr{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
	unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}
