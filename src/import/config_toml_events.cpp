// config_toml_events.cpp - what the TOML library finds in a text, told to C.
#include "import/config_toml_events.h"

#include <sstream>
#include <string>
#include <string_view>
#include <toml++/toml.h>

namespace {

struct Teller {
  const ConfigTomlEvents *events;
  void *data;

  void
  tell(const char *key, unsigned line, const toml::node &node) const
  {
    if (const toml::table *table = node.as_table())
      tell_table(key, line, *table);
    else if (const toml::array *array = node.as_array())
      tell_array(key, line, *array);
    else if (const auto *text = node.as_string())
      events->string(data, key, line, text->get().c_str());
    else if (const auto *whole = node.as_integer())
      events->number(data, key, line, static_cast<double>(whole->get()));
    else if (const auto *real = node.as_floating_point())
      events->number(data, key, line, real->get());
    else if (const auto *truth = node.as_boolean())
      events->boolean(data, key, line, truth->get());
    else
      tell_time(key, line, node);
  }

  void
  tell_table(const char *key, unsigned line, const toml::table &table) const
  {
    events->begin(data, key, line, 0);
    for (auto &&[name, value] : table) {
      std::string own(name.str());
      tell(own.c_str(), name.source().begin.line, value);
    }
    events->end(data);
  }

  void
  tell_array(const char *key, unsigned line, const toml::array &array) const
  {
    events->begin(data, key, line, 1);
    for (auto &&value : array)
      tell(nullptr, value.source().begin.line, value);
    events->end(data);
  }

  void
  tell_time(const char *key, unsigned line, const toml::node &node) const
  {
    std::ostringstream text;
    if (const auto *date = node.as_date())
      text << date->get();
    else if (const auto *time = node.as_time())
      text << time->get();
    else if (const auto *both = node.as_date_time())
      text << both->get();
    events->string(data, key, line, text.str().c_str());
  }
};

} // namespace

extern "C" void
config_toml_parse(const char *text, size_t length, const ConfigTomlEvents *events, void *data)
{
  const Teller teller{events, data};
  try {
    const toml::table table = toml::parse(std::string_view(text, length));
    teller.tell(nullptr, 1, table);
  } catch (const toml::parse_error &wrong) {
    events->error(data, wrong.source().begin.line, std::string(wrong.description()).c_str());
  }
}
