/* Every refusal reads as a sentence, and none can overrun its buffer, whatever a peer sent. */
#include <halage/message.h>
#include <halage/refusal.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    struct hlg_refusal why;
    const char *text;
} rows[] = {
    {{HLG_REFUSAL_NONE, 0, 0, 0, 0}, "nothing is refused"},
    {{HLG_REFUSAL_RANGE, HLG_FIELD_TP, HLG_NONE, 65, 0},
     "tp: 65 is out of range; it must be 1 to 64"},
    {{HLG_REFUSAL_RANGE, HLG_FIELD_ARRANGEMENT, 2, 7, 0},
     "arrangement (group 2): 7 is out of range; it must be HND (0) or NHD (1)"},
    {{HLG_REFUSAL_RANGE, HLG_FIELD_LAYERS, 1, 61, 0},
     "layers (group 1): 61 cannot be listed; a paged group lists layers of the model, a "
     "context group none"},
    {{HLG_REFUSAL_RANGE, HLG_FIELD_LAYERS, 1, HLG_NONE, 0},
     "layers (group 1): none; a paged group needs at least one"},
    {{HLG_REFUSAL_RANGE, 99, 1, 5, 0},
     "field 99 (group 1): 5 is out of range; it must be another value"},
    {{HLG_REFUSAL_HEADS_TP, 0, 6, 4, 0},
     "heads: 6 (group 0) against tp 4; one must divide the other"},
    {{HLG_REFUSAL_STAGES, 1, 9, 10, 0},
     "stages: stage 1 ends at layer 9 of 10; stages must not go back, and the last must end at "
     "the last layer"},
    {{HLG_REFUSAL_GROUPS, 1, 2, 0, 0}, "groups: source 1, target 2; the two must be equal"},
    {{HLG_REFUSAL_GROUP_FIELD, 0, 16, 64, HLG_FIELD_PAGE_TOKENS},
     "page_tokens: source 16, target 64 (group 0); the two must be equal"},
    {{HLG_REFUSAL_GROUP_FIELD, 3, 0, 1, HLG_FIELD_ARRANGEMENT},
     "arrangement: source HND, target NHD (group 3); the two must be equal"},
    {{HLG_REFUSAL_GROUP_FIELD, 1, 0, 1, HLG_FIELD_KIND},
     "kind: source paged, target context (group 1); the two must be equal"},
    {{HLG_REFUSAL_LAYERS, 61, 62, 0, 0}, "layers: source 61, target 62; the two must be equal"},
    {{HLG_REFUSAL_GROUP_LAYERS, 2, 0, 0, 0},
     "layers: source and target list different layers (group 2); the two must be equal"},
    {{HLG_REFUSAL_SLICES, 4096, 0, 0, 0},
     "the plan needs more than 4096 slices; raise slices_max or piece_bytes_max"},
    {{HLG_REFUSAL_ROLE, HLG_ROLE_DECODE, 0, 0, 0},
     "role: both nodes have role decode; one must prefill, the other decode"},
    {{HLG_REFUSAL_VERSION, 1, 2, 3, 4},
     "protocol: versions 1 to 2 here, 3 to 4 there; they must share one"},
    {{HLG_REFUSAL_FINGERPRINT, 0, 0, 0, 0},
     "fingerprint: the model fingerprints differ; both nodes must serve the same model"},
    {{HLG_REFUSAL_FULL, 16, 0, 0, 0},
     "peers_max: no room for another peer, the limit is 16; raise it, or disconnect one"},
    {{HLG_REFUSAL_TABLE, 3, 1, 0, 0},
     "hello: its table of rails, regions or places is incomplete at 3, 1; every hosted rank "
     "needs all of its entries"},
    {{HLG_REFUSAL_TRANSPORT, 0, 0, 0, 0},
     "transport: an endpoint could not be opened or reached; the log of the node that refused "
     "says why"},
    {{HLG_REFUSAL_PROVIDER, 0x3b706374, 0x5f69666f, 0x006d7872, 0},
     "provider: the two nodes use different ones, and the node that refused uses tcp;ofi_rxm; "
     "start both with the same"},
    {{HLG_REFUSAL_PROVIDER, 0x1b74656e, 0, 0, 0},
     "provider: the two nodes use different ones, and the node that refused uses net?; start "
     "both "
     "with the same"},
    {{HLG_REFUSAL_KEY, HLG_KEY_MISSING_HERE, 0, 0, 0},
     "key: the node that refused has none, the other has; give both the same key"},
    {{HLG_REFUSAL_KEY, HLG_KEY_MISSING_THERE, 0, 0, 0},
     "key: the node that refused asks for one, the other has none; give both the same key"},
    {{HLG_REFUSAL_KEY, HLG_KEY_DIFFERS, 0, 0, 0},
     "key: the two nodes have different ones; give both the same key"},
    {{HLG_REFUSAL_KEY, 1000, 0, 0, 0},
     "key: the two nodes did not find to a handshake; give both the same key"},
    {{HLG_REFUSAL_KEY + 1, 1, 2, 3, 4},
     "refusal 17 (1, 2, 3, 4), which this version does not know"},
};

