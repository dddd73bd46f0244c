# Libraries found by pkg-config, as imported targets halage::<module>.
find_package(PkgConfig REQUIRED)

function(halage_find_module module)
    pkg_check_modules(HALAGE_${module} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(NOT HALAGE_${module}_FOUND)
        message(FATAL_ERROR "${module} is missing: run tools/setup")
    endif()
    add_library(halage::${module} ALIAS PkgConfig::HALAGE_${module})
endfunction()

halage_find_module(libfabric)
halage_find_module(jansson)
halage_find_module(libcyaml)
halage_find_module(libsodium)
if(HALAGE_TESTS)
    halage_find_module(cmocka)
endif()

# libmicrohttpd is optional: only src/exporter needs it.
set(HALAGE_EXPORTER OFF)
if(HALAGE_METRICS_HTTP)
    pkg_check_modules(HALAGE_libmicrohttpd QUIET IMPORTED_TARGET GLOBAL libmicrohttpd>=0.9.71)
    if(HALAGE_libmicrohttpd_FOUND)
        add_library(halage::libmicrohttpd ALIAS PkgConfig::HALAGE_libmicrohttpd)
        set(HALAGE_EXPORTER ON)
    else()
        message(STATUS "no /metrics over HTTP: libmicrohttpd is missing: run tools/setup")
    endif()
endif()

# SimGrid is optional: only transports/simgrid needs it, and C++ for its one file.
include(CheckLanguage)
pkg_check_modules(HALAGE_simgrid QUIET IMPORTED_TARGET GLOBAL simgrid>=3.32)
check_language(CXX)
set(HALAGE_SIMGRID OFF)
if(HALAGE_simgrid_FOUND AND CMAKE_CXX_COMPILER)
    enable_language(CXX)
    set(CMAKE_CXX_EXTENSIONS OFF)
    # Assertions stay on here too.
    foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
        string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_${type} "${CMAKE_CXX_FLAGS_${type}}")
    endforeach()
    set(HALAGE_SIMGRID ON)
endif()

# CUDA memory needs nothing at build: the driver's interface is src/memory/cuda_abi.h, and the driver is
# found at run time. AUTO is ON.
set(HALAGE_CUDA AUTO CACHE STRING "Memory of kind cuda: AUTO, ON or OFF")
if(HALAGE_CUDA STREQUAL "AUTO")
    set(HALAGE_CUDA ON)
endif()
