# What the project uses of others. docs/CONTRIBUTING.md, "Options", has the table.
include(CheckLanguage)

option(HALAGE_MESSENGER "Build what an engine links: messenger, TCP channels, memory; needs libsodium" ON)
option(HALAGE_PROGRAMS "Build halage, its nodes and the simulator; needs HALAGE_MESSENGER, jansson, libcyaml, libyaml" ON)
option(HALAGE_TESTS "Build the tests; needs HALAGE_PROGRAMS, cmocka" ON)

if(HALAGE_PROGRAMS AND NOT HALAGE_MESSENGER)
    message(FATAL_ERROR "HALAGE_PROGRAMS=ON needs the messenger: configure with -DHALAGE_MESSENGER=ON, or with "
        "-DHALAGE_PROGRAMS=OFF, too")
endif()
if(HALAGE_TESTS AND NOT HALAGE_PROGRAMS)
    message(FATAL_ERROR "HALAGE_TESTS=ON needs the programs: configure with -DHALAGE_PROGRAMS=ON, or with "
        "-DHALAGE_TESTS=OFF, too")
endif()
if(HALAGE_MESSENGER)
    halage_require_module(libsodium libsodium-dev HALAGE_MESSENGER)
endif()
if(HALAGE_PROGRAMS)
    halage_require_module(jansson libjansson-dev HALAGE_PROGRAMS)
    halage_require_module(libcyaml libcyaml-dev HALAGE_PROGRAMS)
    halage_require_module(yaml-0.1 libyaml-dev HALAGE_PROGRAMS)
endif()
if(HALAGE_TESTS)
    halage_require_module(cmocka libcmocka-dev HALAGE_TESTS)
endif()

halage_option(NAME OFI DOC "RDMA and TCP by libfabric" MODULE libfabric VERSION 1.17 PACKAGE libfabric-dev)
# The driver is found at run time; its interface is src/memory/cuda_abi.h.
halage_option(NAME CUDA DOC "Memory of GPUs")
halage_option(NAME HWLOC DOC "Which NICs and cores are near which GPU" MODULE hwloc VERSION 2.4 BELOW 3
    PACKAGE libhwloc-dev)
halage_option(NAME METRICS_HTTP DOC "Metrics over HTTP" MODULE libmicrohttpd VERSION 0.9.71
    PACKAGE libmicrohttpd-dev)
halage_option(NAME SIMGRID DOC "Simulated networks, and halage-sim" MODULE simgrid VERSION 3.32
    PACKAGE libsimgrid-dev)

# SimGrid's one file is C++.
if(HALAGE_WITH_SIMGRID)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
        set(CMAKE_CXX_EXTENSIONS OFF)
        # Assertions stay on here too.
        foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
            string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_${type} "${CMAKE_CXX_FLAGS_${type}}")
        endforeach()
    elseif("${HALAGE_SIMGRID}" STREQUAL "AUTO")
        message(STATUS "HALAGE_SIMGRID: OFF, no C++ compiler; to have it, install g++")
        set(HALAGE_WITH_SIMGRID OFF)
    else()
        message(FATAL_ERROR "HALAGE_SIMGRID=ON needs a C++ compiler: install g++, or configure with "
            "-DHALAGE_SIMGRID=OFF")
    endif()
endif()
