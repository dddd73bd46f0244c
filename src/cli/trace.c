/* `halage trace`: prints what a node recorded, and replays it. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "cli.h"
#include "options.h"

#include <halage/trace.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES (1u << 20)

struct request {
    const char *file;
    const char *json_file; /* NULL: none, "-": stdout */
    bool summary;
    bool partial;
};

enum key {
    KEY_JSON = 0x100,
    KEY_SUMMARY,
    KEY_PARTIAL,
};

static const struct argp_option option_table[] = {
    {"summary", KEY_SUMMARY, NULL, 0, "Leave out the records: who recorded, and the outcome", 0},
    {"partial", KEY_PARTIAL, NULL, 0,
     "Take what is whole of a log that breaks off, as that of a node that died", 0},
    {"json", KEY_JSON, "FILE", 0, "Write all that as JSON; - is stdout, text then to stderr", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case KEY_JSON:
        request->json_file = argument;
        return 0;
    case KEY_SUMMARY:
        request->summary = true;
        return 0;
    case KEY_PARTIAL:
        request->partial = true;
        return 0;
    case ARGP_KEY_ARG:
        if (request->file != NULL) {
            return options_error(state->name, "'%s': one FILE at a time", argument);
        }
        request->file = argument;
        return 0;
    case ARGP_KEY_END:
        return request->file != NULL
                   ? 0
                   : options_error(state->name, "FILE must be given: a trace that --record wrote");
    default: /* the many other keys of argp */
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Replay ---- */

/* What the child that replays leaves behind, however it ends. */
struct outcome {
    struct hlg_trace_verdict verdict;
    int code;
    bool returned; /* replay returned: the machine did not abort */
    char error[256];
};

/* A machine that broke an invariant when it was recorded aborts again: so it gets a process. */
static int replay(struct hlg_trace_log *log, struct outcome *outcome)
{
    int status = 0;

    (void)fflush(NULL); /* or the child would print it again */
    const pid_t pid = fork();
    if (pid < 0) {
        return -HLG_EIO;
    }
    if (pid == 0) {
        outcome->code =
            hlg_trace_replay(log, &outcome->verdict, outcome->error, sizeof outcome->error);
        outcome->returned = true;
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -HLG_EIO;
        }
    }
    return 0;
}

/* One line, or three. Returns an enum cli_exit. */
static int print_outcome(FILE *out, const char *program, const struct request *request,
                         const struct hlg_trace_log *log, const struct outcome *outcome)
{
    const struct hlg_trace_verdict *verdict = &outcome->verdict;

    if (hlg_trace_cut(log)) {
        (void)fprintf(out, "the log breaks off after record %" PRIu64 "\n", hlg_trace_count(log));
    }
    if (!outcome->returned) {
        (void)fprintf(out,
                      "replayed: the machine broke off after %" PRIu64 " events and %" PRIu64
                      " actions: the line on stderr names the invariant\n",
                      verdict->events, verdict->actions);
        return CLI_FAILED;
    }
    if (outcome->code != 0) {
        (void)options_error(program, "%s: %s", request->file, outcome->error);
        return CLI_BAD_INPUT;
    }
    if (verdict->different != 0) {
        (void)fprintf(out,
                      "replayed: differs at record %" PRIu64 "\n  recorded %s\n  replayed %s\n",
                      verdict->different, verdict->recorded, verdict->replayed);
        return CLI_FAILED;
    }
    const bool equal = verdict->hash == hlg_trace_recorded_hash(log);
    (void)fprintf(out, "replayed: events %" PRIu64 " actions %" PRIu64 " hash %016" PRIx64 " %s\n",
                  verdict->events, verdict->actions, verdict->hash,
                  equal ? "equal" : "not the recorded one");
    return equal ? CLI_DONE : CLI_FAILED;
}

/* ---- Text ---- */

static void print_head(FILE *out, const struct hlg_trace_log *log)
{
    const struct hlg_trace_head *head = hlg_trace_head(log);
    const bool prefill = head->role == HLG_ROLE_PREFILL;
    const struct hlg_layout *layout = prefill ? &head->prefill.layout : &head->decode.layout;

    (void)fprintf(out,
                  "trace version %u role %s node %016" PRIx64 " incarnation %016" PRIx64
                  " tp %" PRIu32 " stages %" PRIu32 " pools %" PRIu32 " layers %" PRIu32
                  " rails %" PRIu32 " records %" PRIu64 "\n",
                  HLG_TRACE_VERSION, prefill ? "prefill" : "decode",
                  prefill ? head->prefill.node : head->decode.node,
                  prefill ? head->prefill.incarnation : head->decode.incarnation, layout->tp,
                  layout->stages, layout->pools, layout->layers,
                  prefill ? head->prefill.rails : head->decode.rails, hlg_trace_count(log));
}

static bool print_records(FILE *out, struct hlg_trace_log *log)
{
    struct hlg_trace_record record;
    char *line = malloc(LINE_BYTES);

    if (line == NULL) {
        return false;
    }
    hlg_trace_rewind(log);
    while (hlg_trace_next(log, &record) == 1) {
        hlg_trace_text(&record, line, LINE_BYTES);
        (void)fprintf(out, "%s\n", line);
    }
    hlg_trace_rewind(log);
    free(line);
    return true;
}

/* ---- JSON: fields as pairs, since a name may come more than once ---- */

static void pair(void *context, const char *name, json_t *value)
{
    /* A failed allocation leaves a NULL that dumping refuses. */
    (void)json_array_append_new(context, json_pack("[so]", name, value));
}

/* JSON's integers are signed here: what does not fit is a string of digits. */
static json_t *whole(uint64_t value)
{
    char digits[24];

    if (value <= INT64_MAX) {
        return json_integer((json_int_t)value);
    }
    (void)snprintf(digits, sizeof digits, "%" PRIu64, value);
    return value == HLG_TIME_NEVER ? json_null() : json_string(digits);
}

static void json_word(void *context, const char *name, const char *word)
{
    pair(context, name, json_string(word));
}

static void json_number(void *context, const char *name, uint64_t value)
{
    pair(context, name, whole(value));
}

static void json_signed(void *context, const char *name, int64_t value)
{
    pair(context, name, json_integer((json_int_t)value));
}

static void json_numbers(void *context, const char *name, const uint32_t *values, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer((json_int_t)values[i]));
    }
    pair(context, name, array);
}

