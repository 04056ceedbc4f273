#define _GNU_SOURCE
#include "divide.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct division division = {.way = "spawn", .gpus = "1", .cpus = "", .threshold = 2, .items = 1, .iterations = 1};

enum { MAX_DEVICES = 256, MAX_NODES = 64 };

// What is known of an element, in an object: it writes its own, but for when it was asked for.
struct report {
    double asked, ready, seconds; // ready is when it was about to compute for the first time
    int64_t items, node, core;    // items that it has done, in all; core is 1 on a CPU
    int64_t done;                 // the number of the plan that it did last, or its own: a signal alone acknowledges nothing
};

// What the first element tells another, in an object, too. A signal for one wakes all, so that an element may look while
// this is written: the sum tells whether it is whole.
struct plan {
    int64_t number; // counts plans; -1 ends the element
    int64_t iteration, from, to, sum;
};

static struct report *reports;
static struct plan *plans;
static ivm_device devices[MAX_DEVICES];
static int device_count;
static long elements;       // created so far, by the first element and by others
static double *deviations; // of the times of an iteration's elements, over their mean
static double *begins;     // of the iterations, and when the last ended

void divide_must(int result, const char *call, const char *file, int line) {
    if (result == IVM_ERROR_OVER)
        exit(1); // the first element has the results, or has said what is wrong
    if (result != IVM_OK)
        gpu_wrong("%s:%d: %s: %d %s", file, line, call, result, ivmLastError());
}

// Time of day, so that elements of several nodes mean the same.
static double clock_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Appends devices to a list: the GPUs of the nodes, or the CPUs once for each element there.
static int list_devices(const char *option, const char *numbers, int kind, ivm_device *list, int count, int most) {
    int node = 0;
    for (const char *at = numbers; *at; node++) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 0 || (*end && *end != ',') || n > most - count || node >= MAX_NODES)
            gpu_misuse("--%s is %s: give a number for each node, as 3,4,2", option, numbers);
        for (long i = 0; i < n; i++)
            MUST(ivmCreateDev(node, kind == IVM_CPU ? IVM_CPU : IVM_GPU_N((int)i), &list[count++]));
        at = *end ? end + 1 : end;
    }
    return count;
}

int divide_devices(ivm_device *list, int most) {
    int count = list_devices("gpus", division.gpus, IVM_GPU, list, 0, most);
    count = list_devices("cpus", division.cpus, IVM_CPU, list, count, most);
    if (count == 0)
        gpu_misuse("--gpus is %s: there must be one at least, or --cpus", division.gpus);
    return count;
}

static bool way_is(const char *way) { return !strcmp(division.way, way); }

// Reads the options that all elements have in common.
static void prepare(void) {
    device_count = divide_devices(devices, MAX_DEVICES);
    if (!way_is("spawn") && !way_is("monitor") && !way_is("guided"))
        gpu_misuse("--way is %s: give spawn, monitor or guided", division.way);
    if (way_is("spawn") && division.keeps)
        gpu_misuse("--way is spawn, whose elements do one portion each: this program has elements that stay");
    if (division.portions == 0)
        division.portions = device_count;
    if (division.most == 0)
        division.most = 4L * device_count;
    if (division.portions > division.items || (division.keeps && division.most > division.items))
        gpu_misuse("there are %ld items, fewer than portions or elements", division.items);
    if (division.most < device_count)
        gpu_misuse("--most is %ld, and there are %d GPUs", division.most, device_count);
}

static size_t slots(void) {
    return (size_t)(way_is("spawn") ? division.portions * division.iterations : division.most);
}

// The node's copy of an element's memory: elements on GPUs have a buffer there besides.
static void *host_of(void *memory) {
    void *host = ivmHost(memory);
    return host ? host : memory;
}

// Ends the program if an element has signalled or ended, but not done what it was told.
static void acknowledged(ivm_pe pe, int64_t number) {
    if (reports[pe - 1].done != number)
        gpu_wrong("element %ld signalled or ended, but did not do its part", (long)pe);
}

