// Muster's plug-in for Slurm (SPANK). It gives sbatch, srun and salloc the options --rgpu,
// --rcuda-mode, --gpu-reach, --gpu-beyond, --mapping and --muster-or, and gives the programs of a job on its nodes the GPUs that Muster's
// driver has granted.
//
// Where a job is submitted, the plug-in refuses a wrong option with a sentence, and passes the
// request on to job_submit.lua as words in the job's SPANK environment (SPANK_MUSTER_REQUEST).
//
// On a node, once for each step, in slurmstepd, the plug-in asks slurmctld for the job's comment,
// which has the driver's answer, and starts "muster slurm serve" with the grant, as the job's user.
// That process serves the step's programs at a socket of its own and tells the plug-in what to put
// into their environment. A pipe ties it to slurmstepd: however the step ends, the pipe is closed,
// and the GPUs become free. The plug-in is in C because a Go runtime does not survive the forks of
// slurmstepd.
//
// plugstack.conf: required /path/spank_muster.so muster=/path/muster [socket=ADDRESS] [wait=SECONDS]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>

#include "muster_words.h"

SPANK_PLUGIN(muster, 1);

// "muster slurm setup" recognises by this text from which source the plug-in was made.
#ifdef MUSTER_STAMP
const char muster_spank_stamp[] = MUSTER_STAMP;
#endif

enum { OPTION_RGPU = 1, OPTION_MODE, OPTION_REACH, OPTION_BEYOND, OPTION_MAPPING, OPTION_OR };

// Limits of a request; the words are the driver's (slurm/words).
#define MAX_GPUS 4096
#define MAX_OR 16
#define MAX_REQUEST 8192

// The user's request.
static struct {
	long gpus;
	unsigned long long memory; // MB of each GPU; 0 for whole GPUs
	char mode[8], reach[8];
	char beyond[24]; // as the words have it
	char mapping[256];
	char *or[MAX_OR];
	int ors;
} asked;

// The settings in plugstack.conf.
static const char *muster_path = "muster", *node_socket;
static int wait_seconds = 60;

// The process that serves the step: our end of the pipe that keeps it alive, and the pipe from
// which we read its lines.
static int server_life = -1, server_says = -1;

// What the driver has written for the job, and whether it has an answer for this start of the job.
static struct words_comment said;
static int answered;

// What the job's programs find in MUSTER_MAPPING; "" for nothing.
static char job_mapping[1024];

// The node of a batch script, empty in other steps; and how many tasks the job has.
static char batch_host[256];
static uint32_t job_tasks;

// Why the step must not run; each task prints it to its standard error, which the user reads.
static char trouble[1024];

// shift_of is the power of two between a unit of memory and a megabyte, or -1.
static int shift_of(char unit)
{
	switch (unit | 0x20) {
	case 'm':
		return 0;
	case 'g':
		return 10;
	case 't':
		return 20;
	}
	return -1;
}

// read_size reads a number with a unit, and returns the power of two of the unit over a megabyte, or -1.
static int read_size(const char *text, unsigned long long *number)
{
	char *end;
	errno = 0;
	*number = strtoull(text, &end, 10);
	int shift = *end ? shift_of(*end++) : 0;
	if (errno || text[0] < '0' || text[0] > '9' || shift < 0 || (*end && strcasecmp(end, "B") && strcasecmp(end, "iB")))
		return -1;
	return shift;
}

