/* The `sweep:` list of a scenario file; the rest of the file is the scenario's. */
#include "grid.h"

#include <cyaml/cyaml.h>
#include <stdio.h>

struct file {
    char **axes;
    uint32_t axes_count;
};

static const cyaml_schema_value_t axis_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, CYAML_UNLIMITED),
};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("sweep", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct file, axes,
                         &axis_schema, 0, SIM_AXES_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct file, fields),
};

int sim_grid_read(struct sim_grid *grid, const char *path, char *text, size_t capacity)
{
    const cyaml_config_t config = {
        .mem_fn = cyaml_mem,
        .flags = CYAML_CFG_IGNORE_UNKNOWN_KEYS | CYAML_CFG_NO_ALIAS,
    };
    struct file *file = NULL;
    int error = 0;

    const cyaml_err_t result =
        cyaml_load_file(path, &config, &schema, (cyaml_data_t **)&file, NULL);
    if (result != CYAML_OK) {
        (void)snprintf(text, capacity,
                       "%s: cannot read key sweep: %s; write a list of at most %u axes, each "
                       "\"key=value,value\"",
                       path, cyaml_strerror(result), SIM_AXES_MAX);
        return -HLG_EINVAL;
    }
    for (uint32_t i = 0; error == 0 && file != NULL && i < file->axes_count; i++) {
        error = sim_grid_add(grid, file->axes[i], text, capacity);
    }
    (void)cyaml_free(&config, &schema, file, 0);
    return error;
}