static void json_bytes(void *context, const char *name, const uint8_t *bytes, uint32_t count)
{
    char *hex = malloc(2 * (size_t)count + 1);

    for (uint32_t i = 0; hex != NULL && i < count; i++) {
        (void)snprintf(hex + 2 * (size_t)i, 3, "%02x", bytes[i]);
    }
    if (hex != NULL) {
        hex[2 * (size_t)count] = '\0';
    }
    pair(context, name, hex != NULL ? json_string(hex) : NULL);
    free(hex);
}

static bool dump(FILE *out, json_t *value)
{
    const bool good = value != NULL && json_dumpf(value, out, JSON_COMPACT) == 0;

    json_decref(value);
    return good;
}

static bool json_records(FILE *out, struct hlg_trace_log *log)
{
    struct hlg_trace_record record;
    bool good = true;

    hlg_trace_rewind(log);
    while (good && hlg_trace_next(log, &record) == 1) {
        json_t *fields = json_array();
        const struct hlg_trace_teller teller = {.word = json_word,
                                                .number = json_number,
                                                .integer = json_signed,
                                                .numbers = json_numbers,
                                                .bytes = json_bytes,
                                                .context = fields};
        hlg_trace_tell(&record, &teller);
        (void)fputs(record.number == 1 ? "\n" : ",\n", out);
        good = dump(out, json_pack("{s:o, s:o}", "record", whole(record.number), "fields", fields));
    }
    hlg_trace_rewind(log);
    return good;
}

static json_t *json_outcome(const struct hlg_trace_log *log, const struct outcome *outcome)
{
    const struct hlg_trace_verdict *verdict = &outcome->verdict;
    char hash[17];
    char recorded[17];

    (void)snprintf(hash, sizeof hash, "%016" PRIx64, verdict->hash);
    (void)snprintf(recorded, sizeof recorded, "%016" PRIx64, hlg_trace_recorded_hash(log));
    json_t *different = verdict->different == 0 ? json_null() : whole(verdict->different);
    const bool equal = outcome->returned && outcome->code == 0 && verdict->different == 0 &&
                       verdict->hash == hlg_trace_recorded_hash(log);
    return json_pack("{s:b, s:b, s:b, s:o, s:o, s:o, s:s, s:s, s:s, s:s}", "equal", (int)equal,
                     "cut", (int)hlg_trace_cut(log), "aborted", (int)!outcome->returned, "events",
                     whole(verdict->events), "actions", whole(verdict->actions), "different",
                     different, "hash", hash, "recorded_hash", recorded, "recorded",
                     verdict->recorded, "replayed", verdict->replayed);
}