static int set_gpus(const char *value)
{
	char *end;
	errno = 0;
	long n = value ? strtol(value, &end, 10) : 0;
	if (!value || end == value || value[0] < '0' || value[0] > '9' || (*end && *end != ':')) {
		slurm_error("--rgpu=%s: write how many GPUs, and the memory of each if shares will do, as --rgpu=2 or --rgpu=2:4G", value ? value : "");
		return -1;
	}
	if (errno || n < 1 || n > MAX_GPUS) {
		slurm_error("--rgpu=%s: ask for 1 to %d GPUs", value, MAX_GPUS);
		return -1;
	}
	unsigned long long memory = 0;
	if (*end == ':') {
		int shift = read_size(end + 1, &memory);
		if (shift < 0) {
			slurm_error("--rgpu=%s: write the memory of each GPU with its unit, as 512M, 4G or 1T; without a unit it is megabytes", value);
			return -1;
		}
		if (!memory || memory > (1ULL << 40 >> shift)) {
			slurm_error("--rgpu=%s: the memory of each GPU must be 1M or more and no more than there is; leave it out for whole GPUs", value);
			return -1;
		}
		memory <<= shift;
	}
	asked.gpus = n;
	asked.memory = memory;
	return 0;
}

static int set_mode(const char *value)
{
	if (!value || (strcmp(value, "excl") && strcmp(value, "shar"))) {
		slurm_error("--rcuda-mode=%s: choose excl, for GPUs that no other job uses, or shar, for shares of GPUs", value ? value : "");
		return -1;
	}
	snprintf(asked.mode, sizeof asked.mode, "%s", value);
	return 0;
}

static int set_reach(const char *value)
{
	if (!value || (strcmp(value, "device") && strcmp(value, "node") && strcmp(value, "cluster"))) {
		slurm_error("--gpu-reach=%s: choose device, node or cluster: how far from its GPUs the job's programs may go", value ? value : "");
		return -1;
	}
	snprintf(asked.reach, sizeof asked.reach, "%s", value);
	return 0;
}

static int set_beyond(const char *value)
{
	unsigned long long memory = 0;
	int shift = value ? read_size(value, &memory) : -1;
	if (value && !strcmp(value, "all")) {
		snprintf(asked.beyond, sizeof asked.beyond, "all");
	} else if (shift < 0 || memory >= (1ULL << 40 >> shift)) {
		slurm_error("--gpu-beyond=%s: write memory with its unit, as 512M, 4G or 1T, or all; without a unit it is megabytes", value ? value : "");
		return -1;
	} else {
		snprintf(asked.beyond, sizeof asked.beyond, "%lluM", memory << shift);
	}
	return 0;
}

static int set_mapping(const char *value)
{
	if (!value || !*value || strlen(value) >= sizeof asked.mapping) {
		slurm_error("--mapping=%.40s: name a mapper as muster run does, or off", value ? value : "");
		return -1;
	}
	snprintf(asked.mapping, sizeof asked.mapping, "%s", value);
	return 0;
}

// add_alternative adds an alternative request, once: Slurm may hand over an option twice.
static int add_alternative(const char *value)
{
	if (!value || !value[strspn(value, " ")]) {
		slurm_error("--muster-or='%s': write options of a request that would do as well, as --muster-or='-n 64 -t 2:00:00'", value ? value : "");
		return -1;
	}
	for (int i = 0; i < asked.ors; i++)
		if (!strcmp(asked.or[i], value))
			return 0;
	if (asked.ors == MAX_OR) {
		slurm_error("--muster-or: give at most %d alternatives", MAX_OR);
		return -1;
	}
	return (asked.or[asked.ors++] = strdup(value)) ? 0 : -1;
}

static int set_option(int which, const char *value, int remote)
{
	(void)remote;
	switch (which) {
	case OPTION_RGPU:
		return set_gpus(value);
	case OPTION_MODE:
		return set_mode(value);
	case OPTION_REACH:
		return set_reach(value);
	case OPTION_BEYOND:
		return set_beyond(value);
	case OPTION_MAPPING:
		return set_mapping(value);
	default:
		return add_alternative(value);
	}
}

