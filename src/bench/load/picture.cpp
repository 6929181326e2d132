// The rows of a bench as an SVG picture: three panels of bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/load/load.h"

namespace moracle::load {

namespace {

constexpr double kWidth = 960, kPanel = 300, kGap = 20, kTop = 92, kPlot = 210, kHeight = 360;

struct Panel {
  const char* title;
  std::function<double(const BenchServeRow&)> bar;
  std::function<double(const BenchServeRow&)> mark;  // above the bar; may be empty
};

// 1, 2 or 5 times a power of ten, at least `value`.
double round_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

std::string number(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"' || static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("&#{};", static_cast<unsigned char>(c) < ' ' ? 32 : static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string text(double x, double y, std::string_view anchor, std::string_view style, std::string_view words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, style,
                     escaped(words));
}

std::string panel_svg(const Panel& panel, const std::vector<BenchServeRow>& rows, double left) {
  double most = 0;
  for (const BenchServeRow& row : rows) most = std::max({most, panel.bar(row), panel.mark ? panel.mark(row) : 0.0});
  most = round_up(most * 1.05);
  const double floor = kTop + kPlot;
  const auto y = [&](double value) { return floor - kPlot * value / most; };
  std::string svg = text(left, kTop - 22, "start", "title", panel.title);
  for (const double share : {0.0, 0.5, 1.0}) {
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/>\n", left + 44,
                       left + kPanel - 10, y(share * most), y(share * most));
    svg += text(left + 38, y(share * most) + 4, "end", "faint", number(share * most));
  }
  const double step = (kPanel - 60) / static_cast<double>(std::max<std::size_t>(1, rows.size()));
  const double width = std::min(48.0, 0.6 * step);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double middle = left + 50 + step * (static_cast<double>(i) + 0.5);
    const double bar = panel.bar(rows[i]);
    double top = y(bar);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" class=\"bar\"/>\n",
                       middle - width / 2, top, width, floor - top);
    if (panel.mark) {
      const double high = y(panel.mark(rows[i]));
      svg += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}H{:.1f}\" class=\"mark\"/>\n", middle, top, high,
                         middle - width / 4, high, middle + width / 4);
      top = std::min(top, high);
    }
    svg += text(middle, top - 5, "middle", "value", number(bar));
    const std::string load =
        rows[i].clients > 0 ? std::to_string(rows[i].clients) : fmt::format("{:g}/s", rows[i].rate);
    svg += text(middle, floor + 18, "middle", "faint", load);
  }
  return svg;
}

}  // namespace

std::string bench_serve_picture(const BenchServeResult& result) {
  const bool by_rate = !result.rows.empty() && result.rows.front().clients == 0;
  const Panel panels[] = {
      {"output tokens/s", [](const BenchServeRow& row) { return row.output_rate(); }, nullptr},
      {"time to first token, ms: median, p99", [](const BenchServeRow& row) { return row.first_token.p50 * 1e3; },
       [](const BenchServeRow& row) { return row.first_token.p99 * 1e3; }},
      {"between tokens, ms: median, p99", [](const BenchServeRow& row) { return row.inter_token.p50 * 1e3; },
       [](const BenchServeRow& row) { return row.inter_token.p99 * 1e3; }},
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>text{{font:13px system-ui,sans-serif;fill:#1c1f23}}.head{{font-size:17px;font-weight:600}}"
      ".title{{font-weight:600}}.faint{{fill:#5c6570}}.value{{font-size:12px}}.grid{{stroke:#dcdfe3}}"
      ".bar{{fill:#0b6b5d}}.mark{{stroke:#c7761b;stroke-width:2;fill:none}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight);
  svg += text(20, 34, "start", "head", result.model);
  double left = 20;
  for (const Panel& panel : panels) {
    svg += panel_svg(panel, result.rows, left);
    left += kPanel + kGap / 2;
  }
  svg += text(kWidth / 2, kHeight - 14, "middle", "faint", by_rate ? "requests that arrive each second" : "clients");
  return svg + "</svg>\n";
}

}  // namespace moracle::load
