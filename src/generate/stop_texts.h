// Texts that end an answer where they occur. Each reply has its own, which one thread at a time uses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moracle {

// Looks through text that arrives in pieces. What may be the beginning of a stop text is held back.
class StopTexts {
 public:
  // Empty texts are left out.
  explicit StopTexts(std::vector<std::string> texts);

  // What can be given out: neither a stop text nor anything behind it. The one that begins first counts.
  [[nodiscard]] std::string push(std::string_view piece);
  // What was held back. No text follows.
  [[nodiscard]] std::string finish();
  [[nodiscard]] bool reached() const { return reached_; }
  // The stop text that was reached; empty: none.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  std::string found_;
  bool reached_ = false;
};

}  // namespace moracle
