/*
 * halage-same-core-<backend>: one of three programs that differ in the network alone.
 *
 *   run DIR [--seed N] [--plant cut]   run the script, leave traces and the canonical list in DIR
 *   replay FILE...                     replay traces, of whichever program, and print their hashes
 *   alter FILE OUT                     copy a trace with one event changed, all checks made anew
 *   stuff FILE OUT                     the head of a trace, then more than its machine's driver may ask
 *
 * Exit status: 0 all well, 1 something differs or went wrong, 2 bad words.
 */
#include "samecore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096u
#define WATCHDOG_S 170u /* a scene that hangs dies before ctest's limit */

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    long length = -1;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
        rewind(file);
    }
    if (length >= 0) {
        bytes = malloc((size_t)length + 1);
    }
    if (bytes != NULL && fread(bytes, 1, (size_t)length, file) == (size_t)length) {
        *size = (size_t)length;
    } else {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        free(bytes);
        bytes = NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

struct loaded {
    uint8_t *bytes;
    struct hlg_trace_log *log;
};

static bool load(const char *path, struct loaded *loaded)
{
    char error[256] = "";
    size_t size = 0;

    *loaded = (struct loaded){.bytes = read_file(path, &size)};
    if (loaded->bytes == NULL) {
        return false;
    }
    if (hlg_trace_open(loaded->bytes, size, false, &loaded->log, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s: %s\n", path, error);
        return false;
    }
    return true;
}

static void unload(struct loaded *loaded)
{
    hlg_trace_close(loaded->log);
    free(loaded->bytes);
}

/* ---- run ---- */

static void trace_path(char *path, const char *directory, uint32_t scene, uint32_t node)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s-%u-%u.trace", directory, backend.name, scene, node);
}

static bool record_scene(const struct script *script, uint32_t scene, const char *directory)
{
    struct hlg_trace *traces[NODES] = {NULL};
    char path[PATH_BYTES];
    char error[256] = "";
    const char *broken = NULL;

    for (uint32_t n = 0; n < NODES; n++) {
        trace_path(path, directory, scene, n);
        if (hlg_trace_create(path, &traces[n], error, sizeof error) != 0) {
            broken = error;
        }
    }
    if (broken == NULL) {
        broken = world_run(script, scene, traces);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        trace_path(path, directory, scene, n);
        if (broken == NULL) {
            printf("recorded %s-%u-%u hash %016" PRIx64 "\n", backend.name, scene, n,
                   hlg_trace_hash(traces[n]));
        }
        if (hlg_trace_destroy(traces[n]) != 0 && broken == NULL) {
            broken = "a trace could not be written";
        }
    }
    if (broken != NULL) {
        (void)fprintf(stderr, "%s scene %u (%s): %s\n", backend.name, scene,
                      script->scenes[scene].name, broken);
    }
    return broken == NULL;
}

static bool list_scene(struct list *list, uint32_t scene, const char *directory)
{
    struct loaded loaded[NODES] = {{NULL, NULL}};
    struct hlg_trace_log *logs[NODES];
    char path[PATH_BYTES];
    const char *broken = NULL;

    for (uint32_t n = 0; n < NODES; n++) {
        trace_path(path, directory, scene, n);
        if (!load(path, &loaded[n])) {
            broken = "a trace cannot be read";
        }
        logs[n] = loaded[n].log;
    }
    if (broken == NULL) {
        broken = list_add(list, scene, logs);
    }
    for (uint32_t n = 0; n < NODES; n++) {
        unload(&loaded[n]);
    }
    if (broken != NULL) {
        (void)fprintf(stderr, "%s scene %u: %s\n", backend.name, scene, broken);
    }
    return broken == NULL;
}

static bool write_list(struct list *list, const char *directory)
{
    char path[PATH_BYTES];

    list_sort(list);
    (void)snprintf(path, sizeof path, "%s/%s.list", directory, backend.name);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        (void)fprintf(stderr, "%s: cannot be written\n", path);
        return false;
    }
    list_print(list, out);
    if (fclose(out) != 0) {
        return false;
    }
    printf("list %s requests %u lines %zu digest %016" PRIx64 "\n", backend.name, REQUESTS,
           list_count(list), list_digest(list));
    return true;
}

static int run(const char *directory, uint64_t seed, bool plant)
{
    static struct script script;
    struct list *list = list_make();
    bool sound = list != NULL;

    script_draw(&script, seed);
    if (plant) {
        script_plant_cut(&script);
    }
    printf("seed %" PRIu64 "\n", seed);
    for (uint32_t s = 0; s < SCENES && sound; s++) {
        sound = record_scene(&script, s, directory) && list_scene(list, s, directory);
    }
    sound = sound && write_list(list, directory);
    list_free(list);
    return sound ? 0 : 1;
}

/* ---- replay ---- */

