// A program whose every call is known, for the timeline: traced COUNT [kill|fork|quick].
#include "kernels.h"

#include <signal.h>
#include <sys/wait.h>

static void compute(unsigned count) {
	CUcontext context;
	CUmodule module;
	CUfunction add;
	CUdeviceptr p;
	unsigned words[256] = {0}, n = 256, one = 1, word;
	void *arguments[] = {&p, &n, &one};
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuMemAlloc(&p, sizeof words));
	CHECK(cuMemcpyHtoD(p, words, sizeof words));
	for (unsigned i = 0; i < count; i++)
		CHECK(cuLaunchKernel(add, 4, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&word, p, sizeof word));
	NEED(word == count);
}

int main(int argc, char **argv) {
	const char *then = argc > 2 ? argv[2] : "";
	if (strcmp(then, "fork") == 0) {
		compute(1);
		pid_t child = fork();
		if (child == 0) {
			compute((unsigned)atoi(argv[1]));
			exit(0); // and not _exit, which would end it without its last records
		}
		int status;
		waitpid(child, &status, 0);
		return status != 0;
	}
	compute((unsigned)atoi(argv[1]));
	if (strcmp(then, "kill") == 0)
		kill(getpid(), SIGKILL);
	return 0;
}
