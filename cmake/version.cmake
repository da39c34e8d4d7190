# The library lockstep_version (base/version.h): written again when the commit has changed. Without Git, or in an archive of the sources,
# the commit is what LOCKSTEP_COMMIT says, else none is told.
if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT LOCKSTEP_COMMIT)
    execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE LOCKSTEP_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE
                    ERROR_QUIET)
  endif()
  configure_file(${SOURCE}/cmake/version.cc.in ${OUTPUT} @ONLY)
  return()
endif()

set(LOCKSTEP_COMMIT "" CACHE STRING "The commit that the sources are of, where Git cannot tell")
# What Git writes at each commit, checkout and reset.
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse --git-path logs/HEAD OUTPUT_VARIABLE head_log
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
get_filename_component(head_log "${head_log}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
if(NOT EXISTS "${head_log}" OR IS_DIRECTORY "${head_log}")
  set(head_log)
endif()
set(version_source ${CMAKE_BINARY_DIR}/version.cc)
add_custom_command(OUTPUT ${version_source}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${version_source} -DLOCKSTEP_VERSION=${PROJECT_VERSION}
          -DLOCKSTEP_COMMIT=${LOCKSTEP_COMMIT} -P ${PROJECT_SOURCE_DIR}/cmake/version.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/version.cmake ${PROJECT_SOURCE_DIR}/cmake/version.cc.in ${head_log}
  COMMENT "Which commit this is" VERBATIM)
add_library(lockstep_version STATIC ${version_source})
target_link_libraries(lockstep_version PUBLIC lockstep_base)
