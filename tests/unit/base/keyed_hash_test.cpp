#include "base/random/keyed_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace moracle {
namespace {

TEST(KeyedHash, EqualTextsHaveEqualHashesWhereverTheyLie) {
  const std::string text = "The three laws of robotics are, in the order of their weight:";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string copy = "x" + text.substr(0, size);
    EXPECT_EQ(KeyedHash()(std::string_view(text).substr(0, size)), KeyedHash()(std::string_view(copy).substr(1)));
  }
}

TEST(KeyedHash, EveryByteAndTheLengthCount) {
  std::set<std::size_t> hashes;
  std::size_t count = 0;
  for (std::size_t size = 0; size < 70; ++size) {
    hashes.insert(KeyedHash()(std::string(size, '\0')));
    ++count;
    for (std::size_t place = 0; place < size; ++place) {
      std::string text(size, '\0');
      text[place] = 'a';
      hashes.insert(KeyedHash()(text));
      ++count;
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

// Multiples of the number of buckets all fall into one bucket of the standard library's hash of numbers.
TEST(KeyedHash, NumbersThatCollideElsewhereSpread) {
  std::unordered_set<std::int32_t, KeyedHash> set;
  set.reserve(10'000);
  const auto buckets = static_cast<std::int32_t>(set.bucket_count());
  for (std::int32_t i = 0; i < 10'000; ++i) set.insert(i * buckets);
  std::size_t longest = 0;
  for (std::size_t bucket = 0; bucket < set.bucket_count(); ++bucket)
    longest = std::max(longest, set.bucket_size(bucket));
  EXPECT_LT(longest, 20U);
}

}  // namespace
}  // namespace moracle
