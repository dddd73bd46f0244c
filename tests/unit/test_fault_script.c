/*
 * Rules and scripts of the decorator: what there can be is taken as it is meant, all else is answered
 * with one sentence that says where, what and what fits, and leaves everything as it was.
 */
#include "fault_net.h"

static struct hlg_fault *fault;

static int make(void **state)
{
    struct hlg_fault_config config;

    (void)state;
    hlg_fault_config_default(&config);
    config.nodes = 3;
    config.rules_max = 4;
    return hlg_fault_create(&config, &fault);
}

static int drop(void **state)
{
    (void)state;
    hlg_fault_destroy(fault);
    fault = NULL;
    return 0;
}

struct complaint {
    const char *script;
    const char *sentence;
};

static const char kinds[] =
    "delay reorder duplicate fail-before fail-after fail-late refuse partial imm-late imm-stale "
    "frame-delay frame-drop kill freeze partition half-open slow clock-stall clock-jump "
    "close-fails";

static const struct complaint complaints[] = {
    {"refuse nth 1\n\n  # a comment\nrefuse node x",
     "line 4: node \"x\" is no number from 0 to 4294967294"},
    {"refuse node \x1b[2J\x7f", "line 1: node \"?[2J?\" is no number from 0 to 4294967294"},
    {"refuse node", "line 1: node needs a number"},
    {"refuse node -1", "line 1: node \"-1\" is no number from 0 to 4294967294"},
    {"refuse node 3", "line 1: refuse: node and peer must be below the number of nodes"},
    {"refuse peer 3", "line 1: refuse: node and peer must be below the number of nodes"},
    {"refuse lane 64", "line 1: lane \"64\" is no number from 0 to 63"},
    {"refuse rail 32", "line 1: rail \"32\" is no number from 0 to 31"},
    {"refuse ppm 0", "line 1: ppm \"0\" is no number from 1 to 1000000"},
    {"refuse ppm 1000001", "line 1: ppm \"1000001\" is no number from 1 to 1000000"},
    {"refuse ppm 1.5", "line 1: ppm \"1.5\" is no number from 1 to 1000000"},
    {"refuse nth 0", "line 1: nth \"0\" is no number from 1 to 18446744073709551614"},
    {"refuse nth 99999999999999999999",
     "line 1: nth \"99999999999999999999\" is no number from 1 to 18446744073709551614"},
    {"refuse count 0", "line 1: count \"0\" is no number from 1 to 4294967294"},
    {"refuse at 5",
     "line 1: at \"5\" is no time: write a number and one of ns us ms s, as in 20us"},
    {"refuse at", "line 1: at needs a time, such as 20us"},
    {"refuse at 5m",
     "line 1: at \"5m\" is no time: write a number and one of ns us ms s, as in 20us"},
    {"refuse at 99999999999999999s", "line 1: at \"99999999999999999s\" is no time: write a number "
                                     "and one of ns us ms s, as in 20us"},
    {"delay span", "line 1: span needs a time, such as 20us or 1ms..5ms"},
    {"delay span 5ms..1ms", "line 1: span \"5ms..1ms\" is no span: write a time, two with .. "
                            "between and the shorter first, "
                            "or forever, as in 1ms..5ms"},
    {"delay span 5ms..", "line 1: span \"5ms..\" is no span: write a time, two with .. between and "
                         "the shorter first, or "
                         "forever, as in 1ms..5ms"},
    {"slow rate 5",
     "line 1: rate \"5\" is no rate: write a number and one of B/s kB/s MB/s GB/s KiB/s "
     "MiB/s GiB/s, as in 10MB/s"},
    {"slow rate", "line 1: rate needs bytes a second, such as 10MB/s"},
    {"delay nth 1", "line 1: delay: needs a span above 0"},
    {"freeze node 0", "line 1: freeze: needs a span above 0"},
    {"slow span 1s", "line 1: slow: needs a rate above 0"},
    {"delay span 1s rate 5B/s", "line 1: delay: knows no rate: leave it out"},
    {"refuse ppm 5 nth 5", "line 1: refuse: give one of ppm, nth and at"},
    {"refuse at 1s nth 5", "line 1: refuse: give one of ppm, nth and at"},
    {"kill", "line 1: kill: needs its node: say which"},
    {"freeze span 1s", "line 1: freeze: needs its node: say which"},
    {"kill node 1 peer 2", "line 1: kill: knows no peer: leave it out"},
    {"imm-late peer 2 span 1s", "line 1: imm-late: knows no peer: leave it out"},
    {"kill node 1 ppm 5", "line 1: kill: comes at a time or at once: leave out ppm and nth"},
    {"partition nth 5 span 1s",
     "line 1: partition: comes at a time or at once: leave out ppm and nth"},
    {"partition count 5 span 1s", "line 1: partition: comes once: leave out count"},
    {"frame-drop lane 0", "line 1: frame-drop: knows no lane and no rail: leave them out"},
    {"refuse node 1 node 2", "line 1: \"node\" is there twice: write it once"},
    {"refuse nodes 1",
     "line 1: \"nodes\" is unknown: write one of node peer lane rail ppm nth at span rate count"},
    {"refuse\nrefuse\nrefuse\nrefuse\nrefuse",
     "line 5: no room for one more rule: raise rules_max above 4"},
};

