#!/usr/bin/env python3
"""Draws the figures of benchmarks.json as SVG, and writes the section "Figures" of
docs/benchmarks.md, which shows them with their ratios.

    tests/bench/figures.py [FOLDER]      default docs/figures; only this one changes the document

tests/bench/measure.py writes benchmarks.json. The same JSON and the same version of matplotlib give
the same SVG, byte for byte. The pictures follow the reader's choice of light or dark, and have a
background of their own, so that they can be read on any page."""
import collections
import json
import pathlib
import sys

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot, ticker
except ImportError:
    matplotlib = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHOWN = ROOT / "docs" / "figures"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
NAMES = ("launch", "rendezvous", "store", "recovery")

# ---- colours ----

# Colour in a light page: colour in a dark page. The SVG says the light ones; a style sheet in it
# replaces each by the dark one where the reader prefers dark.
PAPER, INK, GRID = "#fdfdfc", "#24292f", "#d4d8dd"
CRUN, TORCH, HYDRA, FLOOR, OTHER = "#0b62c4", "#c4500b", "#7a3fb0", "#6e7781", "#1a7f4b"
DARK = {PAPER: "#11151b", INK: "#dde3ea", GRID: "#39414b", CRUN: "#62aeff", TORCH: "#ff9a5c",
        HYDRA: "#c69bf2", FLOOR: "#9aa4af", OTHER: "#5cc98f"}

LAUNCHERS = {"torchrun": TORCH, "hydra": HYDRA, "mpirun": OTHER, "crun": CRUN, "floor": FLOOR}
LABELS = {"hydra": "mpiexec.hydra", "floor": "floor: posix_spawn and wait",
          "crun-store": "crun", "torch": "torch's TCPStore", "redis": "Redis",
          "echo": "floor: a bare echo"}
SERVERS = {"crun-store": CRUN, "torch": TORCH, "redis": HYDRA, "echo": FLOOR}


def dark_style():
    rules = "".join(f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
                    for light, dark in DARK.items() for what in ("fill", "stroke"))
    return f"<style>@media (prefers-color-scheme: dark) {{{rules}}}</style>\n"


# ---- drawing ----


def settings():
    return {"svg.hashsalt": "crun", "svg.fonttype": "none", "font.family": "sans-serif",
            "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"], "font.size": 10,
            "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER,
            "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
            "ytick.color": INK, "grid.color": GRID, "axes.grid": True, "axes.axisbelow": True,
            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
            "axes.titlesize": 11, "axes.titlelocation": "left"}


def panels(widths):
    """Returns a figure and its panels side by side. Their places are fixed, because a layout that
    measures text would depend on the installed fonts."""
    figure, axes = pyplot.subplots(1, len(widths), figsize=(9.6, 4.0),
                                   gridspec_kw={"width_ratios": widths})
    figure.subplots_adjust(left=0.075, right=0.97, bottom=0.14, top=0.9, wspace=0.28)
    return figure, axes


def plain(number):
    """A figure as people write it: two or three digits that count, with commas."""
    if number is None:
        return "-"
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def plain_ticks(axis):
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def by_who(rows):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["who"]].append(row)
    return groups


def lines(axes, series, ticks):
    """Draws one line for each (label, colour, xs, ys, lows, highs) on two logarithmic scales;
    lows and highs may be None."""
    for label, colour, xs, ys, lows, highs in series:
        if lows:
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
        axes.plot(xs, ys, "o-", color=colour, label=label, markersize=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks)
    axes.minorticks_off()
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)


