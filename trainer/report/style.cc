#include "trainer/report/style.h"

namespace telegrad {
namespace {

// Colours: Okabe and Ito, Color Universal Design, 2008, darkened where they
// would be faint on white.
constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Telegrad report</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2330;--dim:#5b6577;
--line:#d9dee7;--card:#f6f8fb;--k0:#333;--k1:#0072b2;--k2:#d55e00;
--k3:#009e73;--k4:#b5538c;--k5:#b8860b;--k6:#3d8fc9;--k7:#7a5230}
@media (prefers-color-scheme:dark){:root{--bg:#12161d;--fg:#e6eaf1;
--dim:#9aa5b8;--line:#2c3442;--card:#1a202a;--k0:#ddd;--k1:#56b4e9;
--k2:#f28e4b;--k3:#2fc79b;--k4:#e08fc0;--k5:#e6b840;--k6:#8fd0f5;--k7:#c79a6b}}
body{margin:0 auto;max-width:1320px;padding:20px 16px 48px;background:var(--bg);
color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:.2em 0}h2{font-size:1.15rem;margin:1.8em 0 .5em}
p.lead{color:var(--dim);margin:.2em 0}p.said{font-size:1.05rem;max-width:62em}pre,.card{background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:10px 12px}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;
font-variant-numeric:tabular-nums}caption{text-align:left;color:var(--dim);
padding:6px 0}th,td{padding:6px 10px;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:600}
th:first-child,td:first-child{text-align:left}td:first-child{font-weight:600}
.left th,.left td{text-align:left;white-space:normal;overflow-wrap:anywhere}
h3{font-size:1rem;margin:1em 0 .3em}li{margin:.2em 0}
.leader{stroke:currentColor;stroke-width:.7;opacity:.7}
.cut{stroke:var(--dim);stroke-dasharray:5 4}.grey{color:var(--line)}
.charts{display:grid;gap:14px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
.many{grid-template-columns:repeat(auto-fill,minmax(230px,1fr))}
.one{max-width:720px}.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:0 0 10px;padding:0;
list-style:none}.legend svg{width:48px;height:14px;vertical-align:middle;
margin-right:6px}.charts svg{width:100%;height:auto;display:block}
svg text{fill:var(--dim);font:13px system-ui,sans-serif}
svg .t{fill:var(--fg);font-weight:600;font-size:14px}
svg .n{fill:currentColor}svg .x{text-anchor:middle}svg .y{text-anchor:end}
.grid{stroke:var(--line)}.axis{stroke:var(--dim)}
polyline{fill:none;stroke:currentColor;stroke-linejoin:round}
.train{stroke-width:1.5;opacity:.75}.test{stroke-width:2.2}
.m{fill:currentColor;stroke:var(--card);stroke-width:.8}
.b{fill:currentColor}.h{fill:var(--card);stroke:currentColor}
.steps{overflow-x:auto}.steps svg{min-width:760px;width:100%;display:block}
.ring{fill:none;stroke:currentColor;stroke-width:2}
details{border:1px solid var(--line);border-radius:8px;margin:0 0 8px;
padding:0 12px}summary{cursor:pointer;padding:8px 0;font-weight:600}
:focus-visible{outline:3px solid var(--k1);outline-offset:2px}
.c1 polyline{stroke-dasharray:7 3}.c2 polyline{stroke-dasharray:2 3}
.c3 polyline{stroke-dasharray:9 3 2 3}.c4 polyline{stroke-dasharray:4 2}
.c5 polyline{stroke-dasharray:1 2}.c6 polyline{stroke-dasharray:12 4}
.c7 polyline{stroke-dasharray:6 2 1 2 1 2}
.c0{color:var(--k0)}.c1{color:var(--k1)}.c2{color:var(--k2)}.c3{color:var(--k3)}
.c4{color:var(--k4)}.c5{color:var(--k5)}.c6{color:var(--k6)}.c7{color:var(--k7)}
thead .g th{text-align:center;border-bottom:0;padding-bottom:0;
font-weight:400}.wide th:first-child,.wide td:first-child{text-align:left}
@media(max-width:760px){.slim{font-size:13px}.slim th,.slim td{padding:5px 4px;
white-space:normal}.cards thead{display:none}
.cards table,.cards tbody,.cards tr,.cards td{display:block}
.cards tr{background:var(--card);border:1px solid var(--line);
border-radius:8px;margin:0 0 12px;padding:4px 0}
.cards td,.cards .left td{display:flex;justify-content:space-between;gap:16px;
white-space:normal;text-align:right;overflow-wrap:anywhere}
.cards tr td:last-child{border-bottom:0}
.cards td::before{content:attr(data-label);color:var(--dim);
font-weight:400;text-align:left;flex:none}
.cards caption{display:block}}
@media print{.scroll{overflow:visible}.card,details,tr{break-inside:avoid}}
dt{font-weight:600;margin-top:.6em}dd{margin:0;color:var(--dim)}
</style></head><body>
)";

constexpr char kDefinitions[] = R"(<h2>What the numbers mean</h2>
<dl class="card">
<dt>setting</dt><dd>A codec and what differs from the defaults. <code>none</code>
sends 32-bit floats. The replies of servers: <code>sum</code> are exact sums of
codes, <code>reencode</code> codes again, <code>dense</code> 32-bit floats.</dd>
<dt>accuracy, loss</dt><dd>On the whole test set after the last step; loss is
the mean natural-log cross entropy. With several seeds: the mean, and after
&plusmn; the sample standard deviation.</dd>
<dt>to none</dt><dd>Accuracy less that of the setting <code>none</code> with the
same seed, in percentage points: the mean over seeds, and after &plusmn; half the
width of its 95 % interval. An interval that holds 0 shows no difference.
Below 0 accuracy is lost. Of one seed the spread is not known: what is less than
2 points is called not distinguishable.</dd>
<dt>push, pull</dt><dd>Worker to server, and server to worker; bytes per step,
summed over all workers.</dd>
<dt>raw, wire</dt><dd>raw is what the same tensors take as 32-bit floats, wire
is what was sent, Telegrad's frame headers included and the framing of the
transport below left out.</dd>
<dt>ratio</dt><dd>raw / wire; under <em>both</em>, push and pull together.</dd>
<dt>step, p50, min</dt><dd>Median (p50) and least time of a step, each step
taken from the slowest worker; with several seeds the mean of these. Evaluation
is left out. They are times of this machine under the load it had.</dd>
<dt>samples/s</dt><dd>Training samples of all workers per second of
training.</dd>
<dt>wait</dt><dd>Share of the workers' training time in which they did nothing
but wait for communication.</dd>
<dt>limit, x limit</dt><dd>Least time of a step that its bytes allow on
the emulated link, each pair of worker and server having its own; and the
median step as a multiple of it.</dd>
<dt>memory</dt><dd>model: parameters as 32-bit floats. worker, server: the
largest resident set of any process of the kind; &ndash; where none of the kind
ran by itself.</dd>
</dl>
)";

}  // namespace

const char* PageHead() { return kHead; }
const char* PageDefinitions() { return kDefinitions; }

}  // namespace telegrad
