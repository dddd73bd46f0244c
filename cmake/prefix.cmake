# Give the global names of an archive that are not of the interface a prefix, so that they meet neither those of
# another archive nor an engine's: cmake -DARCHIVE=file -DPREFIX=hlg_loop__ -DNM=nm -DOBJCOPY=objcopy -P prefix.cmake
# Names of C++ stay: they are the standard library's and SimGrid's.
execute_process(COMMAND "${NM}" --defined-only --extern-only "${ARCHIVE}" OUTPUT_VARIABLE listing
    COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" lines "${listing}")
set(map "")
foreach(line IN LISTS lines)
    if(NOT line MATCHES "^[0-9a-f]+ [A-Z] (.+)$")
        continue()
    endif()
    set(name "${CMAKE_MATCH_1}")
    if(NOT name MATCHES "^(hlg_|_Z|DW\\.)")
        string(APPEND map "${name} ${PREFIX}${name}\n")
    endif()
endforeach()
file(WRITE "${ARCHIVE}.names" "${map}")
execute_process(COMMAND "${OBJCOPY}" "--redefine-syms=${ARCHIVE}.names" "${ARCHIVE}" COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE "${ARCHIVE}.names")
