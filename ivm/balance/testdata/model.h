// A program whose elements take turns in one process, in virtual time: it has the calls of ivm.h that
// the balancers and the examples make. Each element has a clock of its own, which its work sets
// forward; others hear of it when they have come to that time.
#include <ivm.h>

#include <time.h>

// What the program is: called as each element; the first one's result is the exit status.
extern int (*model_program)(void);

// Runs the program with other times for every seed from first to before end, each in a process of its own,
// and says which fail. Returns how many.
int model_runs(long first, long end, int nodes);

// A number from 0 to below 1.
double model_random(void);

// Takes as long as an amount of work does on the element's node: heavy-tailed, and noisy.
void model_work(double amount);

// Ends the element as a crash does.
void model_die(void) __attribute__((noreturn));

// Programs are compiled with this for clock_gettime.
int model_clock(clockid_t clock, struct timespec *is);
