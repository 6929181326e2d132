#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>

#include "cli/console.h"
#include "cli/interrupt.h"
#include "text/unicode.h"

namespace moracle::cli {

namespace {

constexpr int kHistoryLines = 1000;
constexpr int kWakeMs = 100;                   // signals and a new window size are seen that often
constexpr int kEscapeMs = 30;                  // the keys of one escape sequence come together
constexpr std::string_view kBreakShown = "⏎";  // stands for a line break in the line that is edited
constexpr wchar_t kBreakKey = L'⏎';
constexpr std::string_view kQuotes = "\"\"\"";      // around messages of several lines
constexpr char kEndKey = '\x04';                    // Ctrl-D
constexpr std::string_view kPasteBegins = "[200~";  // behind an escape
constexpr std::string_view kPasteEnds = "\x1b[201~";

std::atomic<bool> continued{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The editor counts columns by the locale, which a bare system does not set.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

class Editor final : public LineEditor {
 public:
  Editor() : out_(is_terminal(STDERR_FILENO) ? stderr : stdout) {
    use_utf8();
    const char* const terminal = std::getenv("TERM");
    plain_ = terminal == nullptr || std::string_view(terminal) == "dumb";
    history_ = history_init();
    editor_ = el_init("moracle", stdin, out_, out_);
    if (editor_ == nullptr || history_ == nullptr) return;
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Editor::prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 0);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, &Editor::key_of);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_, nullptr);  // ~/.editrc
    struct sigaction action = {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = [](int) { continued.store(true); };
    sigaction(SIGCONT, &action, &before_);
  }
  ~Editor() override {
    if (editor_ == nullptr || history_ == nullptr) return;
    sigaction(SIGCONT, &before_, nullptr);
    el_end(editor_);
    history_end(history_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  [[nodiscard]] bool usable() const { return editor_ != nullptr && history_ != nullptr; }

  Outcome read(const std::string& prompt, std::string& line) override {
    const WhileTyping typing;
    prompt_ = prompt;
    el_set(editor_, EL_PREP_TERM, 1);  // before the prompt invites keys, which the terminal would echo
    take_typed_ahead();
    if (!plain_) write_out("\x1b[?2004h");  // pasted text comes marked as such
    int count = 0;
    const char* const text = el_gets(editor_, &count);
    if (!plain_) write_out("\x1b[?2004l");
    if (text == nullptr || count <= 0) {
      write_out("\n");
      bytes_.clear();
      pasting_ = false;
      return interrupted() ? Outcome::cancelled : Outcome::closed;
    }
    line.assign(text, static_cast<std::size_t>(count));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    line = replaced(std::move(line), kBreakShown, "\n");
    return Outcome::line;
  }

  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, replaced(text, "\n", kBreakShown).c_str());
  }

 private:
  static Editor& self(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Editor*>(data);
  }
  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }
  static int key_of(EditLine* editor, wchar_t* key) { return self(editor).key(*key); }

  void write_out(std::string_view text) {
    std::fflush(out_);
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }

