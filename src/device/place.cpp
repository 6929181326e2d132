#include "device/place.h"

#include <utility>

namespace moracle {

namespace {

template <class T>
Result<T> named_by(std::string_view where, Result<T> made) {
  if (made.ok() || made.error().where != "--device") return made;
  Error error = std::move(made).error();
  error.where = where;
  return error;
}

}  // namespace

Result<Place> resolve_place(const std::string& device, std::string_view where, std::uint64_t memory) {
  if (!names_device(device)) {
    MORACLE_ASSIGN(Machine machine, named_by(where, resolve_machine(device)));
    return Place{.host = std::move(machine)};
  }
  MORACLE_ASSIGN(std::shared_ptr<GpuDevice> opened, named_by(where, open_device(device, memory)));
  return Place{.host = probe_machine(), .device = std::move(opened)};
}

Result<Place> place_of_work(const std::string& device, std::string_view where, std::uint64_t memory) {
  if (names_device(device)) return resolve_place(device, where, memory);
  Machine here = probe_machine();
  if (device == "cpu") return Place{.host = std::move(here)};
  MORACLE_ASSIGN(const Machine named, named_by(where, resolve_machine(device)));
  if (named.fingerprint() == here.fingerprint()) return Place{.host = std::move(here)};
  return Error{.code = "device.elsewhere",
               .where = std::string(where),
               .wanted = "a device of this machine (cpu, or cuda:0 and so on)",
               .found = "'" + device + "'",
               .advice = "`moracle explain --device " + device + "` says what would be chosen there"};
}

}  // namespace moracle
