# halage_warnings: the warnings of the house, all errors. Linked to every target.
add_library(halage_warnings INTERFACE)
target_compile_options(halage_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
