#define _GNU_SOURCE
#include "fake_ofi.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_ofi fake;

/* Options' numbers, of the ABI: see transports/ofi/option.h. Written again, so that a wrong one there shows. */
enum {
    OPT_CUDA_API_PERMITTED = 10,
    OPT_SHARED_MEMORY_PERMITTED = 11,
    OPT_EFA_RNR_RETRY = -(0xefa << 16),
    OPT_EFA_EMULATED_WRITE = OPT_EFA_RNR_RETRY + 2,
    OPT_EFA_USE_DEVICE_RDMA = OPT_EFA_RNR_RETRY + 4,
    OPT_EFA_USE_UNSOLICITED_WRITE_RECV = OPT_EFA_RNR_RETRY + 8,
};

int __wrap_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info);
int __wrap_fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
uint32_t __wrap_fi_version(void);

void fake_reset(const struct fake_device *device)
{
    fake = (struct fake_ofi){.device = *device, .again_peer = FI_ADDR_UNSPEC};
}

/* Returns the error that the call is to give. */
static int call(const char *name)
{
    if (fake.call_count < FAKE_CALLS_MAX) {
        (void)snprintf(fake.calls[fake.call_count++], sizeof fake.calls[0], "%s", name);
    }
    return fake.fail != NULL && strcmp(fake.fail, name) == 0 ? fake.fail_rc : 0;
}

/* ---- objects ------------------------------------------------------------------------------ */

/* Any of libfabric's objects: a fid is the first member of each. */
union object {
    struct fid fid;
    struct fid_fabric fabric;
    struct fid_domain domain;
    struct fid_cq cq;
    struct fid_av av;
    struct fid_ep ep;
    struct fid_mr mr;
};

static bool enabled; /* the endpoint that was made last */
static int cq_descriptor = -1;

static int close_object(struct fid *fid)
{
    if (fid->fclass == FI_CLASS_CQ && cq_descriptor >= 0) {
        (void)close(cq_descriptor);
        cq_descriptor = -1;
    }
    if (fid->fclass == FI_CLASS_EP) {
        fake.ep_close_mrs = fake.mrs;
        fake.ep_close_unread = fake.queue_count;
    }
    fake.mrs -= fid->fclass == FI_CLASS_MR;
    fake.open--;
    free(fid);
    return 0;
}

static int bind_object(struct fid *fid, struct fid *other, uint64_t flags)
{
    const int rc = call("fi_ep_bind");

    (void)fid;
    if (other->fclass == FI_CLASS_CQ) {
        fake.cq_bound = flags;
    }
    return rc;
}

static int control_object(struct fid *fid, int command, void *argument)
{
    if (command == FI_ENABLE && fid->fclass == FI_CLASS_EP) {
        const int rc = call("fi_enable");
        enabled = rc == 0;
        return rc;
    }
    if (command == FI_GETWAIT && cq_descriptor >= 0) {
        *(int *)argument = cq_descriptor;
        return 0;
    }
    return -FI_ENOSYS;
}

static struct fi_ops object_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_object,
    .bind = bind_object,
    .control = control_object,
};

static union object *make(size_t fclass)
{
    union object *object = calloc(1, sizeof *object);

    if (object == NULL) {
        abort();
    }
    object->fid.fclass = fclass;
    object->fid.ops = &object_ops;
    fake.open++;
    fake.mrs += fclass == FI_CLASS_MR;
    return object;
}

/* ---- completion queue, address vector ------------------------------------------------------ */

static ssize_t cq_read(struct fid_cq *cq, void *buffer, size_t count)
{
    struct fi_cq_data_entry *entries = buffer;
    size_t got = 0;

    (void)cq;
    fake.cq_reads++;
    while (got < count && fake.queue_count > 0 && fake.queue[fake.queue_head].error == 0) {
        entries[got++] = fake.queue[fake.queue_head].well;
        fake.queue_head = (fake.queue_head + 1) % FAKE_QUEUE_MAX;
        fake.queue_count--;
    }
    if (got > 0) {
        return (ssize_t)got;
    }
    return fake.queue_count > 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *out, uint64_t flags)
{
    const struct fake_entry *entry = &fake.queue[fake.queue_head];

    (void)cq;
    (void)flags;
    if (fake.queue_count == 0 || entry->error == 0) {
        return -FI_EAGAIN;
    }
    /* Flags of an error are 0 on verbs: fi_verbs(7), "Completion flags are not reported". */
    out->op_context = entry->well.op_context;
    out->err = entry->error;
    out->prov_errno = 10;
    fake.queue_head = (fake.queue_head + 1) % FAKE_QUEUE_MAX;
    fake.queue_count--;
    return 1;
}