static void what_cannot_be_is_answered_with_its_line(void **state)
{
    char error[512];
    struct hlg_fault_rule rule = {.kind = HLG_FAULT_REFUSE};

    (void)state;
    for (size_t index = 0; index < sizeof(complaints) / sizeof(complaints[0]); index++) {
        memset(error, 0, sizeof(error));
        assert_int_equal(hlg_fault_script(fault, complaints[index].script, error, sizeof(error)),
                         -HLG_EINVAL);
        assert_string_equal(error, complaints[index].sentence);
        assert_int_equal(hlg_fault_check(fault), 0);
    }
    /* nothing of them was added */
    for (uint32_t count = 0; count < 4; count++) {
        assert_int_equal(hlg_fault_add(fault, &rule, NULL, 0), count);
    }
    assert_int_equal(hlg_fault_add(fault, &rule, error, sizeof(error)), -HLG_ELIMIT);
    assert_string_equal(error, "refuse: rules_max rules are there already");
}

static void an_unknown_kind_is_told_all_kinds(void **state)
{
    char error[512];
    char wanted[512];

    (void)state;
    (void)snprintf(wanted, sizeof(wanted), "line 2: \"dealy\" is no fault: write one of %s", kinds);
    assert_int_equal(hlg_fault_script(fault, "\n dealy ppm 5", error, sizeof(error)), -HLG_EINVAL);
    assert_string_equal(error, wanted);
}

/* Cut, filled up and garbled scripts, and a sentence that has no room: nothing but an error. */
static void any_text_is_taken_or_refused(void **state)
{
    static const char good[] =
        "slow node 0 peer 1 lane 0 rail 3 at 10ms span 1ms..5ms rate 10MiB/s\n";
    char text[sizeof(good) + 1];
    char small[8];
    uint64_t random = 7;
    uint32_t taken = 0;

    (void)state;
    for (uint32_t length = 0; length < sizeof(good); length++) {
        memcpy(text, good, sizeof(good));
        text[length] = 0;
        taken += hlg_fault_script(fault, text, NULL, 0) == 0;
        hlg_fault_calm(fault);
    }
    for (uint32_t round = 0; round < 20000; round++) {
        memcpy(text, good, sizeof(good));
        for (uint32_t change = 0; change < 3; change++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            text[(random >> 33) % (sizeof(good) - 1)] = (char)(random >> 56);
        }
        taken += hlg_fault_script(fault, text, small, sizeof(small)) == 0;
        assert_int_equal(hlg_fault_check(fault), 0);
        hlg_fault_calm(fault);
    }
    assert_in_range(taken, 3, 19999);
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = 0;
    assert_int_equal(hlg_fault_script(fault, text, small, sizeof(small)), -HLG_EINVAL);
    assert_string_equal(small, "line 1:");
}

static void every_kind_has_its_name(void **state)
{
    char names[512] = "";
    char line[128];

    (void)state;
    for (uint32_t kind = HLG_FAULT_DELAY; kind < HLG_FAULT_KINDS; kind++) {
        const char *extra = kind == HLG_FAULT_SLOW ? "rate 1GB/s" : "";

        (void)snprintf(line, sizeof(line), "%s node 2 span 1s %s # %u", hlg_fault_name(kind), extra,
                       kind);
        assert_int_equal(hlg_fault_script(fault, line, NULL, 0), 0);
        hlg_fault_calm(fault);
        (void)strncat(names, kind > 1 ? " " : "", sizeof(names) - strlen(names) - 1);
        (void)strncat(names, hlg_fault_name(kind), sizeof(names) - strlen(names) - 1);
    }
    assert_string_equal(names, kinds);
    assert_string_equal(hlg_fault_name(0), "none");
    assert_string_equal(hlg_fault_name(HLG_FAULT_KINDS), "none");
}

static void rules_of_structs_are_checked_too(void **state)
{
    const struct hlg_fault_rule any = {.kind = HLG_FAULT_DELAY,
                                       .node = HLG_FAULT_ANY,
                                       .peer = HLG_FAULT_ANY,
                                       .lane = HLG_FAULT_ANY,
                                       .rail = HLG_FAULT_ANY,
                                       .span = 5};
    struct hlg_fault_rule rule = any;
    char error[256];

    (void)state;
    rule.kind = 0;
    assert_int_equal(hlg_fault_add(fault, &rule, error, sizeof(error)), -HLG_EINVAL);
    assert_string_equal(error, "none: kind must be one of enum hlg_fault_kind");
    rule.kind = HLG_FAULT_KINDS;
    assert_int_equal(hlg_fault_add(fault, &rule, error, sizeof(error)), -HLG_EINVAL);
    rule = any;
    rule.ppm = 1000001;
    assert_int_equal(hlg_fault_add(fault, &rule, error, sizeof(error)), -HLG_EINVAL);
    assert_string_equal(error, "delay: ppm must be at most 1000000");
    rule = any;
    rule.span_max = HLG_TIME_NEVER;
    assert_int_equal(hlg_fault_add(fault, &rule, error, sizeof(error)), -HLG_EINVAL);
    assert_string_equal(error, "delay: span can be drawn between two times only");
    assert_int_equal(hlg_fault_add(fault, &any, NULL, 0), 0);
}

