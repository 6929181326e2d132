// Weights, configs and files as people have them.
#include "field/field_fixture.h"

namespace moracle::test {
namespace {

using testing::HasSubstr;

class FieldWeights : public FieldTest {};

TEST_F(FieldWeights, Base) {
  EXPECT_FALSE(logits(model("00-base")).values.empty());
}

TEST_F(FieldWeights, RopeScalingAddedBesideRopeParameters) {
  const Logits found = logits(model("01-rope-scaling-added"));
  EXPECT_LE(relative_error(found, logits(model("01b-rope-parameters-yarn"))), 1e-5);
  EXPECT_GT(relative_error(found, logits(model("00-base"))), 1e-3);
  EXPECT_THAT(found.err, HasSubstr("rope_scaling"));
  EXPECT_THAT(found.err, HasSubstr("rope_parameters"));
}

TEST_F(FieldWeights, TiedFlagBesideAHeadOfItsOwn) {
  const Logits found = logits(model("02-tied-flag-own-head"));
  EXPECT_LE(relative_error(found, logits(model("00-base"))), 1e-5);
  EXPECT_THAT(found.err, HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(found.err, HasSubstr("lm_head.weight"));
}

TEST_F(FieldWeights, StackedExpertsUnderParameterNames) {
  expect_equal(model("07-ct-stacked-experts-param-names"), model("07b-reference"));
}

TEST_F(FieldWeights, StackedFp8ScalesWithoutWeightInTheirName) {
  const auto renamed = changed("08-fp8-stacked-scale-inv", [](MutableCheckpoint& copy) {
    for (const std::string& name : copy.names()) {
      const std::size_t at = name.find("_scale_inv");
      if (at != std::string::npos) copy.rename(name, name.substr(0, at) + "_weight" + name.substr(at));
    }
  });
  expect_equal(model("08-fp8-stacked-scale-inv"), renamed);
}

TEST_F(FieldWeights, AutoRoundUnderOtherLabels) {
  const auto published = changed("10-autoround-packing-auto_round", [](MutableCheckpoint& copy) {
    copy.config["quantization_config"]["packing_format"] = "auto_round:auto_gptq";
  });
  const Logits want = logits(published);
  EXPECT_LE(relative_error(logits(model("10-autoround-packing-auto_round")), want), 1e-5);
  EXPECT_LE(relative_error(logits(model("10c-autoround-old-method")), want), 1e-5);
}

TEST_F(FieldWeights, QuarkExcludesWhatKeepsFp8Blocks) {
  const Logits want = logits(model("11b-reference"));
  EXPECT_LE(relative_error(logits(model("11-quark-excluded-keeps-fp8-blocks")), want), 1e-5);
  const auto renamed = changed("11-quark-excluded-keeps-fp8-blocks", [](MutableCheckpoint& copy) {
    for (const std::string& name : copy.names()) {
      if (name.find("self_attn") != std::string::npos && name.ends_with("weight_scale")) {
        copy.rename(name, name + "_inv");
      }
    }
  });
  EXPECT_LE(relative_error(logits(renamed), want), 1e-5);
}

TEST_F(FieldWeights, SeveralFilesWithoutAnIndex) {
  expect_equal(model("13-several-files-no-index"), model("00-base"));
}

TEST_F(FieldWeights, WrapperWithAProjector) {
  const auto alone = changed("16-kimi-k25-mm-projector", [](MutableCheckpoint& copy) {
    for (const std::string& name : copy.names()) {
      if (!name.starts_with("language_model.")) copy.drop(name);
    }
  });
  const Logits want = logits(alone);
  const Logits found = logits(model("16-kimi-k25-mm-projector"));
  EXPECT_LE(relative_error(found, want), 1e-5);
  EXPECT_THAT(found.err, HasSubstr("mm_projector"));
  for (const char* module : {"multi_modal_projector.", "vision_model.", "audio_tower.", "aligner."}) {
    SCOPED_TRACE(module);
    const auto other = changed("16-kimi-k25-mm-projector", [&](MutableCheckpoint& copy) {
      for (const std::string& name : copy.names()) {
        constexpr std::string_view kProjector = "mm_projector.";
        if (name.starts_with(kProjector)) copy.rename(name, module + name.substr(kProjector.size()));
      }
    });
    EXPECT_LE(relative_error(logits(other), want), 1e-5);
  }
}

// Where wrappers keep the text model, in tensors and in config.json.
TEST_F(FieldWeights, TextModelBelowAnyWrapper) {
  const Logits want = logits(model("00-base"));
  for (const auto& [root, place] :
       std::initializer_list<std::pair<std::string, std::string>>{{"language_model.", "/text_config"},
                                                                  {"language_model.", "/llm_config"},
                                                                  {"language.", "/language_config"},
                                                                  {"thinker.", "/thinker_config/text_config"},
                                                                  {"llm.", "/llm_config"},
                                                                  {"module.", ""}}) {
    SCOPED_TRACE(root + " " + place);
    const auto wrapped = changed("00-base", [&](MutableCheckpoint& copy) {
      for (const std::string& name : copy.names()) copy.rename(name, root + name);
      if (place.empty()) return;
      Json config = {{"model_type", "wrapper"}, {"quantization_config", nullptr}};
      config[Json::json_pointer(place)] = copy.config;
      copy.config = config;
    });
    const Logits found = logits(wrapped);
    EXPECT_LE(relative_error(found, want), 1e-5);
    EXPECT_THAT(found.err, testing::Not(HasSubstr("warning")));
  }
}

// Lists of exclusions name modules as they are called without the wrapper, or with it.
TEST_F(FieldWeights, ExclusionsBelowAnyWrapper) {
  for (const char* name : {"07-ct-stacked-experts-param-names", "11-quark-excluded-keeps-fp8-blocks"}) {
    const Logits want = logits(model(name));
    for (const std::string root : {"thinker.", "llm.", "language.", "module."})
      for (const bool renamed : {false, true}) {
        SCOPED_TRACE(std::string(name) + " " + root);
        const auto wrapped = changed(name, [&](MutableCheckpoint& copy) {
          for (const std::string& tensor : copy.names()) copy.rename(tensor, root + tensor);
          if (!renamed) return;
          Json& section = copy.config.at("quantization_config");
          for (const char* key : {"ignore", "exclude"}) {
            if (!section.contains(key)) continue;
            for (Json& pattern : section.at(key)) {
              const std::string text = pattern.get<std::string>();
              pattern = text.starts_with("re:") ? "re:" + root + text.substr(3) : root + text;
            }
          }
        });
        EXPECT_LE(relative_error(logits(wrapped), want), 1e-5);
      }
  }
}

}  // namespace
}  // namespace moracle::test
