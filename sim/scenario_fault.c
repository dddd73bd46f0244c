/* The faults of a scenario: a list, each with fields of its own. */
#include "scenario_key.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const fields[] = {"kind", "at", "role", "node", "nic", "factor"};
static const char *const kinds[] = {"kill", "restart", "slow", "link"};

#define FIELDS (sizeof fields / sizeof fields[0])
#define KINDS  (sizeof kinds / sizeof kinds[0])

const char *sim_key_fault_field(uint32_t index)
{
    return index < FIELDS ? fields[index] : NULL;
}

static bool set_whole(const char *value, double most, uint32_t *number)
{
    double parsed = 0;
    if (sim_unit_parse(SIM_UNIT_NONE, value, &parsed) != NULL ||
        !(parsed >= 0 && parsed < most && parsed == floor(parsed))) {
        return false;
    }
    *number = (uint32_t)parsed;
    return true;
}

static const char *set_kind(struct sim_fault *fault, const char *value)
{
    for (uint32_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i], value) == 0) {
            fault->kind = (enum sim_fault_kind)(i + 1);
            return NULL;
        }
    }
    return "write kill, restart, slow or link";
}

static const char *set_role(struct sim_fault *fault, const char *value)
{
    fault->decode = strcmp(value, "decode") == 0;
    return fault->decode || strcmp(value, "prefill") == 0 || strcmp(value, "colocated") == 0
               ? NULL
               : "write prefill, decode or colocated";
}

static const char *set_at(struct sim_fault *fault, const char *value)
{
    double time = 0;
    const char *const remedy = sim_unit_parse(SIM_UNIT_NANOSECONDS, value, &time);
    if (remedy != NULL) {
        return remedy;
    }
    if (!(time >= 0 && time <= (double)SIM_DAYS_MAX * 86400e9)) {
        return "write a time from 0s to 3660d";
    }
    fault->at = (hlg_time)llround(time);
    return NULL;
}

static const char *set_field(struct sim_fault *fault, const char *field, const char *value)
{
    if (strcmp(field, "kind") == 0) {
        return set_kind(fault, value);
    }
    if (strcmp(field, "at") == 0) {
        return set_at(fault, value);
    }
    if (strcmp(field, "role") == 0) {
        return set_role(fault, value);
    }
    if (strcmp(field, "node") == 0) {
        return set_whole(value, SIM_NODES_MAX, &fault->node)
                   ? NULL
                   : "write the node's number, counted from 0";
    }
    if (strcmp(field, "nic") == 0) {
        if (strcmp(value, "all") == 0) {
            fault->nic = HLG_NONE;
            return NULL;
        }
        return set_whole(value, SIM_GPUS_MAX * HLG_RAILS_MAX, &fault->nic)
                   ? NULL
                   : "write the NIC's number on its node, counted from 0, or all";
    }
    HLG_ASSERT(strcmp(field, "factor") == 0);
    double factor = 0;
    if (sim_unit_parse(SIM_UNIT_SHARE, value, &factor) != NULL || !(factor >= 0 && factor <= 1)) {
        return "write the share of the bandwidth that is left, 0 to 1";
    }
    fault->factor = factor;
    return NULL;
}

int sim_key_set_fault(struct sim_fault *fault, uint32_t index, const char *field, const char *value,
                      const struct sim_key_source *source, char *text, size_t capacity)
{
    const char *const remedy = set_field(fault, field, value);
    char path[64];
    if (remedy == NULL) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "faults.%" PRIu32 ".%s", index, field);
    return sim_key_refuse(source, path, value, remedy, text, capacity);
}

void sim_key_print_fault(const struct sim_fault *fault, const char *field, char *text,
                         size_t capacity)
{
    char number[SIM_UNIT_TEXT_BYTES] = "";
    const char *printed = number;
    if (strcmp(field, "kind") == 0) {
        HLG_ASSERT(fault->kind >= SIM_FAULT_KILL && fault->kind <= SIM_FAULT_LINK);
        printed = kinds[fault->kind - 1];
    } else if (strcmp(field, "at") == 0) {
        sim_unit_print(SIM_UNIT_NANOSECONDS, (double)fault->at, number);
    } else if (strcmp(field, "role") == 0) {
        printed = fault->decode ? "decode" : "prefill";
    } else if (strcmp(field, "node") == 0) {
        (void)snprintf(number, sizeof number, "%" PRIu32, fault->node);
    } else if (strcmp(field, "nic") == 0 && fault->nic == HLG_NONE) {
        printed = "all";
    } else if (strcmp(field, "nic") == 0) {
        (void)snprintf(number, sizeof number, "%" PRIu32, fault->nic);
    } else {
        sim_unit_print(SIM_UNIT_SHARE, fault->factor, number);
    }
    (void)snprintf(text, capacity, "%s", printed);
}
