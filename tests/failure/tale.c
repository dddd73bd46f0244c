/* Plays stories and compares what is told of each with tests/failure/stories. */
#include "tale.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES (1u << 17)
#define REST_NS    MS(600)

void tale_say(struct tale *t, const char *who, const char *format, ...)
{
    char what[TALE_LINE_BYTES];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    tale_add(t, scene_now(&t->scene), 0, who, what);
}

struct job *tale_job(struct tale *t, const char *id)
{
    static const uint32_t pages[] = {20, 3, 17, 9, 28};

    return scene_job(&t->scene, id, DECODE_0, pages, 21);
}

void tale_wait_for(struct tale *t, scene_fn *fn)
{
    if (!scene_until(&t->scene, fn, scene_now(&t->scene) + REST_NS)) {
        scene_break(&t->scene, "what the story waits for does not come");
    }
}

static uint32_t wanted; /* by the predicates below */

static bool target_is(const struct scene *s)
{
    return s->jobs[0].target == wanted;
}

static bool source_is(const struct scene *s)
{
    return s->jobs[0].sources[0].state == wanted;
}

void tale_target(struct tale *t, uint32_t state)
{
    wanted = state;
    tale_wait_for(t, target_is);
}

void tale_source(struct tale *t, uint32_t state)
{
    wanted = state;
    tale_wait_for(t, source_is);
}

void tale_rest(struct tale *t)
{
    tale_wait_for(t, scene_at_rest);
}

/* ---- Telling ------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
    const struct tale_line *x = a;
    const struct tale_line *y = b;

    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    if (x->order != y->order) {
        return x->order < y->order ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

static void write_text(struct tale *t, const struct story *story, char *text)
{
    size_t used = 0;

    for (uint32_t i = 0; i < NODES; i++) {
        tale_read(t, i);
    }
    qsort(t->lines, t->line_count, sizeof t->lines[0], by_time);
    used += (size_t)snprintf(text, TEXT_BYTES, "# %s\n# %s\n\n", story->title, story->moral);
    for (uint32_t i = 0; i < t->line_count; i++) {
        const struct tale_line *line = &t->lines[i];
        used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%8.2f ms  %-9s  %s\n",
                                 (double)(line->at - t->begin) / 1e6, line->who, line->what);
        HLG_ASSERT(used < TEXT_BYTES);
    }
}

/* Returns NULL, or what was wrong; `text` is what is told. */
static const char *play(const struct story *story, struct tale *t, char *text)
{
    struct scene_config config = story->config;

    memset(t, 0, sizeof *t);
    config.seed = config.seed != 0 ? config.seed : 1;
    config.record = true;
    config.alone = true;
    scene_open(&t->scene, &config);
    if (!story->greets) {
        tale_wait_for(t, scene_all_up);
        scene_wait(&t->scene, US(100));
        t->begin = scene_now(&t->scene);
    }
    story->play(t);
    for (uint32_t i = 0; i < NODES; i++) {
        HLG_ASSERT(!t->scene.nodes[i].alive || hlg_pump_check(t->scene.nodes[i].pump) == 0);
    }
    write_text(t, story, text);
    scene_close(&t->scene);
    return t->scene.broken[0] != '\0' ? t->scene.broken : NULL;
}

/* ---- Comparing ---------------------------------------------------------------------------- */

static void path_of(const struct story *story, char *path, size_t bytes)
{
    const char *root = getenv("HALAGE_SOURCE_DIR");

    (void)snprintf(path, bytes, "%s/tests/failure/stories/%s.txt", root != NULL ? root : ".",
                   story->name);
}

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool written = file != NULL && fputs(text, file) >= 0;

    return file != NULL && fclose(file) == 0 && written;
}

static void read_file(const char *path, char *text)
{
    FILE *file = fopen(path, "r");
    size_t bytes = file != NULL ? fread(text, 1, TEXT_BYTES - 1, file) : 0;

    text[bytes] = '\0';
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* The first line that differs. */
static void print_difference(const char *golden, const char *told)
{
    uint32_t line = 1;

    while (*golden == *told && *golden != '\0') {
        size_t a = strcspn(golden, "\n");
        size_t b = strcspn(told, "\n");
        if (a != b || memcmp(golden, told, a) != 0) {
            break;
        }
        golden += a + (golden[a] == '\n');
        told += b + (told[b] == '\n');
        line++;
    }
    fprintf(stderr, "  line %u was  %.*s\n  and is       %.*s\n", line, (int)strcspn(golden, "\n"),
            golden, (int)strcspn(told, "\n"), told);
}

static bool look_at(const struct story *story, bool print)
{
    static struct tale t;
    static char text[TEXT_BYTES];
    static char golden[TEXT_BYTES];
    char path[1024];
    const char *broken = play(story, &t, text);

    path_of(story, path, sizeof path);
    if (print) {
        printf("%s", text);
    }
    if (broken != NULL) {
        fprintf(stderr, "%s: %s\n", story->name, broken);
        return false;
    }
    if (getenv("HALAGE_UPDATE_GOLDEN") != NULL) {
        return write_file(path, text);
    }
    read_file(path, golden);
    if (strcmp(golden, text) != 0) {
        fprintf(stderr, "%s is not told as in %s:\n", story->name, path);
        print_difference(golden, text);
        return false;
    }
    return true;
}

static uint32_t look_at_all(const struct story *list, uint32_t count, const char *only,
                            uint32_t *told)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (only == NULL || strcmp(only, list[i].name) == 0) {
            wrong += !look_at(&list[i], only != NULL);
            (*told)++;
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    const char *only = argc == 3 && strcmp(argv[1], "--story") == 0 ? argv[2] : NULL;
    uint32_t told = 0;

    if (argc != 1 && only == NULL) {
        bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
        fprintf(
            asked ? stdout : stderr,
            "usage: halage-stories [--story NAME]\n"
            "Play the stories of the protocol, or tell one, and compare each with its file in\n"
            "tests/failure/stories (from the root of the sources, or HALAGE_SOURCE_DIR), which\n"
            "HALAGE_UPDATE_GOLDEN=1 writes anew. A story has the name of its file.\n"
            "Exit status: 0 as written there, 1 not, 2 bad options.\n");
        return asked ? 0 : 2;
    }
    uint32_t wrong = look_at_all(stories_plain, stories_plain_count, only, &told);
    wrong += look_at_all(stories_ends, stories_ends_count, only, &told);
    wrong += look_at_all(stories_broken, stories_broken_count, only, &told);
    if (told == 0) {
        fprintf(stderr, "halage-stories: no story %s: tests/failure/stories has one a file\n",
                only);
        return 2;
    }
    printf("%u stories, %u wrong\n", told, wrong);
    return wrong > 0;
}
