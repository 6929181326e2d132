#include "support/mutations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "base/thread_pool.h"
#include "machine/machine.h"
#include "model/model.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::test {

namespace {

void expect_texts(const std::string& found, const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    EXPECT_NE(found.find(text), std::string::npos) << "  " << found << "\n  lacks " << text;
}

void try_one(const MutableCheckpoint& original, const Mutation& mutation) {
  SCOPED_TRACE(mutation.name);
  MutableCheckpoint changed = original;
  mutation.change(changed);
  const TemporaryFolder scratch;
  changed.write(scratch.path());
  std::vector<std::string> warnings;
  const auto result = load_wholly(scratch.path(), &warnings);
  if (mutation.code.empty()) {
    EXPECT_TRUE(result.ok()) << "  " << result.error().message();
    std::string all;
    for (const std::string& warning : warnings) all += warning + "\n";
    expect_texts(all, mutation.texts);
    return;
  }
  if (result.ok()) {
    ADD_FAILURE() << "accepted, wanted " << mutation.code;
    return;
  }
  EXPECT_EQ(result.error().code, mutation.code) << "  " << result.error().message();
  expect_texts(result.error().message(), mutation.texts);
}

}  // namespace

std::optional<std::filesystem::path> find_checkpoint(const std::string& name) {
  const auto own = data_dir() / "checkpoints" / name;
  if (std::filesystem::exists(own / "config.json")) return own;
  if (!shared_dir()) return std::nullopt;
  const auto shared = *shared_dir() / "checkpoints" / name;
  if (std::filesystem::exists(shared / "config.json")) return shared;
  return std::nullopt;
}

Result<> load_wholly(const std::filesystem::path& folder, std::vector<std::string>* warnings) {
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  Policy policy;
  policy.pinned = "ref";
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, probe_machine(), policy));
  if (warnings != nullptr) *warnings = plan->warnings();
  ThreadPool pool(2);
  MORACLE_TRY(load_model(*plan, pool));
  return Ok{};
}

void try_mutations(const std::string& checkpoint, const std::vector<Mutation>& mutations) {
  const auto folder = find_checkpoint(checkpoint);
  if (!folder) GTEST_SKIP() << checkpoint << " is only in the shared collection";
  const auto untouched = load_wholly(*folder);
  if (!untouched.ok() && untouched.error().where == "/model_type")
    GTEST_SKIP() << checkpoint << ": " << untouched.error().message();
  ASSERT_TRUE(untouched.ok()) << untouched.error().message();
  const MutableCheckpoint original = MutableCheckpoint::read(*folder);
  {
    const TemporaryFolder scratch;  // that writing by itself changes nothing
    original.write(scratch.path());
    const auto copied = load_wholly(scratch.path());
    ASSERT_TRUE(copied.ok()) << copied.error().message();
  }
  for (const Mutation& mutation : mutations) try_one(original, mutation);
  const auto refused =
      std::count_if(mutations.begin(), mutations.end(), [](const Mutation& m) { return !m.code.empty(); });
  std::cout << checkpoint << ": " << mutations.size() << " mutations, " << refused << " of them refused\n";
}

}  // namespace moracle::test
