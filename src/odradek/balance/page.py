"""A plan as one page of HTML that needs nothing else: every broker before and after, by resource,
with its band, and every move with its reason."""

from html import escape

from odradek.balance.plan import Plan, Span

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #1a1a1a; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .2rem .7rem; text-align: left }
tr:nth-child(even) { background: #f5f5f5 } td.number { text-align: right }
.met { color: #176b2c } .unattainable, .not { color: #a01818 } .improved { color: #8a5a00 }
svg { vertical-align: middle }
@media (prefers-color-scheme: dark) {
  body { color: #eee; background: #161616 } tr:nth-child(even) { background: #222 }
}
"""
WIDTH, HEIGHT = 160, 18
# The right edge of a bar is so many shares.
FULL = 2.0


def page_of(plan: Plan) -> str:
    """The page; names of topics are text in it, whatever they contain."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f"<title>Plan {escape(plan.id)}</title><style>{STYLE}</style></head><body>",
            f"<h1>Plan {escape(plan.id)}</h1>",
            f"<p>{plan.cost.copies:,} copies of {plan.cost.bytes:,} bytes (at least "
            f"{plan.bound:,}), {plan.cost.leaderships:,} leaderships; load of "
            f"{plan.coverage:.1%} of the replicas.</p>",
            "<h2>Rules</h2>",
            _rules(plan),
            "<h2>Brokers</h2><p>Hollow: before. Filled: after. Grey: the band around a broker's "
            "share, which is the line in the middle.</p>",
            _brokers(plan),
            _reasons(plan),
            "<h2>Moves</h2>",
            _moves(plan),
            "</body></html>\n",
        ]
    )


def _rules(plan: Plan) -> str:
    rows = [
        f'<tr><td>{escape(each.rule)}</td><td class="{escape(each.state)}">{escape(each.state)}'
        f"</td><td class=number>{each.outside_before:,} → {each.outside_after:,}</td>"
        f"<td>{escape(each.proof)}</td></tr>"
        for each in plan.rules
    ]
    heading = "<tr><th>rule</th><th>state</th><th>broken by</th><th></th></tr>"
    return f"<table>{heading}{''.join(rows)}</table>"


def _brokers(plan: Plan) -> str:
    names = [
        name
        for name in (plan.brokers[0].resources if plan.brokers else ())
        if any(each.resources[name].share for each in plan.brokers if name in each.resources)
    ]
    rows = [
        f"<tr><td>{each.broker}</td><td>{escape(each.rack or '')}</td>"
        + "".join(
            f"<td>{_bar(each.resources[name])}</td>" for name in names if name in each.resources
        )
        + "</tr>"
        for each in plan.brokers
    ]
    headings = "".join(f"<th>{escape(name)}</th>" for name in names)
    return f"<table><tr><th>broker</th><th>rack</th>{headings}</tr>{''.join(rows)}</table>"


def _reasons(plan: Plan) -> str:
    """Why brokers stay outside their bands."""
    rows = [
        f"<tr><td>{each.broker}</td><td>{escape(name)}</td><td>{escape(text)}</td></tr>"
        for each in plan.brokers
        for name, text in each.reasons.items()
    ]
    if not rows:
        return ""
    heading = "<tr><th>broker</th><th>outside</th><th>why</th></tr>"
    return f"<table>{heading}{''.join(rows)}</table>"


def _bar(span: Span) -> str:
    share = max(span.share, 1)

    def at(value: int) -> float:
        return round(min(value / share / FULL, 1.0) * WIDTH, 1)

    low, high = at(span.low), at(span.high)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="'
        f'{span.before / share:.2f} to {span.after / share:.2f} of its share">'
        f'<rect x="{low}" width="{max(high - low, 0)}" height="{HEIGHT}" fill="#bbb" '
        f'opacity=".35"/><rect y="2" width="{at(span.before)}" height="6" fill="none" '
        f'stroke="#888"/><rect y="10" width="{at(span.after)}" height="6" fill="#3a6ea5"/>'
        f'<line x1="{WIDTH / FULL}" x2="{WIDTH / FULL}" y2="{HEIGHT}" stroke="#888"/></svg> '
        f"{span.before / share:.2f} → {span.after / share:.2f}"
    )


def _moves(plan: Plan) -> str:
    rows = [
        f"<tr><td class=number>{place}</td><td>{escape(str(move.tp))}</td>"
        f"<td>{', '.join(map(str, move.before))} → {', '.join(map(str, move.after))}</td>"
        f"<td class=number>{move.bytes:,}</td><td>{escape(move.rule)}</td>"
        f"<td>{escape(move.gain)}</td>"
        f"<td class=number>{'' if move.because_of is None else move.because_of}</td></tr>"
        for place, move in enumerate(plan.moves)
    ]
    names = ("#", "partition", "replicas", "bytes", "rule", "gain", "needs")
    headings = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{headings}</tr>{''.join(rows)}</table>"
