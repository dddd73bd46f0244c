/* Links a function of each part that was found, so that what it needs must be there. */
#include <stdio.h>
#ifdef WITH_ofi
#include <halage/transport/ofi.h>
#endif
#ifdef WITH_exporter
#include <halage/exporter.h>
#endif
#ifdef WITH_simgrid
#include <halage/transport/simgrid.h>
#endif

typedef void (*function)(void);

static const volatile function functions[] = {
#ifdef WITH_ofi
    (function)hlg_ofi_open,
#endif
#ifdef WITH_exporter
    (function)hlg_exporter_start,
#endif
#ifdef WITH_simgrid
    (function)hlg_simgrid_create,
#endif
    NULL,
};

int main(void)
{
    int count = 0;
    while (functions[count] != NULL) {
        count++;
    }
    (void)printf("%d parts\n", count);
    return 0;
}
