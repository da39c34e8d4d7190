"""Names of process groups: which ranks make up "world", "tp", "dp" and so on, so that communicators get their roles.

Kept until there is a recorder, reported once each. Names come, first that is known, from device meshes, from the
description given to new_group(), from Megatron's parallel_state. A group that nobody named is not reported.
"""

import threading

from . import _evidence, _guard

GROUPS_MAX = 1024  # a job that makes groups in a loop must not fill the recorder with them
NOT_NAMES = ("", "undefined", "none", "null")

# What frameworks write into a group's description, and the short name everybody knows it by.
DESCRIPTIONS = {
    "default_pg": "world",
    "tensor_model_parallel_group": "tp",
    "pipeline_model_parallel_group": "pp",
    "data_parallel_group": "dp",
    "data_parallel_group_with_cp": "dp_cp",
    "context_parallel_group": "cp",
    "expert_model_parallel_group": "ep",
    "expert_tensor_parallel_group": "etp",
    "expert_data_parallel_group": "edp",
    "model_parallel_group": "mp",
    "embedding_group": "embedding",
    "position_embedding_group": "pos_embedding",
    "tensor_and_data_parallel_group": "tp_dp",
    "tensor_and_context_parallel_group": "tp_cp",
}

# Getters of megatron.core.parallel_state.
MEGATRON_GETTERS = {
    "get_tensor_model_parallel_group": "tp",
    "get_pipeline_model_parallel_group": "pp",
    "get_data_parallel_group": "dp",
    "get_context_parallel_group": "cp",
    "get_expert_model_parallel_group": "ep",
}

_lock = threading.Lock()
_groups: dict[tuple[str, tuple[int, ...]], None] = {}


def role(description) -> str | None:
    """The name of a group by its description; None: it has none."""
    text = str(description or "").strip()
    key = text.lower().removeprefix("group_desc:")
    if key in NOT_NAMES:
        return None
    return DESCRIPTIONS.get(key, text)


def add(name: str, ranks, sink=None) -> bool:
    """False: known already, or one too many."""
    key = (str(name), tuple(int(rank) for rank in ranks))
    if not key[0] or not key[1]:
        return False
    with _lock:
        if key in _groups:
            return False
        if len(_groups) >= GROUPS_MAX:
            _guard.say_once("groups", f"more than {GROUPS_MAX} named process groups; further ones have no name here")
            return False
        _groups[key] = None
    if sink is not None:
        sink.group(key[0], key[1])
        _evidence.tell()  # a script that sets PyTorch's variables does so before it makes its groups
    return True


def tell_all(sink) -> None:
    with _lock:
        known = list(_groups)
    for name, ranks in known:
        sink.group(name, ranks)


def forget() -> None:
    """For tests."""
    with _lock:
        _groups.clear()
