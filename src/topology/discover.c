/* GPUs, NICs, and the way between them, as hwloc sees them. */
#include "internal.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if HWLOC_API_VERSION < 0x00020400 || HWLOC_API_VERSION >= 0x00030000
#error "hwloc 2.4 or a later 2.x is needed: its device types change with 3.0"
#endif

#define CLASS_DISPLAY    0x03u
#define CLASS_NETWORK    0x02u
#define CLASS_INFINIBAND 0x0207u

/* A device while it is looked for: hwloc's object beside what is told of it. */
struct found_nic {
    hwloc_obj_t pci; /* NULL: on no bus */
    hwloc_obj_t at;  /* what it hangs under, for the way to it */
    struct hlg_topology_nic nic;
};

struct survey {
    hwloc_topology_t hwloc;
    uint32_t gpu_count;
    uint32_t nic_count;
    hwloc_obj_t gpus[HLG_TOPOLOGY_GPUS_MAX];
    struct found_nic nics[HLG_TOPOLOGY_NICS_MAX];
};

static struct hlg_bus_id bus_of(hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    return (struct hlg_bus_id){
        .domain = attr->domain, .bus = attr->bus, .device = attr->dev, .function = attr->func};
}

static int compare_bus(const struct hlg_bus_id *a, const struct hlg_bus_id *b)
{
    const uint64_t key_a =
        (uint64_t)a->domain << 24 | (uint64_t)a->bus << 16 | (uint64_t)a->device << 8 | a->function;
    const uint64_t key_b =
        (uint64_t)b->domain << 24 | (uint64_t)b->bus << 16 | (uint64_t)b->device << 8 | b->function;
    return key_a < key_b ? -1 : key_a > key_b;
}

/* A PCI function with the given classes counts, whatever driver it has. */
static bool is_rdma_function(const struct hwloc_pcidev_attr_s *attr)
{
    const bool efa = attr->vendor_id == VENDOR_AMAZON && (attr->device_id & 0xfff0u) == 0xefa0u;
    const bool mellanox =
        attr->vendor_id == VENDOR_MELLANOX &&
        ((attr->class_id >> 8) == CLASS_NETWORK || attr->class_id == CLASS_INFINIBAND);
    return efa || mellanox;
}

/* ConnectX: their own numbers of virtual functions (linux/drivers/net/ethernet/mellanox/mlx5/core/main.c). EFA's are
 * all virtual, and no physical one is ever seen beside them. */
static bool is_virtual(const struct hwloc_pcidev_attr_s *attr)
{
    static const uint16_t known[] = {0x1012, 0x1014, 0x1016, 0x1018,
                                     0x101a, 0x101c, 0x101e, 0xa2d3};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (attr->vendor_id == VENDOR_MELLANOX && attr->device_id == known[i]) {
            return true;
        }
    }
    return false;
}

/* InfiniBand's port states: 4 is active. A device that tells none may be up. */
static bool is_down(hwloc_obj_t osdev)
{
    bool told = false;
    for (unsigned port = 1; port <= 4; port++) {
        char key[24];
        (void)snprintf(key, sizeof key, "Port%uState", port);
        const char *state = hwloc_obj_get_info_by_name(osdev, key);
        if (state != NULL && state[0] == '4') {
            return false;
        }
        told = told || state != NULL;
    }
    return told;
}

static int add_gpus(struct survey *s, char *error, size_t error_bytes)
{
    hwloc_obj_t pci = NULL;
    while ((pci = hwloc_get_next_pcidev(s->hwloc, pci)) != NULL) {
        if (pci->attr->pcidev.vendor_id != VENDOR_NVIDIA ||
            pci->attr->pcidev.class_id >> 8 != CLASS_DISPLAY) {
            continue;
        }
        if (s->gpu_count == HLG_TOPOLOGY_GPUS_MAX) {
            (void)snprintf(error, error_bytes, "topology: more than %u GPUs",
                           HLG_TOPOLOGY_GPUS_MAX);
            return -HLG_ELIMIT;
        }
        const struct hlg_bus_id bus = bus_of(pci);
        uint32_t at = s->gpu_count++;
        for (; at > 0; at--) {
            const struct hlg_bus_id before = bus_of(s->gpus[at - 1]);
            if (compare_bus(&before, &bus) < 0) {
                break;
            }
            s->gpus[at] = s->gpus[at - 1];
        }
        s->gpus[at] = pci;
    }
    return 0;
}

