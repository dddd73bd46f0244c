# Add each named directory that has a CMakeLists.txt.
function(halage_add_directories)
    foreach(directory IN LISTS ARGN)
        if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt")
            add_subdirectory(${directory})
        endif()
    endforeach()
endfunction()

# Stop on an argument that a function does not know, or one that it needs and was not given.
# For use after cmake_parse_arguments(PARSE_ARGV 0 arg ...).
macro(halage_require_arguments)
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: unknown: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    foreach(required ${ARGN})
        if(NOT DEFINED arg_${required})
            message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: ${required} is missing")
        endif()
    endforeach()
endmacro()

# halage_add_program(NAME name SOURCES ... [LIBS ...])
# A program in bin/, with the objects of the core linked in.
function(halage_add_program)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBS")
    halage_require_arguments(NAME SOURCES)
    add_executable(${arg_NAME} ${arg_SOURCES})
    target_link_libraries(${arg_NAME} PRIVATE halage_core ${arg_LIBS})
endfunction()