static struct report *report_of(ivm_pe pe) { return (struct report *)host_of(reports) + pe - 1; }

// Creates an element, and notes when; false if there are as many as there may be.
static bool create(ivm_device device) {
    ivm_pe pe;
    double asked = clock_time();
    MUST(ivmCreatePEs(device, 1, &pe));
    if (ivmCreated() == 0)
        return false;
    report_of(pe)->asked = asked;
    MUST(ivmSyncPut(reports + pe - 1, sizeof *reports));
    return true;
}

// The next element that signals or ends; one that died ends the program.
static ivm_pe next_signal(void) {
    ivm_pe pe = 0;
    MUST(ivmWaitAny(&pe));
    return pe;
}

// What the program does before each iteration; NULL for nothing.
static void (*programs_before)(long iteration);

static void note_begin(long iteration) {
    if (programs_before)
        programs_before(iteration);
    begins[iteration] = clock_time();
}

static void spawn(void (*before)(long)) {
    bool *done = host_alloc((size_t)division.portions);
    for (long i = 0; i < division.iterations; i++) {
        ivm_pe first = (ivm_pe)(division.portions * i) + 1;
        before(i);
        memset(done, 0, (size_t)division.portions);
        MUST(ivmSetMaxPesId((int)(division.portions * (i + 1))));
        for (int d = 0; d < device_count; d++)
            create(devices[d]);
        for (long left = division.portions; left > 0;) {
            ivm_pe pe = next_signal();
            if (pe >= first && !done[pe - first]) {
                acknowledged(pe, (int64_t)pe);
                done[pe - first] = true;
                left--;
            }
        }
    }
    elements = division.portions * division.iterations;
    free(done);
}

static int64_t plan_sum(const struct plan *p) {
    return (p->number * 31 + p->iteration) * 31 + p->from * 7 + p->to + 0x1234567; // never 0: a plan of zeros is none
}

// Tells an element what to do next. It hears of it with the next signal.
static void tell(ivm_pe pe, int64_t number, long iteration, long from, long to) {
    struct plan p = {number, iteration, from, to, 0};
    p.sum = plan_sum(&p);
    plans[pe - 1] = p;
}

// Waits until all elements have done a plan.
static void await_all(int64_t number) {
    for (long e = 0; e < elements; e++) {
        MUST(ivmWait((ivm_pe)e + 1));
        acknowledged((ivm_pe)e + 1, number);
    }
}

// Has all elements write back what only they have, where programs keep something on their GPUs.
static void gather(void) {
    static int64_t asked = 1 << 20; // apart from the numbers of plans
    if (!division.keeps || elements == 0)
        return;
    asked++;
    for (long e = 0; e < elements; e++)
        tell((ivm_pe)e + 1, asked, 0, -1, -1);
    MUST(ivmSignal());
    await_all(asked);
}

// One iteration in which element e does the items from first[e] to before first[e + 1].
static void iterate(long iteration, const long *first) {
    for (long e = 0; e < elements; e++)
        tell((ivm_pe)e + 1, iteration + 1, iteration, first[e], first[e + 1]);
    MUST(ivmSignal());
    await_all(iteration + 1);
    double mean = 0, squares = 0;
    for (long e = 0; e < elements; e++)
        mean += reports[e].seconds / (double)elements;
    for (long e = 0; e < elements; e++)
        squares += (reports[e].seconds - mean) * (reports[e].seconds - mean) / (double)elements;
    deviations[iteration] = mean > 0 ? sqrt(squares) / mean : 0;
}

// Gives all elements as many items.
static void evenly(long *first) {
    for (long e = 0; e < elements; e++)
        ivmShare(division.items, (int)e, (int)elements, &first[e], &first[e + 1]);
}

