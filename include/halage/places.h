/*
 * Where pages lie when nobody has a reason to put them elsewhere.
 */
#ifndef HALAGE_PLACES_H
#define HALAGE_PLACES_H

#include "message.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lay a lane's pages out one after the other in one region: groups in order, within a group
 * [layer][plane][page] over the layers of the lane's stage, stride the page's bytes, each group from
 * a multiple of 4096 on. A context group (layer number: layout->layers) has its place on each lane of
 * the last stage.
 *
 * layout    sound (hlg_layout_check())
 * lane      < hlg_layout_lanes(layout)
 * places    [capacity], region 0; may be NULL with capacity 0 to learn count and bytes
 * bytes     of the region that they need; may be NULL
 *
 * Returns the count of places (more than capacity: only those that fit were written), or -HLG_EINVAL.
 */
int hlg_places_linear(const struct hlg_layout *layout, uint32_t lane, struct hlg_place *places,
                      uint32_t capacity, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
