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
