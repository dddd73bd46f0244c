# What `cmake --install build/release --prefix P` installs: headers, libraries, programs, man pages, and what
# CMake (find_package(halage)) and pkg-config (halage) need to find them. Both are relocatable.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# One archive of all that an engine links: these, and what they link. Test transports are apart.
set(halage_parts halage_core halage_messenger halage_ofi halage_topology)
set(halage_apart halage_loop halage_fault)

set(objects "")
set(HALAGE_PACKAGE_MODULES "")
set(known "")
while(halage_parts)
    list(POP_FRONT halage_parts part)
    if(part IN_LIST known)
        continue()
    endif()
    list(APPEND known ${part})
    list(APPEND objects "$<TARGET_OBJECTS:${part}>")
    get_target_property(libraries ${part} LINK_LIBRARIES)
    foreach(library IN LISTS libraries)
        if(library MATCHES "^halage::(.+)$")
            list(APPEND HALAGE_PACKAGE_MODULES ${CMAKE_MATCH_1})
        elseif(library MATCHES "^halage_" AND NOT library MATCHES "^halage_(warnings|sanitizers)$")
            list(APPEND halage_parts ${library})
        endif()
    endforeach()
endwhile()
list(REMOVE_DUPLICATES HALAGE_PACKAGE_MODULES)
string(JOIN " " HALAGE_PACKAGE_MODULES ${HALAGE_PACKAGE_MODULES})

add_library(halage_package STATIC ${objects})
set_target_properties(halage_package PROPERTIES OUTPUT_NAME halage LINKER_LANGUAGE C)
install(TARGETS halage_package ${halage_apart} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/halage" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h"
    PATTERN simgrid.h EXCLUDE) # its library is not installed
foreach(program halage halage-prefill halage-decode halage-sim)
    if(TARGET ${program})
        install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
    FILES_MATCHING PATTERN "*.1")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/halage")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/halageConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/package/halageConfig.cmake"
    INSTALL_DESTINATION "${package_dir}"
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/halageConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/halageConfig.cmake"
    "${PROJECT_BINARY_DIR}/package/halageConfigVersion.cmake"
    DESTINATION "${package_dir}")

file(RELATIVE_PATH HALAGE_PACKAGE_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/halage.pc.in" "${PROJECT_BINARY_DIR}/package/halage.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/halage.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