static void monitor(void (*before)(long)) {
    ivm_device *on = host_alloc((size_t)division.most * sizeof *on);
    long *first = host_alloc((size_t)(division.most + 1) * sizeof *first);
    for (long i = 0; i < division.iterations; i++) {
        before(i);
        long had = elements, more = 0;
        double least = 1e300;
        for (long e = 0; e < had; e++)
            least = reports[e].seconds < least ? reports[e].seconds : least;
        for (long j = 0; j < (i == 0 ? device_count : had) && had + more < division.most; j++)
            if (i == 0 || ivmGrows(reports[j].seconds, least, division.threshold))
                on[had + more++] = i == 0 ? devices[j] : on[j];
        if (more > 0) {
            gather();
            for (; elements < had + more; elements++)
                create(on[elements]);
            evenly(first);
        }
        iterate(i, first);
    }
    free(first);
    free(on);
}

static void guided(void (*before)(long)) {
    ivm_guide *guide = ivmGuideNew(division.items, device_count);
    int64_t *has = calloc((size_t)device_count, sizeof *has); // the plan that an element does; 0 for none
    if (!guide || !has)
        gpu_wrong("there is no memory to divide the work with");
    for (; elements < device_count; elements++)
        create(devices[elements]);
    int64_t number = 0;
    for (long i = 0; i < division.iterations; i++) {
        before(i);
        ivmGuideAgain(guide);
        int busy = 0;
        for (ivm_pe next = 1; next <= (ivm_pe)device_count || busy > 0; next++) {
            // First every element gets a piece, then those that are done with theirs.
            ivm_pe pe = next <= (ivm_pe)device_count ? next : next_signal();
            int64_t *plan = &has[pe - 1];
            long from, to;
            if (*plan != 0) {
                acknowledged(pe, *plan);
                busy--;
            }
            *plan = 0;
            if (ivmGuideNext(guide, (int)pe - 1, reports[pe - 1].seconds, &from, &to)) {
                busy++;
                tell(pe, *plan = ++number, i, from, to);
                MUST(ivmSignal());
            }
        }
        MUST(ivmGuideDone(guide));
    }
    free(has);
    ivmGuideFree(guide);
}

// Ours for programs that keep their items on the GPU: one element a GPU has as many as its measured speed
// says, and they are divided anew where that would save more than a tenth.
static void weighted(void (*before)(long)) {
    long *first = host_alloc((size_t)(device_count + 1) * sizeof *first);
    double *speed = host_alloc((size_t)device_count * sizeof *speed);
    for (; elements < device_count; elements++)
        create(devices[elements]);
    evenly(first);
    for (long i = 0; i < division.iterations; i++) {
        before(i);
        double sum = 0, longest = 0;
        for (long e = 0; i > 0 && e < elements; e++) {
            speed[e] = (double)(first[e + 1] - first[e]) / reports[e].seconds;
            sum += speed[e];
            longest = reports[e].seconds > longest ? reports[e].seconds : longest;
        }
        if (i > 0 && longest > 1.1 * (double)division.items / sum) {
            gather();
            double before_it = 0;
            for (long e = 1; e < elements; e++) { // each keeps one item at least
                before_it += speed[e - 1];
                long at = (long)((double)division.items * before_it / sum + 0.5), most = division.items - (elements - e);
                first[e] = at <= first[e - 1] ? first[e - 1] + 1 : at > most ? most : at;
            }
        }
        iterate(i, first);
    }
    free(speed);
    free(first);
}

void divide_root(void (*before)(long iteration)) {
    prepare();
    programs_before = before;
    before = note_begin;
    begins = host_alloc((size_t)(division.iterations + 1) * sizeof *begins);
    MUST(ivmMalloc("division.reports", &reports, slots() * sizeof *reports));
    deviations = host_alloc((size_t)division.iterations * sizeof *deviations);
    if (way_is("spawn")) {
        spawn(before);
    } else {
        MUST(ivmMalloc("division.plans", &plans, slots() * sizeof *plans));
        way_is("monitor") ? monitor(before) : division.keeps ? weighted(before) : guided(before);
        gather();
        for (long e = 0; e < elements; e++)
            tell((ivm_pe)e + 1, -1, 0, 0, 0);
        MUST(ivmSignal());
    }
    before(division.iterations);
}

