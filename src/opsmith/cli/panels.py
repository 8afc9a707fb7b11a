"""Panels: under which heading the help of a verb lists each of its options."""

from __future__ import annotations

from typing import Any

WHAT, WHO, BESIDE, HOW, TIMING, OF_SUITES, WHERE, SERVICE, OUTPUT = (
    "What is asked",
    "Who answers",
    "Advisors, people and agents",
    "How it is judged",
    "Timing",
    "Options of single suites",
    "Machines and processes",
    "Service",
    "Output",
)
#: So many options need no headings.
MOST_IN_ONE = 12
#: Heading -> parameters of the verbs' functions.
PANELS = {
    WHO: ("backend", "kernel", "entry", "provider", "model", "dsl", "strategy", "attempts", "references", "context"),
    WHAT: ("task", "suite", "ops", "dtype", "device", "case", "sample", "seed"),
    BESIDE: (
        *("advisor", "advisor_sees", "advisor_share", "review", "review_after"),
        *("agent", "agent_host", "agent_env", "agent_home", "agent_limits", "agent_memory"),
    ),
    HOW: ("policy", "integrity", "tolerance", "layout", "isolation", "fail_on", "stop_at_first", "last_failed"),
    TIMING: ("timing", "timing_pairs", "baseline", "warm"),
    OF_SUITES: (
        "dataset",
        "top_inputs",
        "spread_inputs",
        "models",
        "overhead_dominated",
        "problems",
        "sizes",
        "trials",
        "ranks",
        "mode",
        "columns",
        "autocast",
    ),
    WHERE: ("jobs", "executor", "devices", "budget", "prices", "temperature", "max_tokens", "most_judging_s"),
    SERVICE: (
        *("host", "port", "data", "db", "run", "max_request_mib", "max_rate", "max_connections"),
        *("trusted_proxy", "accept_missing_layers"),
    ),
    OUTPUT: ("out", "resume", "replay", "json_output", "junit", "watch"),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


def arrange(command: Any) -> None:
    """Give the options of a verb that has many their headings, in the order of :data:`PANELS`."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    # A verb most of whose options are its own, as trace, means other things by these names.
    known = sum(parameter.name in _PANEL_OF for parameter in options)
    if len(options) <= MOST_IN_ONE or 2 * known < len(options):
        return
    for parameter in options:
        parameter.rich_help_panel = _PANEL_OF.get(parameter.name)
    order = list(PANELS)
    rank = {name: (order.index(panel), names.index(name)) for panel, names in PANELS.items() for name in names}
    command.params.sort(key=lambda parameter: rank.get(parameter.name, (len(order), 0)))