// sbatch and salloc know only options that are registered; SPANK reads a table of options only for
// srun.
static struct spank_option options[] = {
	{ "rgpu", "N[:MEM]", "N GPUs anywhere in the cluster, whole or with MEM of memory each", 1, OPTION_RGPU, set_option },
	{ "rcuda-mode", "excl|shar", "whether the GPUs of --rgpu are the job's alone or shared", 1, OPTION_MODE, set_option },
	{ "gpu-reach", "device|node|cluster", "how far from its GPUs of --rgpu the job's programs may go", 1, OPTION_REACH, set_option },
	{ "gpu-beyond", "MEM|all", "memory beyond each share that they may use while it is free", 1, OPTION_BEYOND, set_option },
	{ "mapping", "MAPPER", "what decides which of the GPUs runs each kernel", 1, OPTION_MAPPING, set_option },
	{ "muster-or", "OPTIONS", "options of a request that would do as well; may be repeated", 1, OPTION_OR, set_option },
	SPANK_OPTIONS_TABLE_END
};

// read_arguments reads the arguments of the plug-in in plugstack.conf.
static int read_arguments(int count, char **arguments)
{
	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "muster=", 7))
			muster_path = arguments[i] + 7;
		else if (!strncmp(arguments[i], "socket=", 7))
			node_socket = arguments[i] + 7;
		else if (!strncmp(arguments[i], "wait=", 5))
			wait_seconds = atoi(arguments[i] + 5);
		else
			slurm_error("muster: plugstack.conf: \"%s\" is not known: muster=, socket= and wait= are", arguments[i]);
	}
	return 0;
}

int slurm_spank_init(spank_t sp, int count, char **arguments)
{
	spank_context_t context = spank_context();
	if (context == S_CTX_SLURMD || context == S_CTX_JOB_SCRIPT)
		return 0;
	for (struct spank_option *o = options; o->name; o++)
		if (spank_option_register(sp, o) != ESPANK_SUCCESS)
			return -1;
	return read_arguments(count, arguments);
}

// append adds before and text to a request; bytes that words cannot have are written as %XX.
static int append(char *request, size_t size, const char *before, const char *text)
{
	size_t n = strlen(request);
	n += (size_t)snprintf(request + n, size - n, "%s%s", n ? " " : "", before);
	for (; *text && n + 4 < size; text++) {
		unsigned char c = (unsigned char)*text;
		if (c > ' ' && c < 127 && c != '%')
			request[n++] = (char)c;
		else
			n += (size_t)snprintf(request + n, size - n, "%%%02X", c);
	}
	if (*text || n + 4 >= size)
		return -1;
	request[n] = 0;
	return 0;
}

// refuse notes why the step must not run.
__attribute__((format(printf, 1, 2))) static void refuse(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(trouble, sizeof trouble, format, list);
	va_end(list);
	slurm_error("muster: %s", trouble);
}

static int load_job(uint32_t id, job_info_msg_t **jobs)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0) // before, a plain number
	slurm_step_id_t step = SLURM_STEP_ID_INITIALIZER;
	step.job_id = id;
	return slurm_load_job(jobs, step, SHOW_ALL);
#else
	return slurm_load_job(jobs, id, SHOW_ALL);
#endif
}

static uint32_t job_number(const job_info_t *job)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	return job->step_id.job_id;
#else
	return job->job_id;
#endif
}

// set_devices names the devices of an answer without a grant to the programs.
static void set_devices(spank_t sp, const char *devices)
{
	char name[40], value[300];
	int n = 0;
	while (*devices) {
		size_t length = strcspn(devices, ",");
		snprintf(name, sizeof name, "RCUDA_DEVICE_%d", n++);
		snprintf(value, sizeof value, "%.*s", (int)length, devices);
		spank_setenv(sp, name, value, 1);
		devices += length + (devices[length] == ',');
	}
	snprintf(value, sizeof value, "%d", n);
	spank_setenv(sp, "RCUDA_DEVICE_COUNT", value, 1);
}

// prepend puts a folder in front of a variable's list, unless it is there.
static void prepend(spank_t sp, const char *name, const char *folder)
{
	char old[8192], both[8192 + 4096];
	size_t n = strlen(folder);
	if (spank_getenv(sp, name, old, sizeof old) != ESPANK_SUCCESS || !old[0]) {
		spank_setenv(sp, name, folder, 1);
		return;
	}
	if (!strncmp(old, folder, n) && (!old[n] || old[n] == ':'))
		return;
	snprintf(both, sizeof both, "%s:%s", folder, old);
	spank_setenv(sp, name, both, 1);
}

