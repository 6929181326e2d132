// Many requests through the C interface of the scheduler.
#include <map>
#include <string>
#include <vector>

#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

struct Told {
  std::vector<std::int32_t> ids{};
  std::vector<double> logprobs{};
  std::string text{};
  std::string code{};
  int starts = 0;
  std::int32_t end = 0;
  std::int64_t prompt = 0, completion = 0, cached = 0;
};
using Answers = std::map<std::uint64_t, Told>;

void take_event(void* context, const moracle_event* event) {
  EXPECT_EQ(event->size, sizeof(moracle_event));
  Told& told = (*static_cast<Answers*>(context))[event->request];
  EXPECT_EQ(told.end, 0) << "an event behind the end";
  told.text.append(event->text, event->bytes);
  if (event->kind == MORACLE_EVENT_START) ++told.starts;
  if (event->kind == MORACLE_EVENT_TOKEN) {
    told.ids.push_back(event->token);
    if (event->has_logprob != 0) told.logprobs.push_back(event->logprob);
    if (event->top_count > 0) {
      EXPECT_GE(event->top_logprobs[0], event->logprob);
    }
  }
  if (event->kind != MORACLE_EVENT_END) return;
  told.end = event->end;
  told.prompt = event->prompt_tokens;
  told.completion = event->completion_tokens;
  told.cached = event->cached_tokens;
  if (event->error != nullptr) told.code = event->error->code;
}

class CScheduler : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_ = opened_engine(checkpoint_folder(kQwen));
    ASSERT_NE(engine_, nullptr);
    CallError error;
    ASSERT_EQ(moracle_scheduler_open(engine_, nullptr, &scheduler_, &error.error), MORACLE_OK) << error.message();
  }
  void TearDown() override {
    EXPECT_EQ(moracle_scheduler_close(scheduler_), MORACLE_OK);
    EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
  }

  static moracle_request asking(const moracle_generate_options& options) {
    moracle_request request{};
    request.size = sizeof request;
    request.options = &options;
    return request;
  }
  std::vector<std::int32_t> tokens_of(const std::string& text) const { return test::tokens_of(engine_, text); }
  std::uint64_t submit(const std::vector<std::int32_t>& ids, const moracle_request& request) const {
    std::uint64_t id = 0;
    CallError error;
    EXPECT_EQ(moracle_scheduler_submit(scheduler_, ids.data(), ids.size(), &request, &id, &error.error), MORACLE_OK)
        << error.message();
    return id;
  }
  Answers run() const {
    Answers answers;
    for (std::int32_t more = 1; more != 0;)
      EXPECT_EQ(moracle_scheduler_step(scheduler_, take_event, &answers, &more, nullptr), MORACLE_OK);
    return answers;
  }

  moracle_engine* engine_ = nullptr;
  moracle_scheduler* scheduler_ = nullptr;
};

TEST_F(CScheduler, RequestsTogetherGiveWhatGenerateGives) {
  const auto options = greedy(6);
  auto request = asking(options);
  request.logprobs = 1;
  request.top_logprobs = 2;
  const std::vector<std::string> prompts{"The old man went", "A", "Once upon a time there was"};
  std::vector<std::uint64_t> numbers;
  numbers.reserve(prompts.size());
  for (const std::string& prompt : prompts) numbers.push_back(submit(tokens_of(prompt), request));
  const Answers answers = run();
  ASSERT_EQ(answers.size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Told& told = answers.at(numbers[i]);
    const auto ids = tokens_of(prompts[i]);
    const Json reply = document_of([&](char** json, moracle_error** error) {
      return moracle_engine_generate(engine_, ids.data(), ids.size(), nullptr, &options, nullptr, nullptr, json, error);
    });
    EXPECT_EQ(reply["ids"], told.ids);
    EXPECT_EQ(reply["text"], told.text);
    EXPECT_EQ(told.logprobs.size(), told.ids.size());
    EXPECT_EQ(told.starts, 1);
    EXPECT_EQ(told.end, MORACLE_END_LENGTH);
    EXPECT_EQ(told.prompt, std::ssize(ids));
    EXPECT_EQ(told.completion, 6);
  }
}

TEST_F(CScheduler, StopTextsEndAnAnswer) {
  const auto ids = tokens_of("The old man went");
  const auto free = greedy(8);
  const std::uint64_t whole = submit(ids, asking(free));
  const std::string text = run().at(whole).text;
  ASSERT_GT(text.size(), 4U);
  const std::string stop = text.substr(2, 2);
  const char* const stops[] = {stop.c_str()};
  auto options = greedy(8);
  options.stop = stops;
  options.stop_count = 1;
  const std::uint64_t number = submit(ids, asking(options));
  const Answers answers = run();
  EXPECT_EQ(answers.at(number).text, text.substr(0, text.find(stop)));
  EXPECT_EQ(answers.at(number).end, MORACLE_END_STOP);
}

