/*
 * The last word of a node that crashes: one sentence on stderr that says inside which call of the transport it
 * was, so that a fault of the provider and one of ours can be told apart without a core file.
 */
#ifndef HALAGE_NODE_CRASH_H
#define HALAGE_NODE_CRASH_H

#include <stdbool.h>

/*
 * From now on SIGSEGV and SIGBUS say the sentence before they end this process, as they would have. Where
 * somebody else takes them already (a sanitizer), he keeps them.
 *
 * title    of the node, with which the sentence begins; copied
 * watched  whether the messenger has a watchdog: without one nobody knows the call
 */
void crash_report(const char *title, bool watched);

#endif
