/*
 * An HTTP endpoint for one messenger's metrics: /metrics (hlg_messenger_metrics()) and /healthz
 * (hlg_messenger_health(): 200, or 503 with a word). A library of its own, over libmicrohttpd; a build
 * without that has these functions too, and start says so.
 *
 * It listens on 127.0.0.1 alone, answers GET and HEAD, and knows nothing that the log does not. One port is
 * one process: a second process that wants it is told (-HLG_EIO). Port 0 takes any.
 */
#ifndef HALAGE_EXPORTER_H
#define HALAGE_EXPORTER_H

#include "messenger.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_exporter;

/*
 * Serve a started messenger, on a thread of the library's own.
 *
 * m      kept; must outlive the exporter: stop before destroy
 * port   0: any, see hlg_exporter_port()
 * error  [error_bytes] a sentence when the answer is not 0; may be NULL with 0 bytes
 *
 * Returns 0, -HLG_EINVAL (port above 65535), -HLG_EIO (the port is taken, or the system says no),
 * -HLG_ENOMEM, or -HLG_EUNSUPPORTED (built without libmicrohttpd). Nothing of the messenger changes either way.
 */
int hlg_exporter_start(struct hlg_messenger *m, uint32_t port, struct hlg_exporter **exporter,
                       char *error, size_t error_bytes);

/* The port that it listens on. */
uint32_t hlg_exporter_port(const struct hlg_exporter *exporter);

/* Ends open connections and the thread. Takes NULL. */
void hlg_exporter_stop(struct hlg_exporter *exporter);

#ifdef __cplusplus
}
#endif

#endif
