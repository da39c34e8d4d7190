"""Hooks into torch, each put in place when the module it concerns has been imported. torch is never imported here.

Every hook does nothing but tell _marks what happens; an error switches that hook off and the job's own call goes
through untouched. Nothing here synchronises a GPU: all marks are host times.

The hooks of a plain step (fetch, backward, optimizer) are flat: each asks _runtime.live for the marks and calls them
from its own try, without guarded() in between, for every further function is a handful of cache misses in a real loop
(_marks.py). All others are guarded.
"""

import functools
import itertools
import sys

from . import _groups, _guard, _import_hook, _kineto, _runtime
from ._guard import guarded

KINDS = ("optimizer", "input", "backward", "checkpoint", "groups", "vllm")
OPEN_STEPS_MAX = 64
_installed: set[str] = set()
_keys = itertools.count(1)
_live = _runtime.live

# For measuring alone (tests/gpu/hook_rank.py): around(name, original, hook) makes hook(original) with clocks outside
# and inside of it, called(name, function) a function with a clock around it. Guarded ones are measured at guarded().
measured = None


def _key(thing) -> int:
    """A number of this very object: its id() may come again."""
    try:
        return thing._lockstep_key
    except AttributeError:
        pass
    try:
        thing._lockstep_key = key = next(_keys)
        return key
    except Exception:
        return id(thing)


def _hidden(function):
    """torch.compile does not look inside."""
    function._torchdynamo_disable = True
    function._lockstep = True
    return function


def _replace(original, new, *places) -> None:
    """`new` for `original` wherever these (object, name) still have it."""
    for place, name in places:
        if place is not None and getattr(place, name, None) is original:
            setattr(place, name, new)


def _around(original, begin, end):
    """begin() before and end(token) after, whatever happens in between."""

    @functools.wraps(original)
    def wrapper(*arguments, **options):
        token = begin()
        try:
            return original(*arguments, **options)
        finally:
            if token is not None:
                end(token)

    return _hidden(wrapper)


def _put_around(name, original, hook):
    """What stands in the place of `original`: hook(original)."""
    return _hidden(hook(original) if measured is None else measured.around(name, original, hook))


def _put_beside(name, function):
    return _hidden(function if measured is None else measured.called(name, function))


# Optimizers


