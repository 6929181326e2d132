// Pages of memory as the system hands them out.
#pragma once

#include <cstddef>

namespace moracle {

[[nodiscard]] std::size_t page_bytes();

// Gives whole pages back to the system; they read as zero when they are next touched.
void give_back_pages(std::byte* begin, std::size_t bytes);

}  // namespace moracle
