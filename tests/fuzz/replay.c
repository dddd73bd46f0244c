/*
 * A fuzz target without a fuzzer: each file named, and each file of each directory named, is one input.
 * Fails when there is none: a corpus that is not found proves nothing.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (1u << 20)
#define PATH_BYTES_MAX  4096u

static uint32_t played;

static void play(const char *path)
{
    uint8_t *bytes = malloc(INPUT_BYTES_MAX);
    FILE *file = fopen(path, "rb");

    if (file == NULL || bytes == NULL) {
        perror(path);
        exit(1);
    }
    size_t size = fread(bytes, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    /* As large as the input, so that a read past its end is found out. */
    uint8_t *exact = malloc(size > 0 ? size : 1);
    HLG_ASSERT(exact != NULL);
    memcpy(exact, bytes, size);
    free(bytes);
    if (getenv("HALAGE_REPLAY_VERBOSE") != NULL) {
        fprintf(stderr, "%s\n", path);
    }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    played++;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void play_directory(const char *directory)
{
    struct dirent **entries = NULL;
    char path[PATH_BYTES_MAX];
    int count = scandir(directory, &entries, is_visible, alphasort);

    if (count < 0) {
        perror(directory);
        exit(1);
    }
    for (int i = 0; i < count; i++) {
        int bytes = snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        HLG_ASSERT(bytes > 0 && (size_t)bytes < sizeof path);
        play(path);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    bool whole = false;
    for (int i = 1; i < argc; i++) {
        struct stat status;
        if (stat(argv[i], &status) != 0) {
            perror(argv[i]);
            return 1;
        }
        if (S_ISDIR(status.st_mode)) {
            play_directory(argv[i]);
            whole = true;
        } else {
            play(argv[i]);
        }
    }
    printf("%u inputs\n", played);
    if (whole && fuzz_missed != NULL && fuzz_missed() != 0) {
        printf("none of them reaches notices 0x%llx\n", (unsigned long long)fuzz_missed());
        return 1;
    }
    return played > 0 ? 0 : 1;
}