TEST_F(CScheduler, CancelledRequestsEnd) {
  const auto options = greedy(50);
  const std::uint64_t waiting = submit(tokens_of("The"), asking(options));
  const std::uint64_t running = submit(tokens_of("A"), asking(options));
  std::int32_t found = 0;
  EXPECT_EQ(moracle_scheduler_cancel(scheduler_, waiting, &found, nullptr), MORACLE_OK);
  EXPECT_EQ(found, 1);
  Answers answers;
  std::int32_t more = 0;
  EXPECT_EQ(moracle_scheduler_step(scheduler_, take_event, &answers, &more, nullptr), MORACLE_OK);
  EXPECT_EQ(more, 1);
  EXPECT_EQ(moracle_scheduler_cancel(scheduler_, running, &found, nullptr), MORACLE_OK);
  EXPECT_EQ(moracle_scheduler_step(scheduler_, take_event, &answers, &more, nullptr), MORACLE_OK);
  EXPECT_EQ(more, 0);
  EXPECT_EQ(answers.at(waiting).end, MORACLE_END_CANCELLED);
  EXPECT_EQ(answers.at(running).end, MORACLE_END_CANCELLED);
  EXPECT_EQ(moracle_scheduler_cancel(scheduler_, running, &found, nullptr), MORACLE_OK);
  EXPECT_EQ(found, 0);
}

TEST_F(CScheduler, WrongCallsAreErrors) {
  const auto ids = tokens_of("The");
  std::uint64_t number = 7;
  const auto code = [&](moracle_status status, const std::vector<std::int32_t>& prompt,
                        const moracle_request* request) {
    return code_of(status, [&](auto** error) {
      return moracle_scheduler_submit(scheduler_, prompt.data(), prompt.size(), request, &number, error);
    });
  };
  auto options = greedy(2);
  auto request = asking(options);
  EXPECT_EQ(code(MORACLE_INVALID, {}, &request), "argument.range");
  EXPECT_EQ(code(MORACLE_FAILED, {1 << 30}, &request), "model.token");
  request.top_logprobs = 3;
  EXPECT_EQ(code(MORACLE_INVALID, ids, &request), "argument.range");
  request.logprobs = 1;
  request.top_logprobs = 21;
  EXPECT_EQ(code(MORACLE_INVALID, ids, &request), "argument.range");
  request = asking(options);
  options.context = 64;
  EXPECT_EQ(code(MORACLE_INVALID, ids, &request), "argument.range");
  options = greedy(1 << 30);
  EXPECT_EQ(code(MORACLE_FAILED, ids, &request), "model.context");
  EXPECT_EQ(number, 0U);
  std::int32_t more = 0;
  const auto step = [&](moracle_scheduler* handle, moracle_on_event on_event, std::int32_t* to) {
    return code_of(MORACLE_INVALID,
                   [&](auto** error) { return moracle_scheduler_step(handle, on_event, nullptr, to, error); });
  };
  EXPECT_EQ(step(nullptr, take_event, &more), "handle.null");
  EXPECT_EQ(step(reinterpret_cast<moracle_scheduler*>(engine_), take_event, &more), "handle.kind");
  EXPECT_EQ(step(scheduler_, nullptr, &more), "argument.null");
  EXPECT_EQ(step(scheduler_, take_event, nullptr), "argument.null");
  moracle_scheduler_options wrong{};
  wrong.size = sizeof wrong;
  wrong.max_running = -1;
  moracle_scheduler* other = nullptr;
  EXPECT_EQ(
      code_of(MORACLE_INVALID, [&](auto** error) { return moracle_scheduler_open(engine_, &wrong, &other, error); }),
      "argument.range");
}

// A step from its own callback would wait for itself.
TEST_F(CScheduler, StepsDoNotNest) {
  submit(tokens_of("The"), asking(greedy(2)));
  struct Inner {
    moracle_scheduler* scheduler;
    std::vector<std::string> codes{};
  } inner{.scheduler = scheduler_};
  const moracle_on_event nested = [](void* context, const moracle_event* /*event*/) {
    auto& own = *static_cast<Inner*>(context);
    CallError error;
    std::int32_t more = 1;
    EXPECT_EQ(moracle_scheduler_step(own.scheduler, take_event, nullptr, &more, &error.error), MORACLE_INVALID);
    own.codes.push_back(error.code());
  };
  std::int32_t more = 1;
  while (more != 0) ASSERT_EQ(moracle_scheduler_step(scheduler_, nested, &inner, &more, nullptr), MORACLE_OK);
  ASSERT_FALSE(inner.codes.empty());
  for (const std::string& code : inner.codes) EXPECT_EQ(code, "argument.nested");
}

// The engine may be closed first, and the scheduler with requests that never ended.
TEST_F(CScheduler, OutlivesTheHandleOfItsEngine) {
  moracle_scheduler* other = nullptr;
  ASSERT_EQ(moracle_scheduler_open(engine_, nullptr, &other, nullptr), MORACLE_OK);
  std::swap(other, scheduler_);
  const auto options = greedy(4);
  submit(tokens_of("The"), asking(options));
  std::swap(other, scheduler_);
  EXPECT_EQ(moracle_scheduler_close(other), MORACLE_OK);
  const auto ids = tokens_of("A");
  EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
  const std::uint64_t number = submit(ids, asking(options));
  EXPECT_EQ(run().at(number).ids.size(), 4U);
  EXPECT_EQ(moracle_engine_open(checkpoint_folder(kQwen).c_str(), nullptr, &engine_, nullptr), MORACLE_OK);
}

}  // namespace
}  // namespace moracle::test
