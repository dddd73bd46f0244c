/*
 * Percentiles with values that are known only as "at least so much", confidence intervals of means and
 * of shares. Pure; + - * / and sqrt() only, so that every compiler gives the same bits.
 */
#ifndef HALAGE_SIM_STATS_H
#define HALAGE_SIM_STATS_H

#include <halage/base.h>

/* One observation. */
struct sim_value {
    double value;
    bool open;    /* a lower bound: what the request had waited when the run ended */
    bool counted; /* in the mean and its interval; an open value never is */
};

/*
 * Distribution of one quantity.
 *
 * Percentiles are nearest-rank: the ceil(q * count)-th smallest value, open ones counted as their lower
 * bound. They are themselves lower bounds, marked `open`, where the open values, had they been endless,
 * would move them by more than a hundredth.
 *
 * The interval of the mean is by batch means: the counted values in the order given, cut into 20 runs of
 * equal length (10 below 200 values, none below 20), Student's t over the means of the runs.
 * Source: B. Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research
 * 30 (1982): 10 to 30 batches. The interval is too narrow when neighbouring batches go together:
 * `correlated` says that their lag-1 autocorrelation passes 2.33 / sqrt(batches), which one run in a
 * hundred does by chance.
 */
struct sim_summary {
    uint64_t count;      /* values, open ones included */
    uint64_t open_count; /* of these, known as lower bounds only */
    uint64_t mean_count; /* that the mean is of */
    double mean;
    double low; /* 95 % confidence interval of the mean; the mean itself without batches */
    double high;
    double p50;
    double p90;
    double p99;
    double max;
    bool p50_open;
    bool p90_open;
    bool p99_open;
    bool max_open;
    bool open; /* any of these */
    bool correlated;
    bool wide; /* run longer: no interval, correlated, or wider than a tenth of the mean */
    uint32_t batches;
};

/* Summarise values [count] in order of arrival; leaves them in another one. No values: all zero, wide.
 * O(n), with open ones O(n log n). */
void sim_summarise(struct sim_value *values, uint64_t count, struct sim_summary *summary);

/* Student's t: the 0.975 quantile for `degrees` >= 1 of freedom, to 0.001. */
double sim_student_975(uint32_t degrees);

/*
 * Wilson's 95 % interval of a share, hits of trials; [0, 1] without trials.
 * Source: E. Wilson, "Probable inference", JASA 22 (1927).
 */
void sim_wilson(uint64_t hits, uint64_t trials, double *low, double *high);

#endif
