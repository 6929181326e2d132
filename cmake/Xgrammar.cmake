# xgrammar's C++ core, which makes masks of grammars: a static library without its Python bindings, whose symbols stay
# inside. Its warnings are its own; what it would print goes to text/constrain.
set(constrain_status "not built (MORACLE_CONSTRAIN is OFF)")
if(NOT MORACLE_CONSTRAIN)
  return()
endif()
if(NOT EXISTS "${MORACLE_XGRAMMAR}/cpp/grammar_compiler.cc")
  set(constrain_status "not built: ${MORACLE_XGRAMMAR} is missing; scripts/setup build brings it")
  return()
endif()
set(constrain_status "built")

file(GLOB_RECURSE xgrammar_sources "${MORACLE_XGRAMMAR}/cpp/*.cc")
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/.*\\.cc$")
# Converters to its grammars, of which none is called, take half of the time to compile.
list(FILTER xgrammar_sources EXCLUDE REGEX
     "/cpp/(converter_ext/.*|json_schema_converter|lark_converter|structural_tag|testing)\\.cc$")
list(APPEND xgrammar_sources "${CMAKE_CURRENT_LIST_DIR}/xgrammar_unused.cc")

# A patched copy of the files that the patch names stands in for them.
find_program(MORACLE_PATCH patch)
if(NOT MORACLE_PATCH)
  set(constrain_status "not built: the program `patch` is missing; scripts/setup build brings it")
  return()
endif()
set(xgrammar_patch "${CMAKE_CURRENT_LIST_DIR}/xgrammar-counted-repeats.patch")
set(xgrammar_patched "${CMAKE_BINARY_DIR}/xgrammar")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${xgrammar_patch}")
file(SHA256 "${xgrammar_patch}" xgrammar_patch_hash)
if(NOT EXISTS "${xgrammar_patched}/${xgrammar_patch_hash}")
  file(REMOVE_RECURSE "${xgrammar_patched}")
  foreach(name IN ITEMS compiled_grammar grammar_functor)
    file(COPY "${MORACLE_XGRAMMAR}/cpp/${name}.cc" DESTINATION "${xgrammar_patched}/cpp")
  endforeach()
  execute_process(COMMAND "${MORACLE_PATCH}" --strip=1 --quiet --input=${xgrammar_patch}
                  WORKING_DIRECTORY "${xgrammar_patched}" COMMAND_ERROR_IS_FATAL ANY)
  file(TOUCH "${xgrammar_patched}/${xgrammar_patch_hash}")
endif()
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/(compiled_grammar|grammar_functor)\\.cc$")
list(APPEND xgrammar_sources "${xgrammar_patched}/cpp/compiled_grammar.cc" "${xgrammar_patched}/cpp/grammar_functor.cc")
add_library(xgrammar STATIC ${xgrammar_sources})
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                          EXPORT_COMPILE_COMMANDS OFF)
target_include_directories(xgrammar SYSTEM PUBLIC "${MORACLE_XGRAMMAR}/include"
                                                  "${MORACLE_XGRAMMAR}/3rdparty/dlpack/include"
                                           PRIVATE "${MORACLE_XGRAMMAR}/3rdparty/picojson" "${MORACLE_XGRAMMAR}/cpp")
target_compile_definitions(xgrammar PRIVATE XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0
                                            XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_options(xgrammar PRIVATE -w $<IF:$<BOOL:${MORACLE_SANITIZE}>,-O1,-O2>)
target_link_libraries(xgrammar PRIVATE Threads::Threads)
# Memory and threads are watched in it as in our own code, undefined behaviour in ours alone.
foreach(sanitizer IN ITEMS address thread)
  if(sanitizer IN_LIST MORACLE_SANITIZE)
    target_compile_options(xgrammar PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
  endif()
endforeach()
