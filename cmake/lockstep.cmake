# Helpers shared by every folder's CMakeLists.txt.

find_package(Threads REQUIRED)
if(LOCKSTEP_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()

add_library(lockstep_options INTERFACE)
target_compile_options(lockstep_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_options INTERFACE -Werror)
endif()
# g++ 12 sees an overlap in `"text" + string` where it inlines that (its bug 105329), and takes what LOCKSTEP_TRY moves out of a
# Result for not initialized; with optimization only. clang looks for both in `./dev check`.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(lockstep_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

# LOCKSTEP_PRECOMPILE: the standard headers that nearly every file reads are compiled once (a sixth of the build). Only the dev
# preset does it; in every other one a file that forgets an include is found. One header for libraries and one for tests,
# because programs are compiled with other flags than libraries.
if(LOCKSTEP_PRECOMPILE)
  # g++ 12 forgets which headers are the system's when they are precompiled, and warns of what it inlines from them.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(lockstep_options INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc CONTENT "// Holds a precompiled header.\n")
  add_library(lockstep_precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(lockstep_precompiled PRIVATE lockstep_options Threads::Threads)
  target_precompile_headers(lockstep_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
endif()
# LOCKSTEP_TEST_CLANG: test programs, and the libraries that no test keeps busy, are compiled by clang where it is there, without
# optimization (tools/test_compiler.sh).
set(LOCKSTEP_QUIET_LIBRARIES
    lockstep_access lockstep_agent lockstep_alert lockstep_api lockstep_backup lockstep_bus lockstep_cli lockstep_control lockstep_egress
    lockstep_fabric lockstep_incident lockstep_net lockstep_net_server lockstep_net_testing lockstep_s3 lockstep_server lockstep_sle)
if(LOCKSTEP_TEST_CLANG)
  find_program(LOCKSTEP_CLANG clang++)
endif()
function(lockstep_compile_by_clang target)
  if(LOCKSTEP_TEST_CLANG AND LOCKSTEP_CLANG)
    set(launcher ${PROJECT_SOURCE_DIR}/tools/test_compiler.sh ${LOCKSTEP_CLANG})
    if(CCACHE)
      list(PREPEND launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
      list(APPEND launcher ${CCACHE})
    endif()
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher};--")
  endif()
endfunction()

if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_TEST_CLANG AND LOCKSTEP_CLANG)
  add_library(lockstep_precompiled_quiet OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(lockstep_precompiled_quiet PRIVATE lockstep_options Threads::Threads)
  target_compile_options(lockstep_precompiled_quiet PRIVATE -O0)
  target_precompile_headers(lockstep_precompiled_quiet PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
  lockstep_compile_by_clang(lockstep_precompiled_quiet)
endif()
if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_TESTS)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled_test.cc CONTENT "int main() { return 0; }  // Holds a precompiled header.\n")
  add_executable(lockstep_precompiled_test ${CMAKE_BINARY_DIR}/precompiled_test.cc)
  target_link_libraries(lockstep_precompiled_test PRIVATE lockstep_options Threads::Threads GTest::gtest)
  target_compile_options(lockstep_precompiled_test PRIVATE ${LOCKSTEP_TEST_FLAGS})
  target_precompile_headers(lockstep_precompiled_test PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h <gtest/gtest.h>)
  lockstep_compile_by_clang(lockstep_precompiled_test)
endif()

# Where it is there, the linker that takes half the time: for programs that are tried here. Libraries that others load are linked as they
# are given away (gold exports names that a version script hides).
find_program(LOCKSTEP_FAST_LINKER ld.gold)
if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_FAST_LINKER)
  string(APPEND CMAKE_EXE_LINKER_FLAGS " -fuse-ld=gold")
endif()

# LOCKSTEP_UNITY: the sources of a library or test are compiled in batches (tools/batch_sources.py says which may share one). Only
# the dev preset and the wheel do it; everywhere else each file is compiled alone, so that one that leans on its neighbours is found.
if(LOCKSTEP_UNITY)
  find_package(Python3 COMPONENTS Interpreter)
  # A public class with a member from an unnamed namespace: right in a .cc file, and g++ takes ours for headers here.
  target_compile_options(lockstep_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  # g++ collects its own garbage from 128 MB on: an eighth of its time on files as large as these.
  target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=786432>")
endif()

# lockstep_batched(OUT TARGET source...): what TARGET compiles instead of its sources.
function(lockstep_batched out target)
  set(sources ${ARGN})
  list(LENGTH sources count)
  if(NOT LOCKSTEP_UNITY OR NOT Python3_Interpreter_FOUND OR count LESS 2)
    set(${out} ${sources} PARENT_SCOPE)
    return()
  endif()
  set(paths)
  foreach(source ${sources})
    get_filename_component(path ${source} ABSOLUTE)
    list(APPEND paths ${path})
  endforeach()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/batch_sources.py --out ${CMAKE_CURRENT_BINARY_DIR}/${target}.batches ${paths}
    OUTPUT_VARIABLE batched OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" batched "${batched}")
  set(${out} ${batched} PARENT_SCOPE)
endfunction()

# lockstep_static_library(TARGET source...): the sources of a static library of ours, batched and with the precompiled header.
function(lockstep_static_library target)
  if(LOCKSTEP_SINGLE_LIBRARIES)
    set(batched ${ARGN})
  else()
    lockstep_batched(batched ${target} ${ARGN})
  endif()
  add_library(${target} STATIC ${batched})
  target_link_libraries(${target} PUBLIC lockstep_options Threads::Threads)
  set(precompiled lockstep_precompiled)
  if(LOCKSTEP_TEST_CLANG AND LOCKSTEP_CLANG AND target IN_LIST LOCKSTEP_QUIET_LIBRARIES)
    target_compile_options(${target} PRIVATE -O0)
    lockstep_compile_by_clang(${target})
    set(precompiled lockstep_precompiled_quiet)
  endif()
  if(LOCKSTEP_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
endfunction()

# lockstep_program(TARGET source...): a program that leaves the work to libraries, compiled as the quiet ones are. Position-independent
# like these, because it shares their precompiled header.
function(lockstep_program target)
  lockstep_batched(batched ${target} ${ARGN})
  add_executable(${target} ${batched})
  if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_TEST_CLANG AND LOCKSTEP_CLANG)
    target_compile_options(${target} PRIVATE -O0 -fPIC)
    lockstep_compile_by_clang(${target})
    target_precompile_headers(${target} REUSE_FROM lockstep_precompiled_quiet)
  endif()
endfunction()

# lockstep_library(NAME [DEPENDS lib...]): a static library lockstep_NAME of every .cc beside the CMakeLists.txt
# (and up to two folders down) that is not a test, benchmark or fuzzer. Tests (*_test.cc) become one program NAME_test,
# fuzzers (*_fuzz.cc) one program each, benchmarks (*_bench.cc) one program each. What is in a folder testing/ is for
# these alone: lockstep_NAME_testing, which the product is not linked with.
function(lockstep_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;TEST_DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc */*.cc */*/*.cc)
  set(tests ${sources})
  set(fuzzers ${sources})
  set(benches ${sources})
  set(testing ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$|/testing/")
  list(FILTER testing INCLUDE REGEX "/testing/")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  if(sources)
    lockstep_static_library(lockstep_${name} ${sources})
    target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS})
  else()
    add_library(lockstep_${name} INTERFACE)
    target_link_libraries(lockstep_${name} INTERFACE lockstep_options ${arg_DEPENDS} Threads::Threads)
  endif()
  if(testing)
    lockstep_static_library(lockstep_${name}_testing ${testing})
    target_link_libraries(lockstep_${name}_testing PUBLIC lockstep_${name})
    set_target_properties(lockstep_${name}_testing PROPERTIES EXCLUDE_FROM_ALL ON)
    list(APPEND arg_TEST_DEPENDS lockstep_${name}_testing)
  endif()
  if(LOCKSTEP_TESTS AND tests)
    lockstep_test(${name}_test ${tests} DEPENDS lockstep_${name} ${arg_TEST_DEPENDS})
  endif()
  if(LOCKSTEP_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzzer_name ${fuzzer} NAME_WE)
      lockstep_fuzzer(${fuzzer_name} ${fuzzer} DEPENDS lockstep_${name} ${arg_TEST_DEPENDS})
    endforeach()
  endif()
  if(LOCKSTEP_BENCH)
    find_package(benchmark REQUIRED)
    foreach(bench ${benches})
      get_filename_component(bench_name ${bench} NAME_WE)
      add_executable(${bench_name} ${bench})
      target_link_libraries(${bench_name} PRIVATE lockstep_${name} ${arg_TEST_DEPENDS} benchmark::benchmark_main)
    endforeach()
  endif()
endfunction()

# Suites of ten seconds and more: ctest starts them first, so that none of them runs alone at the end.
set(LOCKSTEP_LONG_SUITES
    sim_test.NodeTelemetry recordings_test store_test.MetricEngineTest ingest_test.RemoteWriteReal crash_faults_test.CrashFaults)

function(lockstep_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  if(${name} IN_LIST LOCKSTEP_LONG_SUITES)
    set_tests_properties(${name} PROPERTIES COST 10)
  endif()
endfunction()

# lockstep_test(NAME source... DEPENDS lib...): a GoogleTest program. ctest sees each of its suites as one test, NAME.SUITE: a process
# for each case costs more than most cases do. NAME.others runs what the search below does not find, so that nothing is left out.
# ONE_PROCESS: the whole program is one test, NAME, because its suites share what is dear to make.
function(lockstep_test name)
  cmake_parse_arguments(arg "ONE_PROCESS" "" "DEPENDS" ${ARGN})
  lockstep_batched(batched ${name} ${arg_UNPARSED_ARGUMENTS})
  add_executable(${name} ${batched})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${LOCKSTEP_TEST_FLAGS})
  lockstep_compile_by_clang(${name})
  if(LOCKSTEP_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM lockstep_precompiled_test)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_ONE_PROCESS)
    lockstep_add_test(${name} ${name})
    return()
  endif()
  set(suites)
  foreach(source ${arg_UNPARSED_ARGUMENTS})
    file(STRINGS ${source} heads REGEX "^(TYPED_)?TEST(_F|_P)?\\([A-Za-z0-9_]+,")
    list(TRANSFORM heads REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+),.*$" "\\1")
    list(FILTER heads INCLUDE REGEX "^[A-Za-z0-9_]+$")
    list(APPEND suites ${heads})
  endforeach()
  list(REMOVE_DUPLICATES suites)
  set(found)
  foreach(suite ${suites})
    set(filter ${suite}.*:*/${suite}.*:${suite}/*:*/${suite}/*)  # also with parameters or types
    lockstep_add_test(${name}.${suite} ${name} --gtest_filter=${filter})
    list(APPEND found ${filter})
  endforeach()
  list(JOIN found ":" found)
  lockstep_add_test(${name}.others ${name} --gtest_filter=*:-${found})
endfunction()

# lockstep_fuzzer(NAME source... DEPENDS lib...): a libFuzzer program.
function(lockstep_fuzzer name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
