#include "model/model.h"
#include "model/spec/architecture.h"
#include "model/spec/validate.h"

namespace moracle {

namespace {

// A folder of which only config.json is known.
class ConfigOnly final : public Checkpoint {
 public:
  ConfigOnly(std::filesystem::path folder, const Json& config) : folder_(std::move(folder)), config_(config) {}
  [[nodiscard]] const std::filesystem::path& folder() const override { return folder_; }
  [[nodiscard]] const Json& config() const override { return config_; }
  [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  [[nodiscard]] std::uint64_t total_bytes() const override { return 0; }
  [[nodiscard]] Result<> verify_unchanged() const override { return Ok{}; }
  void release(std::span<const std::byte> /*bytes*/) const override {}

 private:
  std::filesystem::path folder_;
  const Json& config_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace

Result<ModelInfo> describe_model(const std::filesystem::path& folder, const Json& config) {
  const TensorClaims nothing(std::make_shared<const ConfigOnly>(folder, config));
  MORACLE_ASSIGN(const ModelConfig model, ModelConfig::of(*nothing.checkpoint()));
  MORACLE_ASSIGN(const Architecture* const row, find_architecture(model));
  MORACLE_ASSIGN(const ModelSpec spec, describe(*row, model, nothing));
  MORACLE_TRY(validate(spec, model));
  return spec.info;
}

}  // namespace moracle
