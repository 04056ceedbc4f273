// Measures PoCL (OpenCL on the CPU) on the kernels of kernels.cl.
//
//   cc -O2 -o bench bench.c -lOpenCL -lm
//   ./bench KERNELS.cl THREADS
//
// Prints a line a kernel and size: name, n, useful work a second, unit. Each
// figure is the median of several runs after two that do not count. Results
// are checked. Exit status: 0 done, 3 no PoCL here, 1 anything else.
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TILE = 16, BODIES = 128, BLOCK = 256, RUNS_LEAST = 7, RUNS_MOST = 101 };
static const double SECONDS_EACH = 0.7; // of runs, a figure

static cl_context context;
static cl_command_queue queue;
static cl_program program;

static void fail(const char *what, long detail) {
  fprintf(stderr, "bench: %s (%ld)\n", what, detail);
  exit(1);
}

static void check(cl_int status, const char *what) {
  if (status != CL_SUCCESS)
    fail(what, status);
}

static double clock_now(clockid_t which) {
  struct timespec t;
  clock_gettime(which, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static double now(void) { return clock_now(CLOCK_MONOTONIC); }
// Of all threads: it says more than the clock on a machine that others use too.
static double processor_now(void) { return clock_now(CLOCK_PROCESS_CPUTIME_ID); }

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The same numbers on every machine.
static uint32_t state = 1;
static uint32_t next(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}
static float next_float(void) { return next() / 16777216.0f - 0.5f; }

static void *room(size_t bytes) {
  void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!p)
    fail("no memory", (long)bytes);
  memset(p, 0, bytes);
  return p;
}

static cl_mem upload(const void *host, size_t bytes) {
  cl_int status;
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, (void *)host, &status);
  check(status, "clCreateBuffer");
  return m;
}

static void download(cl_mem m, void *host, size_t bytes) {
  check(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, bytes, host, 0, NULL, NULL), "clEnqueueReadBuffer");
}

static cl_kernel kernel(const char *name) {
  cl_int status;
  cl_kernel k = clCreateKernel(program, name, &status);
  check(status, name);
  return k;
}

static void argument(cl_kernel k, int i, size_t size, const void *value) {
  check(clSetKernelArg(k, i, size, value), "clSetKernelArg");
}

