#include "scenario_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool sim_path_join(const char *base, const char *name, char path[SIM_PATH_MAX])
{
    const char *const slash = base == NULL || name[0] == '/' ? NULL : strrchr(base, '/');
    const int bytes =
        slash == NULL ? snprintf(path, SIM_PATH_MAX, "%s", name)
                      : snprintf(path, SIM_PATH_MAX, "%.*s/%s", (int)(slash - base), base, name);
    return bytes >= 0 && (size_t)bytes < SIM_PATH_MAX;
}

bool sim_path_find(const char *base, const char *name, char path[SIM_PATH_MAX])
{
    const char *const data = getenv("HALAGE_DATA");
    if (sim_path_join(base, name, path) && access(path, R_OK) == 0) {
        return true;
    }
    if (data != NULL && name[0] != '/') {
        const int bytes = snprintf(path, SIM_PATH_MAX, "%s/%s", data, name);
        if (bytes >= 0 && (size_t)bytes < SIM_PATH_MAX && access(path, R_OK) == 0) {
            return true;
        }
    }
    return sim_path_join(NULL, name, path) && access(path, R_OK) == 0;
}
