// Mathematical library functions. nvcc only: it inlines libdevice, which clang
// has not without the SDK.
//
// All: grid covering n, any 1-D block; one row of results an element; compare
// within a few units in the last place.

// out[8 i ..], x = a[i], y = b[i]: exp(x), log(|x| + 1), sin(x), cos(x),
// pow(|x|, y), tanh(x), erf(x), atan2(x, y). Large x take sin's slow path.
extern "C" __global__ void math_f32(const float *a, const float *b, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i], *row = out + 8 * i;
  row[0] = expf(x);
  row[1] = logf(fabsf(x) + 1);
  row[2] = sinf(x);
  row[3] = cosf(x);
  row[4] = powf(fabsf(x), y);
  row[5] = tanhf(x);
  row[6] = erff(x);
  row[7] = atan2f(x, y);
}

// The same in double precision, but without the powers: exp, log, sin, cos,
// cbrt(x), and fmod(x, y) (exact; y not 0).
extern "C" __global__ void math_f64(const double *a, const double *b, double *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  double x = a[i], y = b[i], *row = out + 6 * i;
  row[0] = exp(x);
  row[1] = log(fabs(x) + 1);
  row[2] = sin(x);
  row[3] = cos(x);
  row[4] = cbrt(x);
  row[5] = fmod(x, y);
}

// Read-only loads and restrict: out[i] = in[index[i]] * scale[0], rounded.
extern "C" __global__ void math_gather(const float *__restrict__ in, const int *__restrict__ index, const float *__restrict__ scale, float *__restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = __ldg(&in[index[i]]) * scale[0];
}