def _hook_optimizer(module) -> None:
    off = False
    register_before = getattr(module, "register_optimizer_step_pre_hook", None)
    register_after = getattr(module, "register_optimizer_step_post_hook", None)
    if register_before is not None and register_after is not None:
        # A step that calls its base class's fires twice, inside one another; one that raises never ends.
        tokens: list = []

        def optimizer_begin(optimizer, arguments, options):
            nonlocal off
            if off:
                return
            try:
                marks = _live.marks
                if marks is None:
                    marks = _runtime.marks()
                try:
                    key = optimizer._lockstep_key
                except AttributeError:
                    key = _key(optimizer)
                if len(tokens) >= OPEN_STEPS_MAX:
                    tokens.clear()
                tokens.append((key, marks, None if marks is None else marks.optimizer_begin()))
            except Exception as error:
                off = True
                _guard.broken("optimizer hook", error)

        def optimizer_end(optimizer, arguments, options):
            nonlocal off
            if off:
                return
            try:
                try:
                    wanted = optimizer._lockstep_key
                except AttributeError:
                    wanted = _key(optimizer)
                while tokens:
                    key, marks, token = tokens.pop()
                    if key == wanted:
                        if marks is not None and marks is _live.marks:
                            marks.optimizer_end(token, key)
                        return
            except Exception as error:
                off = True
                _guard.broken("optimizer hook", error)

        register_before(_put_beside("optimizer hook", optimizer_begin))
        register_after(_put_beside("optimizer hook", optimizer_end))
        _kineto.hook_optimizer(module)
        return

    # torch before 2.0 wraps the step of each class when its first optimizer is made: wrap once more, just after that.
    base = module.Optimizer

    def around_step(step):
        @functools.wraps(step)
        def wrapper(self, *arguments, **options):
            nonlocal off
            marks = None
            if not off:
                try:
                    marks = _live.marks
                    if marks is None:
                        marks = _runtime.marks()
                    token = None if marks is None else marks.optimizer_begin()
                except Exception as error:
                    off = True
                    _guard.broken("optimizer hook", error)
            try:
                return step(self, *arguments, **options)
            finally:
                if marks is not None and marks is _live.marks and not off:
                    try:
                        marks.optimizer_end(token, _key(self))
                    except Exception as error:
                        off = True
                        _guard.broken("optimizer hook", error)

        return wrapper

    def wrap_step(kind) -> None:
        step = kind.__dict__.get("step")
        if step is None or getattr(step, "_lockstep", False):
            return

        kind.step = _put_around("optimizer hook: step", step, around_step)
        kind.step.hooked = True

    profile = base._hook_for_profile

    @functools.wraps(profile)
    def hook_for_profile(self):
        profile(self)
        try:
            wrap_step(type(self))
        except Exception as error:
            _guard.broken("optimizer hook", error)

    base._hook_for_profile = hook_for_profile
    kinds = list(base.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds.extend(kind.__subclasses__())
        if getattr(kind.__dict__.get("step"), "hooked", False):
            wrap_step(kind)


def _hook_grad_scaler(module) -> None:
    """Infinite gradients: the scaler leaves the optimizer out, and it is a step all the same."""
    kind = getattr(module, "GradScaler", None)
    step = kind.__dict__.get("step") if kind is not None else None
    if step is None or getattr(step, "_lockstep", False):
        return

    @guarded("gradient scaler hook")
    def skipped(before, optimizer):
        marks = _runtime.marks()
        if marks is not None and marks.optimizer_steps == before:
            marks.optimizer_skipped(_key(optimizer))

    @functools.wraps(step)
    def wrapper(self, optimizer, *arguments, **options):
        marks = _runtime.marks()
        before = None if marks is None else marks.optimizer_steps
        result = step(self, optimizer, *arguments, **options)
        if before is not None:
            skipped(before, optimizer)
        return result

    kind.step = _hidden(wrapper)


# Input


def _hook_loader(module) -> None:
    torch = sys.modules["torch"]
    iterator = module._BaseDataLoaderIter
    if getattr(iterator.__next__, "_lockstep", False):
        return
    grad_is_on = getattr(torch, "is_grad_enabled", None) or (lambda: torch.is_grad_enabled())
    off = False

    def hook(fetch):
        @functools.wraps(fetch)
        def wrapper(self):
            nonlocal off
            token = None
            if not off:
                try:
                    marks = _live.marks
                    if marks is None:
                        marks = _runtime.marks()
                    if marks is not None:
                        try:
                            key = self._lockstep_key
                        except AttributeError:
                            key = _key(self)
                        token = marks.fetch_begin(key, grad_is_on())
                except Exception as error:
                    off = True
                    _guard.broken("input hook", error)
            if token is None:
                return fetch(self)
            got = False
            try:
                batch = fetch(self)
                got = True
                return batch
            finally:
                if marks is _live.marks and not off:
                    try:
                        marks.fetch_end(token, got)
                    except Exception as error:
                        off = True
                        _guard.broken("input hook", error)

        return wrapper

    iterator.__next__ = _put_around("input hook: fetch", iterator.__next__, hook)

    @guarded("input hook")
    def loader_begin():
        # Before the first mark there is no step that a loader's start could count to.
        marks = _runtime.marks() if _runtime.started() else None
        return None if marks is None else marks.loader_begin()

    @guarded("input hook")
    def loader_end(token):
        marks = _runtime.marks()
        if marks is not None:
            marks.loader_end(token)

    module.DataLoader.__iter__ = _around(module.DataLoader.__iter__, loader_begin, loader_end)


# Backward


def _hook_autograd(module) -> None:
    if getattr(module.backward, "_lockstep", False):
        return
    off = False

    @guarded("loss hook")
    def tell_loss(marks, tensors):
        # Only a number that lies in the host's memory: reading any other would wait for the device.
        if not isinstance(tensors, (tuple, list)):
            if tensors.device.type == "cpu" and tensors.numel() == 1 and tensors.dtype.is_floating_point:
                value = float(tensors.detach())
                marks.scalar("loss", value)
                _runtime.achieved.latest["loss"] = value

    def broken(error):
        _guard.broken("backward hook", error)
        if _live.marks is not None:
            _live.marks.backward_lost()

    def hook(backward):
        @functools.wraps(backward)
        def wrapper(tensors, *arguments, **options):
            nonlocal off
            token = None
            if not off:
                try:
                    marks = _live.marks
                    if marks is None:
                        marks = _runtime.marks()
                    if marks is not None:
                        token = marks.backward_begin()
                        if token:
                            try:
                                on_host = tensors.is_cpu  # much cheaper than to ask for its device
                            except Exception:
                                on_host = True  # several, or something else: tell_loss() knows
                            if on_host:
                                tell_loss(marks, tensors)
                except Exception as error:
                    off = True
                    broken(error)
                    token = None
            if token is None:
                return backward(tensors, *arguments, **options)
            try:
                return backward(tensors, *arguments, **options)
            finally:
                if marks is _live.marks and not off:
                    try:
                        marks.backward_end(token)
                    except Exception as error:
                        off = True
                        broken(error)

        return wrapper

    module.backward = _put_around("backward hook", module.backward, hook)


# Checkpoints


@guarded("checkpoint hook")
def _save_begin():
    marks = _runtime.marks() if _runtime.started() else None  # saving alone makes no rank
    return None if marks is None else marks.save_begin()


@guarded("checkpoint hook")
def _save_end(token):
    marks = _runtime.marks()
    if marks is not None:
        marks.save_end(token)


def _hook_saves(*names, also=None):
    def hook(module) -> None:
        for name in names:
            original = getattr(module, name, None)
            if original is None or getattr(original, "_lockstep", False):
                continue
            _replace(original, _around(original, _save_begin, _save_end), (module, name), (sys.modules.get(also), name))

    return hook


# Process groups


def _tell_group(name, ranks) -> None:
    marks = _runtime.marks()
    _groups.add(name, ranks, None if marks is None else marks.sink)


def _ranks_of(group):
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    listing = getattr(c10d, "get_process_group_ranks", None)
    return listing(group) if listing is not None else list(c10d._pg_group_ranks[group].keys())


def _hook_groups(module) -> None:
    distributed = sys.modules.get("torch.distributed")

    @guarded("process group hook")
    def before_world(rank=-1, world_size=-1, **_):
        # A job that is started without a launcher says who it is here and nowhere else.
        if isinstance(rank, int) and rank >= 0 and not _runtime.rank_is_known():
            _runtime.tell_identity(LOCKSTEP_RANK=rank, LOCKSTEP_WORLD_SIZE=world_size if world_size > 0 else None)

    @guarded("process group hook")
    def after_world():
        _tell_group("world", range(module.get_world_size()))

    init = module.init_process_group

    @functools.wraps(init)
    def init_process_group(*arguments, **options):
        before_world(**options)
        result = init(*arguments, **options)
        after_world()
        return result

    @guarded("process group hook")
    def after_group(group, options):
        if group is None or group is getattr(getattr(module, "GroupMember", None), "NON_GROUP_MEMBER", None):
            return
        name = _groups.role(options.get("group_desc") or getattr(group, "group_desc", None))
        if name is not None:
            _tell_group(name, _ranks_of(group))

    new = module.new_group

    @functools.wraps(new)
    def new_group(*arguments, **options):
        group = new(*arguments, **options)
        after_group(group, options)
        return group

    for original, wrapper in ((init, init_process_group), (new, new_group)):
        name = original.__name__
        if not getattr(original, "_lockstep", False):
            _replace(original, _hidden(wrapper), (module, name), (distributed, name))


@guarded("device mesh hook")
def _tell_mesh(mesh) -> None:
    names = getattr(mesh, "mesh_dim_names", None)
    if not names:
        return
    for at, name in enumerate(names):
        try:
            group = mesh.get_group(at)
        except Exception:
            continue  # a slice or a mesh without groups of its own
        if group is not None:
            _tell_group(name, _ranks_of(group))


def _hook_mesh(module) -> None:
    kind = module.DeviceMesh
    init = kind.__init__
    if not getattr(init, "_lockstep", False):

        @functools.wraps(init)
        def wrapper(self, *arguments, **options):
            init(self, *arguments, **options)
            _tell_mesh(self)

        kind.__init__ = _hidden(wrapper)
    make = getattr(module, "init_device_mesh", None)
    if make is not None and not getattr(make, "_lockstep", False):

        @functools.wraps(make)
        def init_device_mesh(*arguments, **options):
            mesh = make(*arguments, **options)
            _tell_mesh(mesh)
            return mesh

        _replace(
            make,
            _hidden(init_device_mesh),
            (module, "init_device_mesh"),
            (sys.modules.get("torch.distributed"), "init_device_mesh"),
        )


def _hook_megatron(module) -> None:
    make = getattr(module, "initialize_model_parallel", None)
    if make is None or getattr(make, "_lockstep", False):
        return

    @guarded("Megatron hook")
    def tell():
        for getter, name in _groups.MEGATRON_GETTERS.items():
            try:
                group = getattr(module, getter)()
            except Exception:
                continue  # this layout has no such group, or this rank is not in it
            if group is not None:
                _tell_group(name, _ranks_of(group))

    @functools.wraps(make)
    def initialize_model_parallel(*arguments, **options):
        result = make(*arguments, **options)
        tell()
        return result

    module.initialize_model_parallel = _hidden(initialize_model_parallel)


def _hook_vllm(module) -> None:
    from .integrations import vllm

    vllm.hook(module)


HOOKS = {
    "optimizer": {
        "torch.optim.optimizer": _hook_optimizer,
        "torch.amp.grad_scaler": _hook_grad_scaler,
        "torch.cuda.amp.grad_scaler": _hook_grad_scaler,
    },
    "input": {"torch.utils.data.dataloader": _hook_loader},
    "backward": {"torch.autograd": _hook_autograd},
    "checkpoint": {
        "torch.serialization": _hook_saves("save", also="torch"),
        "torch.distributed.checkpoint.state_dict_saver": _hook_saves(
            "save", "async_save", "save_state_dict", also="torch.distributed.checkpoint"
        ),
        "safetensors.torch": _hook_saves("save_file", "save_model"),
    },
    "groups": {
        "torch.distributed.distributed_c10d": _hook_groups,
        "torch.distributed.device_mesh": _hook_mesh,
        "megatron.core.parallel_state": _hook_megatron,
    },
    "vllm": {
        "vllm.v1.engine.core": _hook_vllm,
        "vllm.engine.llm_engine": _hook_vllm,
        "vllm.v1.worker.gpu_worker": _hook_vllm,
    },
}


def install(kinds=KINDS) -> None:
    """Idempotent."""
    for kind in kinds:
        if kind not in HOOKS:
            _guard.say_once("kind " + str(kind), f"no hook is called {str(kind)[:40]!r} ({', '.join(KINDS)})")
        elif kind not in _installed:
            _installed.add(kind)
            for name, hook in HOOKS[kind].items():
                _import_hook.after_import(name, hook)