// become_user gives up root's rights for good; slurmstepd has only set them aside.
static int become_user(uid_t uid, gid_t gid)
{
	if (getuid() != 0)
		return 0;
	if (seteuid(0) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		return -1;
	return uid && !setuid(0) ? -1 : 0;
}

// close_from closes all descriptors from first on: the server must not keep those of slurmstepd.
static void close_from(int first)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, (unsigned)first, ~0U, 0))
		return;
#endif
	for (long i = first, most = sysconf(_SC_OPEN_MAX); i < most; i++)
		close((int)i);
}

// run_server is the server's process from the fork on. slurmstepd has threads, so only functions
// that are safe after a fork may be called here.
static void run_server(int in, int out, char **arguments, char **environment, uid_t uid, gid_t gid)
{
	struct sigaction normal = { .sa_handler = SIG_DFL };
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < 32; s++)
		sigaction(s, &normal, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDWR);
	if (setsid() < 0 || become_user(uid, gid) || dup2(in, 10) < 0 || dup2(out, 11) < 0 || dup2(10, 0) < 0 || dup2(11, 1) < 0 || dup2(null, 2) < 0)
		_exit(126);
	close_from(3);
	if (chdir("/") == 0)
		execve(arguments[0], arguments, environment);
	static const char failed[] = "error the muster of plugstack.conf cannot be run on this node\n";
	if (write(1, failed, sizeof failed - 1) < 0)
		_exit(126);
	_exit(127);
}

// start_server starts the process that serves the step. It forks twice, so that slurmstepd never
// waits for a process whose start it does not know of. If slurmstepd adopts orphans, it may kill
// the server with the rest of the step, which does no harm.
static int start_server(const char *grant, const char *node, uid_t uid, gid_t gid)
{
	char name[300], *arguments[12];
	int n = 0, in[2], out[2];
	snprintf(name, sizeof name, "SLURMD_NODENAME=%s", node);
	char *environment[] = { name, "PATH=/usr/local/bin:/usr/bin:/bin", NULL };
	arguments[n++] = (char *)muster_path;
	arguments[n++] = "slurm";
	arguments[n++] = "serve";
	arguments[n++] = "--grant";
	arguments[n++] = (char *)grant;
	arguments[n++] = "--node";
	arguments[n++] = (char *)node;
	if (node_socket) {
		arguments[n++] = "--socket";
		arguments[n++] = (char *)node_socket;
	}
	arguments[n] = NULL;
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		return -1;
	pid_t child = fork();
	if (child < 0)
		return -1;
	if (!child) {
		pid_t server = fork();
		if (!server)
			run_server(in[0], out[1], arguments, environment, uid, gid);
		_exit(server < 0);
	}
	int status;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	close(in[0]);
	close(out[1]);
	server_life = in[1];
	server_says = out[0];
	return 0;
}

static long milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// hear handles a line of the server: 1 if the server is ready, 0 to continue, -1 if it failed.
static int hear(spank_t sp, char *line)
{
	char *word = words_next(&line);
	if (!strcmp(word, "ready"))
		return 1;
	if (!strcmp(word, "error")) {
		refuse("%s", line);
		return -1;
	}
	char *name = words_next(&line);
	if (!strcmp(word, "set"))
		spank_setenv(sp, name, line, 1);
	else if (!strcmp(word, "prepend"))
		prepend(sp, name, line);
	return 0;
}

