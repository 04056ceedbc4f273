// Black-Scholes prices of options. The calls add up, so that each of them counts.
#include "gpu.h"

#include <math.h>

GPU_IMAGE("bs.ptx");

static float between(double low, double high) {
    return (float)(low + (high - low) * random_bits() / 4294967296.0);
}

static double normal(double d) { return 0.5 * erfc(-d / sqrt(2)); }

// Prices are right to a few units in the last place of the terms, which the price
// and the strike bound (1e-6, with the approximate exp and log), and each addition
// may round the sum by half a unit, 6e-8 of it.
static void check(const char *what, int i, double sum, double price, double scale) {
    double error = fabs(sum / (double)gpu.repeat - price);
    if (!(error <= scale * (2e-6 + 6e-8 * (double)gpu.repeat)))
        gpu_wrong("%s %d is %g, not %g", what, i, sum / (double)gpu.repeat, price);
}

int main(int argc, char **argv) {
    gpu.size = 16 << 10;
    gpu.repeat = 256;
    gpu_options(argc, argv, "prices options", "options", "calls that price them all", NULL);
    int n = (int)gpu.size;
    float rate = 0.02f, volatility = 0.3f;
    size_t bytes = (size_t)n * sizeof(float);
    float *price = host_alloc(bytes), *strike = host_alloc(bytes), *years = host_alloc(bytes);
    float *calls = host_alloc(bytes), *puts = host_alloc(bytes);
    for (int i = 0; i < n; i++) {
        price[i] = between(5, 30);
        strike[i] = between(1, 100);
        years[i] = between(0.25, 10);
    }

    gpu_open(gpu_image);
    CUfunction black_scholes = gpu_kernel("black_scholes");
    gpu_begin();
    CUdeviceptr s = gpu_put(price, bytes), x = gpu_put(strike, bytes), t = gpu_put(years, bytes);
    CUdeviceptr call = gpu_alloc(bytes), put = gpu_alloc(bytes);
    CHECK(cuMemsetD32(call, 0, (size_t)n));
    CHECK(cuMemsetD32(put, 0, (size_t)n));
    long blocks = groups(n, 128);
    for (long r = 0; r < gpu.repeat; r++)
        LAUNCH(black_scholes, blocks < 4096 ? blocks : 4096, 1, 128, 1, &s, &x, &t, &call, &put, &rate, &volatility, &n);
    gpu_get(calls, call, bytes);
    gpu_get(puts, put, bytes);
    gpu_end();

    for (int i = 0; i < n; i++) {
        double spread = (double)volatility * sqrt((double)years[i]);
        double drift = ((double)rate + 0.5 * (double)volatility * (double)volatility) * (double)years[i];
        double d1 = (log((double)price[i] / (double)strike[i]) + drift) / spread, d2 = d1 - spread;
        double discounted = (double)strike[i] * exp(-(double)rate * (double)years[i]);
        double scale = (double)price[i] + (double)strike[i];
        check("call", i, (double)calls[i], (double)price[i] * normal(d1) - discounted * normal(d2), scale);
        check("put", i, (double)puts[i], discounted * normal(-d2) - (double)price[i] * normal(-d1), scale);
    }
    return gpu_close("%ld pricings of %d options", gpu.repeat, n);
}
