/* What the files of this directory share. */
#ifndef HALAGE_TOPOLOGY_INTERNAL_H
#define HALAGE_TOPOLOGY_INTERNAL_H

#include <halage/topology.h>

#define VENDOR_NVIDIA   0x10deu
#define VENDOR_AMAZON   0x1d0fu
#define VENDOR_MELLANOX 0x15b3u

/* Fills in machine, GPUs and NICs in the order of bus ids, the GPUs' nics unranked (all NICs, with link and depth). */
int topology_discover(const struct hlg_topology_config *config, struct hlg_topology *t, char *error,
                      size_t error_bytes);

/* Whether the file is XML that this hwloc can read, looking at its beginning. */
int topology_xml_check(const char *file, char *error, size_t error_bytes);

/* Whether hwloc loads the file, tried in a process of its own: hwloc 2.9 dies of some files that are broken. */
bool topology_xml_loads(const char *file);

/* Names NICs as libfabric does. A NIC that libfabric does not know is marked in `unusable`. */
void topology_join(const struct hlg_topology_config *config, struct hlg_topology *t,
                   bool unusable[HLG_TOPOLOGY_NICS_MAX]);

/* Marks the NICs that config->nics leaves out in `unusable`. */
int topology_restrict(const struct hlg_topology_config *config, const struct hlg_topology *t,
                      bool unusable[HLG_TOPOLOGY_NICS_MAX], char *error, size_t error_bytes);

/* Sorts each GPU's NICs, drops those that are unusable, and shares the nearest. */
void topology_rank(struct hlg_topology *t, const bool unusable[HLG_TOPOLOGY_NICS_MAX]);

/* Leaves only the GPUs that are visible, in their order. */
int topology_show(const struct hlg_topology_config *config, struct hlg_topology *t, char *error,
                  size_t error_bytes);

/* Adds a sentence for people; drops it where there is no room. */
__attribute__((format(printf, 2, 3))) void topology_note(struct hlg_topology *t, const char *format,
                                                         ...);

/* Copies a name that the system or a file gave: '?' for what is no printable ASCII. */
void topology_copy_name(char name[HLG_TOPOLOGY_NAME_BYTES], const char *text);

/* Appends to a text of `bytes`, as far as it fits. */
__attribute__((format(printf, 3, 4))) void topology_append(char *text, size_t bytes,
                                                           const char *format, ...);

#endif
