// The handler of SIGSEGV: the program touched memory that the library keeps from it for a while. Layer: work.
// Whose memory it is serves the fault (mapped.c, managed.c); the others are the program's own.
#include "core.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

// The program's handlers of SIGSEGV, each once: a program has few. They are never freed, because a
// thread that is in on_fault may be reading one. before is the one that on_fault passes faults to;
// NULL is the default action. Threads that install on_fault at the same time hold different locks
// (of this file, or of mapped.c), so these two change without one.
struct handler {
	struct sigaction action;
	struct handler *next;
};

static _Atomic(struct handler *) handlers, before;

static bool (*servers[FAULT_SERVERS])(uint64_t at, bool write); // set before any thread runs

void faults_serve(enum fault_server who, bool (*serve)(uint64_t at, bool write)) { servers[who] = serve; }

static bool is_write(const ucontext_t *u) {
#if defined(__x86_64__)
	return (u->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
	(void)u;
	return false; // taken for a read; a write faults a second time, on pages that allow reading
#endif
}

// Passes a fault at other addresses to the program's handler, called as the kernel would call it; or
// restores the default action if there is none.
static void pass_on(int number, siginfo_t *info, void *context) {
	const struct handler *program = atomic_load(&before);
	struct sigaction next = program != NULL ? program->action : (struct sigaction){.sa_handler = SIG_DFL};
	bool handled = (next.sa_flags & SA_SIGINFO) != 0 ? next.sa_sigaction != NULL : next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN;
	if (!handled || (next.sa_flags & SA_RESETHAND) != 0) {
		struct sigaction fresh = {.sa_handler = SIG_DFL};
		if (handled)
			atomic_store(&before, NULL);
		else
			sigaction(number, &fresh, NULL); // the access is repeated, and ends the program
	}
	if (!handled)
		return;
	sigset_t mask = ((ucontext_t *)context)->uc_sigmask;
	for (int i = 1; i < NSIG; i++)
		if (sigismember(&next.sa_mask, i) == 1)
			sigaddset(&mask, i);
	if ((next.sa_flags & SA_NODEFER) == 0)
		sigaddset(&mask, number);
	pthread_sigmask(SIG_SETMASK, &mask, NULL); // now, since the handler may leave by longjmp
	if ((next.sa_flags & SA_SIGINFO) != 0)
		next.sa_sigaction(number, info, context);
	else
		next.sa_handler(number);
}

static void on_fault(int number, siginfo_t *info, void *context) {
	int error = errno;
	uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
	bool write = is_write(context), ours = false;
	for (int i = 0; i < FAULT_SERVERS && !ours && info->si_code > 0; i++)
		ours = servers[i] != NULL && servers[i](at, write);
	errno = error;
	if (!ours)
		pass_on(number, info, context);
}

static bool is_ours(const struct sigaction *a) { return (a->sa_flags & SA_SIGINFO) != 0 && a->sa_sigaction == on_fault; }

static bool same_action(const struct sigaction *a, const struct sigaction *b) {
	return a->sa_flags == b->sa_flags && a->sa_handler == b->sa_handler && memcmp(&a->sa_mask, &b->sa_mask, sizeof a->sa_mask) == 0;
}

// Makes on_fault pass faults that are not ours to the program's handler.
static void remember(const struct sigaction *program) {
	struct handler *first = atomic_load(&handlers), *h = first;
	while (h != NULL && !same_action(&h->action, program))
		h = h->next;
	if (h == NULL) {
		h = malloc(sizeof *h);
		if (h == NULL)
			return;
		h->action = *program;
		do
			h->next = first;
		while (!atomic_compare_exchange_weak(&handlers, &first, h));
	}
	atomic_store(&before, h);
}

// Makes on_fault the handler of SIGSEGV, and remembers the program's. It is called often, because the
// program may have installed a handler of its own since the last time. The program's is remembered
// first, so that a fault of another thread finds it. If another thread has installed on_fault in
// between, on_fault is what sigaction returns; remembering that would make it call itself.
void faults_handle(void) {
	struct sigaction now;
	if (sigaction(SIGSEGV, NULL, &now) != 0 || is_ours(&now))
		return;
	remember(&now);
	struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	sigfillset(&ours.sa_mask); // another handler on this thread might touch managed memory under the lock
	if (sigaction(SIGSEGV, &ours, &now) == 0 && !is_ours(&now))
		remember(&now); // if the program has changed it since
}