static const char *cq_strerror(struct fid_cq *cq, int prov_errno, const void *data, char *text,
                               size_t bytes)
{
    (void)cq;
    (void)data;
    if (bytes > 0) {
        (void)snprintf(text, bytes, "provider's error %d", prov_errno);
    }
    return text;
}

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = cq_read,
    .readerr = cq_readerr,
    .strerror = cq_strerror,
};

static int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                   void *context)
{
    const int rc = call("fi_cq_open");

    (void)domain;
    (void)context;
    if (rc != 0) {
        return rc;
    }
    if (attr->wait_obj == FI_WAIT_FD && !fake.device.cq_descriptor) {
        return -FI_ENOSYS;
    }
    if (attr->size > fake.device.cq_entries_max) {
        return -FI_EINVAL;
    }
    union object *object = make(FI_CLASS_CQ);
    object->cq.ops = &cq_ops;
    fake.cq_asked = attr->size;
    cq_descriptor = attr->wait_obj == FI_WAIT_FD ? eventfd(0, EFD_CLOEXEC) : -1;
    *cq = &object->cq;
    return 0;
}

static int av_insert(struct fid_av *av, const void *address, size_t count, fi_addr_t *out,
                     uint64_t flags, void *context)
{
    static fi_addr_t next;

    (void)av;
    (void)address;
    (void)flags;
    (void)context;
    *out = next++;
    return (int)count;
}

static int av_remove(struct fid_av *av, fi_addr_t *address, size_t count, uint64_t flags)
{
    (void)av;
    (void)address;
    (void)count;
    (void)flags;
    return 0;
}

static struct fi_ops_av av_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = av_insert,
    .remove = av_remove,
};

static int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                   void *context)
{
    const int rc = call("fi_av_open");

    (void)domain;
    (void)attr;
    (void)context;
    if (rc == 0) {
        union object *object = make(FI_CLASS_AV);
        object->av.ops = &av_ops;
        *av = &object->av;
    }
    return rc;
}

/* ---- endpoint ----------------------------------------------------------------------------- */

/* As efa_rdm_ep_setopt() of libfabric 2.6 answers; verbs;ofi_rxm knows none of these. */
static int ep_setopt(struct fid *fid, int level, int number, const void *value, size_t bytes)
{
    const struct fake_device *device = &fake.device;
    const bool efa = strcmp(device->infos[0].provider, "efa") == 0;
    const bool flag = bytes == sizeof(bool) && *(const bool *)value;

    (void)fid;
    if (level != FI_OPT_ENDPOINT || !efa) {
        return -FI_ENOPROTOOPT;
    }
    if (fake.option_count < FAKE_OPTIONS_MAX) {
        fake.options[fake.option_count++] = (struct fake_option){
            .number = number,
            .value = bytes == sizeof(size_t) ? *(const size_t *)value : flag,
            .bytes = bytes,
            .enabled = enabled,
        };
    }
    switch (number) {
    case OPT_EFA_RNR_RETRY:
        return bytes != sizeof(size_t) || enabled ? -FI_EINVAL : device->sets_rnr ? 0 : -FI_ENOSYS;
    case OPT_CUDA_API_PERMITTED:
        return device->has_cuda ? 0 : -FI_EINVAL;
    case OPT_EFA_USE_DEVICE_RDMA:
        if (FI_VERSION_LT(fake.api, FI_VERSION(1, 18))) {
            return -FI_ENOPROTOOPT;
        }
        return flag && !device->has_rdma ? -FI_EOPNOTSUPP : 0;
    case OPT_SHARED_MEMORY_PERMITTED:
        return 0;
    case OPT_EFA_USE_UNSOLICITED_WRITE_RECV:
        return FI_VERSION_LT(device->version, FI_VERSION(2, 5)) ? -FI_ENOPROTOOPT : 0;
    default:
        return -FI_ENOPROTOOPT;
    }
}

static int ep_getopt(struct fid *fid, int level, int number, void *value, size_t *bytes)
{
    (void)fid;
    if (level != FI_OPT_ENDPOINT || number != OPT_EFA_EMULATED_WRITE || *bytes < sizeof(bool)) {
        return -FI_ENOPROTOOPT;
    }
    *(bool *)value = fake.device.emulates_write;
    *bytes = sizeof(bool);
    return 0;
}