/* A number names one rule for ever: the next in its place has another. */
static void removing_twice_is_no_harm(void **state)
{
    const struct hlg_fault_rule rule = {.kind = HLG_FAULT_REFUSE};

    (void)state;
    const int first = hlg_fault_add(fault, &rule, NULL, 0);
    hlg_fault_remove(fault, (uint32_t)first);
    const int second = hlg_fault_add(fault, &rule, NULL, 0);
    assert_true(first >= 0 && second >= 0 && first != second);
    hlg_fault_remove(fault, (uint32_t)first);
    hlg_fault_remove(fault, UINT32_MAX);
    assert_int_equal(hlg_fault_check(fault), 0);
    for (uint32_t count = 1; count < 4; count++) {
        assert_true(hlg_fault_add(fault, &rule, NULL, 0) >= 0);
    }
    assert_int_equal(hlg_fault_add(fault, &rule, NULL, 0), -HLG_ELIMIT);
}

static void configurations_are_checked(void **state)
{
    struct hlg_fault_config good;
    struct hlg_fault *none = NULL;

    (void)state;
    hlg_fault_config_default(&good);
    for (uint32_t field = 0; field < 9; field++) {
        struct hlg_fault_config c = good;
        uint32_t *const fields[] = {&c.nodes,        &c.rules_max,         &c.endpoints_max,
                                    &c.peers_max,    &c.held_max,          &c.frames_max,
                                    &c.channels_max, &c.message_bytes_max, &c.late_bytes_max};
        *fields[field] = field < 8 ? 0 : UINT32_MAX;
        assert_int_equal(hlg_fault_create(&c, &none), -HLG_EINVAL);
    }
    good.late_bytes_max = 0;
    assert_int_equal(hlg_fault_create(&good, &none), 0);
    char error[256];
    assert_int_equal(hlg_fault_script(none, "fail-late span 1us", error, sizeof(error)),
                     -HLG_EINVAL);
    assert_string_equal(error,
                        "line 1: fail-late: needs late_bytes_max above 0 in the configuration");
    hlg_fault_destroy(none);
    hlg_fault_destroy(NULL);
}

/* Tables of the decorator that are full, and calls with what is none. */
static void limits_are_answered(void **state)
{
    static struct net n;
    struct hlg_fault_config config;
    struct hlg_channel *below[2];
    struct hlg_channel *end;
    struct hlg_transport *t;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];

    (void)state;
    hlg_fault_config_default(&config);
    config.nodes = NET_NODES;
    config.endpoints_max = 3;
    config.peers_max = 3;
    config.channels_max = 1;
    net_make_of(&n, &config, "");
    assert_int_equal(n.ends[0].fabric->open(n.ends[0].fabric, 0, 0, &t), -HLG_ELIMIT);
    t = n.ends[0].t;
    const int bytes = t->ops->address(t, address, sizeof(address));
    assert_int_equal(t->ops->peer_open(t, address, (uint32_t)bytes), -HLG_ELIMIT);
    assert_int_equal(t->ops->peer_close(t, 3), -HLG_EINVAL);
    assert_int_equal(hlg_fault_fabric(n.fault, NET_NODES, n.ends[0].fabric, &n.ends[0].fabric),
                     -HLG_EINVAL);
    assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &below[0], &below[1]), 0);
    assert_int_equal(hlg_fault_channel(n.fault, 0, 1, below[0], &end), 0);
    assert_int_equal(hlg_fault_channel(n.fault, 1, 0, below[1], &end), -HLG_ELIMIT);
    end->ops->close(end);
    assert_int_equal(hlg_loop_channel_pair(n.loop, 0, 1, &below[0], &below[1]), 0);
    assert_int_equal(hlg_fault_channel(n.fault, NET_NODES, 1, below[0], &end), -HLG_EINVAL);
    assert_int_equal(hlg_fault_channel(n.fault, 0, 1, NULL, &end), -HLG_EINVAL);
    net_script(&n, "kill node 0");
    assert_int_equal(hlg_fault_channel(n.fault, 0, 1, below[1], &end), -HLG_ESTATE);
    net_drop(&n);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_cannot_be_is_answered_with_its_line),
        T(an_unknown_kind_is_told_all_kinds),
        T(any_text_is_taken_or_refused),
        T(every_kind_has_its_name),
        T(rules_of_structs_are_checked_too),
        T(removing_twice_is_no_harm),
        T(configurations_are_checked),
        T(limits_are_answered),
    };

    return cmocka_run_group_tests_name("fault-script", tests, NULL, NULL);
}
