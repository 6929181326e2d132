// The public C++ interface over the engine.
#include <moracle/moracle.hpp>

#include "base/guarded.h"
#include "generate/session.h"
#include "model/load/explain_plan.h"

namespace moracle {

namespace {

Policy policy_of(const Options& options) {
  Policy policy;
  policy.numerics = options.fast ? Numerics::fast : Numerics::exact;
  policy.batch_invariant = options.batch_invariant;
  if (!options.backend.empty()) policy.pinned = options.backend;
  return policy;
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<Session> session;

  Result<GenerateReply> generate(std::string_view prompt, const GenerateRequest& request,
                                 const std::function<bool(std::string_view)>& on_text) const {
    GenerateReply reply;
    if (request.chat) {
      ChatRequest chat;
      chat.messages.push_back({{"role", "user"}, {"content", std::string(prompt)}});
      MORACLE_ASSIGN(ChatPrompt rendered, session->text().encode_chat(chat));
      reply.prompt_ids = std::move(rendered.ids);
    } else {
      MORACLE_ASSIGN(reply.prompt_ids, session->text().encode_prompt(prompt));
    }
    MORACLE_ASSIGN(const auto state, session->model().new_sequence());
    GenerationSettings settings = session->settings();
    settings.sampling = {.temperature = request.temperature,
                         .top_k = request.top_k,
                         .top_p = request.top_p,
                         .min_p = request.min_p,
                         .seed = request.seed};
    const Completion completion{.settings = settings, .max_tokens = request.max_tokens};
    bool stopped = false;
    MORACLE_ASSIGN(const Generation generation, complete(
                                                    *session, *state, reply.prompt_ids, completion,
                                                    [&](std::string_view piece) {
                                                      reply.text += piece;
                                                      if (on_text && !on_text(piece)) stopped = true;
                                                    },
                                                    [&] { return stopped; }));
    reply.ids = generation.ids;
    reply.finish_reason = to_string(generation.finish);
    return reply;
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Engine::Opened Engine::open(const Options& options) {
  SessionOptions session;
  session.folder = options.model;
  session.machine = probe_machine();
  session.policy = policy_of(options);
  session.threads = options.threads;
  auto opened = Session::open(session);
  if (!opened.ok()) return {.engine = nullptr, .error = opened.error().message()};
  auto impl = std::make_unique<Impl>();
  impl->session = std::move(opened).value();
  return {.engine = std::unique_ptr<Engine>(new Engine(std::move(impl))), .error = ""};
}

std::string Engine::explain(const Options& options, const std::string& device, std::string& error) {
  const auto explained = guarded("explain the model", [&]() -> Result<Json> {
    MORACLE_ASSIGN(const Machine machine, resolve_machine(device));
    MORACLE_ASSIGN(auto checkpoint, Checkpoint::open(options.model));
    MORACLE_ASSIGN(const auto plan, LoadPlan::make(std::move(checkpoint), machine, policy_of(options)));
    return explain_plan_json(*plan, machine);
  });
  error = explained.ok() ? "" : explained.error().message();
  return explained.ok() ? explained->dump(2, ' ', false, Json::error_handler_t::replace) : "";
}

GenerateReply Engine::generate(std::string_view prompt, const GenerateRequest& request,
                               const std::function<bool(std::string_view)>& on_text) {
  auto reply = guarded("generate", [&] { return impl_->generate(prompt, request, on_text); });
  if (reply.ok()) return std::move(reply).value();
  GenerateReply failed;
  failed.error = reply.error().message();
  return failed;
}

}  // namespace moracle
