# A room is a static library that sees only its own headers and those of the rooms it names.
#
# Headers are included as "room/file.h". Each room gets a private include root (a folder holding one link to the
# room's sources), so an include of a room that is not a dependency does not resolve and the build fails.
#
# The roots lie beside the build folder, so that several builds of one tree share compiler cache entries.
#
#   moracle_room(format DEPENDS base checkpoint scheme [LIBRARIES fmt::fmt])
function(moracle_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;LIBRARIES;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(excluded IN LISTS ROOM_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${excluded}")
  endforeach()
  set(include_root "${PROJECT_BINARY_DIR}/../rooms/${name}")
  cmake_path(NORMAL_PATH include_root)
  file(MAKE_DIRECTORY "${include_root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${include_root}/${name}" SYMBOLIC)

  set(scope PUBLIC)
  if(sources)
    add_library(moracle_${name} STATIC ${sources})
    target_link_libraries(moracle_${name} PRIVATE moracle_flags)
  else()  # headers only
    add_library(moracle_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(moracle_${name} ${scope} "${include_root}")
  target_link_libraries(moracle_${name} ${scope} ${ROOM_LIBRARIES})
  foreach(dependency IN LISTS ROOM_DEPENDS)
    target_link_libraries(moracle_${name} ${scope} moracle_${dependency})
  endforeach()
endfunction()