def bars(axes, rows, unit, room):
    """Draws a horizontal bar for each (label, figure, colour), the first one at the top, with the
    figure behind it. `room` times the largest figure is the width of a linear scale; with None the
    scale is logarithmic."""
    places = range(len(rows), 0, -1)
    axes.barh(places, [figure for _, figure, _ in rows], color=[colour for *_, colour in rows],
              height=0.66)
    largest = max(figure for _, figure, _ in rows)
    if room is None:
        axes.set_xscale("log")
        axes.set_xlim(min(figure for _, figure, _ in rows) / 3, largest * 9)
    else:
        axes.set_xlim(0, largest * room)
    axes.minorticks_off()
    plain_ticks(axes.xaxis)
    axes.set_yticks(places, [label for label, *_ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    for place, (_, figure, _) in zip(places, rows):
        axes.annotate(f"{plain(figure)} {unit}", (figure, place), (4, 0), va="center",
                      textcoords="offset points")


def draw_launch(data):
    figure, (left, right) = panels([1.6, 1])
    groups, series = by_who(data["launch"]), []
    for who, colour in LAUNCHERS.items():
        rows = groups.get(who, [])
        if rows:
            series.append((LABELS.get(who, who), colour, *(
                [row[field] for row in rows]
                for field in ("workers", "median_ms", "lowest_ms", "highest_ms"))))
    lines(left, series, sorted({row["workers"] for row in data["launch"]}))
    left.set_title("Start N workers (/bin/true) and wait for them, ms")
    left.set_xlabel("workers; the band is from the lowest to the highest run")
    left.set_ylim(top=left.get_ylim()[1] * 12)
    left.legend(loc="upper left", ncols=2)
    largest = max(row["workers"] for row in data["launch"])
    most = [(LABELS.get(who, who).split(":")[0], row["memory_mib"], colour)
            for who, colour in LAUNCHERS.items() for row in groups.get(who, [])
            if row["workers"] == largest]
    bars(right, most, "MiB", None)
    right.set_title(f"Memory with {largest} workers")
    right.set_xlabel("MiB, logarithmic")
    figure.subplots_adjust(wspace=0.42)
    return figure


def draw_rendezvous(data):
    figure, (left, right) = panels([1, 1.3])
    rows = []
    for row in data["rendezvous"]["launchers"]:
        rows.append((f"crun, {row['launchers']}", row["start_ms"], CRUN))
        if row["torchrun_start_ms"] is not None:
            rows.append((f"torchrun, {row['launchers']}", row["torchrun_start_ms"], TORCH))
    bars(left, rows, "ms", None)
    left.set_title("K launchers, until the last worker runs")
    left.set_xlabel("ms, logarithmic")
    members = data["rendezvous"]["members"]
    ks = [row["members"] for row in members]
    kinds = (("join: until all have a round", "join_ms", CRUN),
             ("until all know of a failure", "push_ms", TORCH),
             ("until all have the next round", "next_round_ms", OTHER))
    # A time below 0.05 ms is printed, and so read, as 0, which has no place on the scale.
    lines(right, [(label, colour, *zip(*((row["members"], row[field]) for row in members
                                         if row[field] > 0)), None, None)
                  for label, field, colour in kinds], ks)
    right.set_title("K members, one coordinator, ms")
    right.set_xlabel("members")
    right.legend(loc="upper left")
    figure.subplots_adjust(left=0.11, wspace=0.18)
    return figure


def draw_store(data):
    figure, (left, right) = panels([1.7, 1])
    speed = data["store"]["speed"]
    one = [row for row in speed if row["depth"] == 1]
    deep = [row for row in speed if row["depth"] != 1]
    counts = sorted({row["connections"] for row in one})
    servers = [who for who in SERVERS if any(row["who"] == who for row in one)]
    for n, who in enumerate(servers):
        at = [place + (n - (len(servers) - 1) / 2) * 0.2 for place in range(len(counts))]
        left.bar(at, [row["per_second"] / 1000 for row in one if row["who"] == who], 0.18,
                 color=SERVERS[who], label=LABELS[who])
    left.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
    left.set_xlabel("connections, one request outstanding on each")
    left.set_title("GET, thousands a second")
    left.set_ylim(top=left.get_ylim()[1] * 1.3)
    left.legend(loc="upper left", ncols=2)
    left.grid(axis="x", visible=False)
    bars(right, [(LABELS[row["who"]].split(":")[0].split(" ")[-1], row["per_second"] / 1000,
                  SERVERS[row["who"]]) for who in servers for row in deep if row["who"] == who],
         "", 1.35)
    right.xaxis.set_major_locator(ticker.MaxNLocator(4))
    right.set_title(f"{deep[0]['connections']} connections, {deep[0]['depth']} requests deep")
    right.set_xlabel("GET, thousands a second")
    return figure


def draw_recovery(data):
    figure, (left, right) = panels([1, 1])
    rows = []
    for row in data["recovery"]["restart"]:
        colour = LAUNCHERS[row["who"]]
        rows += [(f"{row['who']}: first", row["replacement_ms"], colour),
                 (f"{row['who']}: all {row['workers']}", row["last_ms"], colour)]
    bars(left, rows, "ms", None)
    left.set_title("From a worker's death to new workers")
    left.set_xlabel("ms, logarithmic")
    rows = [(f"step {row['how']}", row["median_ms"], OTHER if row["how"] == "in place" else CRUN)
            for row in data["recovery"]["in_place"]]
    for row in data["rendezvous"]["launchers"]:
        k = row["launchers"]
        rows += [(f"{k} nodes: stopped", row["worker_dies_stopped_ms"], CRUN),
                 (f"{k} nodes: again", row["worker_dies_again_ms"], CRUN)]
    bars(right, rows, "ms", None)
    right.set_title("crun: a step again; on several nodes")
    right.set_xlabel("ms, logarithmic")
    figure.subplots_adjust(left=0.12, wspace=0.42)
    return figure


def save(figure, path):
    """Writes the figure as SVG without its date and without random names, and makes it follow the
    reader's choice of light or dark."""
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = path.read_text().replace(" <defs>\n", f" {dark_style()} <defs>\n", 1)
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def draw(data, folder):
    """Draws all figures into the folder. Returns their paths."""
    paths = [folder / f"{name}.svg" for name in NAMES]
    with matplotlib.rc_context(settings()):
        for name, path in zip(NAMES, paths):
            save(globals()[f"draw_{name}"](data), path)
    return paths


# ---- the section of docs/benchmarks.md ----


def image(name, text):
    return f"![{text}](figures/{name}.svg)\n"


def table(head, rows):
    return "\n".join([head, "| --- |" + " ---: |" * (head.count("|") - 2), *rows]) + "\n"


def launch_cell(row):
    if row is None:
        return "-"
    ratio = "" if row["who"] == "crun" else f" ({plain(row['ratio_to_crun'])}x)"
    return plain(row["median_ms"]) + ratio


def launch_table(data):
    groups = by_who(data["launch"])
    names = [who for who in ("floor", "crun", "hydra", "mpirun", "torchrun") if who in groups]
    rows = []
    for ours in groups["crun"]:
        same = {row["who"]: row for row in data["launch"] if row["workers"] == ours["workers"]}
        cells = [launch_cell(same.get(who)) for who in names]
        rows.append(f"| launch of {ours['workers']}, ms | " + " | ".join(cells) + " |")
    return table("| | " + " | ".join(LABELS.get(who, who).split(":")[0] for who in names) + " |",
                 rows)


def peer_row(what, ours, peer):
    ratio = "-" if peer is None else f"{plain(peer / ours)}x"
    return f"| {what} | {plain(ours)} | {plain(peer)} | {ratio} |"


def torch_table(data):
    restart = {row["who"]: row for row in data["recovery"]["restart"]}
    peer = restart.get("torchrun", {})
    rows = [peer_row(f"start of {row['launchers']} launchers, ms", row["start_ms"],
                     row["torchrun_start_ms"]) for row in data["rendezvous"]["launchers"]]
    rows += [peer_row("death to replacement, ms", restart["crun"]["replacement_ms"],
                      peer.get("replacement_ms")),
             peer_row("death to the last of all, ms", restart["crun"]["last_ms"],
                      peer.get("last_ms"))]
    return table("| | crun | torchrun | torchrun / crun |", rows)


def store_table(data):
    rows = []
    speed = data["store"]["speed"]
    peers = [who for who in ("torch", "redis", "echo") if any(row["who"] == who for row in speed)]
    for ours in (row for row in speed if row["who"] == "crun-store"):
        same = {row["who"]: row for row in speed
                if (row["depth"], row["connections"]) == (ours["depth"], ours["connections"])}
        cells = [f"{plain(same[who]['per_second'])} ({same[who]['crun_to_it']:.2f})"
                 if who in same else "-" for who in peers]
        connections = f"{ours['connections']:,} connection{'s' * (ours['connections'] > 1)}"
        rows.append(f"| {connections}, {ours['depth']} deep | "
                    f"{plain(ours['per_second'])} | " + " | ".join(cells) + " |")
    names = " | ".join(LABELS[who].split(":")[0] for who in peers)
    return table(f"| GET a second (crun / peer) | crun | {names} |", rows)


def said(data):
    machine = data["machine"]
    left_out = list(dict.fromkeys(data["left_out"]))
    peers = ", ".join(f"{name} {version}" for name, version in data["peers"].items()
                      if version and not any(line.startswith(name) for line in left_out))
    text = (f"Measured on {data['date']} at commit {data['commit']}: {machine['cores']} cores "
            f"({machine['cpu']}), {machine['memory_gib']} GiB, {machine['kernel']}. Load of the "
            f"machine: {data['load_before']} before the run, {data['load_after']} at its end; "
            f"nice {data['nice']}. Peers: {peers}.")
    if left_out:
        text += f" Not measured: {'; '.join(left_out)}."
    return wrapped(text)


def wrapped(text, width=110):
    out, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*out, line]) + "\n"


