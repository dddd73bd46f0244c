# halage_add_test(NAME name SOURCES ... [LIBS ...] LABELS quick|full [more ...] [TIMEOUT s])
# A cmocka program, bin/test-<name>, that ctest runs as <name>.
function(halage_add_test)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS")
    halage_require_arguments(NAME SOURCES LABELS)
    add_executable(test-${arg_NAME} ${arg_SOURCES})
    target_link_libraries(test-${arg_NAME} PRIVATE ${arg_LIBS} halage::cmocka)
    halage_register_test(${arg_NAME} "$<TARGET_FILE:test-${arg_NAME}>" "${arg_LABELS}"
        "${arg_TIMEOUT}")
    halage_gather_test(test-${arg_NAME} "${arg_LABELS}")
endfunction()

# halage_add_command_test(NAME name COMMAND ... LABELS quick|full [more ...] [TIMEOUT s] [PROCESSORS n])
# Any other command: it passes with exit status 0 and is skipped with 77. PROCESSORS: cores that it keeps busy.
function(halage_add_command_test)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT;PROCESSORS" "COMMAND;LABELS")
    halage_require_arguments(NAME COMMAND LABELS)
    halage_register_test(${arg_NAME} "${arg_COMMAND}" "${arg_LABELS}" "${arg_TIMEOUT}")
    list(GET arg_COMMAND 0 program)
    halage_gather_test("${program}" "${arg_LABELS}")
    set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77)
    if(arg_PROCESSORS)
        set_tests_properties(${arg_NAME} PROPERTIES PROCESSORS ${arg_PROCESSORS})
    endif()
endfunction()

function(halage_register_test name command labels timeout)
    set(tiers ${labels})
    list(FILTER tiers INCLUDE REGEX "^(quick|full)$")
    list(LENGTH tiers tier_count)
    if(NOT tier_count EQUAL 1)
        message(FATAL_ERROR "test ${name}: LABELS needs one of quick and full")
    endif()
    if(NOT timeout)
        set(timeout 60)
    endif()
    add_test(NAME ${name} COMMAND ${command})
    set_tests_properties(${name} PROPERTIES
        LABELS "${labels}"
        TIMEOUT ${timeout}
        ENVIRONMENT "HALAGE_SOURCE_DIR=${PROJECT_SOURCE_DIR};HALAGE_BIN_DIR=${PROJECT_BINARY_DIR}/bin")
endfunction()

# Targets core-tests and tsan-tests are what the tests with that label need: tools/coverage and tools/test build no
# more.
function(halage_gather_test program labels)
    foreach(label IN ITEMS core tsan)
        if(NOT label IN_LIST labels OR NOT TARGET "${program}")
            continue()
        endif()
        if(NOT TARGET ${label}-tests)
            add_custom_target(${label}-tests)
        endif()
        add_dependencies(${label}-tests ${program})
    endforeach()
endfunction()
