#include "serve/server.h"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>

#include "base/files/folder.h"
#include "serve/engine/scheduler_engine.h"
#include "serve/supervisor.h"

namespace moracle::serve {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::milliseconds kLastWrites{500};  // for answers that are queued when the drain ends

// FNV-1a, whose value is the same on every machine and compiler.
class Hash64 {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    value_ = (value_ ^ 0xFFU) * 0x100000001B3ULL;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

// The build id of an object, which its linker has made of its bytes; empty: it has none, or is another program's.
std::string_view build_id_of(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&build_id_of);
  bool ours = std::string_view(object.dlpi_name).find("libmoracle") != std::string_view::npos;  // also for a GPU
  std::string_view id;
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    const ElfW(Addr) begin = object.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && here >= begin && here - begin < part.p_memsz) ours = true;
    if (part.p_type != PT_NOTE) continue;
    const char* const notes = reinterpret_cast<const char*>(begin);  // NOLINT(performance-no-int-to-ptr)
    const std::size_t unit = part.p_align == 8 ? 8 : 4;
    const auto padded = [unit](std::size_t size) { return (size + unit - 1) / unit * unit; };
    for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= part.p_memsz;) {
      ElfW(Nhdr) note{};
      std::memcpy(&note, notes + at, sizeof note);
      const std::string_view owner(notes + at + sizeof note, note.n_namesz);
      const std::size_t content = at + padded(sizeof note + note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && owner == std::string_view("GNU\0", 4))
        id = {notes + content, note.n_descsz};
      at = content + padded(note.n_descsz);
    }
  }
  return ours ? id : std::string_view();
}

void add_program(Hash64& hash) {
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* into) {
        const std::string_view id = build_id_of(*object);
        if (!id.empty()) static_cast<Hash64*>(into)->add(id);
        return 0;
      },
      &hash);
}

// A file's size, and samples of its bytes: all of small files, 16 pieces of 4 KiB of others.
void add_file(Hash64& hash, const std::filesystem::path& path) {
  constexpr std::uint64_t kPiece = 4096;
  constexpr std::uint64_t kPieces = 16;
  std::error_code code;
  const std::uint64_t size = std::filesystem::file_size(path, code);
  if (code) return;
  hash.add(path.filename().string());
  hash.add(std::to_string(size));
  std::ifstream file(path, std::ios::binary);
  std::string piece(kPiece, '\0');
  const std::uint64_t count = std::min(kPieces, (size + kPiece - 1) / kPiece);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = count < kPieces ? i * kPiece : (size - kPiece) / (kPieces - 1) * i;
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(piece.data(), static_cast<std::streamsize>(kPiece));
    hash.add(std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount())));
    file.clear();
  }
}

}  // namespace

std::string fingerprint_of(const Session& session, const ServedFacts& facts, const std::string& version) {
  Hash64 hash;
  hash.add(version);
  add_program(hash);
  const auto names = names_in(session.folder());
  for (const std::filesystem::path name : names.ok() ? *names : std::vector<std::string>()) {
    const std::string suffix = name.extension().string();
    if (suffix == ".safetensors" || suffix == ".json" || suffix == ".jinja" || suffix == ".model")
      add_file(hash, session.folder() / name);
  }
  for (const auto& [kind, backend] : session.backends()) hash.add(kind + "=" + backend);
  hash.add(facts.numerics);
  hash.add(to_string(session.kv()));
  return fmt::format("fp_{:016x}{}", hash.value(), facts.batch_invariant ? "" : "-batch");
}

struct Server::Parts {
  explicit Parts(const ServerOptions& chosen)
      : options(chosen), log(chosen.log), service(chosen.service, chosen.access, log) {}

  ServerOptions options;
  EventLog log;
  Service service;
  std::unique_ptr<SchedulerEngine> engine;
  std::unique_ptr<HttpServer> http;  // before the engine and the service it goes
};

Server::Server() = default;

Server::~Server() {
  if (!parts_) return;
  if (parts_->engine) parts_->engine->stop();
  parts_->service.stop_preparing();
  if (parts_->http) parts_->http->stop();
}

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server);
  ServerOptions resolved = options;
  MORACLE_TRY(HttpServer::check_address(resolved.http.listen));
  MORACLE_TRY(resolve_address(resolved.access, resolved.http.listen, resolved.everybody));
  server->parts_ = std::make_unique<Parts>(resolved);
  Parts& parts = *server->parts_;
  MORACLE_ASSIGN(parts.http, HttpServer::open(parts.options.http, parts.service));
  parts.service.attach(*parts.http);
  parts.http->start();
  return server;
}

std::string Server::address() const {
  return parts_->http->address();
}

void Server::set_progress(double done, double total) {
  parts_->service.set_progress(done, total);
}

void Server::serve(Session& session, const ServedFacts& facts, const std::function<void()>& on_ready,
                   const std::function<ServerCommand()>& command) {
  Parts& parts = *parts_;
  SchedulerOptions how = parts.options.scheduler;
  const std::int64_t most = session.info().max_context;
  how.context = how.context > 0 ? std::min(how.context, most) : most;
  // What one sequence can have of keys and values bounds it as well.
  if (const StateMemory memory = session.model().state_memory(); memory.budget > 0)
    how.context = std::min(how.context, memory.positions);
  parts.engine = std::make_unique<SchedulerEngine>(session.model(), session.pool(), how, parts.options.turn);
  const ModelText& text = session.text();
  ServedModel model{.text = &text,
                    .outputs = session.outputs(),
                    .engine = parts.engine.get(),
                    .context = how.context,
                    .max_queue = how.max_queue,
                    .layers = session.info().layers,
                    .experts = session.info().experts,
                    .fingerprint = fingerprint_of(session, facts, parts.options.service.version),
                    .batch_invariant = facts.batch_invariant,
                    .decision = facts.decision};
  for (const auto& [kind, backend] : session.backends()) model.backends.emplace_back(kind, backend);
  Supervisor supervisor =
      parts.options.supervised ? Supervisor::from_environment() : Supervisor({}, std::chrono::microseconds(0));
  model.sandboxed = parts.options.enter_sandbox && parts.options.enter_sandbox();
  parts.service.set_ready(model);
  on_ready();
  const auto sign_of_life = [&] {
    supervisor.live(parts.engine->status().stalled_s <= parts.options.service.stall_s);
    std::this_thread::sleep_for(kPoll);
  };
  supervisor.ready();
  while (command() == ServerCommand::serve) sign_of_life();
  supervisor.stopping();

  parts.http->post([&parts] {
    parts.service.set_draining();
    parts.http->drain();
  });
  const auto deadline = Clock::now() + std::chrono::duration<double>(parts.options.drain_s);
  while (parts.service.busy() && Clock::now() < deadline && command() != ServerCommand::end) sign_of_life();
  parts.http->post([&parts] { parts.service.cancel_all(); });
  const auto last = Clock::now() + kLastWrites;
  while (parts.http->connections() > 0 && Clock::now() < last) std::this_thread::sleep_for(kPoll);
  parts.engine->stop();
  parts.service.stop_preparing();
  parts.http->stop();
}

}  // namespace moracle::serve
