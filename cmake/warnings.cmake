# halage_warnings: the warnings of the house, linked to every target. They are errors unless HALAGE_WERROR is OFF
# (a compiler newer than those tested may have new ones).
option(HALAGE_WERROR "treat warnings as errors" ON)
add_library(halage_warnings INTERFACE)
target_compile_options(halage_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla
    $<$<BOOL:${HALAGE_WERROR}>:-Werror>
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
