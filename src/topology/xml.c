/* Whether a file is worth handing to hwloc, which says no more of a bad one than "invalid". */
#define _GNU_SOURCE /* pipe2() */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_BYTES    16384u
#define TRIAL_SECONDS 20u

/* Skip blanks, declarations and comments. Returns the first element, as "<name ...", or NULL. */
static const char *find_root(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        const char *end = NULL;
        if (strncmp(text, "<!--", 4) == 0) {
            end = strstr(text, "-->");
            end = end != NULL ? end + 3 : NULL;
        } else if (strncmp(text, "<?", 2) == 0 || strncmp(text, "<!", 2) == 0) {
            end = strchr(text, '>');
            end = end != NULL ? end + 1 : NULL;
        } else {
            return text[0] == '<' ? text : NULL;
        }
        if (end == NULL) {
            return NULL;
        }
        text = end;
    }
}

/* Major version of "<topology version="2.0">"; files of hwloc 1 have none. */
static unsigned long find_version(const char *root)
{
    const char *end = strchr(root, '>');
    const char *version = strstr(root, " version=\"");
    if (version == NULL || (end != NULL && version > end)) {
        return 1;
    }
    return strtoul(version + strlen(" version=\""), NULL, 10);
}

static bool is_element(const char *root, const char *name)
{
    const size_t bytes = strlen(name);
    return strncmp(root + 1, name, bytes) == 0 && strchr(" \t\r\n>/", root[1 + bytes]) != NULL;
}

static int check_root(const char *file, const char *text, char *error, size_t error_bytes)
{
    const char *root = find_root(text);
    if (root == NULL) {
        (void)snprintf(error, error_bytes,
                       "%s: is not XML; give a file that lstopo wrote, as by: lstopo %s", file,
                       "machine.xml");
        return -HLG_EINVAL;
    }
    if (is_element(root, "system")) {
        (void)snprintf(error, error_bytes,
                       "%s: is a topology of NCCL, not of hwloc; give a file that lstopo wrote",
                       file);
        return -HLG_EINVAL;
    }
    if (!is_element(root, "topology")) {
        (void)snprintf(error, error_bytes,
                       "%s: is XML, but not hwloc's; give a file that lstopo wrote", file);
        return -HLG_EINVAL;
    }
    const unsigned long version = find_version(root);
    const unsigned ours = hwloc_get_api_version() >> 16;
    if (version > ours) {
        (void)snprintf(error, error_bytes,
                       "%s: is of hwloc %lu, this program has hwloc %u: write the file with an "
                       "older lstopo, or build with a newer hwloc",
                       file, version, ours);
        return -HLG_EINVAL;
    }
    return 0;
}

/* A file that can be read again, as hwloc will. NULL: `error` is a sentence. */
static FILE *open_file(const char *file, char *error, size_t error_bytes)
{
    struct stat status;
    FILE *in = NULL;
    int code = stat(file, &status) == 0 ? 0 : errno;
    if (code == 0 && S_ISDIR(status.st_mode)) {
        code = EISDIR;
    } else if (code == 0 && !S_ISREG(status.st_mode)) {
        (void)snprintf(
            error, error_bytes,
            "%s: is a pipe or a device, and hwloc reads more than once; give a file that "
            "lstopo wrote",
            file);
        return NULL;
    }
    if (code == 0) {
        in = fopen(file, "r");
        code = errno;
    }
    if (in == NULL) {
        (void)snprintf(error, error_bytes, "%s: cannot be read: %s", file,
                       strerror(code)); /* NOLINT(concurrency-mt-unsafe) */
    }
    return in;
}

int topology_xml_check(const char *file, char *error, size_t error_bytes)
{
    char *text = calloc(1, HEAD_BYTES + 1);
    if (text == NULL) {
        (void)snprintf(error, error_bytes, "topology: out of memory");
        return -HLG_ENOMEM;
    }
    FILE *in = open_file(file, error, error_bytes);
    int result = -HLG_EINVAL;
    if (in == NULL) {
        free(text);
        return result;
    }
    if (fread(text, 1, HEAD_BYTES, in) == 0) {
        (void)snprintf(error, error_bytes, "%s: is empty; give a file that lstopo wrote", file);
    } else {
        result = check_root(file, text, error, error_bytes);
    }
    (void)fclose(in);
    free(text);
    return result;
}

/* Load it, say so on `out`, and end. hwloc's own words on a bad file go nowhere. */
static _Noreturn void load_and_exit(const char *file, int out)
{
    hwloc_topology_t hwloc;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(nowhere, STDERR_FILENO);
    /* Whatever the caller made of the signal: this must end. */
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGALRM);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(TRIAL_SECONDS);
    const bool good = hwloc_topology_init(&hwloc) == 0 &&
                      hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                      hwloc_topology_set_xml(hwloc, file) == 0 && hwloc_topology_load(hwloc) == 0;
    _exit(good && write(out, "k", 1) == 1 ? 0 : 1);
}

bool topology_xml_loads(const char *file)
{
    int ends[2];
    char word = 0;
    ssize_t bytes = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        load_and_exit(file, ends[1]);
    }
    (void)close(ends[1]);
    if (child > 0) {
        do {
            bytes = read(ends[0], &word, 1);
        } while (bytes < 0 && errno == EINTR);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(ends[0]);
    return bytes == 1;
}
