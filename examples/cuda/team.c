#include "team.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256 };

int team_rank, team_count = 1;
double team_link;
const char *team_folder;

static int peers[MOST];       // of the first process: the others, by rank; of others: the first at 0
static bool far[MOST];        // the peer is on another node
static _Atomic uint64_t *port; // of the first process's node: until when it is taken, in nanoseconds
static char node[64] = "here";

static long from_environment(const char *name, long otherwise) {
    const char *text = getenv(name);
    if (!text)
        return otherwise;
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0)
        gpu_wrong("%s is %s, not a number", name, text);
    return n;
}

static void send_all(int to, const void *data, size_t bytes) {
    for (const char *p = data; bytes > 0;) {
        ssize_t n = send(to, p, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            gpu_wrong("a process of the job is gone: %s", strerror(errno));
        p += n;
        bytes -= (size_t)n;
    }
}

static void receive_all(int from, void *data, size_t bytes) {
    for (char *p = data; bytes > 0;) {
        ssize_t n = recv(from, p, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            gpu_wrong("a process of the job is gone");
        p += n;
        bytes -= (size_t)n;
    }
}

// Who comes to the first process says who it is.
struct greeting {
    int rank;
    char node[64];
};

static struct sockaddr_un meeting(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!team_folder)
        gpu_misuse("a job of %d processes needs --team, a folder where they meet", team_count);
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/job-%ld-%ld", team_folder, from_environment("MUSTER_JOB_ID", 0), from_environment("MUSTER_RESTART_COUNT", 0));
    if (n >= (int)sizeof address.sun_path)
        gpu_misuse("--team %s: the name is too long for a socket in it", team_folder);
    return address;
}

static void await_others(void) {
    struct sockaddr_un address = meeting();
    int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (door < 0 || bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, MOST))
        gpu_wrong("the processes of the job cannot meet: %s", strerror(errno));
    for (int left = team_count - 1; left > 0; left--) {
        int peer = accept(door, NULL, NULL);
        if (peer < 0)
            gpu_wrong("the processes of the job cannot meet: %s", strerror(errno));
        struct greeting who;
        receive_all(peer, &who, sizeof who);
        if (who.rank < 1 || who.rank >= team_count || peers[who.rank] > 0)
            gpu_wrong("a process says that it is number %d of %d", who.rank, team_count);
        peers[who.rank] = peer;
        far[who.rank] = memcmp(who.node, node, sizeof node) != 0;
    }
    close(door);
    unlink(address.sun_path);
}

// The first process may be the last to start.
static void join_first(void) {
    const double patience = 60;
    struct sockaddr_un address = meeting();
    peers[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (double end = now() + patience; connect(peers[0], (struct sockaddr *)&address, sizeof address);) {
        if (now() > end)
            gpu_wrong("the first process of the job did not come within %g s: %s", patience, strerror(errno));
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    struct greeting who = {.rank = team_rank};
    memcpy(who.node, node, sizeof node);
    send_all(peers[0], &who, sizeof who);
}

// The port of this node is a word in a file that all processes on it map.
static void open_port(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/port-%s", team_folder, node);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, sizeof *port))
        gpu_wrong("--team %s: %s", team_folder, strerror(errno));
    port = mmap(NULL, sizeof *port, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (port == MAP_FAILED)
        gpu_wrong("--team %s: %s", team_folder, strerror(errno));
    close(file);
}

void team_meet(void) {
    team_count = (int)from_environment("MUSTER_NTASKS", 1);
    team_rank = (int)from_environment("MUSTER_PROCID", 0);
    if (team_count < 1 || team_count > MOST || team_rank >= team_count)
        gpu_wrong("this is process %d of %d: there can be %d", team_rank, team_count, MOST);
    const char *name = getenv("MUSTER_NODENAME");
    if (name)
        strncpy(node, name, sizeof node - 1);
    const size_t machine = strcspn(node, "-"); // nodes of one machine, as gpu1-0 and gpu1-1, are no network apart
    memset(node + machine, 0, sizeof node - machine); // names are compared whole
    int devices = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    if (devices > 0 && gpu.device == 0)
        gpu.device = from_environment("MUSTER_LOCALID", 0) % devices;
    if (team_count == 1)
        return;
    if (team_rank > 0) {
        join_first();
        return;
    }
    await_others();
    if (team_link > 0)
        open_port();
}

static uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Takes the port of this node for as long as bytes need on it, and returns when they are
// through. It is reserved a few milliseconds at a time, so that those who want it together
// get equal parts. Nobody holds a lock: a job may be suspended anywhere.
static void pass_port(size_t bytes) {
    const double most = 4e6;
    for (double left = (double)bytes / team_link * 1e9; left > 0; left -= most) {
        uint64_t turn = (uint64_t)(left < most ? left : most), free = atomic_load(port), end;
        do {
            uint64_t at = nanoseconds();
            end = (free > at ? free : at) + turn;
        } while (!atomic_compare_exchange_weak(port, &free, end));
        struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
    }
}

void team_scatter(const void *parts, void *part, size_t bytes) {
    if (team_rank > 0) {
        receive_all(peers[0], part, bytes);
    } else {
        memcpy(part, parts, bytes);
        for (int r = 1; r < team_count; r++) {
            if (far[r] && team_link > 0)
                pass_port(bytes);
            send_all(peers[r], (const char *)parts + (size_t)r * bytes, bytes);
        }
    }
}

void team_gather(const void *part, void *parts, size_t bytes) {
    if (team_rank > 0) {
        send_all(peers[0], part, bytes);
    } else {
        memcpy(parts, part, bytes);
        for (int r = 1; r < team_count; r++) {
            receive_all(peers[r], (char *)parts + (size_t)r * bytes, bytes);
            if (far[r] && team_link > 0)
                pass_port(bytes);
        }
    }
}
