/* What the parts of the library in C share. */
#ifndef MUSTER_IVM_INTERNAL_H
#define MUSTER_IVM_INTERNAL_H

#define EXPORT __attribute__((visibility("default")))

/* ivm_fail notes what ivmLastError() says, and returns the code. */
__attribute__((format(printf, 2, 3))) int ivm_fail(int code, const char *format, ...);

#endif
