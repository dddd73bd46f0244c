// The one C++ file, for SimGrid 3.32 and 4.0: the C API of 3.32 has no asynchronous one-sided flow and
// lets its exceptions through C frames. Nothing but sgx.h may call in here.
#include "sgx.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <set>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

namespace {

std::vector<sgx_nic> shape;
double uplink = 0; // bytes/s, or 0: no groups
bool in_use = false;
std::vector<sg::Host *> nics;
std::vector<sg::SplitDuplexLink *> links; // of the NICs
std::set<uint32_t> changed;               // NICs whose bandwidth is not their shape's
// Never destroyed: when the process exits, what a flow refers to inside SimGrid may be gone first (3.32).
auto &flows = *new std::vector<sg::CommPtr>;
auto &over = *new std::vector<sg::CommPtr>; // cancelled or ended, and kept for one run: nobody gets
                                            // their address
std::vector<uint32_t> ended;
size_t reported = 0; // of these, by the last run
// Engine::run_until returns after the round in which this set is no longer empty: SimGrid asks no
// more of it, and it is the only way out of the loop before its date (EngineImpl::run, 3.32).
std::set<sg::Activity *> stop;
std::vector<sg::CommPtr> former; // what `over` held when the last run began
// 3.32 lets a cancelled flow keep its share of the links until the round after, which may be that of
// the end of another one. So a round of one nanosecond comes first.
bool cancelled = false;
constexpr double cancel_seconds = 1e-9;
constexpr double same_seconds = 1e-12; // of the clock
// SimGrid's unit of data, of which it takes whole ones: a byte would be 20 ps of a fast NIC, and what is
// left of a flow is not whole. A power of two changes no digit.
constexpr double units = 1048576;        // of a byte
constexpr uint32_t table_nics_max = 128; // 2 MB of routes
char error[256] = "";

template <typename Body> int guarded(Body body)
{
    try {
        return body();
    } catch (std::exception const &e) {
        (void)std::snprintf(error, sizeof error, "%s", e.what());
        return -1;
    }
}

int fail(const char *sentence)
{
    (void)std::snprintf(error, sizeof error, "%s", sentence);
    return -1;
}

// What 4.0 calls otherwise than 3.32.
#if SIMGRID_VERSION >= 40000
using Finished = sg::Comm; // of what a callback tells the end

sg::NetZone *add_full_zone(sg::Engine *engine, const char *name)
{
    return engine->get_netzone_root()->add_netzone_full(name);
}

sg::NetZone *add_star_zone(sg::Engine *engine, sg::NetZone *parent, const std::string &name)
{
    return (parent != nullptr ? parent : engine->get_netzone_root())->add_netzone_star(name);
}

sg::Host *add_host(sg::NetZone *zone, const std::string &name)
{
    return zone->add_host(name, 1e9)->seal();
}

sg::SplitDuplexLink *add_link(sg::NetZone *zone, const std::string &name, double bandwidth)
{
    return zone->add_split_duplex_link(name, bandwidth);
}

// To a zone of a star, through a router of its own, which the star reaches by no link (seal() says so).
void add_route_to_zone(sg::NetZone *root, sg::NetZone *zone, const std::string &router,
                       const std::vector<sg::LinkInRoute> &by)
{
    zone->set_gateway(zone->add_router(router));
    zone->seal();
    root->add_route(zone, nullptr, by, true);
}

void add_route(sg::NetZone *zone, const sg::Host *source, const sg::Host *target,
               const std::vector<sg::LinkInRoute> &by, bool back)
{
    zone->add_route(source, target, by, back);
}
#else
using Finished = sg::Activity;

sg::NetZone *add_full_zone(sg::Engine *, const char *name)
{
    return sg::create_full_zone(name);
}

sg::NetZone *add_star_zone(sg::Engine *, sg::NetZone *parent, const std::string &name)
{
    auto *zone = sg::create_star_zone(name);
    return parent != nullptr ? zone->set_parent(parent) : zone;
}

sg::Host *add_host(sg::NetZone *zone, const std::string &name)
{
    return zone->create_host(name, 1e9)->seal();
}

sg::SplitDuplexLink *add_link(sg::NetZone *zone, const std::string &name, double bandwidth)
{
    return zone->create_split_duplex_link(name, bandwidth);
}

void add_route_to_zone(sg::NetZone *root, sg::NetZone *zone, const std::string &name,
                       const std::vector<sg::LinkInRoute> &by)
{
    auto *router = zone->create_router(name);
    zone->add_route(router, nullptr, nullptr, nullptr, std::vector<sg::LinkInRoute>{}, true);
    zone->seal();
    root->add_route(zone->get_netpoint(), nullptr, router, nullptr, by, true);
}

void add_route(sg::NetZone *zone, const sg::Host *source, const sg::Host *target,
               const std::vector<sg::LinkInRoute> &by, bool back)
{
    zone->add_route(source->get_netpoint(), target != nullptr ? target->get_netpoint() : nullptr,
                    nullptr, nullptr, by, back);
}
#endif

// 3.32 reports some flows twice, and cancelled ones later: by then the number may be another's.
void on_completion(Finished const &activity)
{
    const auto number = reinterpret_cast<uintptr_t>(activity.get_data<void>());
    if (number != 0 && number <= flows.size() && flows[number - 1].get() == &activity) {
        over.push_back(std::move(flows[number - 1]));
        ended.push_back(static_cast<uint32_t>(number - 1));
        stop.insert(nullptr);
    }
}

void attach(sg::NetZone *zone, uint32_t nic)
{
    const std::string name = "nic" + std::to_string(nic);
    auto *host = add_host(zone, name);
    // No latency: CM02 would share by it. The transport adds it.
    auto *link = add_link(zone, name, shape[nic].bandwidth * units);
    link->seal();
    nics.push_back(host);
    links.push_back(link);
}

// From the NIC out, to whatever is behind a star's middle.
void attach_to_star(sg::NetZone *zone, uint32_t nic)
{
    attach(zone, nic);
    add_route(zone, nics[nic], nullptr, {{links[nic], sg::LinkInRoute::Direction::UP}}, true);
}

// The same routes as a star's, each by itself: SimGrid finds one in a third of the time (3.32, measured),
// at the price of a table of all pairs.
void build_table(sg::Engine *engine, uint32_t count)
{
    auto *root = add_full_zone(engine, "fabric");
    for (uint32_t nic = 0; nic < count; nic++) {
        attach(root, nic);
    }
    for (uint32_t pair = 0; pair < count * count; pair++) {
        const uint32_t source = pair / count;
        const uint32_t target = pair % count;
        if (source != target) {
            add_route(root, nics[source], nics[target],
                      {{links[source], sg::LinkInRoute::Direction::UP},
                       {links[target], sg::LinkInRoute::Direction::DOWN}},
                      false);
        }
    }
    root->seal();
}

void build(sg::Engine *engine)
{
    const auto count = static_cast<uint32_t>(shape.size());
    if (uplink == 0 && count <= table_nics_max) {
        build_table(engine, count);
        return;
    }
    auto *root = add_star_zone(engine, nullptr, "fabric");
    for (uint32_t nic = 0; uplink == 0 && nic < count; nic++) {
        attach_to_star(root, nic);
    }
    for (uint32_t nic = 0; uplink != 0 && nic < count;) {
        const uint32_t group = shape[nic].group;
        const std::string name = "group" + std::to_string(group);
        auto *zone = add_star_zone(engine, root, name);
        for (; nic < count && shape[nic].group == group; nic++) {
            attach_to_star(zone, nic);
        }
        const auto *up = add_link(root, name + "up", uplink * units)->seal();
        add_route_to_zone(root, zone, name + "router", {{up, sg::LinkInRoute::Direction::UP}});
    }
    root->seal();
}

// SimGrid takes these signals (3.32, measured), which are not a library's to take: put them back.
constexpr std::array<int, 3> taken_signals = {SIGINT, SIGBUS, SIGSEGV};

void start_engine()
{
    std::array<struct sigaction, taken_signals.size()> before;
    for (size_t i = 0; i < before.size(); i++) {
        (void)sigaction(taken_signals[i], nullptr, &before[i]);
    }
    static char arguments[][40] = {"halage", "--log=root.thresh:error", "--cfg=network/model:CM02",
                                   "--cfg=network/crosstraffic:no", "--cfg=network/TCP-gamma:0"};
    static char *argv[] = {arguments[0], arguments[1], arguments[2],
                           arguments[3], arguments[4], nullptr};
    int argc = 5;
    auto *engine = new sg::Engine(&argc, argv); // SimGrid's singleton: it deletes itself at exit
    for (size_t i = 0; i < before.size(); i++) {
        (void)sigaction(taken_signals[i], &before[i], nullptr);
    }
    build(engine);
    engine->track_vetoed_activities(&stop);
    Finished::on_completion_cb(on_completion);
}

bool is_same(const sgx_platform &platform)
{
    bool same = shape.size() == platform.nic_count && uplink == platform.group_bandwidth;
    for (uint32_t nic = 0; same && nic < platform.nic_count; nic++) {
        same = shape[nic].bandwidth == platform.nics[nic].bandwidth &&
               (uplink == 0 || shape[nic].group == platform.nics[nic].group);
    }
    return same;
}

void set_bandwidth(uint32_t nic, double bandwidth)
{
    links.at(nic)->get_link_up()->set_bandwidth(bandwidth * units);
    links.at(nic)->get_link_down()->set_bandwidth(bandwidth * units);
}

void restore()
{
    for (const uint32_t nic : changed) {
        set_bandwidth(nic, shape[nic].bandwidth);
    }
    changed.clear();
}

void free_shares()
{
    if (cancelled) {
        cancelled = false;
        sg::Engine::get_instance()->run_until(sg::Engine::get_clock() + cancel_seconds);
    }
}

void advance_to(double when)
{
    free_shares();
    while (when - sg::Engine::get_clock() > same_seconds) {
        stop.clear();
        sg::Engine::get_instance()->run_until(when);
    }
}

} // namespace

