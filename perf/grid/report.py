"""The tables of a grid, as Markdown and JSON."""
import os
import statistics
import sys
import time

import results

# Of the plans, which are not all shown beside the simulator's.
SIMULATED = ("raw", "fp16", "2bit, sum", "2bit, reencode", "onebit",
             "threshold")


def median_of(values):
    return statistics.median(values) if values else None


def ratio(value, measured):
    return value / measured if value and measured else None


def judge(point):
    """Adds what the plans' measured and predicted times say of the choice, all
    medians of the rounds.

    Points of which the best or the chosen plan is not measured have no regret.
    """
    for each in point["plans"].values():
        measured = each["median_s"] = median_of(each["seconds"])
        each["predicted_s"] = median_of(each["predictions"])
        each["simulated_s"] = median_of(each["simulations"])
        each["predicted_ratio"] = ratio(each["predicted_s"], measured)
        each["simulated_ratio"] = ratio(each["simulated_s"], measured)
    chosen = statistics.mode(each["name"] for each in point["choices"])
    of_chosen = [each for each in point["choices"] if each["name"] == chosen]
    point["chosen"] = chosen
    point["chosen_predicted_s"] = median_of(
        [each["predicted_s"] for each in of_chosen])
    point["reason"] = of_chosen[-1]["reason"]
    times = {name: each["median_s"] for name, each in point["plans"].items()
             if each["median_s"]}
    point["best"] = min(times, key=times.get) if times else None
    point["regret"] = (times[chosen] / times[point["best"]]
                       if chosen in times else None)


def key_of(point):
    return point["nodes"], point["rate"], name_of(point)


def merge(files):
    """The points of several results; rounds of the same one count together."""
    points = {}
    for path in files:
        for point in results.read(path)[1]:
            known = points.setdefault(key_of(point), point)
            if known is not point:
                if point["measured"] not in known["measured"]:
                    known["measured"] += "; " + point["measured"]
                add_rounds(known, point)
    return list(points.values())


def add_rounds(known, point):
    known["choices"] += point["choices"]
    for name, plan in known["plans"].items():
        other = point["plans"][name]
        for rounds in ("seconds", "predictions", "simulations"):
            plan[rounds] += other[rounds]
        plan["error"] = plan["error"] or other["error"]


def errors_of(points, what, names=None):
    """|what / measured - 1| of the plans of these names, or of all."""
    return [abs(each[what] - 1) for point in points
            for name, each in point["plans"].items()
            if each[what] and (names is None or name in names)]


def summary(points):
    judged = [point for point in points if point["regret"]]
    if not judged:
        return {}
    regrets = [point["regret"] for point in judged]
    simulated = errors_of(points, "simulated_ratio", SIMULATED)
    of_chosen = [abs(p["plans"][p["chosen"]]["predicted_ratio"] - 1)
                 for p in judged]
    return {"points": len(regrets), "median_regret": statistics.median(regrets),
            "worst_regret": max(regrets),
            "median_error": median_of(errors_of(points, "predicted_ratio")),
            "median_error_of_chosen": statistics.median(of_chosen),
            "median_error_simulated": median_of(simulated),
            "worst_error_simulated": max(simulated, default=None)}


def name_of(point):
    profile = os.path.splitext(os.path.basename(point["profile"]))[0]
    return f"{point['nodes']} | {point['rate']} | {profile}"


def number(value, digits=4):
    return "" if value is None else f"{value:.{digits}g}"


def point_row(point):
    best, chosen = point["best"], point["chosen"]
    plan = point["plans"].get(chosen, {})
    best_s = point["plans"][best]["median_s"] if best else None
    cells = [best or "", number(best_s), chosen, number(plan.get("median_s")),
             number(point["regret"], 3), number(point["chosen_predicted_s"]),
             number(plan.get("predicted_ratio"), 3)]
    return f"| {name_of(point)} | " + " | ".join(cells) + " |"


def plans_rows(points, names, what):
    """Seconds, and in brackets what / measured."""
    lines = ["| nodes | link | profile | " + " | ".join(names) + " |",
             "|---|---|---|" + "---|" * len(names)]
    for point in points:
        plans = [point["plans"][name] for name in names]
        cells = ["failed" if each["median_s"] is None else
                 f"{number(each['median_s'], 3)} ({number(each[what], 2)})"
                 for each in plans]
        lines.append(f"| {name_of(point)} | " + " | ".join(cells) + " |")
    return lines


def percent(share):
    return "?" if share is None else f"{100 * share:.0f} %"


def markdown(points):
    rounds = sorted({len(point["choices"]) for point in points})
    measured = sorted({point["measured"] for point in points})
    lines = [
        "# What the planner chose, and what was best", "",
        f"{' or '.join(map(str, rounds))} rounds, each calibrated anew, all "
        f"nodes on one machine with {'; '.join(measured)}. A node is a worker and a server; times "
        "are of an exchange of all gradients, medians. Regret is chosen / best.",
        "", "| nodes | link | profile | best | s | chosen | s | regret | "
        "predicted s | predicted / measured |", "|---|" + "---|" * 9]
    lines += [point_row(point) for point in points]
    lines += ["", "All plans, seconds (predicted / measured):", ""]
    lines += plans_rows(points, list(points[0]["plans"]), "predicted_ratio")
    lines += ["", "`telegrad-topo simulate --overlap none`, seconds (simulated "
              "/ measured):", ""]
    lines += plans_rows(points, SIMULATED, "simulated_ratio")
    found = summary(points)
    if found:
        lines += ["", f"Regret of {found['points']} points: median "
                  f"{found['median_regret']:.3f}, worst "
                  f"{found['worst_regret']:.3f}. Error of predictions: median "
                  f"{percent(found['median_error'])} of all, "
                  f"{percent(found['median_error_of_chosen'])} of the chosen. "
                  "Error of the simulator: median "
                  f"{percent(found['median_error_simulated'])}, worst "
                  f"{percent(found['worst_error_simulated'])}."]
    return "\n".join(lines) + "\n"


def write(options, points):
    for point in points:
        point.setdefault("measured", f"{os.cpu_count()} cores, "
                         f"{time.strftime('%Y-%m-%d')}")
        judge(point)
    text = markdown(points)
    results.write(options, points, summary=summary(points))
    return text
