// "Any thread" of the C interface: calls from several threads at the same time give what one thread gets. Run under
// ThreadSanitizer by scripts/sanitize.
#include <atomic>
#include <barrier>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "unit/api/c_layer.h"

namespace moracle::test {
namespace {

// All bodies at the same time.
void together(const std::vector<std::function<void()>>& bodies) {
  std::barrier begin(std::ssize(bodies));
  std::vector<std::jthread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      body();
    });
  }
}

TEST(CThreads, AskTheSameQuestionsAtOnce) {
  const std::string folders[] = {checkpoint_folder(kQwen), checkpoint_folder(kMixtral)};
  const auto answers = [&] {
    std::vector<Json> all;
    for (const std::string& folder : folders) {
      all.push_back(
          document_of([&](char** json, auto** error) { return moracle_inspect(folder.c_str(), json, error); }));
      all.push_back(document_of(
          [&](char** json, auto** error) { return moracle_explain(folder.c_str(), nullptr, json, error); }));
      all.push_back(
          document_of([&](char** json, auto** error) { return moracle_plan(folder.c_str(), nullptr, json, error); }));
    }
    all.emplace_back(code_of(MORACLE_FAILED, [&](auto** error) {
      char* json = nullptr;
      return moracle_inspect((folders[0] + "/none").c_str(), &json, error);
    }));
    return all;
  };
  const auto wanted = answers();
  std::vector<std::vector<Json>> found(3);
  std::vector<std::function<void()>> bodies;
  for (auto& one : found) bodies.emplace_back([&] { one = answers(); });
  together(bodies);
  for (const auto& one : found) EXPECT_EQ(one, wanted);
}

// Two threads open and run layers of one pool, two walk one handle, others ask.
TEST(CThreads, ShareACheckpoint) {
  const CheckpointPtr checkpoint = open_checkpoint(checkpoint_folder(kQwen));
  const auto count = [](const DensePtr& walk) {
    std::int64_t tensors = 0;
    moracle_tensor tensor = no_tensor();
    while (moracle_dense_next(walk.get(), &tensor, nullptr) == MORACLE_OK) ++tensors;
    return tensors;
  };
  const auto document = [&] {
    return document_of(
        [&](char** json, auto** error) { return moracle_checkpoint_json(checkpoint.get(), json, error); });
  };
  const std::int64_t all = count(open_dense(checkpoint));
  const Json wanted = document();
  std::vector<float> expected;
  std::optional<Input> input;
  {
    const ExpertsPtr experts = open_experts(checkpoint, no_options(), 1);
    input.emplace(3, 2, info_of(experts));
    expected = run(experts, *input);
  }
  const DensePtr shared = open_dense(checkpoint);
  std::atomic<std::int64_t> walked = 0;
  const auto walks = [&] { walked += count(shared); };
  const auto runs = [&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(run(open_experts(checkpoint, no_options(), 1), *input), expected);
  };
  const auto asks = [&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(document(), wanted);
  };
  together({walks, walks, runs, runs, asks});
  EXPECT_EQ(walked, all);
}

// What a scheduler told, from whatever thread took the step.
class Record {
 public:
  static void take(void* context, const moracle_event* event) {
    auto& self = *static_cast<Record*>(context);
    const std::lock_guard lock(self.mutex_);
    Told& told = self.told_[event->request];
    EXPECT_EQ(told.end, 0) << "an event behind the end";
    if (event->kind == MORACLE_EVENT_TOKEN) told.ids.push_back(event->token);
    if (event->kind == MORACLE_EVENT_END) {
      told.end = event->end;
      ++self.ends_;
    }
  }
  struct Told {
    std::vector<std::int32_t> ids{};
    std::int32_t end = 0;
  };
  [[nodiscard]] const Told& of(std::uint64_t request) const { return told_.at(request); }
  [[nodiscard]] int ends() const { return ends_; }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Told> told_;
  std::atomic<int> ends_ = 0;
};