static int ep_getname(struct fid *fid, void *address, size_t *bytes)
{
    (void)fid;
    if (*bytes < fake.device.address_bytes) {
        return -FI_ETOOSMALL;
    }
    *bytes = fake.device.address_bytes;
    memset(address, 0x2a, *bytes);
    return 0;
}

static ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
    (void)ep;
    if (fake.again_count > 0 && (fake.again_peer == FI_ADDR_UNSPEC || fake.again_peer == m->addr)) {
        fake.again_count--;
        return -FI_EAGAIN;
    }
    if (fake.write_rc != 0) {
        return fake.write_rc;
    }
    if (m->iov_count != 1 || m->rma_iov_count != 1 || fake.write_count == FAKE_WRITES_MAX) {
        return -FI_EINVAL;
    }
    fake.writes[fake.write_count++] = (struct fake_write){
        .flags = flags,
        .data = m->data,
        .address = m->rma_iov->addr,
        .key = m->rma_iov->key,
        .bytes = m->rma_iov->len,
        .local = m->msg_iov->iov_base,
        .descriptor = m->desc[0],
        .context = m->context,
        .peer = m->addr,
    };
    return 0;
}

static ssize_t ep_read(struct fid_ep *ep, void *to, size_t bytes, void *descriptor, fi_addr_t peer,
                       uint64_t address, uint64_t key, void *context)
{
    (void)ep;
    if (fake.again_count > 0) {
        fake.again_count--;
        return -FI_EAGAIN;
    }
    if (fake.write_rc != 0) {
        return fake.write_rc;
    }
    fake.read_count++;
    fake.read = (struct fake_read){.address = address,
                                   .key = key,
                                   .bytes = bytes,
                                   .local = to,
                                   .descriptor = descriptor,
                                   .context = context,
                                   .peer = peer};
    return 0;
}

static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .setopt = ep_setopt,
    .getopt = ep_getopt,
};
static struct fi_ops_cm cm_ops = {.size = sizeof(struct fi_ops_cm), .getname = ep_getname};
static struct fi_ops_rma rma_ops = {
    .size = sizeof(struct fi_ops_rma), .read = ep_read, .writemsg = ep_writemsg};

static int endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                    void *context)
{
    const int rc = call("fi_endpoint");

    (void)domain;
    (void)info;
    (void)context;
    if (rc == 0) {
        union object *object = make(FI_CLASS_EP);
        object->ep.ops = &ep_ops;
        object->ep.cm = &cm_ops;
        object->ep.rma = &rma_ops;
        enabled = false;
        *ep = &object->ep;
    }
    return rc;
}

/* ---- memory, domain, fabric ---------------------------------------------------------------- */

static int make_mr(uint64_t access, uint64_t key, struct fid_mr **mr)
{
    static uint64_t keys = 0x5000;
    const int rc = call("fi_mr_reg");

    if (rc == 0) {
        union object *object = make(FI_CLASS_MR);
        const bool theirs = (fake.device.mr_mode & FI_MR_PROV_KEY) != 0;
        object->mr.key = theirs ? ++keys : key;
        object->mr.mem_desc = object;
        fake.registered_access = access;
        fake.registered_accesses |= access;
        *mr = &object->mr;
    }
    return rc;
}

static int mr_reg(struct fid *fid, const void *base, size_t bytes, uint64_t access, uint64_t offset,
                  uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
    (void)fid;
    (void)base;
    (void)bytes;
    (void)offset;
    (void)flags;
    (void)context;
    fake.registered_iface = FI_HMEM_SYSTEM;
    return make_mr(access, key, mr);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **mr)
{
    (void)fid;
    fake.registered_iface = (int)attr->iface;
    fake.registered_device = attr->device.cuda;
    fake.registered_flags = flags;
    return make_mr(attr->access, attr->requested_key, mr);
}

static struct fi_ops_mr mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = mr_reg,
    .regattr = mr_regattr,
};
static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = av_open,
    .cq_open = cq_open,
    .endpoint = endpoint,
};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                       void *context)
{
    const int rc = call("fi_domain");

    (void)fabric;
    (void)info;
    (void)context;
    if (rc == 0) {
        union object *object = make(FI_CLASS_DOMAIN);
        object->domain.ops = &domain_ops;
        object->domain.mr = &mr_ops;
        *domain = &object->domain;
    }
    return rc;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric;
    (void)fids;
    (void)count;
    return fake.trywait_rc;
}

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = open_domain,
    .trywait = trywait,
};

int __wrap_fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    const int rc = call("fi_fabric");

    (void)attr;
    (void)context;
    if (rc == 0) {
        union object *object = make(FI_CLASS_FABRIC);
        object->fabric.ops = &fabric_ops;
        *fabric = &object->fabric;
    }
    return rc;
}