void divide_report(void) {
    printf("finished %.6f\n", clock_time());
    int64_t items[MAX_NODES] = {0}, on_cores = 0;
    int nodes = 0, on[MAX_NODES] = {0};
    double created = 0;
    for (long e = 0; e < elements; e++) {
        struct report *r = &reports[e];
        items[r->node] += r->items;
        on_cores += r->core ? r->items : 0;
        on[r->node]++;
        nodes = r->node >= nodes ? (int)r->node + 1 : nodes;
        created += (r->ready - r->asked) / (double)elements;
    }
    printf("work");
    for (int n = 0; n < nodes; n++)
        printf(" %lld", (long long)items[n]);
    printf("\niterations");
    for (long i = 0; i < division.iterations; i++)
        printf(" %.6f", begins[i + 1] - begins[i]);
    if (*division.cpus)
        printf("\ncores %lld", (long long)on_cores);
    printf("\nhosts");
    for (int n = 0; n < nodes; n++)
        printf(" %d", on[n]);
    printf("\nelements %ld\ncreated %.6f\n", elements, created);
    if (way_is("monitor") || division.keeps) {
        printf("deviations");
        for (long i = 0; i < division.iterations; i++)
            printf(" %.4f", deviations[i]);
        printf("\n");
    }
}

bool divide_open(const char *image) {
    CUdevice device; // ivmEnter has made its context current
    int kind;
    MUST(ivmGetMyDevType(&kind));
    if (kind == IVM_CPU)
        return false;
    CHECK(cuCtxGetDevice(&device));
    gpu.device = device;
    gpu_open(image);
    return true;
}

// Notes when the element is about to compute.
static struct report *arrive(int id) {
    int node, kind;
    MUST(ivmMap("division.reports", &reports, slots() * sizeof *reports));
    MUST(ivmGetMyNode(&node));
    MUST(ivmGetMyDevType(&kind));
    struct report *mine = report_of((ivm_pe)id);
    mine->node = node;
    mine->core = kind == IVM_CPU;
    mine->ready = clock_time();
    return mine;
}

static void say(int id) {
    MUST(ivmSyncPut(reports + id - 1, sizeof *reports));
    MUST(ivmSignal());
}

// One portion, after which another element goes on with the next on the same GPU.
static void spawned(int id, divide_step *compute, divide_step *put) {
    struct report *mine = arrive(id);
    ivm_device here;
    MUST(ivmGetMyDev(&here));
    long iteration = (id - 1) / division.portions, portion = (id - 1) % division.portions;
    long from, to;
    ivmShare(division.items, (int)portion, (int)division.portions, &from, &to);
    compute(iteration, from, to);
    create(here);
    put(iteration, from, to);
    mine->items = to - from;
    mine->done = id;
    say(id);
}

// What the first element says, until it says that it is over.
static void told(int id, divide_step *compute, divide_step *put, void (*give)(void)) {
    struct report *mine = arrive(id);
    MUST(ivmMap("division.plans", &plans, slots() * sizeof *plans));
    struct plan *is = (struct plan *)host_of(plans) + id - 1;
    for (int64_t last = 0;;) {
        MUST(ivmSyncGet(plans + id - 1, sizeof *plans));
        struct plan p = *is;
        if (p.sum == plan_sum(&p) && p.number == -1)
            return;
        if (p.sum != plan_sum(&p) || p.number == last) {
            MUST(ivmWaitLatest(0)); // a signal for another element wakes this one, too
            continue;
        }
        last = p.number;
        if (p.from < 0) {
            give();
            mine->done = p.number;
            say(id);
            continue;
        }
        double began = now();
        compute(p.iteration, p.from, p.to);
        mine->seconds = now() - began;
        put(p.iteration, p.from, p.to);
        if (way_is("guided") && !division.keeps) // the next piece comes after the put
            mine->seconds = now() - began;
        mine->items += p.to - p.from;
        mine->done = p.number;
        say(id);
    }
}

void divide_child(divide_step *compute, divide_step *put, void (*give)(void)) {
    int id;
    MUST(ivmGetMyId(&id));
    prepare();
    way_is("spawn") ? spawned(id, compute, put) : told(id, compute, put, give);
}