static void sentences_name_fields_and_remedies(void **state)
{
    char text[HLG_REFUSAL_TEXT_BYTES];
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int bytes = hlg_refusal_text(&rows[i].why, text, sizeof text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(bytes, strlen(rows[i].text));
        if (i > 0 && i + 1 < sizeof rows / sizeof rows[0]) { /* no code is left out */
            assert_true(rows[i].why.code - rows[i - 1].why.code <= 1);
        }
    }
}

static void foreign_numbers_always_fit(void **state)
{
    const uint32_t values[] = {0, 1, HLG_FIELD_LAYERS, HLG_FIELD_KIND, HLG_NONE - 1, HLG_NONE};
    const size_t count = sizeof values / sizeof values[0];
    char text[HLG_REFUSAL_TEXT_BYTES];
    (void)state;

    for (uint32_t code = 0; code < 20; code++) {
        for (size_t i = 0; i < count * count * count * count; i++) {
            const struct hlg_refusal why = {code, values[i % count], values[i / count % count],
                                            values[i / count / count % count],
                                            values[i / count / count / count]};
            assert_true(hlg_refusal_text(&why, text, sizeof text) > 0);
        }
    }
}

static void a_short_buffer_gets_no_half_sentence(void **state)
{
    const struct hlg_refusal why = {HLG_REFUSAL_LAYERS, 61, 62, 0, 0};
    char text[64] = "untouched";
    (void)state;

    assert_int_equal(hlg_refusal_text(&why, text, 0), -HLG_EINVAL);
    assert_string_equal(text, "untouched");
    const int bytes = hlg_refusal_text(&why, text, sizeof text);
    assert_int_equal(hlg_refusal_text(&why, text, (size_t)bytes), -HLG_EINVAL);
    assert_string_equal(text, "");
    assert_int_equal(hlg_refusal_text(&why, text, (size_t)bytes + 1), bytes);
}

static void errors_and_limits_are_filled_in(void **state)
{
    struct hlg_limits limits;
    (void)state;

    assert_string_equal(hlg_error_text(0), "no error");
    for (int error = HLG_EINVAL; error <= HLG_EUNSUPPORTED; error++) {
        assert_string_not_equal(hlg_error_text(-error), "unknown error");
    }
    assert_string_equal(hlg_error_text(-HLG_EUNSUPPORTED - 1), "unknown error");
    assert_string_equal(hlg_error_text(1), "unknown error");
    hlg_limits_default(&limits);
    assert_true(limits.requests_max <= 65535);
    assert_true(limits.lanes_max >= 8 && limits.lanes_max <= HLG_RANKS_MAX);
    assert_true(limits.message_bytes_max <= HLG_MESSAGE_BYTES_MAX);
    assert_true(limits.heartbeat_ns < limits.lease_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_fields_and_remedies),
        cmocka_unit_test(foreign_numbers_always_fit),
        cmocka_unit_test(a_short_buffer_gets_no_half_sentence),
        cmocka_unit_test(errors_and_limits_are_filled_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
