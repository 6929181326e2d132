# The page's files, and the libraries that show Markdown, become literals of one source.

# Debian's packages libjs-marked, node-dompurify and libjs-highlight.js.
find_file(MORACLE_MARKED marked.min.js PATHS /usr/share/javascript/marked NO_DEFAULT_PATH)
find_file(MORACLE_DOMPURIFY purify.min.js PATHS /usr/share/nodejs/dompurify/dist NO_DEFAULT_PATH)
find_file(MORACLE_HIGHLIGHT highlight.min.js PATHS /usr/share/javascript/highlight.js NO_DEFAULT_PATH)

# asset(NAME FILE): the file as NAME, after those that are there already.
set(asset_count 0)
set(asset_entries "")
function(asset name file)
  set(type_.html "text/html")
  set(type_.js "text/javascript")
  set(type_.css "text/css")
  set(type_.txt "text/plain")
  get_filename_component(ending "${name}" LAST_EXT)
  set(text "// This build has no such library.\n")
  if(file)
    file(READ "${file}" text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  endif()
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" text "${text}")  # the map is not given out
  string(SHA256 tag "${text}")
  string(APPEND asset_entries "      {\"${name}\", \"${type_${ending}}; charset=utf-8\",\n"
                              "       R\"~page~(${text})~page~\"sv, \"\\\"${tag}\\\"\"},\n")
  math(EXPR asset_count "${asset_count} + 1")
  set(asset_entries "${asset_entries}" PARENT_SCOPE)
  set(asset_count ${asset_count} PARENT_SCOPE)
endfunction()

file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.html" "${CMAKE_CURRENT_LIST_DIR}/*.js"
                                  "${CMAKE_CURRENT_LIST_DIR}/*.css" "${CMAKE_CURRENT_LIST_DIR}/*.txt")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  asset("${name}" "${file}")
endforeach()

# Markdown takes both: what marked makes is shown through DOMPurify alone.
if(MORACLE_MARKED AND MORACLE_DOMPURIFY)
  message(STATUS "The page of moracle serve: shows Markdown")
  asset(marked.js "${MORACLE_MARKED}")
  asset(purify.js "${MORACLE_DOMPURIFY}")
  asset(highlight.js "${MORACLE_HIGHLIGHT}")
else()
  message(STATUS "The page of moracle serve: shows plain text; scripts/setup build installs what shows Markdown")
  foreach(name marked.js purify.js highlight.js)
    asset(${name} "")
  endforeach()
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/assets.cpp.in" "${CMAKE_CURRENT_BINARY_DIR}/assets.cpp" @ONLY)