static bool replay(const char *path)
{
    static struct hlg_trace_verdict verdict;
    struct loaded loaded;
    char error[256] = "";
    bool same = false;

    if (!load(path, &loaded)) {
        unload(&loaded);
        return false;
    }
    if (hlg_trace_replay(loaded.log, &verdict, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s: %s\n", path, error);
    } else if (verdict.different != 0) {
        printf("%s differs at record %" PRIu64 "\n", path, verdict.different);
        printf("  recorded %s\n  replayed %s\n", verdict.recorded, verdict.replayed);
    } else {
        same = verdict.hash == hlg_trace_recorded_hash(loaded.log);
        printf("%s events %" PRIu64 " actions %" PRIu64 " hash %016" PRIx64 "\n", path,
               verdict.events, verdict.actions, verdict.hash);
    }
    unload(&loaded);
    return same;
}

/* ---- alter ---- */

/* Changes the first event of a kind that a machine cannot but answer otherwise. */
static bool alter_event(struct hlg_event *event)
{
    if (event->kind == HLG_EVENT_TAKEN && event->taken.pieces > 0) {
        event->taken.pieces--;
        return true;
    }
    if (event->kind == HLG_EVENT_IMM && event->imm.pieces > 0) {
        event->imm.pieces++;
        return true;
    }
    return false;
}

static int alter(const char *from, const char *to)
{
    struct loaded loaded;
    struct hlg_trace_record record;
    struct hlg_trace *trace = NULL;
    char error[256] = "";
    bool altered = false;

    if (!load(from, &loaded) || hlg_trace_create(to, &trace, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s\n", error);
        unload(&loaded);
        return 1;
    }
    const struct hlg_trace_head *head = hlg_trace_head(loaded.log);
    hlg_trace_begin(trace, head->role == HLG_ROLE_PREFILL ? &head->prefill : NULL,
                    head->role == HLG_ROLE_DECODE ? &head->decode : NULL);
    while (hlg_trace_next(loaded.log, &record) == 1) {
        if (record.kind == HLG_TRACE_EVENT) {
            altered = altered || alter_event(&record.event);
            hlg_trace_event(trace, &record.event);
        } else if (record.kind == HLG_TRACE_RESULT) {
            hlg_trace_result(trace, record.result);
        } else if (record.kind == HLG_TRACE_ACTION) {
            hlg_trace_action(trace, record.lane, record.kinds, &record.action);
        } else {
            hlg_trace_nothing(trace, record.lane, record.kinds);
        }
    }
    unload(&loaded);
    return hlg_trace_destroy(trace) == 0 && altered ? 0 : 1;
}

/* ---- stuff ---- */

/* Sessions come and go and nobody pulls the notices: at some point the machine has no room for them,
 * and says so by an assertion, as it would have to a driver that did so. */
static int stuff(const char *from, const char *to)
{
    struct loaded loaded;
    struct hlg_trace *trace = NULL;
    char error[256] = "";

    if (!load(from, &loaded) || hlg_trace_create(to, &trace, error, sizeof error) != 0) {
        (void)fprintf(stderr, "%s\n", error);
        unload(&loaded);
        return 1;
    }
    const struct hlg_trace_head *head = hlg_trace_head(loaded.log);
    hlg_trace_begin(trace, head->role == HLG_ROLE_PREFILL ? &head->prefill : NULL,
                    head->role == HLG_ROLE_DECODE ? &head->decode : NULL);
    for (uint32_t i = 0; i < 3 * 10000; i++) {
        static const uint32_t kinds[] = {HLG_EVENT_CHANNEL_UP, HLG_EVENT_PEER_DOWN,
                                         HLG_EVENT_PEER_CLOSED};
        hlg_trace_event(trace, &(struct hlg_event){.kind = kinds[i % 3], .now = i});
    }
    unload(&loaded);
    return hlg_trace_destroy(trace) == 0 ? 0 : 1;
}

/* ---- words ---- */

static int usage(void)
{
    (void)fputs("usage: run DIR [--seed N] [--plant cut] | replay FILE... | alter FILE OUT | "
                "stuff FILE OUT\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    bool plant = false;

    (void)alarm(WATCHDOG_S);
    if (argc == 4 && strcmp(argv[1], "alter") == 0) {
        return alter(argv[2], argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "stuff") == 0) {
        return stuff(argv[2], argv[3]);
    }
    if (argc > 2 && strcmp(argv[1], "replay") == 0) {
        int status = 0;
        for (int i = 2; i < argc; i++) {
            status |= replay(argv[i]) ? 0 : 1;
        }
        return status;
    }
    if (argc < 3 || argc % 2 == 0 || strcmp(argv[1], "run") != 0) {
        return usage();
    }
    for (int i = 3; i < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 0);
        } else if (strcmp(argv[i], "--plant") == 0 && strcmp(argv[i + 1], "cut") == 0) {
            plant = true;
        } else {
            return usage();
        }
    }
    return run(argv[2], seed, plant);
}