def section(data):
    return "\n".join([
        said(data),
        image("launch", "time to start N workers and wait for them, and memory, of each launcher"),
        launch_table(data),
        image("rendezvous", "time until K launchers have started their workers, and a coordinator "
              "with thousands of members"),
        image("recovery", "time from a worker's death to new workers"),
        wrapped("Left, *first*: until main() begins in the replacement of the dead worker. Right, "
                "*step*: until all four ranks of examples/elastic have made a step again, in their "
                "processes or in new ones; *stopped* and *again*: one crun is a node, a worker of "
                "the last node is killed, until the workers of the other nodes are gone, and until "
                "all run again. torchrun looks for dead workers every 0.1 s; of its launchers on "
                "several nodes there is one run, of crun's the median of three."),
        torch_table(data),
        image("store", "requests a second of crun's store and its peers"),
        store_table(data)])


def documented(text, data):
    """Returns the document with the section as it should be."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + section(data) + text[end:]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SHOWN).resolve()
    data = json.loads((folder / "benchmarks.json").read_text())
    if folder == SHOWN:
        DOCUMENT.write_text(documented(DOCUMENT.read_text(), data))
    if matplotlib is None:
        sys.exit(f"figures.py: cannot draw {folder}/benchmarks.json: this Python "
                 f"({sys.executable}) has no matplotlib; install python3-matplotlib, or run "
                 "make/deps.sh bench")
    for path in draw(data, folder):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