/* ---- what there is ------------------------------------------------------------------------- */

uint32_t __wrap_fi_version(void)
{
    return fake.device.version;
}

static struct fi_info *make_info(const struct fake_info *from)
{
    const struct fake_device *device = &fake.device;
    struct fi_info *info = fi_allocinfo();

    if (info == NULL) {
        abort();
    }
    info->fabric_attr->prov_name = strdup(from->provider);
    info->fabric_attr->name = strdup(from->fabric);
    info->domain_attr->name = strdup(from->domain);
    info->domain_attr->mr_mode = (int)device->mr_mode;
    info->domain_attr->mr_key_size = device->mr_key_size;
    info->domain_attr->cq_data_size = device->cq_data_size;
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->max_msg_size = device->max_msg_size;
    info->tx_attr->size = device->tx_size;
    info->tx_attr->inject_size = device->inject_size;
    info->tx_attr->iov_limit = 1;
    info->tx_attr->rma_iov_limit = 1;
    info->addr_format = device->addr_format;
    return info;
}

static void copy_environment(char *out, size_t bytes, const char *name)
{
    const char *value = getenv(name);

    (void)snprintf(out, bytes, "%s", value != NULL ? value : "");
}

int __wrap_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info)
{
    const struct fake_info *infos = fake.device.infos;
    struct fi_info *first = NULL;
    struct fi_info **tail = &first;

    (void)service;
    (void)flags;
    if (hints == NULL || strcmp(hints->fabric_attr->prov_name, infos[0].provider) != 0) {
        return -FI_ENODATA;
    }
    fake.api = version;
    fake.getinfo_count++;
    (void)snprintf(fake.node, sizeof fake.node, "%s", node != NULL ? node : "");
    copy_environment(fake.universe, sizeof fake.universe, "FI_UNIVERSE_SIZE");
    copy_environment(fake.fork_safe[0], sizeof fake.fork_safe[0], "FI_EFA_FORK_SAFE");
    copy_environment(fake.fork_safe[1], sizeof fake.fork_safe[1], "RDMAV_FORK_SAFE");
    copy_environment(fake.fork_safe[2], sizeof fake.fork_safe[2], "FI_EFA_ENABLE_SHM_TRANSFER");
    if (FI_VERSION_LT(fake.device.version, version) ||
        (fake.device.mr_mode & ~(uint64_t)(unsigned)hints->domain_attr->mr_mode) != 0) {
        return FI_VERSION_LT(fake.device.version, version) ? -FI_ENOSYS : -FI_ENODATA;
    }
    if ((hints->caps & FI_HMEM) != 0 && !fake.device.has_hmem) {
        return -FI_ENODATA;
    }
    for (uint32_t i = 0; i < FAKE_INFOS_MAX && infos[i].provider != NULL; i++) {
        *tail = make_info(&infos[i]);
        (*tail)->caps |= hints->caps & FI_HMEM;
        tail = &(*tail)->next;
    }
    *info = first;
    return first != NULL ? 0 : -FI_ENODATA;
}

/* ---- what the test says ------------------------------------------------------------------- */

static void put(const struct fake_entry *entry)
{
    if (fake.queue_count == FAKE_QUEUE_MAX) {
        abort();
    }
    fake.queue[(fake.queue_head + fake.queue_count++) % FAKE_QUEUE_MAX] = *entry;
}

void fake_done(uint32_t write)
{
    put(&(struct fake_entry){
        .well = {.op_context = fake.writes[write].context, .flags = FI_RMA | FI_WRITE}});
}

void fake_error(uint32_t write, int error, bool nameless)
{
    put(&(struct fake_entry){.well = {.op_context = nameless ? NULL : fake.writes[write].context},
                             .error = error});
}

void fake_read_ends(int error)
{
    put(&(struct fake_entry){.well = {.op_context = fake.read.context, .flags = FI_RMA | FI_READ},
                             .error = error});
}

void fake_arrives(uint32_t imm)
{
    put(&(struct fake_entry){
        .well = {.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .data = imm}});
}

void fake_arrives_bare(void)
{
    put(&(struct fake_entry){.well = {.flags = FI_RMA | FI_REMOTE_WRITE}});
}

uint32_t fake_option_sets(int number, size_t value)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < fake.option_count; i++) {
        count += fake.options[i].number == number && fake.options[i].value == value &&
                 !fake.options[i].enabled;
    }
    return count;
}
