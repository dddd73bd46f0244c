/* The order of the steps: look, join, restrict, rank, show. */
#define _GNU_SOURCE /* strnlen() */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts of foreign files and of the environment are told in lines, and in JSON. */
static void make_plain(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text < ' ' || *text > '~') {
            *text = '?';
        }
    }
}

void topology_note(struct hlg_topology *t, const char *format, ...)
{
    va_list arguments;
    if (t->note_count == HLG_TOPOLOGY_NOTES_MAX) {
        return;
    }
    va_start(arguments, format);
    char *note = t->notes[t->note_count++];
    (void)vsnprintf(note, HLG_TOPOLOGY_NOTE_BYTES, format, arguments);
    va_end(arguments);
    make_plain(note);
}

void topology_copy_name(char name[HLG_TOPOLOGY_NAME_BYTES], const char *text)
{
    (void)snprintf(name, HLG_TOPOLOGY_NAME_BYTES, "%s", text);
    make_plain(name);
}

void topology_append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strnlen(text, bytes);
    va_list arguments;
    if (used + 1 >= bytes) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

/* What a reader of the table would wonder about. */
static void note_absences(struct hlg_topology *t, const bool *unusable)
{
    uint32_t usable = 0;
    for (uint32_t nic = 0; nic < t->nic_count; nic++) {
        usable += !unusable[nic];
    }
    if (t->machine_gpu_count == 0) {
        topology_note(t, "this machine has no NVIDIA GPU");
    }
    if (t->nic_count == 0) {
        topology_note(t, "this machine has no RDMA NIC: pages go over TCP");
    } else if (usable == 0) {
        topology_note(t, "none of the %u NICs can be used", t->nic_count);
    }
    for (uint32_t nic = 0; nic < t->nic_count; nic++) {
        if (!t->nics[nic].driver) {
            topology_note(t,
                          "NIC %s has no RDMA device: load its driver (efa, or mlx5_core and "
                          "mlx5_ib)",
                          t->nics[nic].name);
            break; /* one says it for all */
        }
    }
}

int hlg_topology_load(const struct hlg_topology_config *config, struct hlg_topology **topology,
                      char *error, size_t error_bytes)
{
    bool unusable[HLG_TOPOLOGY_NICS_MAX] = {false};
    HLG_ASSERT(config->size == sizeof *config);
    HLG_ASSERT(error_bytes > 0);
    struct hlg_topology *t = calloc(1, sizeof *t);
    if (t == NULL) {
        (void)snprintf(error, error_bytes, "topology: out of memory");
        return -HLG_ENOMEM;
    }
    int status = topology_discover(config, t, error, error_bytes);
    if (status == 0) {
        topology_join(config, t, unusable);
        status = topology_restrict(config, t, unusable, error, error_bytes);
    }
    if (status == 0) {
        for (uint32_t nic = 0; nic < t->nic_count; nic++) {
            t->nics[nic].usable = !unusable[nic];
        }
        topology_rank(t, unusable);
        note_absences(t, unusable);
        status = topology_show(config, t, error, error_bytes);
    }
    if (status != 0) {
        free(t);
        return status;
    }
    *topology = t;
    return 0;
}

void hlg_topology_free(struct hlg_topology *topology)
{
    free(topology);
}