/* In the order of bus ids, those on no bus last; functions of several devices by name. */
static bool goes_before(const struct found_nic *a, const struct found_nic *b)
{
    if (a->nic.on_bus != b->nic.on_bus) {
        return a->nic.on_bus;
    }
    const int order = compare_bus(&a->nic.bus, &b->nic.bus);
    return order != 0 ? order < 0 : strcmp(a->nic.name, b->nic.name) < 0;
}

static int add_nic(struct survey *s, hwloc_obj_t osdev, hwloc_obj_t pci, char *error,
                   size_t error_bytes)
{
    struct found_nic found = {
        .pci = pci,
        .at = pci != NULL ? pci : osdev,
        .nic = {.on_bus = pci != NULL,
                .driver = osdev != NULL,
                .down = osdev != NULL && is_down(osdev)},
    };
    if (pci != NULL) {
        found.nic.bus = bus_of(pci);
        found.nic.vendor = pci->attr->pcidev.vendor_id;
        found.nic.device = pci->attr->pcidev.device_id;
        found.nic.virtual_function = is_virtual(&pci->attr->pcidev);
    }
    if (osdev != NULL && osdev->name != NULL) {
        topology_copy_name(found.nic.name, osdev->name);
    } else {
        hlg_bus_id_write(&found.nic.bus, found.nic.name);
    }
    if (s->nic_count == HLG_TOPOLOGY_NICS_MAX) {
        (void)snprintf(error, error_bytes, "topology: more than %u NICs", HLG_TOPOLOGY_NICS_MAX);
        return -HLG_ELIMIT;
    }
    uint32_t at = s->nic_count++;
    for (; at > 0 && goes_before(&found, &s->nics[at - 1]); at--) {
        s->nics[at] = s->nics[at - 1];
    }
    s->nics[at] = found;
    return 0;
}

static hwloc_obj_t pci_above(hwloc_obj_t obj)
{
    while (obj != NULL && obj->type != HWLOC_OBJ_PCI_DEVICE) {
        obj = obj->parent;
    }
    return obj;
}

static int add_nics(struct survey *s, char *error, size_t error_bytes)
{
    hwloc_obj_t obj = NULL;
    int status = 0;
    while (status == 0 && (obj = hwloc_get_next_osdev(s->hwloc, obj)) != NULL) {
        if (obj->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
            status = add_nic(s, obj, pci_above(obj), error, error_bytes);
        }
    }
    /* Where the driver of a vendor is loaded, a function without an RDMA device is none. */
    const uint32_t with_driver = s->nic_count;
    while (status == 0 && (obj = hwloc_get_next_pcidev(s->hwloc, obj)) != NULL) {
        bool loaded = false;
        for (uint32_t i = 0; i < s->nic_count && with_driver > 0; i++) {
            loaded = loaded || (s->nics[i].nic.driver &&
                                s->nics[i].nic.vendor == obj->attr->pcidev.vendor_id);
        }
        if (!loaded && is_rdma_function(&obj->attr->pcidev)) {
            status = add_nic(s, NULL, obj, error, error_bytes);
        }
    }
    return status;
}

/* The node that a device is at: nodes without cores (a GPU's own memory) and second memories of the same cores (HBM)
 * do not count. Returns its number, or -1. */
static int32_t numa_of(hwloc_topology_t hwloc, hwloc_obj_t device)
{
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hwloc, device);
    hwloc_obj_t node = NULL;
    hwloc_obj_t found = NULL;
    while (near->nodeset != NULL &&
           (node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!hwloc_bitmap_isset(near->nodeset, node->os_index) ||
            hwloc_bitmap_iszero(node->cpuset)) {
            continue;
        }
        if (found != NULL && !hwloc_bitmap_isequal(found->cpuset, node->cpuset)) {
            return -1;
        }
        if (found == NULL || node->os_index < found->os_index) {
            found = node;
        }
    }
    return found != NULL && found->os_index <= INT32_MAX ? (int32_t)found->os_index : -1;
}

/* Cores near a device; those of the machine where none are. */
static hwloc_const_cpuset_t cores_of(hwloc_topology_t hwloc, hwloc_obj_t device)
{
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hwloc, device);
    return near->cpuset != NULL && !hwloc_bitmap_iszero(near->cpuset)
               ? near->cpuset
               : hwloc_get_root_obj(hwloc)->cpuset;
}