// Two threads submit, one cancels what it submitted, two take steps, one generates by the engine itself.
TEST(CThreads, AskASchedulerWhileItSteps) {
  moracle_engine* const engine = opened_engine(checkpoint_folder(kQwen));
  moracle_scheduler* scheduler = nullptr;
  ASSERT_EQ(moracle_scheduler_open(engine, nullptr, &scheduler, nullptr), MORACLE_OK);
  const auto ids = tokens_of(engine, "The old man went");
  const auto few = greedy(4);
  const auto many = greedy(60);
  const auto generated = [&] {
    const Json reply = document_of([&](char** json, auto** error) {
      return moracle_engine_generate(engine, ids.data(), ids.size(), nullptr, &few, nullptr, nullptr, json, error);
    });
    return reply.at("ids").get<std::vector<std::int32_t>>();
  };
  const auto submit = [&](const moracle_generate_options& options) {
    moracle_request request{};
    request.size = sizeof request;
    request.options = &options;
    std::uint64_t number = 0;
    EXPECT_EQ(moracle_scheduler_submit(scheduler, ids.data(), ids.size(), &request, &number, nullptr), MORACLE_OK);
    return number;
  };
  constexpr int kEach = 4;
  constexpr int kSubmitters = 3;
  const auto wanted = generated();
  Record record;
  std::vector<std::uint64_t> numbers[kSubmitters];
  const auto submits = [&](std::vector<std::uint64_t>& mine) {
    for (int i = 0; i < kEach; ++i) mine.push_back(submit(few));
  };
  const auto cancels = [&](std::vector<std::uint64_t>& mine) {
    for (int i = 0; i < kEach; ++i) {
      mine.push_back(submit(many));
      std::this_thread::yield();
      EXPECT_EQ(moracle_scheduler_cancel(scheduler, mine.back(), nullptr, nullptr), MORACLE_OK);
    }
  };
  const auto steps = [&] {
    while (record.ends() < kSubmitters * kEach && !testing::Test::HasFailure()) {
      std::int32_t more = 0;
      EXPECT_EQ(moracle_scheduler_step(scheduler, &Record::take, &record, &more, nullptr), MORACLE_OK);
      if (more == 0) std::this_thread::yield();
    }
  };
  together({[&] { submits(numbers[0]); }, [&] { submits(numbers[1]); }, [&] { cancels(numbers[2]); }, steps, steps,
            [&] { EXPECT_EQ(generated(), wanted); }, [&] { EXPECT_EQ(tokens_of(engine, "The old man went"), ids); }});
  for (const auto number : numbers[0]) EXPECT_EQ(record.of(number).ids, wanted);
  for (const auto number : numbers[1]) EXPECT_EQ(record.of(number).ids, wanted);
  for (const auto number : numbers[2]) {
    const auto end = record.of(number).end;  // it may have been through before
    EXPECT_TRUE(end == MORACLE_END_CANCELLED || end == MORACLE_END_LENGTH) << end;
  }
  EXPECT_EQ(moracle_scheduler_close(scheduler), MORACLE_OK);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

// A call that has begun ends as it would have; one that comes later has "handle.closed".
TEST(CThreads, CloseWhatOthersUse) {
  moracle_engine* const engine = opened_engine(checkpoint_folder(kQwen));
  const auto ids = tokens_of(engine, "The old man went");
  const auto options = greedy(8);
  std::atomic<bool> begun = false;
  const auto generates = [&] {
    char* json = nullptr;
    CallError error;
    const auto status = moracle_engine_generate(
        engine, ids.data(), ids.size(), nullptr, &options,
        [](void* context, const char*, std::uint64_t) -> std::int32_t {
          *static_cast<std::atomic<bool>*>(context) = true;
          return 0;
        },
        &begun, &json, &error.error);
    if (status != MORACLE_OK) {
      EXPECT_EQ(error.code(), "handle.closed");
    }
    begun = true;
    moracle_free(json);
  };
  const auto closes = [&] {
    while (!begun) std::this_thread::yield();
    EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
  };
  together({generates, generates, closes});
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_INVALID);
}

}  // namespace
}  // namespace moracle::test
