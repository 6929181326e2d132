# A room is a static library that sees only its own headers and those of the rooms it names.
#
# Headers are included as "room/file.h". Each room gets an include root in the build tree (a folder holding one link to
# the room's sources), so an include of a room that no dependency leads to does not resolve and the build fails;
# scripts/check-rooms refuses includes of rooms that only a dependency names. Builds of one tree share compiler cache
# entries, since scripts/build has the cache see paths relative to the build folder.
#
#   moracle_room(format DEPENDS base checkpoint scheme [LIBRARIES fmt::fmt])
function(moracle_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;LIBRARIES;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(excluded IN LISTS ROOM_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${excluded}")
  endforeach()
  set(include_root "${PROJECT_BINARY_DIR}/rooms/${name}")
  file(MAKE_DIRECTORY "${include_root}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${include_root}/${name}" SYMBOLIC)

  set(scope PUBLIC)
  if(sources)
    add_library(moracle_${name} STATIC ${sources})
    target_link_libraries(moracle_${name} PRIVATE moracle_flags)
    moracle_precompile(moracle_${name})
    if(name IN_LIST optimized_rooms)
      target_compile_options(moracle_${name} PRIVATE -O1)
    endif()
  else()  # headers only
    add_library(moracle_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(moracle_${name} ${scope} "${include_root}")
  target_link_libraries(moracle_${name} ${scope} ${ROOM_LIBRARIES})
  if(absent_rooms)  # rooms that this build does without
    list(REMOVE_ITEM ROOM_DEPENDS ${absent_rooms})
  endif()
  foreach(dependency IN LISTS ROOM_DEPENDS)
    target_link_libraries(moracle_${name} ${scope} moracle_${dependency})
  endforeach()
endfunction()
