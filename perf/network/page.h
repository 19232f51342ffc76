#pragma once

#include <string>
#include <vector>

#include "perf/network/report.h"

namespace telegrad::perf {

// A page that needs nothing else: bandwidth and time against size as SVG, and
// the table.
std::string HtmlPage(const std::string& heading, const std::string& transport,
                     const std::string& command,
                     const std::vector<NetworkRow>& rows);

}  // namespace telegrad::perf
