# What `cmake --install build/release --prefix P` installs: archives, headers, programs, manuals, and what CMake
# (find_package(halage COMPONENTS ...)) and pkg-config (halage, halage-ofi, ...) need to find them. It may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
find_package(Threads REQUIRED)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/halage")
set(package_build "${PROJECT_BINARY_DIR}/package")
file(RELATIVE_PATH HALAGE_PACKAGE_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")

# What targets of the project are made of, which `halage` has not, and the modules of pkg-config that they need:
# part_targets, part_modules. The targets' libraries are followed, but for those in `known`.
function(halage_gather_parts known)
    set(left ${ARGN})
    set(part_targets "")
    set(part_modules "")
    while(left)
        list(POP_FRONT left part)
        if(part IN_LIST known)
            continue()
        endif()
        list(APPEND known ${part})
        list(APPEND part_targets ${part})
        get_target_property(libraries ${part} LINK_LIBRARIES)
        foreach(library IN LISTS libraries)
            if(library MATCHES "^halage::(.+)$")
                list(APPEND part_modules ${CMAKE_MATCH_1})
            elseif(library MATCHES "^halage_" AND NOT library MATCHES "^halage_(warnings|sanitizers)$")
                list(APPEND left ${library})
            endif()
        endforeach()
    endwhile()
    list(REMOVE_DUPLICATES part_modules)
    set(part_targets ${part_targets} PARENT_SCOPE)
    set(part_modules ${part_modules} PARENT_SCOPE)
endfunction()

# halage_package(NAME ofi|... DOC sentence TARGETS ... [HEADERS ...] [LIBS ...])
# One archive with all that the targets and what they link are made of, less what libhalage.a has; its target in the
# export set and its .pc file. Nothing, and no headers, if the first target is not built.
# Archives have no list of what they need: so Requires, not Requires.private.
function(halage_package)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;DOC" "TARGETS;HEADERS;LIBS")
    halage_require_arguments(NAME DOC TARGETS)
    list(GET arg_TARGETS 0 first)
    if(NOT TARGET ${first})
        set_property(GLOBAL APPEND PROPERTY halage_headers_left ${arg_HEADERS})
        return()
    endif()
    get_property(known GLOBAL PROPERTY halage_known)
    halage_gather_parts("${known}" ${arg_TARGETS})
    list(TRANSFORM part_targets REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
    list(TRANSFORM part_modules PREPEND PkgConfig::HALAGE_ OUTPUT_VARIABLE modules)

    if(arg_NAME STREQUAL "halage")
        set(archive halage)
        set(HALAGE_PC_NAME halage)
        set(HALAGE_PC_REQUIRES "")
        set(base Threads::Threads)
        set_property(GLOBAL PROPERTY halage_known ${part_targets})
    else()
        set(archive halage_${arg_NAME})
        set(HALAGE_PC_NAME halage-${arg_NAME})
        set(HALAGE_PC_REQUIRES "halage = ${PROJECT_VERSION}")
        set(base halage_package_halage)
    endif()
    add_library(halage_package_${arg_NAME} STATIC ${objects})
    set_target_properties(halage_package_${arg_NAME} PROPERTIES
        OUTPUT_NAME ${archive} EXPORT_NAME ${arg_NAME} LINKER_LANGUAGE C LINK_LIBRARIES "")
    set_target_properties(halage_package_${arg_NAME} PROPERTIES
        INTERFACE_LINK_LIBRARIES "${base};${modules};${arg_LIBS}"
        INTERFACE_INCLUDE_DIRECTORIES "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    add_custom_command(TARGET halage_package_${arg_NAME} POST_BUILD
        COMMAND "${CMAKE_COMMAND}" "-DARCHIVE=$<TARGET_FILE:halage_package_${arg_NAME}>" "-DPREFIX=hlg_${arg_NAME}__"
            "-DNM=${CMAKE_NM}" "-DOBJCOPY=${CMAKE_OBJCOPY}" -P "${PROJECT_SOURCE_DIR}/cmake/prefix.cmake"
        VERBATIM)
    install(TARGETS halage_package_${arg_NAME} EXPORT halageTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")

    foreach(module IN LISTS part_modules)
        if(HALAGE_PC_REQUIRES)
            string(APPEND HALAGE_PC_REQUIRES ", ")
        endif()
        get_property(wanted GLOBAL PROPERTY halage_wanted_${module})
        string(APPEND HALAGE_PC_REQUIRES "${wanted}")
    endforeach()
    set(HALAGE_PC_LIBS "-L\${libdir} -l${archive}")
    foreach(library IN LISTS arg_LIBS)
        string(APPEND HALAGE_PC_LIBS " -l${library}")
    endforeach()
    if(arg_NAME STREQUAL "halage")
        string(APPEND HALAGE_PC_LIBS " -pthread")
    endif()
    set(HALAGE_PC_DESCRIPTION "${arg_DOC}")
    configure_file("${PROJECT_SOURCE_DIR}/cmake/halage.pc.in" "${package_build}/${HALAGE_PC_NAME}.pc" @ONLY)
    install(FILES "${package_build}/${HALAGE_PC_NAME}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
    set_property(GLOBAL APPEND PROPERTY halage_components ${arg_NAME})
    set_property(GLOBAL APPEND_STRING PROPERTY halage_component_modules
        "set(halage_modules_${arg_NAME} ${part_modules})\n")
endfunction()

# What an engine links; without HALAGE_MESSENGER what its own messenger would.
set(halage_parts halage_core halage_driver halage_memory halage_staged halage_tcp)
if(HALAGE_MESSENGER)
    list(PREPEND halage_parts halage_messenger)
else()
    set_property(GLOBAL APPEND PROPERTY halage_headers_left messenger.h transport/sealed.h)
endif()
halage_package(NAME halage DOC "Tows KV caches from prefill to decode nodes" TARGETS ${halage_parts})
halage_package(NAME ofi DOC "halage over libfabric" TARGETS halage_ofi HEADERS transport/ofi.h)
halage_package(NAME exporter DOC "Metrics of halage over HTTP" TARGETS halage_exporter HEADERS exporter.h)
halage_package(NAME topology DOC "Which NICs and cores are near which GPU" TARGETS halage_topology HEADERS topology.h)
halage_package(NAME loop DOC "A network for halage within one process, for tests" TARGETS halage_loop
    HEADERS transport/loop.h)
halage_package(NAME fault DOC "Faults over any network of halage, for tests" TARGETS halage_fault
    HEADERS transport/fault.h)
halage_package(NAME simgrid DOC "halage over networks that SimGrid simulates" TARGETS halage_simgrid
    HEADERS transport/simgrid.h LIBS stdc++ m)

get_property(left GLOBAL PROPERTY halage_headers_left)
list(TRANSFORM left REPLACE "(.+)" "PATTERN;halage/\\1;EXCLUDE")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/halage" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" ${left})
# Not what only those read who change the project; programs with what is read and used with them alone.
set(docs_left STYLE.md CONTRIBUTING.md testing.md cases.md)
if(HALAGE_PROGRAMS)
    install(TARGETS halage halage-prefill halage-decode halage-sim RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
        FILES_MATCHING PATTERN "*.1")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/layouts" DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")
else()
    list(APPEND docs_left simulation.md cost.md engines.md)
endif()
list(TRANSFORM docs_left REPLACE "(.+)" "PATTERN;\\1;EXCLUDE")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    FILES_MATCHING PATTERN "*.md" PATTERN man EXCLUDE ${docs_left})
get_property(examples GLOBAL PROPERTY halage_examples)
install(FILES ${examples} DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")
# Section 3 is made from the comments of the headers.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND)
    set(manuals "${PROJECT_BINARY_DIR}/man/man3")
    file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.h")
    get_property(left GLOBAL PROPERTY halage_headers_left)
    list(TRANSFORM left PREPEND "--without=")
    add_custom_command(
        OUTPUT "${manuals}/halage_base.3"
        COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/manuals.py" --version ${PROJECT_VERSION}
            --date ${HALAGE_DATE} --out "${manuals}" ${left} "${PROJECT_SOURCE_DIR}/include"
        DEPENDS ${public_headers} "${PROJECT_SOURCE_DIR}/tools/manuals.py"
        VERBATIM)
    add_custom_target(manuals ALL DEPENDS "${manuals}/halage_base.3")
    install(DIRECTORY "${manuals}" DESTINATION "${CMAKE_INSTALL_MANDIR}" FILES_MATCHING PATTERN "*.3")
else()
    message(STATUS "no manuals of section 3: Python 3 is not found; to have them, install python3")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT halageTargets NAMESPACE halage:: DESTINATION "${package_dir}")
get_property(components GLOBAL PROPERTY halage_components)
list(JOIN components " " HALAGE_COMPONENTS)
get_property(HALAGE_COMPONENT_MODULES GLOBAL PROPERTY halage_component_modules)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/halageConfig.cmake.in"
    "${package_build}/halageConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${package_build}/halageConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${package_build}/halageConfig.cmake" "${package_build}/halageConfigVersion.cmake"
    DESTINATION "${package_dir}")
