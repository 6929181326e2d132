#include "text/constrain/schema/formats.h"

#include <algorithm>
#include <array>

namespace moracle {

namespace {

struct Format {
  std::string_view name;
  std::string_view expression;
};

#define MORACLE_DATE                                                                                    \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|" \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|"                          \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define MORACLE_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
// A repeat's texts are told from what follows it by their first character: those that xgrammar counts.
#define MORACLE_LABEL "[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9]){0,23}"
#define MORACLE_LABELS                                                                                                 \
  MORACLE_LABEL "\\.(?:" MORACLE_LABEL "\\.(?:" MORACLE_LABEL "\\." MORACLE_LABEL "|" MORACLE_LABEL ")|" MORACLE_LABEL \
                ")"
#define MORACLE_LETTER "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define MORACLE_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

// RFC 3339, 5321, 1123, 4122, 3986; IPv6 addresses are written out, or with one "::".
constexpr std::array kFormats = {
    Format{"binary", ""},
    Format{"byte", ""},
    Format{"date", MORACLE_DATE},
    Format{"date-time", MORACLE_DATE "T" MORACLE_TIME},
    Format{"double", ""},
    Format{"duration",
           "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}D|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?)"
           "(?:T(?:[0-9]{1,9}S|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?))?|"
           "T(?:[0-9]{1,9}S|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?))"},
    Format{"email", MORACLE_LETTER "(?:" MORACLE_LETTER "|\\." MORACLE_LETTER "){0,30}@" MORACLE_LABELS},
    Format{"float", ""},
    Format{"hostname", MORACLE_LABELS "|" MORACLE_LABEL},
    Format{"int32", ""},
    Format{"int64", ""},
    Format{"ipv4", MORACLE_BYTE "(?:\\." MORACLE_BYTE "){3}"},
    Format{"ipv6",
           "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){0,2})?::"
           "(?:[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){0,3})?"},
    Format{"password", ""},
    Format{"time", MORACLE_TIME},
    Format{"uint32", ""},
    Format{"uint64", ""},
    Format{"uri",
           "[A-Za-z][A-Za-z0-9+.-]{0,15}://(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(?::[0-9]{1,4})?"
           "(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*"
           "(?:\\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
           "(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"},
    Format{"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
};

#undef MORACLE_DATE
#undef MORACLE_TIME
#undef MORACLE_LABEL
#undef MORACLE_LABELS
#undef MORACLE_LETTER
#undef MORACLE_BYTE

}  // namespace

std::optional<std::string_view> expression_of_format(std::string_view name) {
  const auto found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& format) { return format.name == name; });
  return found == kFormats.end() ? std::nullopt : std::optional(found->expression);
}

}  // namespace moracle