extern "C" int sgx_open(const sgx_platform *platform)
{
    return guarded([=] {
        const bool first = nics.empty();
        if (in_use) {
            return fail("the process's one SimGrid engine is in use");
        }
        if (!first && !is_same(*platform)) {
            return fail("a process has one SimGrid platform, and it is another: fork first");
        }
        if (first) {
            shape.assign(platform->nics, platform->nics + platform->nic_count);
            uplink = platform->group_bandwidth;
        }
        if (first) {
            start_engine();
        }
        restore();
        in_use = true;
        return 0;
    });
}

extern "C" void sgx_close(void)
{
    flows.clear();
    ended.clear();
    reported = 0;
    in_use = false;
}

extern "C" int sgx_flow(uint32_t flow, uint32_t source, uint32_t target, double bytes)
{
    return guarded([=] {
        if (bytes >= 0x1p44) { // 17 TB: in units it must fit 64 bits
            return fail("a flow is too large");
        }
        auto comm = sg::Comm::sendto_init();
        comm->set_payload_size(static_cast<uint64_t>(bytes * units));
        comm->set_data(reinterpret_cast<void *>(static_cast<uintptr_t>(flow) + 1));
        comm->set_source(nics.at(source))->set_destination(nics.at(target)); // this starts it
        if (flow >= flows.size()) {
            flows.resize(2 * static_cast<size_t>(flow) + 1); // in use are the low numbers
        }
        flows[flow] = std::move(comm);
        return 0;
    });
}

