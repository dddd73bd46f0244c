/*
 * The arithmetic. Each output element has one order of summation, set by the shape of the matrix
 * alone: how many tokens are computed together only chooses which independent sums share a loop.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

/* Four floats at any address; two are a panel's row. gcc 12 spills wider ones without AVX. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

enum {
    QUAD = 4, /* floats of a quad */
};

_Static_assert(sizeof(quad) == QUAD * sizeof(float), "a quad is four floats");
_Static_assert(TLM_LANES == 2 * QUAD, "a panel's row is two quads");

static quad quad_at(const float *p)
{
    return *(const quad *)(const void *)p;
}

static void quads_put(float *p, quad low, quad high)
{
    *(quad *)(void *)p = low;
    *(quad *)(void *)(p + QUAD) = high;
}

/* Four tokens by one panel: each row of weights is loaded once for the four. */
static void matmul_four_tokens(float *y, size_t y_stride, const float *x, size_t x_stride,
                               const float *panel, uint32_t in)
{
    const float *x1 = x + x_stride;
    const float *x2 = x1 + x_stride;
    const float *x3 = x2 + x_stride;
    quad low0 = {0};
    quad low1 = {0};
    quad low2 = {0};
    quad low3 = {0};
    quad high0 = {0};
    quad high1 = {0};
    quad high2 = {0};
    quad high3 = {0};

    for (uint32_t i = 0; i < in; i++) {
        const quad low = quad_at(panel + (size_t)i * TLM_LANES);
        const quad high = quad_at(panel + (size_t)i * TLM_LANES + QUAD);

        low0 += x[i] * low;
        high0 += x[i] * high;
        low1 += x1[i] * low;
        high1 += x1[i] * high;
        low2 += x2[i] * low;
        high2 += x2[i] * high;
        low3 += x3[i] * low;
        high3 += x3[i] * high;
    }
    quads_put(y, low0, high0);
    quads_put(y + y_stride, low1, high1);
    quads_put(y + 2 * y_stride, low2, high2);
    quads_put(y + 3 * y_stride, low3, high3);
}

/* One token by four panels: as many independent sums as above, to hide the latency of adding. */
static void matmul_four_panels(float *y, const float *x, const float *panels, uint32_t in)
{
    const float *panel1 = panels + (size_t)in * TLM_LANES;
    const float *panel2 = panel1 + (size_t)in * TLM_LANES;
    const float *panel3 = panel2 + (size_t)in * TLM_LANES;
    quad low0 = {0};
    quad low1 = {0};
    quad low2 = {0};
    quad low3 = {0};
    quad high0 = {0};
    quad high1 = {0};
    quad high2 = {0};
    quad high3 = {0};

    for (size_t i = 0; i < in; i++) {
        const size_t row = i * TLM_LANES;

        low0 += x[i] * quad_at(panels + row);
        high0 += x[i] * quad_at(panels + row + QUAD);
        low1 += x[i] * quad_at(panel1 + row);
        high1 += x[i] * quad_at(panel1 + row + QUAD);
        low2 += x[i] * quad_at(panel2 + row);
        high2 += x[i] * quad_at(panel2 + row + QUAD);
        low3 += x[i] * quad_at(panel3 + row);
        high3 += x[i] * quad_at(panel3 + row + QUAD);
    }
    quads_put(y, low0, high0);
    quads_put(y + TLM_LANES, low1, high1);
    quads_put(y + 2 * (size_t)TLM_LANES, low2, high2);
    quads_put(y + 3 * (size_t)TLM_LANES, low3, high3);
}

static void matmul_one_panel(float *y, const float *x, const float *panel, uint32_t in)
{
    quad low = {0};
    quad high = {0};

    for (size_t i = 0; i < in; i++) {
        low += x[i] * quad_at(panel + i * TLM_LANES);
        high += x[i] * quad_at(panel + i * TLM_LANES + QUAD);
    }
    quads_put(y, low, high);
}

static void matmul_one_token(float *y, const float *x, const float *weights, uint32_t in,
                             uint32_t panels)
{
    const size_t panel_floats = (size_t)in * TLM_LANES;
    uint32_t panel = 0;

    for (; panel + 4 <= panels; panel += 4) {
        matmul_four_panels(y + (size_t)panel * TLM_LANES, x, weights + panel * panel_floats, in);
    }
    for (; panel < panels; panel++) {
        matmul_one_panel(y + (size_t)panel * TLM_LANES, x, weights + panel * panel_floats, in);
    }
}

void tlm_matmul(float *y, size_t y_stride, const float *x, size_t x_stride, uint32_t tokens,
                const float *weights, uint32_t in, uint32_t out)
{
    const uint32_t panels = out / TLM_LANES;
    const uint32_t tokens_by_four = tokens - tokens % 4;
    const size_t panel_floats = (size_t)in * TLM_LANES;

    TLM_ASSERT(out % TLM_LANES == 0);
    for (uint32_t panel = 0; panel < panels; panel++) {
        for (uint32_t token = 0; token < tokens_by_four; token += 4) {
            matmul_four_tokens(y + token * y_stride + (size_t)panel * TLM_LANES, y_stride,
                               x + token * x_stride, x_stride, weights + panel * panel_floats, in);
        }
    }
    for (uint32_t token = tokens_by_four; token < tokens; token++) {
        matmul_one_token(y + token * y_stride, x + token * x_stride, weights, in, panels);
    }
}

