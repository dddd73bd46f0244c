# What is built of that which needs something that not every machine has.
#
# halage_option(NAME ofi DOC text [MODULE pkg-config's name [VERSION least] [BELOW version] PACKAGE what to install])
#
# makes the choice HALAGE_<NAME>, AUTO by default:
#   AUTO  used where the module is found; a line says whether
#   ON    it must be there: or configuring fails, and names the package
#   OFF   never looked for
# and sets HALAGE_WITH_<NAME> to ON or OFF, what is built. The module gives the target halage::<module>. Without
# MODULE nothing is needed, and AUTO is ON.
function(halage_option)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;DOC;MODULE;VERSION;BELOW;PACKAGE" "")
    halage_require_arguments(NAME DOC)
    set(option HALAGE_${arg_NAME})
    set(${option} AUTO CACHE STRING "${arg_DOC}: AUTO, ON or OFF")
    set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
    set(choice "${${option}}")
    if(NOT choice MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${option}=${choice}: must be AUTO, ON or OFF")
    endif()

    set(with ON)
    set(why "")
    if(choice STREQUAL "OFF")
        set(with OFF)
    elseif(arg_MODULE)
        halage_find_module("${arg_MODULE}" "${arg_VERSION}" "${arg_BELOW}")
        if(NOT found STREQUAL "")
            set(why ", ${wanted} is ${found}")
        elseif(choice STREQUAL "AUTO")
            set(with OFF)
            set(why ", ${wanted} is not found; to have it, install ${arg_PACKAGE}")
        else()
            message(FATAL_ERROR "${option}=ON needs ${wanted}, which is not found: install ${arg_PACKAGE}, or "
                "configure with -D${option}=OFF")
        endif()
    endif()
    message(STATUS "${option}: ${with}${why}")
    set(HALAGE_WITH_${arg_NAME} ${with} PARENT_SCOPE)
endfunction()

# The target halage::<module>, if pkg-config knows it. Sets `found`, its version or empty, and `wanted`, words for it.
function(halage_find_module module version below)
    set(wanted "${module}")
    set(specs "${module}")
    if(version)
        set(wanted "${module} >= ${version}")
        set(specs "${module}>=${version}")
    endif()
    if(below)
        set(wanted "${wanted} and < ${below}")
        list(APPEND specs "${module}<${below}")
    endif()
    set(found "")
    find_package(PkgConfig QUIET)
    if(NOT PKG_CONFIG_FOUND)
        message(WARNING "pkg-config is missing: without it no library is found")
    else()
        unset(__pkg_config_checked_HALAGE_${module} CACHE) # look again: it may have been installed, or removed
        pkg_check_modules(HALAGE_${module} QUIET IMPORTED_TARGET GLOBAL ${specs})
    endif()
    if(PKG_CONFIG_FOUND AND HALAGE_${module}_FOUND)
        add_library(halage::${module} ALIAS PkgConfig::HALAGE_${module})
        string(REPLACE " and <" ", ${module} <" for_pc "${wanted}")
        set_property(GLOBAL PROPERTY halage_wanted_${module} "${for_pc}")
        set(found "${HALAGE_${module}_VERSION}")
        if(found STREQUAL "")
            set(found "${HALAGE_${module}_${module}_VERSION}") # where one module is asked for twice
        endif()
    endif()
    set(wanted "${wanted}" PARENT_SCOPE)
    set(found "${found}" PARENT_SCOPE)
endfunction()

# For what a part of the project cannot do without.
function(halage_require_module module package option)
    halage_find_module("${module}" "" "")
    if(found STREQUAL "")
        message(FATAL_ERROR "${option}=ON needs ${wanted}, which is not found: install ${package}, or configure with "
            "-D${option}=OFF")
    endif()
endfunction()