static void write_cores(hwloc_const_cpuset_t cores, char text[HLG_CPULIST_BYTES])
{
    (void)hwloc_bitmap_list_snprintf(text, HLG_CPULIST_BYTES, cores);
}

/* The GPU's part of the cores that it shares with others: one thread of each of its physical cores. */
static void write_slice(const struct survey *s, uint32_t gpu, char text[HLG_CPULIST_BYTES])
{
    hwloc_const_cpuset_t cores = cores_of(s->hwloc, s->gpus[gpu]);
    uint32_t sharers = 0;
    uint32_t turn = 0;
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        if (hwloc_bitmap_isequal(cores, cores_of(s->hwloc, s->gpus[i]))) {
            turn = i == gpu ? sharers : turn;
            sharers++;
        }
    }
    const int found = hwloc_get_nbobjs_inside_cpuset_by_type(s->hwloc, cores, HWLOC_OBJ_CORE);
    const hwloc_obj_type_t type =
        found > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU; /* some VMs hide cores */
    const int listed = hwloc_get_nbobjs_inside_cpuset_by_type(s->hwloc, cores, type);
    const uint32_t count = listed > 0 ? (uint32_t)listed : 0;
    hwloc_bitmap_t slice = hwloc_bitmap_alloc();
    for (uint32_t i = 0; slice != NULL && i < count; i++) {
        const hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(s->hwloc, cores, type, i);
        /* Flooring both: more cores than GPUs are dealt out, more GPUs than cores double up. */
        const bool mine = count >= sharers ? (uint64_t)i * sharers / count == turn
                                           : (uint64_t)turn * count / sharers == i;
        const int first = core != NULL ? hwloc_bitmap_first(core->cpuset) : -1;
        if (mine && first >= 0) {
            (void)hwloc_bitmap_set(slice, (unsigned)first);
        }
    }
    if (slice != NULL) {
        write_cores(slice, text);
    }
    hwloc_bitmap_free(slice);
}

static uint32_t levels_above(hwloc_obj_t obj)
{
    uint32_t levels = 0;
    for (; obj->parent != NULL; obj = obj->parent) {
        levels++;
    }
    return levels;
}

/* hwloc's own function of this kind knows no I/O objects: their depths are special values. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    uint32_t level_a = levels_above(a);
    uint32_t level_b = levels_above(b);
    while (a != b) {
        const uint32_t deepest = level_a > level_b ? level_a : level_b;
        if (level_a == deepest) {
            a = a->parent;
            level_a--;
        }
        if (level_b == deepest) {
            b = b->parent;
            level_b--;
        }
    }
    return a;
}

static struct hlg_topology_near way(hwloc_topology_t hwloc, hwloc_obj_t gpu, hwloc_obj_t nic)
{
    const hwloc_obj_t common = common_ancestor(gpu, nic);
    struct hlg_topology_near near = {.link = HLG_LINK_MACHINE};
    if (common->type == HWLOC_OBJ_BRIDGE) {
        const bool inside = common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
        near.link = inside ? HLG_LINK_SWITCH : HLG_LINK_ROOT;
        near.depth = inside ? levels_above(common) : 0;
        return near;
    }
    const hwloc_obj_t at_gpu = hwloc_get_non_io_ancestor_obj(hwloc, gpu);
    const hwloc_obj_t at_nic = hwloc_get_non_io_ancestor_obj(hwloc, nic);
    const int32_t numa = numa_of(hwloc, gpu);
    const hwloc_obj_t package =
        at_gpu->type == HWLOC_OBJ_PACKAGE
            ? at_gpu
            : hwloc_get_ancestor_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, at_gpu);
    const hwloc_obj_t other =
        at_nic->type == HWLOC_OBJ_PACKAGE
            ? at_nic
            : hwloc_get_ancestor_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, at_nic);
    if (numa >= 0 && numa == numa_of(hwloc, nic)) {
        near.link = HLG_LINK_NUMA;
    } else if (package != NULL && package == other) {
        near.link = HLG_LINK_PACKAGE;
    }
    return near;
}

/* NVML's UUID where hwloc wrote one down; on this machine the driver's. */
static void find_uuid(hwloc_obj_t pci, bool live, char uuid[HLG_TOPOLOGY_NAME_BYTES])
{
    char path[96];
    char line[128];
    char bus[HLG_TOPOLOGY_BUS_BYTES];
    const struct hlg_bus_id id = bus_of(pci);
    for (hwloc_obj_t child = pci->io_first_child; child != NULL; child = child->next_sibling) {
        const char *told = hwloc_obj_get_info_by_name(child, "NVIDIAUUID");
        if (told != NULL) {
            topology_copy_name(uuid, told);
            return;
        }
    }
    hlg_bus_id_write(&id, bus);
    (void)snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", bus);
    FILE *in = live ? fopen(path, "r") : NULL;
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        const char *at = strstr(line, "GPU-");
        if (at != NULL && strncmp(line, "GPU UUID", 8) == 0) {
            (void)snprintf(uuid, HLG_TOPOLOGY_NAME_BYTES, "%.*s", (int)strcspn(at, " \t\r\n"), at);
            break;
        }
    }
    if (in != NULL) {
        (void)fclose(in);
    }
}