static json_t *json_head(const struct hlg_trace_log *log)
{
    const struct hlg_trace_head *head = hlg_trace_head(log);
    const bool prefill = head->role == HLG_ROLE_PREFILL;
    const struct hlg_layout *layout = prefill ? &head->prefill.layout : &head->decode.layout;

    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version",
                     (int)HLG_TRACE_VERSION, "role", prefill ? "prefill" : "decode", "node",
                     whole(prefill ? head->prefill.node : head->decode.node), "incarnation",
                     whole(prefill ? head->prefill.incarnation : head->decode.incarnation), "tp",
                     whole(layout->tp), "stages", whole(layout->stages), "pools",
                     whole(layout->pools), "layers", whole(layout->layers), "rails",
                     whole(prefill ? head->prefill.rails : head->decode.rails), "records",
                     whole(hlg_trace_count(log)));
}

static int write_json(const char *program, const struct request *request, struct hlg_trace_log *log,
                      const struct outcome *outcome)
{
    const char *file = request->json_file;
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");

    if (out == NULL) {
        (void)options_error(program, "--json: %s: cannot be opened: %s", file, strerror(errno));
        return CLI_FAILED;
    }
    (void)fputs("{\"trace\": ", out);
    bool good = dump(out, json_head(log));
    (void)fputs(",\n\"records\": [", out);
    good = good && (request->summary || json_records(out, log));
    (void)fputs("],\n\"replay\": ", out);
    good = good && dump(out, json_outcome(log, outcome));
    good = fputs("}\n", out) != EOF && good;
    good = (out == stdout ? fflush(out) : fclose(out)) == 0 && good;
    if (!good) {
        (void)options_error(program, "--json: %s: cannot be written", file);
        return CLI_FAILED;
    }
    return CLI_DONE;
}

/* ---- All of it ---- */

static uint8_t *read_file(const char *program, const char *path, size_t *size)
{
    struct stat status;
    FILE *file = NULL;
    uint8_t *bytes = NULL;
    long length = -1;

    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        (void)options_error(program, "%s: is a directory; name one of the traces in it", path);
        return NULL;
    }
    file = fopen(path, "rb");

    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
        rewind(file);
    }
    if (length >= 0) {
        bytes = malloc((size_t)length + 1);
    }
    if (bytes == NULL || fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        (void)options_error(program, "%s: cannot be read: %s", path,
                            errno != 0 ? strerror(errno) : "it shrank");
        free(bytes);
        bytes = NULL;
    } else {
        *size = (size_t)length;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

static int show(const char *program, const struct request *request, struct hlg_trace_log *log,
                struct outcome *outcome)
{
    const bool on_stdout = request->json_file != NULL && strcmp(request->json_file, "-") == 0;
    FILE *out = on_stdout ? stderr : stdout;

    print_head(out, log);
    if (!request->summary && !on_stdout && !print_records(out, log)) {
        (void)options_error(program, "out of memory");
        return CLI_FAILED;
    }
    if (replay(log, outcome) != 0) {
        (void)options_error(program, "no process to replay in: %s", strerror(errno));
        return CLI_FAILED;
    }
    const int status = print_outcome(out, program, request, log, outcome);
    if (fflush(out) != 0 || ferror(out)) {
        (void)options_error(program, "the trace cannot be printed");
        return CLI_FAILED;
    }
    if (request->json_file == NULL || status == CLI_BAD_INPUT) {
        return status;
    }
    const int written = write_json(program, request, log, outcome);
    return written != CLI_DONE ? written : status;
}

int cli_trace(int argc, char **argv)
{
    const struct argp options = {
        .options = option_table,
        .parser = parse,
        .args_doc = "FILE",
        .doc = "Print a node's trace, one line a record, and replay it: the same machine, told "
               "the same, must ask for the same.\vExit status: 0 the replay is equal, 1 it "
               "differs, 2 bad options or not a sound trace.",
    };
    struct request request = {0};
    struct hlg_trace_log *log = NULL;
    char error[256] = "";
    size_t size = 0;

    if (options_parse(&options, argc, argv, 0, &request) != 0) {
        return CLI_BAD_INPUT;
    }
    if (options_same_file(argv[0], "--json", request.json_file, request.file)) {
        return CLI_BAD_INPUT;
    }
    errno = 0;
    uint8_t *bytes = read_file(argv[0], request.file, &size);
    if (bytes == NULL) {
        return CLI_BAD_INPUT;
    }
    struct outcome *outcome =
        mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = CLI_FAILED;
    if (outcome == MAP_FAILED) {
        (void)options_error(argv[0], "out of memory");
    } else if (hlg_trace_open(bytes, size, request.partial, &log, error, sizeof error) != 0) {
        (void)options_error(argv[0], "%s: %s", request.file, error);
        status = CLI_BAD_INPUT;
    } else {
        status = show(argv[0], &request, log, outcome);
    }
    hlg_trace_close(log);
    if (outcome != MAP_FAILED) {
        (void)munmap(outcome, sizeof *outcome);
    }
    free(bytes);
    return status;
}
