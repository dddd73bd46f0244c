/* For builds without libmicrohttpd: what needs an exporter is told that there is none. */
#include <halage/exporter.h>

#include <stdio.h>

int hlg_exporter_start(struct hlg_messenger *m, uint32_t port, struct hlg_exporter **exporter,
                       char *error, size_t error_bytes)
{
    (void)m;
    (void)exporter;
    if (error_bytes > 0) {
        (void)snprintf(
            error, error_bytes,
            "metrics: 127.0.0.1:%u: built without libmicrohttpd; install it and configure with "
            "-DHALAGE_METRICS_HTTP=ON",
            port);
    }
    return -HLG_EUNSUPPORTED;
}

uint32_t hlg_exporter_port(const struct hlg_exporter *exporter)
{
    (void)exporter;
    hlg_unreachable(); /* nobody has one */
}

void hlg_exporter_stop(struct hlg_exporter *exporter)
{
    HLG_ASSERT(exporter == NULL);
}