static void tell(const struct survey *s, struct hlg_topology *t)
{
    const char *model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(s->hwloc), "DMIProductName");
    model = model != NULL
                ? model
                : hwloc_obj_get_info_by_name(hwloc_get_root_obj(s->hwloc), "PlatformModel");
    topology_copy_name(t->machine, model != NULL ? model : "");
    t->live = hwloc_topology_is_thissystem(s->hwloc) != 0;
    t->nic_count = s->nic_count;
    for (uint32_t i = 0; i < s->nic_count; i++) {
        t->nics[i] = s->nics[i].nic;
        t->nics[i].numa = numa_of(s->hwloc, s->nics[i].at);
        write_cores(cores_of(s->hwloc, s->nics[i].at), t->nics[i].cores);
    }
    t->gpu_count = s->gpu_count;
    t->machine_gpu_count = s->gpu_count;
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        struct hlg_topology_gpu *gpu = &t->gpus[i];
        gpu->index = i;
        gpu->machine_index = i;
        gpu->bus = bus_of(s->gpus[i]);
        gpu->device = s->gpus[i]->attr->pcidev.device_id;
        gpu->numa = numa_of(s->hwloc, s->gpus[i]);
        find_uuid(s->gpus[i], t->live, gpu->uuid);
        write_cores(cores_of(s->hwloc, s->gpus[i]), gpu->cores);
        write_slice(s, i, gpu->slice);
        gpu->nic_count = s->nic_count;
        for (uint32_t nic = 0; nic < s->nic_count; nic++) {
            gpu->nics[nic] = way(s->hwloc, s->gpus[i], s->nics[nic].at);
            gpu->nics[nic].nic = nic;
        }
    }
}

/* Plugins that would start a driver (and with it threads and contexts) tell nothing that is wanted here. */
static void leave_out_plugins(hwloc_topology_t hwloc)
{
    static const char *const plugins[] = {"cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"};
    for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++) {
        (void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            plugins[i]);
    }
}

static int load(hwloc_topology_t hwloc, const char *xml, char *error, size_t error_bytes)
{
    (void)hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL);
    leave_out_plugins(hwloc);
    if (xml != NULL) {
        const int status = topology_xml_check(xml, error, error_bytes);
        if (status != 0) {
            return status;
        }
        if (!topology_xml_loads(xml) || hwloc_topology_set_xml(hwloc, xml) != 0 ||
            hwloc_topology_load(hwloc) != 0) {
            (void)snprintf(error, error_bytes,
                           "%s: hwloc cannot make sense of it: it is broken or cut short; write it "
                           "again with lstopo",
                           xml);
            return -HLG_EINVAL;
        }
        return 0;
    }
    if (hwloc_topology_load(hwloc) != 0) {
        (void)snprintf(error, error_bytes, "topology: hwloc cannot look at this machine: %s",
                       strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
        return -HLG_EIO;
    }
    return 0;
}

int topology_discover(const struct hlg_topology_config *config, struct hlg_topology *t, char *error,
                      size_t error_bytes)
{
    struct survey *s = calloc(1, sizeof *s);
    if (s == NULL || hwloc_topology_init(&s->hwloc) != 0) {
        free(s);
        (void)snprintf(error, error_bytes, "topology: out of memory");
        return -HLG_ENOMEM;
    }
    int status = load(s->hwloc, config->xml, error, error_bytes);
    if (status == 0) {
        status = add_gpus(s, error, error_bytes);
    }
    if (status == 0) {
        status = add_nics(s, error, error_bytes);
    }
    if (status == 0) {
        tell(s, t);
    }
    hwloc_topology_destroy(s->hwloc);
    free(s);
    return status;
}
