#include "workload_variate.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "double arithmetic must round to double at each step");
_Static_assert(DBL_MANT_DIG == 53, "double must be IEEE 754 binary64");

/* ln 2 in two parts, the first with 21 zero bits at its end: fdlibm, e_log.c. */
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW  1.90821492927058770002e-10

#define SQRT2            1.41421356237309504880
#define GAMMA_ROUNDS_MAX 1000 /* a round is refused less than one time in 20 */

static uint64_t bits_of(double x)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double sim_log(double x)
{
    HLG_ASSERT(x >= DBL_MIN && x <= DBL_MAX);
    const uint64_t bits = bits_of(x);
    int64_t exponent = (int64_t)(bits >> 52) - 1023;
    double mantissa = double_of((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (mantissa > SQRT2) {
        mantissa /= 2;
        exponent++;
    }
    /* ln m = 2 artanh((m - 1) / (m + 1)); the argument is at most 0.172: 12 terms reach 1e-19. */
    const double s = (mantissa - 1) / (mantissa + 1);
    double tail = 0;
    for (int power = 23; power >= 3; power -= 2) {
        tail = s * s * (tail + 1.0 / power);
    }
    const double e = (double)exponent;
    return e * LN2_HIGH + (2 * s + (2 * s * tail + e * LN2_LOW));
}

double sim_exp(double x)
{
    if (x < -708) {
        return 0;
    }
    if (x > 709) {
        return DBL_MAX;
    }
    HLG_ASSERT(x >= -708 && x <= 709); /* not NaN */
    const double scaled = x / (LN2_HIGH + LN2_LOW);
    const int64_t power = (int64_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    const double k = (double)power;
    const double r = x - k * LN2_HIGH - k * LN2_LOW;
    /* |r| <= 0.347: 15 terms reach 1e-19. */
    double sum = 0;
    for (int n = 15; n >= 1; n--) {
        sum = r / n * (1 + sum);
    }
    return (1 + sum) * double_of((uint64_t)(power + 1023) << 52);
}

/* Polynomial of degree 7, its constant first. */
static double polynomial(const double coefficients[8], double x)
{
    double sum = 0;
    for (int i = 7; i >= 0; i--) {
        sum = sum * x + coefficients[i];
    }
    return sum;
}

double sim_normal_quantile(double u)
{
    static const double middle[2][8] = {
        {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
         1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
         3.3430575583588128105e+4, 2.5090809287301226727e+3},
        {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
         2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
         5.2264952788528545610e+3}};
    static const double near[2][8] = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
         3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9}};
    static const double far[2][8] = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15}};

    HLG_ASSERT(u > 0 && u < 1);
    const double q = u - 0.5;
    if (q >= -0.425 && q <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * polynomial(middle[0], r) / polynomial(middle[1], r);
    }
    const double r = sqrt(-sim_log(q < 0 ? u : 1 - u));
    const double value = r <= 5 ? polynomial(near[0], r - 1.6) / polynomial(near[1], r - 1.6)
                                : polynomial(far[0], r - 5) / polynomial(far[1], r - 5);
    return q < 0 ? -value : value;
}

double sim_draw_uniform(struct hlg_rng *rng)
{
    /* 52 bits and a half: exact, so that rounding never reaches 1. */
    return ((double)(hlg_rng_next(rng) >> 12) + 0.5) / 4503599627370496.0;
}

double sim_draw_normal(struct hlg_rng *rng)
{
    return sim_normal_quantile(sim_draw_uniform(rng));
}

double sim_draw_exponential(struct hlg_rng *rng)
{
    return -sim_log(sim_draw_uniform(rng));
}

/* Marsaglia and Tsang, for shape >= 1. */
static double draw_gamma_large(struct hlg_rng *rng, double shape)
{
    const double d = shape - 1.0 / 3;
    const double c = 1 / sqrt(9 * d);
    for (int round = 0; round < GAMMA_ROUNDS_MAX; round++) {
        const double x = sim_draw_normal(rng);
        const double root = 1 + c * x;
        const double u = sim_draw_uniform(rng);
        if (root <= 0) {
            continue;
        }
        const double v = root * root * root;
        if (v >= DBL_MIN && sim_log(u) < x * x / 2 + d * (1 - v + sim_log(v))) {
            return d * v;
        }
    }
    hlg_unreachable();
}

double sim_draw_gamma(struct hlg_rng *rng, double shape)
{
    HLG_ASSERT(shape >= 0.0001 && shape <= 1e6);
    if (shape >= 1) {
        return draw_gamma_large(rng, shape);
    }
    const double larger = draw_gamma_large(rng, shape + 1);
    return larger * sim_exp(sim_log(sim_draw_uniform(rng)) / shape);
}

double sim_draw_weibull(struct hlg_rng *rng, double shape)
{
    HLG_ASSERT(shape >= 0.0001 && shape <= 1e6);
    return sim_exp(sim_log(sim_draw_exponential(rng)) / shape);
}