extern "C" int sgx_cancel(uint32_t flow)
{
    return guarded([=] {
        sg::CommPtr comm = flows.at(flow);
        if (comm == nullptr) { // it has just ended
            const auto unreported = ended.begin() + static_cast<std::ptrdiff_t>(reported);
            const auto found = std::find(unreported, ended.end(), flow);
            if (found == ended.end()) {
                return fail("a flow is cancelled that is none");
            }
            ended.erase(found);
            return 0;
        }
        flows.at(flow) = nullptr;
        over.push_back(comm);
        comm->cancel();
        cancelled = true;
        return 0;
    });
}

extern "C" int sgx_set_bandwidth(uint32_t nic, double bandwidth)
{
    return guarded([=] {
        changed.insert(nic);
        set_bandwidth(nic, bandwidth);
        return 0;
    });
}

extern "C" int sgx_sync(double when)
{
    return guarded([=] {
        advance_to(when);
        return 0;
    });
}

extern "C" int sgx_run(double when)
{
    return guarded([=] {
        ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(reported));
        reported = 0;
        former.clear();
        former.swap(over);
        if (ended.empty()) {
            stop.clear();
            free_shares();
            if (when < 0 && stop.empty()) {
                sg::Engine::get_instance()->run();
            }
            // It stops anywhere within 10 us of the date (3.32): again, one round a call.
            while (stop.empty() && when - sg::Engine::get_clock() > same_seconds) {
                sg::Engine::get_instance()->run_until(when);
            }
        }
        reported = ended.size();
        return static_cast<int>(reported);
    });
}

extern "C" double sgx_next(void)
{
    const double now = sg::Engine::get_clock();
    double next = -1;
    if (cancelled || ended.size() > reported) {
        return now;
    }
    // The engine asks its models the same, and may again: the answer changes nothing (3.32).
    for (auto *model : sg::Engine::get_instance()->get_all_models()) {
        const double delay = model->next_occurring_event(now);
        if (delay >= 0 && (next < 0 || now + delay < next)) {
            next = now + delay;
        }
    }
    return next;
}

extern "C" uint32_t sgx_ended(uint32_t index)
{
    return ended[index];
}

extern "C" double sgx_now(void)
{
    return sg::Engine::get_clock();
}

extern "C" const char *sgx_error(void)
{
    return error;
}
