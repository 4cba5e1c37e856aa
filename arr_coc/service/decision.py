"""Decision: one decision as plain numbers, and decided again from them, without the model.

`Where` is what leaves the model's process: maps, cells and tensions that survive pickling and JSON.
`decide_again` recombines the maps of a `Where` under other tensions in milliseconds.
"""

from typing import Any, NotRequired, TypedDict


class Where(TypedDict):
    """Where the focused look went. Maps are `h` rows of `w` numbers in [0, 1], rounded.

    `cells` are rows of level, row, column; `cell_budgets` their nominal budgets in [64, 400].
    `prune` says whether places went before the encoder or after it; recordings of before may lack it.
    `glance` is the setting, after rounds what became of it: with what they spent, it would be decided anew.
    `look_grid` is the glance's, `glance_grid` the same where its tokens were kept.
    `own_tensions` are those that the question chose, also where others were imposed; `scalars` the
    numbers of `balancing.combine`. `rounds`, of share "auto", are tokens held after each, and the nats by
    which the first word was unsure then.
    """

    grid: list[int]
    budget: int
    allocator: str
    relevance: list[list[float]]
    propositional: list[list[float]] | None
    perspectival: list[list[float]] | None
    participatory: list[list[float]] | None
    participatory_source: str
    cells: list[list[int]]
    cell_budgets: list[float]
    glance: str
    prune: str
    look_grid: list[int] | None
    glance_grid: list[int] | None
    compress: float
    exploit: float
    focus: float
    tension_source: str
    own_tensions: list[float]
    own_source: str
    scalars: list[float]
    fallback: str | None
    rounds: NotRequired[list[list[float]]]


def describe_where(realization: Any) -> Where:
    """A `realizing.Realization` as plain numbers."""
    tensions, allocation = realization.tensions, realization.allocation
    glance, kept = realization.glance, realization.kept_glance
    own, own_source = realization.policy_tensions or (tensions, realization.tension_source)
    # In rounds what was spent is the budget: tensions are dragged, and what matters is asked, at so many.
    rounds = [[tokens, round(nats, 4)] for tokens, nats in realization.rounds]
    return Where(
        **({"rounds": rounds} if rounds else {}),
        grid=list(realization.grid),
        budget=realization.tokens if rounds else realization.budget,
        allocator=realization.config.allocator,
        relevance=as_rows(realization.relevance),
        propositional=as_rows(realization.propositional),
        perspectival=as_rows(realization.perspectival),
        participatory=as_rows(realization.participatory),
        participatory_source=realization.participatory_source,
        cells=allocation.cells.tolist(),
        cell_budgets=[round(budget, 1) for budget in allocation.budgets.tolist()],
        glance=_settled(realization) if rounds else realization.config.glance,
        prune=realization.config.prune,
        look_grid=None if glance is None else list(glance.attention.shape[-2:]),
        glance_grid=None if kept is None else list(kept.attention.shape[-2:]),
        **dict(zip(("compress", "exploit", "focus"), _rounded(tensions))),
        tension_source=realization.tension_source,
        own_tensions=_rounded(own),
        own_source=own_source,
        scalars=list(realization.scalars),
        fallback=realization.fallback,
    )


def allocation_of(where: Where):
    """The `attending.Allocation` that `describe_where` wrote down."""
    import torch

    from arr_coc.attending import Allocation

    cells = torch.tensor(where["cells"], dtype=torch.int64).view(-1, 3)  # (K, 3)
    return Allocation(tuple(where["grid"]), cells, torch.tensor(where["cell_budgets"]))


def decide_again(where: Where, compress: float, exploit: float, focus: float) -> Where:
    """The same maps under other tensions: no model, no GPU, only `realizing.recombine`.

    Args:
        where: of a finished focused look, from `describe_where`.
        compress, exploit, focus: in [0, 1].

    Raises:
        ValueError: after a fallback (there are no maps), or for tensions out of range.
    """
    from arr_coc.config import Tensions
    from arr_coc.realizing import recombine

    return describe_where(recombine(realization_of(where), Tensions(compress, exploit, focus)))


def as_chosen(where: Where) -> Where:
    """The decision under the tensions that the question chose, whichever were imposed."""
    if where["tension_source"] != "imposed" or where["fallback"]:
        return where
    return {**decide_again(where, *where["own_tensions"]), "tension_source": where["own_source"]}


def realization_of(where: Where):
    """A `realizing.Realization` of what `where` holds: maps rounded as they were written down."""
    import torch

    from arr_coc.balancing import Scalars
    from arr_coc.config import Config, Tensions
    from arr_coc.realizing import Glance, Realization

    def tensor(rows: list[list[float]] | None) -> torch.Tensor | None:
        return None if rows is None else torch.tensor(rows)[None]  # (1, h, w)

    size, glance = where["look_grid"], None
    if size:
        glance = Glance(torch.zeros(1, *size), tokens=size[0] * size[1])
    return Realization(
        question="",
        config=Config(
            budget=where["budget"],
            glance=where["glance"],
            prune=where.get("prune", Config.prune),
            allocator=where["allocator"],
        ),
        grid=tuple(where["grid"]),
        budget=where["budget"],
        textures=None,
        propositional=tensor(where["propositional"]),
        perspectival=tensor(where["perspectival"]),
        participatory=tensor(where["participatory"]),
        tensions=Tensions(where["compress"], where["exploit"], where["focus"]),
        tension_source=where["tension_source"],
        participatory_source=where["participatory_source"],
        relevance=tensor(where["relevance"]),
        allocation=allocation_of(where),
        glance=glance,
        seconds={},
        fallback=where["fallback"],
        scalars=Scalars(*where["scalars"]),
        policy_tensions=(Tensions(*where["own_tensions"]), where["own_source"]),
    )


def _settled(realization: Any) -> str:
    """The setting under which the glance stays, or does not, as it did."""
    if realization.kept_glance:
        return "periphery"
    return "separate" if realization.glance else "off"


def _rounded(tensions: Any) -> list[float]:
    return [round(value, 4) for value in (tensions.compress, tensions.exploit, tensions.focus)]


def as_rows(values: Any) -> list[list[float]] | None:
    """A `(1, h, w)` tensor as nested lists with four digits, however small: maps are multiplied."""
    if values is None:
        return None
    return shortened(values[0].float().cpu().tolist(), 4)


def shortened(rows: list[list[float]], digits: int) -> list[list[float]]:
    """Each number to so many significant digits."""
    return [[float(f"{value:.{digits}g}") for value in row] for row in rows]
