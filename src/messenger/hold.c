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

bool hold_drop(struct hlg_messenger *m, const struct entry *entry)
{
    uint32_t at = 0;

    while (at < m->held_count && m->held[at].entry != entry_index(m, entry)) {
        at++;
    }
    if (at == m->held_count) {
        return false;
    }
    m->held_count--;
    for (; at < m->held_count; at++) {
        m->held[at] = m->held[at + 1];
    }
    return true;
}

int hold_step(struct hlg_messenger *m, hlg_time now)
{
    const uint32_t count = m->held_count;
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct held held = m->held[i];
        struct entry *entry = &m->entries[held.entry];
        if (now < held.deadline && !reached(&entry->submit)) {
            m->held[left++] = held;
        } else if (now < held.deadline) {
            command_submit(m, entry, held.deadline - now);
        } else {
            command_fail_submit(m, entry, HLG_REASON_DEADLINE, 0);
        }
    }
    m->held_count = left;
    return (int)(count - left);
}
