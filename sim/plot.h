/*
 * Figures by gnuplot from our tab-separated files: SVG and PNG, and the script that made them, to be
 * changed and run again.
 */
#ifndef HALAGE_SIM_PLOT_H
#define HALAGE_SIM_PLOT_H

#include "report.h"
#include "sweep_axis.h"

/*
 * TTFT and speed against the first axis of a sweep (P:D, a rate), a line for each combination of the
 * others: folder/sweep.gp, sweep.svg, sweep.png, from the folder's sweep.tsv.
 *
 * text  [capacity] one sentence on error, or when gnuplot is not there
 *
 * Returns 0, 1 where gnuplot is missing (the script is there), or -HLG_EIO.
 */
int sim_plot_sweep(const char *folder, const struct sim_sweep *grid, char *text, size_t capacity);

/* What sim_plot_run() writes, and sim_plot_sweep(); NULL-terminated. */
extern const char *const sim_plot_run_files[];
extern const char *const sim_plot_sweep_files[];

/*
 * Of one run: latency.tsv, its distribution functions, and series.tsv, its use of nodes and NICs over
 * time, with a script and two pictures each. The folder is made if it is not there. Returns as above, or
 * -HLG_ENOMEM.
 */
int sim_plot_run(const char *folder, const struct sim_scenario *scenario, const struct sim_run *run,
                 const struct sim_metrics *metrics, char *text, size_t capacity);

#endif
