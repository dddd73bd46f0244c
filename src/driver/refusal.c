/* Refusals in words. What is printed may come from a peer, so that no number indexes anything
 * before it is compared with the table's end. */
#include <halage/message.h>
#include <halage/plan.h>
#include <halage/refusal.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 24u

/* The names are the keys of layout files; `range` completes "must be ...". */
static const struct field {
    const char *name;
    const char *range;
} fields[] = {
    [HLG_FIELD_TP] = {"tp", "1 to 64"},
    [HLG_FIELD_STAGES] = {"stages", "1 to 16"},
    [HLG_FIELD_POOLS] = {"pools", "at least 1, with at most 64 ranks hosted over all pools"},
    [HLG_FIELD_LAYERS] = {"layers", "1 to 254"},
    [HLG_FIELD_RANKS] = {"ranks", "within tp * stages, which is at most 64"},
    [HLG_FIELD_PIECE_BYTES_MAX] = {"piece_bytes_max",
                                   "at least 1, and cut a page in at most 1048576 pieces"},
    [HLG_FIELD_GROUPS] = {"groups", "1 to 8"},
    [HLG_FIELD_KIND] = {"kind", "paged (0) or context (1)"},
    [HLG_FIELD_PLANES] = {"planes", "1 to 4, and 1 in a context group"},
    [HLG_FIELD_HEADS] = {"heads", "at least 1"},
    [HLG_FIELD_HEAD_BYTES] = {"head_bytes",
                              "at least 1, and a page of a plane at most 2147483648 bytes"},
    [HLG_FIELD_PAGE_TOKENS] = {"page_tokens", "1 to 1048576, and 1 in a context group"},
    [HLG_FIELD_ARRANGEMENT] = {"arrangement", "HND (0) or NHD (1)"},
    [HLG_FIELD_PAGE_COUNT] = {"page_count", "at least 1"},
    [HLG_FIELD_ALL_REDUCE] = {"all_reduce", "0 or 1"},
};

_Static_assert(HLG_RANKS_MAX == 64 && HLG_STAGES_MAX == 16 && HLG_LAYERS_MAX == 254 &&
                   HLG_GROUPS_MAX == 8 && HLG_PLANES_MAX == 4 && HLG_PAGE_PIECES_MAX == 1048576 &&
                   HLG_PAGE_BYTES_MAX == 2147483648u,
               "the ranges above are written out");

static const struct field *find_field(uint32_t field)
{
    const bool known = field < sizeof fields / sizeof fields[0] && fields[field].name != NULL;
    return known ? &fields[field] : NULL;
}

static const char *field_name(uint32_t field, char scratch[NAME_BYTES])
{
    const struct field *known = find_field(field);
    if (known != NULL) {
        return known->name;
    }
    (void)snprintf(scratch, NAME_BYTES, "field %" PRIu32, field);
    return scratch;
}

/* A field's value, by name where it has one. */
static const char *field_value(uint32_t field, uint32_t value, char scratch[NAME_BYTES])
{
    if (field == HLG_FIELD_KIND && value <= HLG_GROUP_CONTEXT) {
        return value == HLG_GROUP_PAGED ? "paged" : "context";
    }
    if (field == HLG_FIELD_ARRANGEMENT && value <= HLG_NHD) {
        return value == HLG_HND ? "HND" : "NHD";
    }
    (void)snprintf(scratch, NAME_BYTES, "%" PRIu32, value);
    return scratch;
}

__attribute__((format(printf, 3, 4))) static int print(char *text, size_t capacity,
                                                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(text, capacity, format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= capacity) {
        if (capacity > 0) {
            text[0] = '\0';
        }
        return -HLG_EINVAL;
    }
    return bytes;
}

static int print_range(const struct hlg_refusal *why, char *text, size_t capacity)
{
    char name[NAME_BYTES];
    char value[NAME_BYTES];
    char group[NAME_BYTES] = "";
    if (why->b != HLG_NONE) {
        (void)snprintf(group, sizeof group, " (group %" PRIu32 ")", why->b);
    }
    if (why->a == HLG_FIELD_LAYERS && why->b != HLG_NONE) {
        if (why->c == HLG_NONE) {
            return print(text, capacity, "layers%s: none; a paged group needs at least one", group);
        }
        return print(text, capacity,
                     "layers%s: %" PRIu32 " cannot be listed; a paged group lists layers of the "
                     "model, a context group none",
                     group, why->c);
    }
    const struct field *field = find_field(why->a);
    return print(text, capacity, "%s%s: %s is out of range; it must be %s",
                 field_name(why->a, name), group, field_value(why->a, why->c, value),
                 field != NULL ? field->range : "another value");
}

static int print_group_field(const struct hlg_refusal *why, char *text, size_t capacity)
{
    char name[NAME_BYTES];
    char source[NAME_BYTES];
    char target[NAME_BYTES];
    return print(text, capacity,
                 "%s: source %s, target %s (group %" PRIu32 "); the two must be equal",
                 field_name(why->d, name), field_value(why->d, why->b, source),
                 field_value(why->d, why->c, target), why->a);
}