// hear_server handles the server's lines until the server is ready, for wait_seconds at most.
static int hear_server(spank_t sp)
{
	static char text[16384];
	size_t have = 0;
	for (long end = milliseconds() + wait_seconds * 1000L;;) {
		struct pollfd p = { .fd = server_says, .events = POLLIN };
		long left = end - milliseconds();
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR)
			continue;
		if (!ready) {
			refuse("the job's GPUs did not answer within %d seconds", wait_seconds);
			return -1;
		}
		ssize_t n = read(server_says, text + have, sizeof text - 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			refuse("the process that serves the job's GPUs (%s slurm serve) ended at once", muster_path);
			return -1;
		}
		have += (size_t)n;
		text[have] = 0;
		for (char *newline; (newline = strchr(text, '\n'));) {
			*newline = 0;
			int heard = hear(sp, text);
			have -= (size_t)(newline + 1 - text);
			memmove(text, newline + 1, have + 1);
			if (heard)
				return heard < 0 ? -1 : 0;
		}
	}
}

// nth_node finds the node with this number, from 0, in a list; it returns 0 if there is none.
static int nth_node(const char *list, uint32_t number, char *name, size_t size)
{
	__auto_type nodes = slurm_hostlist_create(list); // a pointer, whose type has had two names
	char *host = NULL;
	for (uint32_t i = 0; nodes && i <= number; i++) {
		free(host);
		if (!(host = slurm_hostlist_shift(nodes)))
			break;
	}
	if (nodes)
		slurm_hostlist_destroy(nodes);
	if (host)
		snprintf(name, size, "%s", host);
	free(host);
	return host != NULL;
}

// node_name is Slurm's name for this node. SLURMD_NODENAME in the environment of a step may be that
// of the node where the step was started from.
static void node_name(spank_t sp, char *name, size_t size)
{
	const char *own = getenv("SLURMD_NODENAME");
	static char list[65536];
	uint32_t number = 0;
	if (batch_host[0]) {
		snprintf(name, size, "%s", batch_host);
		return;
	}
	if (spank_getenv(sp, "SLURM_STEP_NODELIST", list, sizeof list) == ESPANK_SUCCESS && spank_get_item(sp, S_JOB_NODEID, &number) == ESPANK_SUCCESS &&
	    nth_node(list, number, name, size))
		return;
	if (spank_getenv(sp, "SLURMD_NODENAME", name, (int)size) == ESPANK_SUCCESS && name[0])
		return;
	if (own && *own) {
		snprintf(name, size, "%s", own);
		return;
	}
	if (gethostname(name, size))
		name[0] = 0;
	name[size - 1] = 0;
	name[strcspn(name, ".")] = 0;
}

// forget_devices removes the variables that a step inherits from the step that started it, perhaps
// on another node.
static void forget_devices(spank_t sp)
{
	char name[40], value[300];
	for (int i = 0;; i++) {
		snprintf(name, sizeof name, "RCUDA_DEVICE_%d", i);
		if (spank_getenv(sp, name, value, sizeof value) == ESPANK_ENV_NOEXIST)
			return;
		spank_unsetenv(sp, name);
	}
}

// use gives the step what the driver's answer says.
static void use(spank_t sp)
{
	forget_devices(sp);
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char node[256] = "";
	if (!said.grant[0]) {
		if (said.devices[0])
			set_devices(sp, said.devices);
		return;
	}
	spank_get_item(sp, S_JOB_UID, &uid);
	spank_get_item(sp, S_JOB_GID, &gid);
	node_name(sp, node, sizeof node);
	if (start_server(said.grant, node, uid, gid)) {
		refuse("the process that serves the job's GPUs cannot be started: %s", strerror(errno));
		return;
	}
	hear_server(sp);
}

// check_alternatives lets the program muster check the alternatives and the mapper, if this machine has
// it. It returns 0 if they are right, or if they cannot be checked.
static int check_alternatives(void)
{
	char *arguments[MAX_OR + 7] = { (char *)muster_path, "slurm", "check-or", "--mapping", asked.mapping, "--" }, said[1024];
	int out[2], status = 0;
	size_t have = 0;
	if ((!asked.ors && !asked.mapping[0]) || access(muster_path, X_OK) || pipe2(out, O_CLOEXEC))
		return 0;
	memcpy(arguments + 6, asked.or, (size_t)asked.ors * sizeof *arguments);
	pid_t child = fork();
	if (!child) {
		if (dup2(out[1], 1) >= 0)
			execv(muster_path, arguments);
		_exit(127);
	}
	close(out[1]);
	for (ssize_t n; child > 0 && have < sizeof said - 1 && (n = read(out[0], said + have, sizeof said - 1 - have)) > 0;)
		have += (size_t)n;
	close(out[0]);
	said[have] = 0;
	said[strcspn(said, "\n")] = 0;
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 1 || !have)
		return 0;
	slurm_error("%s", said);
	return -1;
}

