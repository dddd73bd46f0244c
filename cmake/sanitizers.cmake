# halage_sanitizers: what HALAGE_SANITIZE names, as for -fsanitize=. Linked to every target.
set(HALAGE_SANITIZE "" CACHE STRING "Sanitizers, such as address,undefined or thread; empty: none")

add_library(halage_sanitizers INTERFACE)
if(HALAGE_SANITIZE)
    target_compile_options(halage_sanitizers INTERFACE
        -fsanitize=${HALAGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(halage_sanitizers INTERFACE -fsanitize=${HALAGE_SANITIZE})
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # gcc's manual, "Instrumentation Options": sanitizers bring false warnings of this kind.
        target_compile_options(halage_sanitizers INTERFACE -Wno-maybe-uninitialized)
    endif()
endif()
