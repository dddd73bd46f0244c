/* Devices of a provider by name and place. */
#ifndef OFI_DEVICES_H
#define OFI_DEVICES_H

#include "provider.h"

/* What libfabric says of an entry's device. */
void ofi_device_tell(const struct fi_info *info, struct hlg_ofi_device *device);

/* Leave of a list only the devices that `names` lists, in its order. Returns 0, or -HLG_EINVAL with a sentence; the list
 * then has all of them still. */
int ofi_devices_keep(struct fi_info **infos, const char *names, char *error, size_t error_bytes);

/* The entries of a list that `names` lists, by number, for each of `rails` rails: in its order, and again from the first
 * where they are fewer. NULL: HLG_NONE for all. Returns 0, or -HLG_EINVAL with a sentence. */
int ofi_devices_pick(const struct fi_info *infos, const char *names, uint32_t rails,
                     uint32_t *picks, char *error, size_t error_bytes);

#endif
