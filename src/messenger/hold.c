/* On the core thread: submits that wait for a word of the engine's to reach a value. The machine does not know
 * of them yet. A look at each word a turn; there are no more than tickets. */
#include "messenger_internal.h"

#include <stdatomic.h>

static bool reached(const struct hlg_submit *submit)
{
    /* acquire: what the engine, or its device, did before the stamp is seen by whoever writes the pages */
    return submit->not_before == NULL ||
           atomic_load_explicit(submit->not_before, memory_order_acquire) >=
               submit->not_before_value;
}

bool hold_take(struct hlg_messenger *m, struct entry *entry)
{
    if (reached(&entry->submit)) {
        return false;
    }
    HLG_ASSERT(m->held_count < m->entry_count);
    m->held[m->held_count++] =
        (struct held){.entry = entry_index(m, entry),
                      .deadline = hlg_time_after(hlg_pump_now(m->pump), entry->submit.ttl_ns)};
    return true;
}

static void remove_held(struct hlg_messenger *m, uint32_t index)
{
    m->held_count--;
    for (uint32_t i = index; i < m->held_count; i++) {
        m->held[i] = m->held[i + 1];
    }
}

bool hold_drop(struct hlg_messenger *m, const struct entry *entry)
{
    for (uint32_t i = 0; i < m->held_count; i++) {
        if (m->held[i].entry == entry_index(m, entry)) {
            remove_held(m, i);
            return true;
        }
    }
    return false;
}

int hold_step(struct hlg_messenger *m, hlg_time now)
{
    int work = 0;

    for (uint32_t i = 0; i < m->held_count;) {
        struct entry *entry = &m->entries[m->held[i].entry];
        const hlg_time deadline = m->held[i].deadline;
        if (now < deadline && !reached(&entry->submit)) {
            i++;
            continue;
        }
        remove_held(m, i);
        work++;
        if (now < deadline) {
            command_submit(m, entry, deadline - now);
        } else {
            command_fail_submit(m, entry, HLG_REASON_DEADLINE, 0);
        }
    }
    return work;
}
