// Back propagation: one round of training for each of many networks with one
// hidden layer of 16 units. The wide layer is the GPU's work, in two calls; the
// few sums between them are the CPU's.
#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

GPU_IMAGE("bp.ptx");

enum { HIDDEN = 16 };

static float *random_floats(long count, float scale) {
    float *f = host_alloc((size_t)count * sizeof *f);
    for (long i = 0; i < count; i++)
        f[i] = scale * ((float)random_below(1 << 16) / (1 << 15) - 1);
    return f;
}

static float squash(float x) { return 1 / (1 + expf(-x)); }

// The errors of the hidden units: the sums of the partial ones go through the
// squashing function to one output, which is to be target; back comes each unit's
// share.
static void share_error(const float *partial, long parts, const float *out_weights, float target, float delta[HIDDEN]) {
    float hidden[HIDDEN], sum = 0;
    for (int j = 0; j < HIDDEN; j++) {
        float x = 0;
        for (long p = 0; p < parts; p++)
            x += partial[p * HIDDEN + j];
        hidden[j] = squash(x);
        sum += hidden[j] * out_weights[j];
    }
    float out = squash(sum), error = out * (1 - out) * (target - out);
    for (int j = 0; j < HIDDEN; j++)
        delta[j] = hidden[j] * (1 - hidden[j]) * error * out_weights[j];
}

// The two kernels on the CPU, operation for operation.
static void forward_here(const float *input, const float *weights, float *partial, long parts) {
    for (long p = 0; p < parts; p++)
        for (int j = 0; j < HIDDEN; j++) {
            float products[16];
            for (int k = 0; k < 16; k++)
                products[k] = input[p * 16 + k] * weights[(p * 16 + k) * HIDDEN + j];
            for (int half = 8; half > 0; half /= 2)
                for (int k = 0; k < half; k++)
                    products[k] += products[k + half];
            partial[p * HIDDEN + j] = products[0];
        }
}

static void adjust_here(const float *input, const float *delta, float *weights, float *steps, long inputs) {
    for (long i = 0; i < inputs; i++)
        for (int j = 0; j < HIDDEN; j++) {
            float step = fmaf(0.3f * delta[j], input[i], 0.3f * steps[i * HIDDEN + j]);
            weights[i * HIDDEN + j] += step;
            steps[i * HIDDEN + j] = step;
        }
}

static void compare(const char *what, long network, const float *have, const float *want, long count) {
    for (long i = 0; i < count; i++)
        if (have[i] != want[i])
            gpu_wrong("%s %ld of network %ld is %.9g, not %.9g", what, i, network, have[i], want[i]);
}

static void train(CUfunction forward, CUfunction adjust, long network, long inputs) {
    long parts = inputs / 16, count = inputs * HIDDEN;
    size_t input_bytes = (size_t)inputs * sizeof(float), weight_bytes = (size_t)count * sizeof(float);
    float *input = random_floats(inputs, 1), *weights = random_floats(count, 0.05f), *steps = random_floats(count, 0.01f);
    float *out_weights = random_floats(HIDDEN, 1), *partial = host_alloc(input_bytes), delta[HIDDEN];
    float *new_weights = host_alloc(weight_bytes), *new_steps = host_alloc(weight_bytes);
    float target = (float)random_below(2);

    gpu_begin();
    CUdeviceptr x = gpu_put(input, input_bytes), w = gpu_put(weights, weight_bytes), s = gpu_put(steps, weight_bytes);
    CUdeviceptr sums = gpu_alloc(input_bytes);
    LAUNCH(forward, parts, 1, 16, 16, &x, &w, &sums);
    gpu_get(partial, sums, input_bytes);
    gpu_end();
    share_error(partial, parts, out_weights, target, delta);
    gpu_begin();
    CUdeviceptr d = gpu_put(delta, sizeof delta);
    LAUNCH(adjust, parts, 1, 16, 16, &x, &d, &w, &s);
    gpu_get(new_weights, w, weight_bytes);
    gpu_get(new_steps, s, weight_bytes);
    CUdeviceptr all[] = {x, w, s, sums, d};
    for (int i = 0; i < 5; i++)
        CHECK(cuMemFree(all[i]));
    gpu_end();

    float *want = host_alloc(input_bytes), want_delta[HIDDEN];
    forward_here(input, weights, want, parts);
    compare("partial sum", network, partial, want, parts * HIDDEN);
    share_error(want, parts, out_weights, target, want_delta);
    adjust_here(input, want_delta, weights, steps, inputs);
    compare("weight", network, new_weights, weights, count);
    compare("step", network, new_steps, steps, count);
    float *used[] = {input, weights, steps, out_weights, partial, new_weights, new_steps, want};
    for (int i = 0; i < 8; i++)
        free(used[i]);
}

int main(int argc, char **argv) {
    gpu.size = 8 << 10;
    gpu.repeat = 20;
    gpu_options(argc, argv, "trains networks", "inputs of a network, a multiple of 16", "networks", NULL);
    if (gpu.size % 16 || gpu.size > 1 << 26)
        gpu_misuse("--size must be a multiple of 16 up to %d", 1 << 26);
    gpu_open(gpu_image);
    CUfunction forward = gpu_kernel("forward"), adjust = gpu_kernel("adjust");
    for (long network = 0; network < gpu.repeat; network++)
        train(forward, adjust, network, gpu.size);
    return gpu_close("%ld networks of %ld inputs", gpu.repeat, gpu.size);
}
