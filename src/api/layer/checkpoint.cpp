#include "api/layer/checkpoint.h"

#include "api/documents.h"
#include "api/edge/call.h"

namespace moracle::api {

Result<std::shared_ptr<OpenCheckpoint>> OpenCheckpoint::open(const std::string& folder, const Policy& policy) {
  MORACLE_ASSIGN(auto files, Checkpoint::open(folder));
  std::shared_ptr<OpenCheckpoint> opened(new OpenCheckpoint);
  MORACLE_ASSIGN(opened->plan_, LoadPlan::make(std::move(files), probe_machine(), policy));
  return opened;
}

Result<std::shared_ptr<Pool>> OpenCheckpoint::pool_or(moracle_pool* given) {
  if (given != nullptr) return find<Pool>(given);
  const std::lock_guard lock(mutex_);
  if (!pool_) pool_ = std::make_shared<Pool>(plan().placement().host().cores);
  return pool_;
}

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_checkpoint_open(const char* model, const moracle_policy* policy, moracle_checkpoint** checkpoint,
                                       moracle_error** error) {
  return api::call(error, "open the checkpoint", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(checkpoint, "checkpoint"));
    *checkpoint = nullptr;
    MORACLE_ASSIGN(const std::string folder, api::read_text(model, "model"));
    MORACLE_ASSIGN(const Policy chosen, api::read_policy(policy));
    MORACLE_ASSIGN(auto opened, api::OpenCheckpoint::open(folder, chosen));
    *checkpoint = static_cast<moracle_checkpoint*>(api::add_handle(api::Kind::checkpoint, std::move(opened)));
    return Ok{};
  });
}

moracle_status moracle_checkpoint_json(moracle_checkpoint* checkpoint, char** json, moracle_error** error) {
  return api::call(error, "inspect the checkpoint", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenCheckpoint>(checkpoint));
    *json = api::copy_json(inspect_json(opened->load_plan(), opened->plan().checkpoint()));
    return Ok{};
  });
}

moracle_status moracle_checkpoint_close(moracle_checkpoint* checkpoint) {
  return api::close(api::Kind::checkpoint, checkpoint);
}

}  // extern "C"
