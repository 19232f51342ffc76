"""The table of a grid, as Markdown and JSON."""
import json
import os
import statistics
import time

from results import shown_options


def judge(point):
    """Adds what the plans' measured and predicted times say of the choice.

    Points of which the best or the chosen plan is not measured have no regret.
    """
    measured = {name: statistics.median(each["seconds"])
                for name, each in point["plans"].items() if each["seconds"]}
    for name, each in point["plans"].items():
        each["median_s"] = measured.get(name)
        if name in measured:
            each["predicted_ratio"] = each["predicted_s"] / measured[name]
    point["best"] = min(measured, key=measured.get) if measured else None
    point["regret"] = None
    if point["chosen"] in measured:
        point["regret"] = measured[point["chosen"]] / measured[point["best"]]


def summary(points):
    regrets = [p["regret"] for p in points if p["regret"]]
    errors = [abs(each["predicted_ratio"] - 1) for p in points
              for each in p["plans"].values() if "predicted_ratio" in each]
    of_chosen = [abs(p["plans"][p["chosen"]]["predicted_ratio"] - 1)
                 for p in points if p["regret"]]
    if not regrets:
        return {}
    return {"points": len(regrets), "median_regret": statistics.median(regrets),
            "worst_regret": max(regrets),
            "median_error": statistics.median(errors),
            "median_error_of_chosen": statistics.median(of_chosen)}


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


def plans_row(point, names):
    cells = []
    for name in names:
        each = point["plans"][name]
        cells.append("failed" if each["median_s"] is None else
                     f"{number(each['median_s'])} "
                     f"({number(each['predicted_ratio'], 2)})")
    return f"| {name_of(point)} | " + " | ".join(cells) + " |"


def markdown(options, points):
    names = list(points[0]["plans"])
    lines = [
        "# What the planner chose, and what was best", "",
        f"{options.repeats} rounds, each calibrated anew, all nodes on one "
        "machine with "
        f"{os.cpu_count()} cores; {time.strftime('%Y-%m-%d')}. A node is a "
        "worker and a server; times are of an exchange of all gradients, "
        "medians. Regret is chosen / best.", "",
        "| nodes | link | profile | best | s | chosen | s | regret | "
        "predicted s | predicted / measured |", "|---|" + "---|" * 9]
    lines += [point_row(point) for point in points]
    lines += ["", "All plans, seconds (predicted / measured):", "",
              "| nodes | link | profile | " + " | ".join(names) + " |",
              "|---|---|---|" + "---|" * len(names)]
    lines += [plans_row(point, names) for point in points]
    found = summary(points)
    if found:
        lines += ["", f"Regret of {found['points']} points: median "
                  f"{found['median_regret']:.3f}, worst "
                  f"{found['worst_regret']:.3f}. Error of predictions: median "
                  f"{100 * found['median_error']:.0f} % of all, "
                  f"{100 * found['median_error_of_chosen']:.0f} % of the "
                  "chosen."]
    return "\n".join(lines) + "\n"


def write(options, points):
    for point in points:
        judge(point)
    text = markdown(options, points)
    os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
    with open(options.out + ".md", "w", encoding="utf-8") as file:
        file.write(text)
    with open(options.out + ".json", "w", encoding="utf-8") as file:
        json.dump({"options": shown_options(options),
                   "summary": summary(points), "points": points}, file,
                  indent=1)
    return text