// hand_over passes the request on to job_submit.lua, where the job is submitted.
static int hand_over(spank_t sp)
{
	char request[MAX_REQUEST] = "", number[32];
	int rc = 0;
	if (asked.gpus) {
		snprintf(number, sizeof number, "%ld", asked.gpus);
		rc |= append(request, sizeof request, "rgpu=", number);
	}
	if (asked.memory) {
		snprintf(number, sizeof number, "%lluM", asked.memory);
		rc |= append(request, sizeof request, "mem=", number);
	}
	if (asked.mode[0])
		rc |= append(request, sizeof request, "mode=", asked.mode);
	if (asked.reach[0])
		rc |= append(request, sizeof request, "reach=", asked.reach);
	if (asked.beyond[0])
		rc |= append(request, sizeof request, "beyond=", asked.beyond);
	if (asked.mapping[0])
		rc |= append(request, sizeof request, "map=", asked.mapping);
	for (int i = 0; i < asked.ors; i++)
		rc |= append(request, sizeof request, "or=", asked.or[i]);
	if (rc) {
		slurm_error("--muster-or: the alternatives have more than %d characters together: shorten them", MAX_REQUEST);
		return -1;
	}
	if (check_alternatives())
		return -1;
	// If nothing is asked for, nothing is passed on, also if a job that asked for GPUs submits
	// another.
	if (!request[0])
		return spank_job_control_unsetenv(sp, "MUSTER_REQUEST"), 0;
	if (spank_job_control_setenv(sp, "MUSTER_REQUEST", request, 1) != ESPANK_SUCCESS) {
		slurm_error("muster: the request cannot be handed to Slurm");
		return -1;
	}
	return 0;
}

// wait_again requeues a job, held, that Slurm has requeued and started again by itself before the
// driver saw it: what the job had the last time has been given back.
static void wait_again(const job_info_t *job)
{
	uint32_t id = job_number(job);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	slurm_step_id_t step = SLURM_STEP_ID_INITIALIZER;
	step.job_id = id;
	int failed = slurm_requeue(step, JOB_REQUEUE_HOLD);
#else
	int failed = slurm_requeue(id, JOB_REQUEUE_HOLD);
#endif
	if (failed)
		refuse("the job was requeued, and its GPUs have been given back: submit it again (%s)", slurm_strerror(errno));
	else
		refuse("the job was requeued, and waits until Muster places it again");
}

// look finds the driver's answer: in the administrators' comment, which has the request, or, if
// REST cannot write that (22.05), in the user's comment.
static void look(const job_info_t *job)
{
	int bad = words_read(job->admin_comment, &said);
	snprintf(job_mapping, sizeof job_mapping, "%s", said.mapping);
	if (!bad && said.request && !said.answer) {
		struct words_comment users;
		long gpus = said.gpus;
		if (!words_read(job->comment, &users) && users.answer) {
			free(said.copy);
			said = users;
			said.gpus = gpus;
		} else {
			free(users.copy);
		}
	}
	if (bad)
		refuse("the job's comment has words of Muster that make no sense: ask an administrator to look at scontrol show job");
	else if (said.answer && said.job == job_number(job) && said.start == job->restart_cnt)
		answered = 1;
	else if (said.answer && said.job == job_number(job) && said.start < job->restart_cnt)
		wait_again(job);
	else if (said.gpus > 0)
		refuse("the job asks for %ld GPUs and Muster has not given it any: was it released by hand? submit it again, or ask an administrator", said.gpus);
}

