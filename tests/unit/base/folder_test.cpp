#include "base/files/folder.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

TEST(NamesIn, AreSortedAndComplete) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(names_in(folder.path())->empty());
  for (const char* name : {"b", "a.json", ".hidden", "sub/inner"}) folder.write(name, "");
  EXPECT_EQ(*names_in(folder.path()), (std::vector<std::string>{".hidden", "a.json", "b", "sub"}));
}

TEST(NamesIn, OfWhatIsNoFolder) {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  for (const char* name : {"nothing", "file"}) {
    const auto names = names_in(folder.path() / name);
    ASSERT_FALSE(names.ok());
    EXPECT_EQ(names.error().code, "file.open");
    EXPECT_EQ(names.error().wanted, "a readable folder");
  }
}

}  // namespace
}  // namespace moracle
