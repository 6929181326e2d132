// The C interface of one layer.
#include "api/edge/call.h"
#include "api/layer/checkpoint.h"
#include "api/layer/experts_layer.h"
#include "oracle/explain.h"

namespace moracle::api {

namespace {

Result<LayerRequest> read_request(const moracle_experts_options& options, const Policy& usual) {
  LayerRequest request{.tp = options.tp == 0 ? 1 : options.tp, .tp_rank = options.tp_rank, .policy = usual};
  if (request.tp < 1 || request.tp > 1024)
    return wrong_argument("range", "options.tp", "1 to 1024, or 0", std::to_string(options.tp));
  if (request.tp_rank < 0 || request.tp_rank >= request.tp) {
    return wrong_argument("range", "options.tp_rank", "0 to " + std::to_string(request.tp - 1),
                          std::to_string(request.tp_rank));
  }
  if (options.experts != nullptr) {
    if (options.expert_count == 0 || options.expert_count > (1U << 20))
      return wrong_argument("range", "options.expert_count", "1 or more", std::to_string(options.expert_count));
    request.experts.assign(options.experts, options.experts + options.expert_count);
  }
  if (options.policy != nullptr) {
    MORACLE_ASSIGN(request.policy, read_policy(options.policy));
  }
  return request;
}

Result<> open_experts(moracle_checkpoint* checkpoint, std::int64_t number, const moracle_experts_options* given,
                      moracle_experts** experts) {
  MORACLE_TRY(check_not_null(experts, "experts"));
  *experts = nullptr;
  MORACLE_ASSIGN(const auto opened, find<OpenCheckpoint>(checkpoint));
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  MORACLE_ASSIGN(LayerRequest request, read_request(options, opened->plan().policy()));
  request.layer = number;
  MORACLE_ASSIGN(auto pool, opened->pool_or(options.pool));
  MORACLE_ASSIGN(auto layer, ExpertsLayer::open(opened->plan(), std::move(request), std::move(pool)));
  *experts = static_cast<moracle_experts*>(add_handle(Kind::experts, std::move(layer)));
  return Ok{};
}

Result<> check_float(std::int32_t dtype, std::string_view name) {
  if (dtype == MORACLE_F32 || dtype == MORACLE_BF16 || dtype == MORACLE_F16) return Ok{};
  return wrong_argument("dtype", name, "MORACLE_F32, MORACLE_BF16 or MORACLE_F16", std::to_string(dtype));
}

Result<LayerCall> read_call(const moracle_experts_call& given, std::int64_t hidden) {
  LayerCall call{.tokens = given.tokens, .top_k = given.top_k};
  MORACLE_TRY(check_float(given.x_dtype, "x_dtype"));
  MORACLE_TRY(check_float(given.out_dtype, "out_dtype"));
  MORACLE_TRY(check_float(given.weights_dtype, "weights_dtype"));
  if (given.ids_dtype != MORACLE_INT32 && given.ids_dtype != MORACLE_INT64)
    return wrong_argument("dtype", "ids_dtype", "MORACLE_INT32 or MORACLE_INT64", std::to_string(given.ids_dtype));
  MORACLE_ASSIGN(call.x, check_rows(given.x, given.x_dtype, given.tokens, hidden, given.x_stride, "x"));
  MORACLE_ASSIGN(call.out, check_rows(given.out, given.out_dtype, given.tokens, hidden, given.out_stride, "out"));
  MORACLE_ASSIGN(call.ids, check_rows(given.ids, given.ids_dtype, given.tokens, given.top_k, given.ids_stride, "ids"));
  MORACLE_ASSIGN(call.weights, check_rows(given.weights, given.weights_dtype, given.tokens, given.top_k,
                                          given.weights_stride, "weights"));
  if (given.workspace != nullptr)
    call.workspace = {static_cast<std::byte*>(given.workspace), static_cast<std::size_t>(given.workspace_bytes)};
  return call;
}

}  // namespace

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_experts_open(moracle_checkpoint* checkpoint, int64_t layer,
                                    const moracle_experts_options* options, moracle_experts** experts,
                                    moracle_error** error) {
  return api::call(error, "open the experts", [&] { return api::open_experts(checkpoint, layer, options, experts); });
}

moracle_status moracle_experts_describe(moracle_experts* experts, moracle_experts_info* info, moracle_error** error) {
  return api::call(error, "describe the experts", [&]() -> Result<> {
    MORACLE_ASSIGN(const auto layer, api::find<api::ExpertsLayer>(experts));
    const moracle_experts_info filled{.size = sizeof(moracle_experts_info),
                                      .threads = layer->threads(),
                                      .layer = layer->request().layer,
                                      .hidden = layer->problem().hidden,
                                      .intermediate = layer->problem().intermediate,
                                      .experts = layer->experts(),
                                      .held = layer->held(),
                                      .top_k = layer->problem().top_k,
                                      .bytes = layer->bytes()};
    return api::write_struct(&filled, sizeof filled, info, "info");
  });
}

moracle_status moracle_experts_decision_json(moracle_experts* experts, char** json, moracle_error** error) {
  return api::call(error, "explain the decision", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const auto layer, api::find<api::ExpertsLayer>(experts));
    const ExplainedGroup group{{layer->name()}, layer->problem(), layer->decision()};
    *json = api::copy_json(explain_json({&group, 1}).front());
    return Ok{};
  });
}

moracle_status moracle_experts_workspace_bytes(moracle_experts* experts, int64_t tokens, int64_t top_k, uint64_t* bytes,
                                               moracle_error** error) {
  return api::call(error, "size the workspace", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(bytes, "bytes"));
    MORACLE_ASSIGN(const auto layer, api::find<api::ExpertsLayer>(experts));
    MORACLE_ASSIGN(*bytes, layer->workspace_bytes(tokens, top_k));
    return Ok{};
  });
}

moracle_status moracle_experts_run(moracle_experts* experts, const moracle_experts_call* call, moracle_error** error) {
  return api::call(error, "run the experts", [&]() -> Result<> {
    MORACLE_ASSIGN(const auto layer, api::find<api::ExpertsLayer>(experts));
    MORACLE_TRY(api::check_not_null(call, "call"));
    MORACLE_ASSIGN(const auto given, api::read_struct(call, "call"));
    // Ranges first: sizes of rows follow from them.
    MORACLE_TRY(layer->workspace_bytes(given.tokens, given.top_k));
    MORACLE_ASSIGN(const api::LayerCall checked, api::read_call(given, layer->problem().hidden));
    return layer->run(checked);
  });
}

moracle_status moracle_experts_close(moracle_experts* experts) {
  return api::close(api::Kind::experts, experts);
}

}  // extern "C"
