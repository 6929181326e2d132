# What `cmake --install` puts where. Components: runtime (the library), development (headers, package files), program
# (the program, its manual pages and completions), python (the library for a wheel).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(SKBUILD)
  install(TARGETS moracle_shared LIBRARY DESTINATION moracle COMPONENT python NAMELINK_SKIP)
  # Our licence, and those of what the library has inside, as Debian's packages state them.
  if(SKBUILD_METADATA_DIR)
    install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${SKBUILD_METADATA_DIR}/licenses" COMPONENT python)
    foreach(package libfmt-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev)
      install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${SKBUILD_METADATA_DIR}/licenses" COMPONENT python
              RENAME "${package}.txt" OPTIONAL)
    endforeach()
    if(TARGET xgrammar)
      foreach(part LICENSE NOTICE 3rdparty/picojson/picojson.h)
        cmake_path(GET part FILENAME name)
        install(FILES "${MORACLE_XGRAMMAR}/${part}" DESTINATION "${SKBUILD_METADATA_DIR}/licenses" COMPONENT python
                RENAME "xgrammar-${name}.txt")
      endforeach()
    endif()
  endif()
endif()
install(
  TARGETS moracle_shared
  EXPORT moracleTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/moracle" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/moracle")
install(EXPORT moracleTargets NAMESPACE moracle:: DESTINATION "${package_dir}" COMPONENT development)
file(WRITE "${PROJECT_BINARY_DIR}/moracleConfig.cmake"
     "include(\"\${CMAKE_CURRENT_LIST_DIR}/moracleTargets.cmake\")\n")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/moracleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/moracleConfig.cmake" "${PROJECT_BINARY_DIR}/moracleConfigVersion.cmake"
        DESTINATION "${package_dir}" COMPONENT development)

# The prefix is where the file lies, wherever it is moved to.
file(RELATIVE_PATH prefix_of_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" prefix_of_pc "${prefix_of_pc}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/moracle.pc.in" "${PROJECT_BINARY_DIR}/moracle.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/moracle.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)

if(MORACLE_PROGRAM)
  install(TARGETS moracle RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
  if(NOT CMAKE_CROSSCOMPILING)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/" DESTINATION "${CMAKE_INSTALL_DATADIR}" COMPONENT program)
  endif()
endif()