static float dot(const float *a, const float *b, uint32_t count)
{
    quad low = {0};
    quad high = {0};

    for (uint32_t i = 0; i < count; i += TLM_LANES) {
        low += quad_at(a + i) * quad_at(b + i);
        high += quad_at(a + i + QUAD) * quad_at(b + i + QUAD);
    }
    const quad sum = low + high;

    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

void tlm_rmsnorm(float *y, const float *x, const float *gain, uint32_t count)
{
    const float mean = dot(x, x, count) / (float)count;
    const float scale = 1.0F / sqrtf(mean + 1e-6F); /* both are correctly rounded everywhere */

    TLM_ASSERT(count % TLM_LANES == 0);
    for (uint32_t i = 0; i < count; i++) {
        y[i] = x[i] * scale * gain[i];
    }
}

void tlm_rotate(float *x, const float *cosines, const float *sines, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        const float a = x[i];
        const float b = x[i + half];

        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = a * sines[i] + b * cosines[i];
    }
}

void tlm_scores(float *scores, const float *query, const float *rows, size_t stride, uint32_t count,
                uint32_t dim, float scale)
{
    for (uint32_t t = 0; t < count; t++) {
        scores[t] = dot(query, rows + t * stride, dim) * scale;
    }
}

void tlm_weighted_add(float *out, const float *weights, const float *rows, size_t stride,
                      uint32_t count, uint32_t dim)
{
    for (uint32_t d = 0; d < dim; d += TLM_LANES) {
        quad low = quad_at(out + d);
        quad high = quad_at(out + d + QUAD);

        for (uint32_t t = 0; t < count; t++) {
            low += weights[t] * quad_at(rows + t * stride + d);
            high += weights[t] * quad_at(rows + t * stride + d + QUAD);
        }
        quads_put(out + d, low, high);
    }
}

/*
 * exp(x) to about 2 units in the last place, from additions and multiplications alone: libm's
 * result may differ from one machine to the next, which would break bit-identity across nodes.
 * Source: reduction and polynomial of Cephes 2.2, expf.c, S. L. Moshier.
 */
static float exponential(float x)
{
    const float shifter = 12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer */
    const float low = x < -87.0F ? -87.0F : x;
    const float bounded = low > 87.0F ? 87.0F : low;
    const float whole = (bounded * 1.44269504F + shifter) - shifter;
    const float rest = (bounded - whole * 0.693359375F) - whole * -2.12194440e-4F;
    const uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float power = 0;
    float sum = 1.9875691500e-4F;

    memcpy(&power, &bits, sizeof(power));
    sum = sum * rest + 1.3981999507e-3F;
    sum = sum * rest + 8.3334519073e-3F;
    sum = sum * rest + 4.1665795894e-2F;
    sum = sum * rest + 1.6666665459e-1F;
    sum = sum * rest + 5.0000001201e-1F;
    sum = sum * rest * rest + rest + 1.0F;
    return sum * power;
}

float tlm_softmax_numerators(float *x, uint32_t count)
{
    float max = x[0];
    float sum = 0;

    TLM_ASSERT(count >= 1);
    for (uint32_t i = 1; i < count; i++) {
        max = x[i] > max ? x[i] : max;
    }
    for (uint32_t i = 0; i < count; i++) {
        x[i] = exponential(x[i] - max);
    }
    for (uint32_t i = 0; i < count; i++) {
        sum += x[i];
    }
    return sum;
}

void tlm_swiglu(float *gate, const float *up, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        gate[i] = gate[i] / (1.0F + exponential(-gate[i])) * up[i];
    }
}

void tlm_add(float *y, const float *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

/* exp(x) for -3 < x <= 0 by its series at x / 16, squared four times. */
static double series_exponential(double x)
{
    double term = 1;
    double sum = 1;

    for (int i = 1; i <= 16; i++) {
        term = term * (x / 16) / i;
        sum += term;
    }
    for (int i = 0; i < 4; i++) {
        sum *= sum;
    }
    return sum;
}

/* cos and sin of 0 <= x <= 1 by their series. */
static void series_circle(double x, double *cosine, double *sine)
{
    double term = 1;

    *cosine = 1;
    *sine = 0;
    for (int i = 1; i <= 20; i++) {
        term = term * x / i;
        switch (i % 4) {
        case 0:
            *cosine += term;
            break;
        case 1:
            *sine += term;
            break;
        case 2:
            *cosine -= term;
            break;
        default:
            *sine -= term;
            break;
        }
    }
}

void tlm_rope_table(float *cosines, float *sines, uint32_t positions, uint32_t half)
{
    const double log_base = 9.210340371976184; /* ln 10000 */
    const double ratio = series_exponential(-log_base / half);
    double frequency = 1;

    TLM_ASSERT(half >= 4); /* so that the series converge */
    for (uint32_t i = 0; i < half; i++) {
        double step_cos = 0;
        double step_sin = 0;
        double c = 1;
        double s = 0;

        series_circle(frequency, &step_cos, &step_sin);
        for (uint32_t p = 0; p < positions; p++) {
            const double turned = c * step_cos - s * step_sin;

            cosines[(size_t)p * half + i] = (float)c;
            sines[(size_t)p * half + i] = (float)s;
            s = c * step_sin + s * step_cos;
            c = turned;
        }
        frequency *= ratio;
    }
}
