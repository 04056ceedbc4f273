// A kernel's assert fails, in a process of its own: that process gets cudaErrorAssert for good
// and the text on stderr. The process that started it is unharmed.
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <string>

#include "check.h"

__global__ void only(int *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i != n);
    v[i] = i + 1;
}

static int child() {
    int *v, got[64];
    CHECK(cudaMalloc((void **)&v, sizeof got));
    only<<<2, 32>>>(v, 1000); // none of them
    CHECK(cudaMemcpy(got, v, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) TRUE(got[i] == i + 1);
    only<<<2, 32>>>(v, 37);
    CHECK(cudaGetLastError()); // the launch itself is well
    TRUE(cudaDeviceSynchronize() == cudaErrorAssert);
    TRUE(cudaMemcpy(got, v, sizeof got, cudaMemcpyDeviceToHost) == cudaErrorAssert);
    TRUE(cudaMalloc((void **)&v, 16) == cudaErrorAssert);
    TRUE(cudaGetLastError() == cudaErrorAssert);
    return 0;
}

int main() {
    setbuf(stdout, nullptr);
    int ends[2], status;
    TRUE(pipe(ends) == 0);
    pid_t pid = fork(); // before CUDA is used here
    TRUE(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], 2);
        close(ends[1]);
        int rc = child();
        fflush(stderr);
        _exit(rc);
    }
    close(ends[1]);
    std::string text;
    char part[1024];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, n);
    TRUE(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the child ended with status %#x and said <%s>\n", status, text.c_str());
        return 1;
    }
    for (const char *what : {"asserts.cu:", "block: [1,0,0], thread: [5,0,0] Assertion `i != n` failed."})
        if (text.find(what) == std::string::npos) {
            fprintf(stderr, "no <%s> in what the child printed: <%s>\n", what, text.c_str());
            return 1;
        }
    printf("asserts: the child failed as it should\n");
    int *v, got[64];
    CHECK(cudaMalloc((void **)&v, sizeof got));
    only<<<2, 32>>>(v, 64);
    CHECK(cudaMemcpy(got, v, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) TRUE(got[i] == i + 1);
    printf("asserts: right\n");
    return 0;
}
