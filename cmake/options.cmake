# What is built of that which needs something that not every machine has.
#
# halage_option(NAME ofi DOC text DEFAULT AUTO|ON|OFF PACKAGE what to install
#     MODULE pkg-config module [VERSION least] | HEADER file [HINTS directory ...])
#
# makes the choice HALAGE_<NAME>:
#   AUTO  used where it is found; a line says whether
#   ON    must be there: or configuring fails, and names what to install
#   OFF   never looked for
# and sets HALAGE_WITH_<NAME> to ON or OFF, what is built. A module gives the target halage::<module>; a header is found
# in HALAGE_<NAME>_INCLUDE.

function(halage_option)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;DOC;DEFAULT;PACKAGE;MODULE;VERSION;HEADER" "HINTS")
    halage_require_arguments(NAME DOC DEFAULT PACKAGE)
    set(option HALAGE_${arg_NAME})
    set(${option} ${arg_DEFAULT} CACHE STRING "${arg_DOC}: AUTO, ON or OFF")
    set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
    if(NOT "${${option}}" MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${option}=${${option}}: must be AUTO, ON or OFF")
    endif()
    set(HALAGE_WITH_${arg_NAME} OFF PARENT_SCOPE)
    if("${${option}}" STREQUAL "OFF")
        message(STATUS "${option}: OFF")
        return()
    endif()

    if(arg_MODULE)
        halage_find_module("${arg_MODULE}" "${arg_VERSION}")
    else()
        set(wanted "${arg_HEADER}")
        unset(${option}_INCLUDE CACHE)
        find_path(${option}_INCLUDE "${arg_HEADER}" HINTS ${arg_HINTS})
        mark_as_advanced(${option}_INCLUDE)
        set(found "")
        if(${option}_INCLUDE)
            set(found "in ${${option}_INCLUDE}")
        endif()
    endif()
    if(NOT found STREQUAL "")
        set(HALAGE_WITH_${arg_NAME} ON PARENT_SCOPE)
        message(STATUS "${option}: ON, ${wanted} is ${found}")
    elseif("${${option}}" STREQUAL "AUTO")
        message(STATUS "${option}: OFF, ${wanted} is not found; to have it, install ${arg_PACKAGE}")
    else()
        message(FATAL_ERROR "${option}=ON needs ${wanted}, which is not found: install ${arg_PACKAGE}, or "
            "configure with -D${option}=OFF")
    endif()
endfunction()

# The target halage::<module>, if pkg-config knows it, and `found` is its version, or else empty.
function(halage_find_module module version)
    set(wanted "${module}")
    if(version)
        string(APPEND wanted " >= ${version}")
    endif()
    set(found "")
    find_package(PkgConfig QUIET)
    if(NOT PKG_CONFIG_FOUND)
        message(WARNING "pkg-config is missing: without it no library is found")
        set(wanted "${wanted}" PARENT_SCOPE)
        set(found "" PARENT_SCOPE)
        return()
    endif()
    unset(__pkg_config_checked_HALAGE_${module} CACHE) # look again: it may have been installed, or removed
    string(REPLACE " " "" spec "${wanted}")
    pkg_check_modules(HALAGE_${module} QUIET IMPORTED_TARGET GLOBAL "${spec}")
    if(HALAGE_${module}_FOUND)
        add_library(halage::${module} ALIAS PkgConfig::HALAGE_${module})
        set_property(GLOBAL PROPERTY halage_wanted_${module} "${wanted}") # for .pc files
        set(found "${HALAGE_${module}_VERSION}")
    endif()
    set(wanted "${wanted}" PARENT_SCOPE)
    set(found "${found}" PARENT_SCOPE)
endfunction()

# For what a part of the project cannot do without.
function(halage_require_module module package option)
    halage_find_module("${module}" "")
    if(found STREQUAL "")
        message(FATAL_ERROR "${option}=ON needs ${wanted}, which is not found: install ${package}, or configure with "
            "-D${option}=OFF")
    endif()
endfunction()