static const char *role_name(uint32_t role)
{
    return role == HLG_ROLE_PREFILL ? "prefill" : role == HLG_ROLE_DECODE ? "decode" : "unknown";
}

/* The refusals of two layouts. */
static int print_layout(const struct hlg_refusal *why, char *text, size_t capacity)
{
    switch (why->code) {
    case HLG_REFUSAL_RANGE:
        return print_range(why, text, capacity);
    case HLG_REFUSAL_HEADS_TP:
        return print(text, capacity,
                     "heads: %" PRIu32 " (group %" PRIu32 ") against tp %" PRIu32
                     "; one must divide the other",
                     why->b, why->a, why->c);
    case HLG_REFUSAL_STAGES:
        return print(text, capacity,
                     "stages: stage %" PRIu32 " ends at layer %" PRIu32 " of %" PRIu32
                     "; stages must not go back, and the last must end at the last layer",
                     why->a, why->b, why->c);
    case HLG_REFUSAL_GROUPS:
        return print(text, capacity,
                     "groups: source %" PRIu32 ", target %" PRIu32 "; the two must be equal",
                     why->a, why->b);
    case HLG_REFUSAL_GROUP_FIELD:
        return print_group_field(why, text, capacity);
    case HLG_REFUSAL_LAYERS:
        return print(text, capacity,
                     "layers: source %" PRIu32 ", target %" PRIu32 "; the two must be equal",
                     why->a, why->b);
    case HLG_REFUSAL_GROUP_LAYERS:
        return print(text, capacity,
                     "layers: source and target list different layers (group %" PRIu32
                     "); the two must be equal",
                     why->a);
    case HLG_REFUSAL_SLICES:
        return print(text, capacity,
                     "the plan needs more than %" PRIu32
                     " slices; raise slices_max or piece_bytes_max",
                     why->a);
    default: /* a code of a peer's: it may be any number */
        return print(text, capacity,
                     "refusal %" PRIu32 " (%" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %" PRIu32
                     "), which this version does not know",
                     why->code, why->a, why->b, why->c, why->d);
    }
}

/* The name may be foreign: only what a provider's name can hold is shown. */
static int print_provider(const struct hlg_refusal *why, char *text, size_t capacity)
{
    const uint32_t words[4] = {why->a, why->b, why->c, why->d};
    char name[sizeof words + 1] = "";

    for (size_t i = 0; i < sizeof words; i++) {
        char letter = (char)(words[i / 4] >> (8 * (i % 4)) & 0xffu);
        name[i] = letter == 0 || (letter > ' ' && letter <= '~') ? letter : '?';
    }
    return print(
        text, capacity,
        "provider: the two nodes use different ones, and the node that refused uses %s; start "
        "both with the same",
        name);
}

static int print_key(const struct hlg_refusal *why, char *text, size_t capacity)
{
    const char *what = "the two nodes did not find to a handshake";

    switch (why->a) {
    case HLG_KEY_MISSING_HERE:
        what = "the node that refused has none, the other has";
        break;
    case HLG_KEY_MISSING_THERE:
        what = "the node that refused asks for one, the other has none";
        break;
    case HLG_KEY_DIFFERS:
        what = "the two nodes have different ones";
        break;
    default: /* the rest, and numbers that a peer made up */
        break;
    }
    return print(text, capacity, "key: %s; give both the same key", what);
}

int hlg_refusal_text(const struct hlg_refusal *why, char *text, size_t capacity)
{
    switch (why->code) {
    case HLG_REFUSAL_NONE:
        return print(text, capacity, "nothing is refused");
    case HLG_REFUSAL_ROLE:
        return print(text, capacity,
                     "role: both nodes have role %s; one must prefill, the other decode",
                     role_name(why->a));
    case HLG_REFUSAL_VERSION:
        return print(text, capacity,
                     "protocol: versions %" PRIu32 " to %" PRIu32 " here, %" PRIu32 " to %" PRIu32
                     " there; they must share one",
                     why->a, why->b, why->c, why->d);
    case HLG_REFUSAL_FINGERPRINT:
        return print(text, capacity,
                     "fingerprint: the model fingerprints differ; both nodes must serve the same "
                     "model");
    case HLG_REFUSAL_FULL:
        return print(text, capacity,
                     "peers_max: no room for another peer, the limit is %" PRIu32
                     "; raise it, or disconnect one",
                     why->a);
    case HLG_REFUSAL_TABLE:
        return print(text, capacity,
                     "hello: its table of rails, regions or places is incomplete at %" PRIu32
                     ", %" PRIu32 "; every hosted rank needs all of its entries",
                     why->a, why->b);
    case HLG_REFUSAL_TRANSPORT:
        return print(text, capacity,
                     "transport: an endpoint could not be opened or reached; the log of the node "
                     "that refused says why");
    case HLG_REFUSAL_PROVIDER:
        return print_provider(why, text, capacity);
    case HLG_REFUSAL_KEY:
        return print_key(why, text, capacity);
    default: /* the others, and numbers that a peer made up */
        return print_layout(why, text, capacity);
    }
}