static void launch(cl_kernel k, int dims, size_t gx, size_t gy, size_t lx, size_t ly) {
  size_t global[2] = {gx, gy}, local[2] = {lx, ly};
  check(clEnqueueNDRangeKernel(queue, k, dims, NULL, global, local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
}

typedef void (*action)(void *);

// measure prints the median rates of an action that does `work` units a run: a second
// of the clock, and a second of processor time; and the best of the latter.
static void measure(const char *name, int n, double work, const char *unit, action run, void *of) {
  double times[RUNS_MOST], processor[RUNS_MOST], spent = 0;
  int runs = 0;
  for (int i = -2; i < RUNS_MOST && (runs < RUNS_LEAST || spent < SECONDS_EACH); i++) {
    double start = now(), processor_start = processor_now();
    run(of);
    check(clFinish(queue), "clFinish");
    double took = now() - start, used = processor_now() - processor_start;
    if (i < 0)
      continue;
    processor[runs] = used;
    times[runs++] = took;
    spent += took;
  }
  qsort(times, runs, sizeof times[0], by_size);
  qsort(processor, runs, sizeof processor[0], by_size);
  printf("%s n=%d %.6g %s %.6g %.6g\n", name, n, work / times[runs / 2], unit, work / processor[runs / 2], work / processor[0]);
  fflush(stdout);
}

struct flat {
  cl_kernel k;
  int dims;
  size_t gx, gy, lx, ly;
};

static void run_flat(void *of) {
  struct flat *f = of;
  launch(f->k, f->dims, f->gx, f->gy, f->lx, f->ly);
}

static void vecadd(int n) {
  size_t bytes = n * sizeof(float);
  float *a = room(bytes), *b = room(bytes), *c = room(bytes);
  for (int i = 0; i < n; i++)
    a[i] = next_float(), b[i] = next_float();
  cl_mem da = upload(a, bytes), db = upload(b, bytes), dc = upload(c, bytes);
  struct flat f = {kernel("vecadd"), 1, n, 1, BLOCK, 1};
  argument(f.k, 0, sizeof da, &da);
  argument(f.k, 1, sizeof db, &db);
  argument(f.k, 2, sizeof dc, &dc);
  argument(f.k, 3, sizeof n, &n);
  measure("vecadd", n, n / 1e9, "Gelem/s", run_flat, &f);
  download(dc, c, bytes);
  for (int i = 0; i < n; i++)
    if (c[i] != a[i] + b[i])
      fail("vecadd: wrong at", i);
  clReleaseKernel(f.k);
  clReleaseMemObject(da), clReleaseMemObject(db), clReleaseMemObject(dc);
  free(a), free(b), free(c);
}

static void matmul(int n) {
  size_t bytes = (size_t)n * n * sizeof(float);
  float *a = room(bytes), *b = room(bytes), *c = room(bytes);
  for (int i = 0; i < n * n; i++)
    a[i] = next_float(), b[i] = next_float();
  cl_mem da = upload(a, bytes), db = upload(b, bytes), dc = upload(c, bytes);
  struct flat f = {kernel("matmul_tiled"), 2, n, n, TILE, TILE};
  argument(f.k, 0, sizeof da, &da);
  argument(f.k, 1, sizeof db, &db);
  argument(f.k, 2, sizeof dc, &dc);
  for (int i = 3; i < 6; i++)
    argument(f.k, i, sizeof n, &n);
  measure("matmul", n, 2.0 * n * n * n / 1e9, "GFLOP/s", run_flat, &f);
  download(dc, c, bytes);
  for (int sample = 0; sample < 1000; sample++) {
    int row = next() % n, col = next() % n;
    float want = 0;
    for (int i = 0; i < n; i++)
      want = fmaf(a[row * n + i], b[i * n + col], want);
    if (c[row * n + col] != want)
      fail("matmul: wrong at", row * n + col);
  }
  clReleaseKernel(f.k);
  clReleaseMemObject(da), clReleaseMemObject(db), clReleaseMemObject(dc);
  free(a), free(b), free(c);
}

static void nbody(int n) {
  float softening = 0.01f;
  float *bodies = room(n * 4 * sizeof(float)), *accel = room(n * 3 * sizeof(float));
  for (int i = 0; i < 4 * n; i++)
    bodies[i] = next_float() + (i % 4 == 3); // masses are positive
  cl_mem db = upload(bodies, n * 4 * sizeof(float)), da = upload(accel, n * 3 * sizeof(float));
  struct flat f = {kernel("nbody_accelerate"), 1, n, 1, BODIES, 1};
  argument(f.k, 0, sizeof db, &db);
  argument(f.k, 1, sizeof da, &da);
  argument(f.k, 2, sizeof n, &n);
  argument(f.k, 3, sizeof softening, &softening);
  measure("nbody", n, (double)n * n / 1e9, "Ginteractions/s", run_flat, &f);
  download(da, accel, n * 3 * sizeof(float));
  for (int sample = 0; sample < 20; sample++) {
    int i = next() % n;
    double want[3] = {0}, scale = 0;
    for (int j = 0; j < n; j++) {
      double d[3], q = softening;
      for (int x = 0; x < 3; x++)
        d[x] = bodies[4 * j + x] - bodies[4 * i + x], q += d[x] * d[x];
      double s = bodies[4 * j + 3] / (q * sqrt(q));
      for (int x = 0; x < 3; x++)
        want[x] += d[x] * s, scale += fabs(d[x] * s);
    }
    for (int x = 0; x < 3; x++)
      if (!(fabs(accel[3 * i + x] - want[x]) <= 1e-4 * scale)) // the square root is approximate
        fail("nbody: wrong at", 3 * i + x);
  }
  clReleaseKernel(f.k);
  clReleaseMemObject(da), clReleaseMemObject(db);
  free(bodies), free(accel);
}

struct alignment {
  cl_kernel k;
  int tiles;
};

// One launch an anti-diagonal of tiles.
static void run_needleman(void *of) {
  struct alignment *a = of;
  for (int diagonal = 0; diagonal <= 2 * a->tiles - 2; diagonal++) {
    int first = diagonal - a->tiles + 1 > 0 ? diagonal - a->tiles + 1 : 0;
    int last = diagonal < a->tiles - 1 ? diagonal : a->tiles - 1;
    argument(a->k, 4, sizeof diagonal, &diagonal);
    argument(a->k, 5, sizeof first, &first);
    launch(a->k, 1, (size_t)(last - first + 1) * TILE, 1, TILE, 1);
  }
}

static int larger(int a, int b) { return a > b ? a : b; }

static void needleman(int n) {
  int width = n + 1, penalty = 10;
  size_t cells = (size_t)width * width, bytes = cells * sizeof(int);
  int *score = room(bytes), *similarity = room(bytes), *got = room(bytes);
  for (size_t i = 0; i < cells; i++)
    similarity[i] = (int)(next() % 21) - 10;
  for (int i = 1; i < width; i++)
    score[i] = score[(size_t)i * width] = -penalty * i;
  cl_mem ds = upload(score, bytes), dm = upload(similarity, bytes);
  struct alignment a = {kernel("needleman_diagonal"), n / TILE};
  argument(a.k, 0, sizeof ds, &ds);
  argument(a.k, 1, sizeof dm, &dm);
  argument(a.k, 2, sizeof width, &width);
  argument(a.k, 3, sizeof penalty, &penalty);
  measure("needleman", n, (double)n * n / 1e6, "Mcell/s", run_needleman, &a);
  download(ds, got, bytes);
  for (int i = 1; i < width; i++)
    for (int j = 1; j < width; j++) {
      int *cell = score + (size_t)i * width + j;
      *cell = larger(cell[-width - 1] + similarity[(size_t)i * width + j], larger(cell[-1], cell[-width]) - penalty);
    }
  if (memcmp(score, got, bytes) != 0)
    fail("needleman: wrong scores for n", n);
  clReleaseKernel(a.k);
  clReleaseMemObject(ds), clReleaseMemObject(dm);
  free(score), free(similarity), free(got);
}

static void reduce(int n) {
  int blocks = n / BLOCK;
  float *in = room(n * sizeof(float)), *out = room(blocks * sizeof(float));
  for (int i = 0; i < n; i++)
    in[i] = (float)(next() % 100); // sums are exact
  cl_mem di = upload(in, n * sizeof(float)), dout = upload(out, blocks * sizeof(float));
  struct flat f = {kernel("reduce_shared"), 1, n, 1, BLOCK, 1};
  argument(f.k, 0, sizeof di, &di);
  argument(f.k, 1, sizeof dout, &dout);
  argument(f.k, 2, sizeof n, &n);
  measure("reduce", n, n / 1e9, "Gelem/s", run_flat, &f);
  download(dout, out, blocks * sizeof(float));
  for (int b = 0; b < blocks; b++) {
    float want = 0;
    for (int i = 0; i < BLOCK; i++)
      want += in[b * BLOCK + i];
    if (out[b] != want)
      fail("reduce: wrong at block", b);
  }
  clReleaseKernel(f.k);
  clReleaseMemObject(di), clReleaseMemObject(dout);
  free(in), free(out);
}

// The CPU device of PoCL, or exit status 3.
static cl_device_id find_device(void) {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS)
    count = 0;
  for (cl_uint i = 0; i < count && i < 16; i++) {
    char name[256] = "";
    cl_device_id device;
    clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
    if (strstr(name, "Portable Computing Language") &&
        clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_CPU, 1, &device, NULL) == CL_SUCCESS)
      return device;
  }
  fprintf(stderr, "bench: PoCL is not among %u OpenCL platforms\n", count);
  exit(3);
}

static char *read_file(const char *name) {
  static char text[1 << 16];
  FILE *f = fopen(name, "r");
  if (!f)
    fail("cannot read the kernels", 0);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  return text;
}

int main(int argc, char **argv) {
  if (argc != 3 || atoi(argv[2]) < 1) {
    fprintf(stderr, "usage: bench KERNELS.cl THREADS\n");
    return 1;
  }
  setenv("POCL_MAX_PTHREAD_COUNT", argv[2], 1); // PoCL reads it when it starts
  cl_device_id device = find_device();
  cl_int status;
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  check(status, "clCreateContext");
  queue = clCreateCommandQueue(context, device, 0, &status);
  check(status, "clCreateCommandQueue");
  const char *source = read_file(argv[1]);
  program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
  check(status, "clCreateProgramWithSource");
  check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");

  vecadd(1 << 22);
  matmul(256);
  matmul(512);
  nbody(1024);
  nbody(4096);
  needleman(2048);
  reduce(1 << 22);
}