// load_patiently asks slurmctld for a job that needs GPUs until it answers: a slurmctld that is
// killed meanwhile is started again. Slurm's own patience covers only one that cannot be reached at
// all.
static int load_patiently(uint32_t id, job_info_msg_t **jobs)
{
	long end = milliseconds() + (asked.gpus ? wait_seconds * 1000L : 0);
	while (load_job(id, jobs) || !*jobs || !(*jobs)->record_count) {
		if (*jobs)
			slurm_free_job_info_msg(*jobs);
		*jobs = NULL;
		if (errno == ESLURM_INVALID_JOB_ID || milliseconds() >= end)
			return -1;
		poll(NULL, 0, 200);
	}
	return 0;
}

// ask asks slurmctld for the job's comment. This must happen before slurmstepd sets root's rights
// aside: while it does so, it holds a lock that every message to slurmctld needs.
static void ask(spank_t sp)
{
	uint32_t id = 0, step = 0;
	job_info_msg_t *jobs = NULL;
	if (spank_get_item(sp, S_JOB_ID, &id) != ESPANK_SUCCESS)
		return;
	if (spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == SLURM_EXTERN_CONT)
		return; // the extern step has no programs
	if (load_patiently(id, &jobs)) {
		if (asked.gpus)
			refuse("slurmctld does not say which GPUs the job was given: %s", slurm_strerror(errno));
	} else {
		if (step == SLURM_BATCH_SCRIPT && jobs->job_array[0].batch_host)
			snprintf(batch_host, sizeof batch_host, "%s", jobs->job_array[0].batch_host);
		job_tasks = jobs->job_array[0].num_tasks;
		look(&jobs->job_array[0]);
		slurm_free_job_info_msg(jobs);
	}
}

int slurm_spank_init_post_opt(spank_t sp, int count, char **arguments)
{
	(void)count, (void)arguments;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return hand_over(sp);
	case S_CTX_REMOTE:
		ask(sp);
		return 0;
	default:
		return 0;
	}
}

// tell_alternative tells the programs which alternative was chosen, and the batch script how many
// tasks it has: sbatch has set those of the first request.
static void tell_alternative(spank_t sp)
{
	char number[32];
	snprintf(number, sizeof number, "%ld", said.as);
	spank_setenv(sp, "MUSTER_OR", number, 1);
	if (!batch_host[0])
		return;
	snprintf(number, sizeof number, "%u", job_tasks);
	spank_setenv(sp, "SLURM_NTASKS", number, 1);
	spank_setenv(sp, "SLURM_NPROCS", number, 1);
}

// Called in slurmstepd, as the job's user, before the tasks are made.
int slurm_spank_user_init(spank_t sp, int count, char **arguments)
{
	(void)count, (void)arguments;
	if (!answered)
		return 0;
	if (said.as)
		tell_alternative(sp);
	if (asked.mapping[0] || job_mapping[0]) // a step's own option goes before the job's
		spank_setenv(sp, "MUSTER_MAPPING", asked.mapping[0] ? asked.mapping : job_mapping, 1);
	use(sp);
	return 0;
}

// Called in each task, whose standard error the user reads.
int slurm_spank_task_init(spank_t sp, int count, char **arguments)
{
	(void)sp, (void)count, (void)arguments;
	if (!trouble[0])
		return 0;
	dprintf(2, "muster: %s\n", trouble);
	return -1;
}

// Called when the step has ended. Closing the pipe tells the server; the server has freed the GPUs
// when it closes its own end.
int slurm_spank_exit(spank_t sp, int count, char **arguments)
{
	(void)sp, (void)count, (void)arguments;
	if (server_life < 0)
		return 0;
	close(server_life);
	server_life = -1;
	struct pollfd p = { .fd = server_says, .events = POLLIN };
	char rest[256];
	for (long end = milliseconds() + 5000; milliseconds() < end && poll(&p, 1, 100) >= 0;)
		if (p.revents && read(server_says, rest, sizeof rest) <= 0)
			break;
	close(server_says);
	server_says = -1;
	return 0;
}