  // Waits for a byte; false: there is none within the time, or ever.
  bool fill(int wait_ms) {
    pollfd readable{STDIN_FILENO, POLLIN, 0};
    if (poll(&readable, 1, wait_ms) <= 0) return false;
    char buffer[256];
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count > 0) bytes_.insert(bytes_.end(), buffer, buffer + count);
    closed_ = count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN);
    return count > 0;
  }

  // Keys typed while the terminal was not the editor's: it keeps a Ctrl-D as a byte 0.
  void take_typed_ahead() {
    const std::size_t before = bytes_.size();
    int waiting = 0;
    if (ioctl(STDIN_FILENO, FIONREAD, &waiting) != 0) return;
    while (bytes_.size() - before < static_cast<std::size_t>(waiting) && fill(0)) {
    }
    std::replace(bytes_.begin() + static_cast<std::ptrdiff_t>(before), bytes_.end(), '\0', kEndKey);
  }

  // Whether the next bytes are these; waits for the rest of what has begun.
  bool next_are(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i >= bytes_.size() && !fill(kEscapeMs)) return false;
      if (bytes_[i] != text[i]) return false;
    }
    return true;
  }
  void drop(std::size_t count) { bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count)); }

  // 1: a key; 0: the end; -1: a signal.
  int key(wchar_t& key) {
    for (;;) {
      if (interrupted()) return -1;
      if (continued.exchange(false)) {  // behind Ctrl-Z the shell has had the terminal
        el_set(editor_, EL_PREP_TERM, 1);
        el_set(editor_, EL_REFRESH);
      }
      follow_window();
      if (!bytes_.empty() || fill(kWakeMs)) {
        if (const int got = take(key); got != 0) return got;
      } else if (closed_) {
        return 0;
      }
    }
  }

  void follow_window() {
    winsize size{};
    if (ioctl(fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col == columns_) return;
    if (columns_ != 0) el_resize(editor_);
    columns_ = size.ws_col;
  }

  // The next key out of bytes that have come; 0: they were none.
  int take(wchar_t& key) {
    if (bytes_.front() == '\x1b') {
      if (pasting_ && next_are(kPasteEnds)) {
        drop(kPasteEnds.size());
        pasting_ = false;
        return 0;
      }
      if (!pasting_ && next_are(std::string("\x1b").append(kPasteBegins))) {
        drop(1 + kPasteBegins.size());
        pasting_ = true;
        return 0;
      }
      if (!pasting_ && (next_are("\x1b\r") || next_are("\x1b\n"))) {  // Alt-Enter
        drop(2);
        key = kBreakKey;
        return 1;
      }
    }
    if (pasting_) return take_pasted(key);
    if (bytes_.front() == '\0') {  // Ctrl-Space sets a mark in the editor, behind which Ctrl-D ends nothing
      drop(1);
      return 0;
    }
    return take_character(key);
  }

  int take_pasted(wchar_t& key) {
    const char byte = bytes_.front();
    if (byte == '\r' || byte == '\n') {
      drop(byte == '\r' && bytes_.size() > 1 && bytes_[1] == '\n' ? 2 : 1);
      key = kBreakKey;
      return 1;
    }
    if (static_cast<unsigned char>(byte) < 0x20 || byte == '\x7f') {
      drop(1);
      key = L' ';
      return byte == '\t' ? 1 : 0;
    }
    return take_character(key);
  }

  int take_character(wchar_t& key) {
    std::string text(1, bytes_.front());
    unicode::CharacterPrefix prefix = unicode::character_prefix(text);
    while (prefix.size > 0 && !prefix.complete) {
      if (bytes_.size() <= text.size() && !fill(kEscapeMs)) break;
      text += bytes_[text.size()];
      prefix = unicode::character_prefix(text);
    }
    const bool whole = prefix.size == text.size() && prefix.complete;
    drop(whole ? text.size() : 1);
    key = whole ? static_cast<wchar_t>(unicode::decode_at(text, 0).code) : L'?';
    return 1;
  }

  std::FILE* out_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  struct sigaction before_ = {};
  bool plain_ = false;  // the terminal takes no control sequences
  std::string prompt_;
  std::deque<char> bytes_;  // that were typed and not yet taken
  bool pasting_ = false;
  bool closed_ = false;
  unsigned short columns_ = 0;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::make() {
  auto editor = std::make_unique<Editor>();
  if (!editor->usable()) return nullptr;
  return editor;
}

LineEditor::Outcome read_message(LineEditor& editor, const std::string& prompt, std::string& message) {
  auto outcome = editor.read(prompt, message);
  if (outcome != LineEditor::Outcome::line) return outcome;
  std::string line;
  if (message.starts_with(kQuotes)) {
    message.erase(0, kQuotes.size());
    while (!message.ends_with(kQuotes)) {
      outcome = editor.read(". ", line);
      if (outcome != LineEditor::Outcome::line) return outcome;
      message += "\n" + line;
    }
    message.erase(message.size() - kQuotes.size());
    message.erase(0, std::min(message.find_first_not_of('\n'), message.size()));
    while (message.ends_with('\n')) message.pop_back();
    return outcome;
  }
  while (message.ends_with('\\')) {
    outcome = editor.read(". ", line);
    if (outcome != LineEditor::Outcome::line) return outcome;
    message.back() = '\n';
    message += line;
  }
  return outcome;
}

}  // namespace moracle::cli
